//! The verdict of a comparison of classifiers, in words.

use super::difference::{ImageTest, TestName};
use super::score::ImageScore;
use crate::Better;
use crate::comparison::verdict::{Unit, needed_words, p_words};
use crate::comparison::{Outcome, Verdict};
use crate::normal::normal_quantile;

/// The probability with which a comparison with the needed number of images finds the difference.
const POWER: f64 = 0.8;

/// The numbers from which a verdict follows.
pub(super) struct Evidence<'a> {
    pub names: [&'a str; 2],
    pub score: ImageScore,
    /// The class, or `None` for all classes together.
    pub class: Option<&'a str>,
    pub images: usize,
    pub scores: [f64; 2],
    pub interval: Option<[f64; 2]>,
    pub standard_error: Option<f64>,
    pub test: ImageTest,
    pub p_holm: f64,
    /// 1 − confidence.
    pub alpha: f64,
    /// Comparisons that Holm's correction is over.
    pub tests: usize,
}

impl Evidence<'_> {
    /// Returns the number of images that would likely find a difference like this one, at the level of a single test: n ((z₁₋α⸝₂ + z₀.₈) s / d)², since a
    /// standard error s of n images becomes s √(n / m) of m.
    fn images_needed(&self) -> Option<u64> {
        let difference = self.scores[0] - self.scores[1];
        let s = self.standard_error.filter(|s| *s > 0.0 && difference != 0.0)?;
        let z = normal_quantile(1.0 - self.alpha / self.tests as f64 / 2.0) + normal_quantile(POWER);
        Some((self.images as f64 * (z * s / difference).powi(2)).ceil() as u64)
    }

    /// Returns `true` if no number of images like these that only one of both gets right could be separated: they are too few.
    fn is_out_of_reach(&self) -> bool {
        let level = self.alpha / self.tests as f64;
        let least = |[first, second]: [u64; 2]| super::mcnemar(first + second, 0);
        self.test.test == TestName::Mcnemar
            && self.test.right_in_one_alone.is_some_and(|both| least(both) > level)
    }
}

/// Returns the verdict on a score that is undefined for one of the two classifiers.
pub(super) fn undefined([first, second]: [&str; 2], score: ImageScore, class: Option<&str>) -> Verdict {
    let words = format!("{} of {first} or {second} is undefined{}", score.name(), class_words(class));
    Verdict { outcome: Outcome::NoCases, better: None, cases_needed: None, words }
}

/// Returns the verdict on a difference.
pub(super) fn verdict(evidence: &Evidence<'_>) -> Verdict {
    let Evidence { names: [first, second], score, class, images, scores, test, p_holm, alpha, .. } =
        *evidence;
    let (name, class) = (score.name(), class_words(class));
    let [own, other] = scores;
    let unit = Unit { is_share: score.is_share(), name: None };
    let differ = || {
        let interval = evidence.interval.map(|[low, high]| {
            let percent = ((1.0 - alpha) * 100.0 * 1e6).round() / 1e6;
            format!(", {percent} % interval {} … {}", unit.number(low), unit.number(high))
        });
        format!(
            "{own:.4} − {other:.4} is {}{}",
            unit.with_name(own - other),
            interval.map_or(String::new(), |interval| interval)
        )
    };
    let in_one_alone = test.right_in_one_alone.map_or(String::new(), |[first, second]| {
        format!("; only one of both gets {first} and {second} images right")
    });
    let (outcome, better, needed, words) = match () {
        () if own == other && test.p >= 1.0 => {
            let words = format!("{first} and {second} have the same {name}{class} of {images} images");
            (Outcome::Same, None, None, format!("{words}{in_one_alone}"))
        }
        () if p_holm <= alpha => {
            let first_is_better = (own > other) == (score.better() == Better::Higher);
            let (better, worse) = if first_is_better { (first, second) } else { (second, first) };
            let words = format!(
                "{better} has a better {name}{class} than {worse}: {first} − {second}, {}, {}, {images} images{in_one_alone}",
                differ(),
                p_words(p_holm)
            );
            (Outcome::Separated, Some(better.to_string()), None, words)
        }
        () => {
            let (outcome, told) = match evidence.is_out_of_reach() {
                true => (Outcome::TooFewCases, "cannot separate"),
                false => (Outcome::NotSeparated, "do not separate"),
            };
            let needed = evidence.images_needed();
            let words = format!(
                "{images} images {told} {first} and {second} by {name}{class}: {}, {}{in_one_alone}{}",
                differ(),
                p_words(p_holm),
                needed_words(needed, "images")
            );
            (outcome, None, needed, words)
        }
    };
    Verdict { outcome, better, cases_needed: needed, words }
}

fn class_words(class: Option<&str>) -> String {
    class.map_or(String::new(), |class| format!(" of {class}"))
}
