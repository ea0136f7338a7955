//! The verdict of a comparison, in words.

use serde::Serialize;

use super::difference::Undefined;
use super::power::least_cases;
use super::signed_rank::SignedRank;
use crate::{Better, Metric};

/// Beyond this nobody has as many cases, and the number says nothing.
const MOST_CASES: u64 = 100_000;

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One is better: p is at most the level after Holm's correction.
    Separated,
    /// They do not tell which.
    NotSeparated,
    /// So few cases do not separate anything: not even if one were better in all.
    TooFewCases,
    /// Both have the same scores in all cases.
    Same,
    /// No case has the score for both.
    NoCases,
}

impl Outcome {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Separated => "separated",
            Outcome::NotSeparated => "not_separated",
            Outcome::TooFewCases => "too_few_cases",
            Outcome::Same => "same",
            Outcome::NoCases => "no_cases",
        }
    }
}

/// The conclusion from a comparison, with the number of cases that would allow one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// The one that is better, where they do.
    pub better: Option<String>,
    /// The number of cases that would likely find an effect like this one, if these do not; see [`cases_needed`](super::cases_needed).
    pub cases_needed: Option<u64>,
    /// The same in a sentence.
    pub words: String,
}

/// The numbers from which a verdict follows.
pub(super) struct Evidence<'a> {
    pub names: [&'a str; 2],
    pub metric: Metric,
    pub better: Better,
    pub cases: usize,
    /// `None` if both lack distances that count as infinite.
    pub mean: Option<f64>,
    pub missing: Undefined,
    pub interval: Option<[f64; 2]>,
    pub test: SignedRank,
    pub p_holm: f64,
    pub cases_needed: Option<u64>,
    /// 1 − confidence.
    pub alpha: f64,
    /// Comparisons that Holm's correction is over.
    pub tests: usize,
}

impl Verdict {
    /// Without any case.
    pub(super) fn without_cases([first, second]: [&str; 2], metric: Metric) -> Verdict {
        let words = format!("no case has the {} of both {first} and {second}", metric.name());
        Verdict { outcome: Outcome::NoCases, better: None, cases_needed: None, words }
    }

    pub(super) fn new(evidence: &Evidence<'_>) -> Verdict {
        let Evidence { names: [first, second], cases, test, p_holm, alpha, tests, .. } = *evidence;
        let left = cases - test.zeros;
        let level = alpha / tests as f64;
        let (outcome, better, needed) = match () {
            () if left == 0 => (Outcome::Same, None, None),
            () if p_holm <= alpha => (Outcome::Separated, Some(evidence.better_one()), None),
            () if (cases as u64) < least_cases(level) => (
                Outcome::TooFewCases,
                None,
                Some(evidence.cases_needed.unwrap_or_else(|| least_cases(level))),
            ),
            () => (Outcome::NotSeparated, None, evidence.cases_needed),
        };
        let unit = Unit { is_share: evidence.metric.is_share(), name: evidence.metric.unit() };
        let differ = || {
            let interval = evidence.interval.map(|[low, high]| {
                let percent = ((1.0 - alpha) * 100.0 * 1e6).round() / 1e6;
                format!(" ({percent} % interval {} … {})", unit.number(low), unit.number(high))
            });
            let interval = interval.unwrap_or_default();
            let Undefined { first: own, second: other, .. } = evidence.missing;
            let missing = match own + other {
                0 => String::new(),
                _ => format!("; missing in {own} scores of {first} alone and in {other} of {second} alone"),
            };
            match evidence.mean {
                Some(mean) => {
                    format!("{first} − {second} is {} on average{interval}{missing}", unit.with_name(mean))
                }
                None => format!("the mean difference of {first} and {second} is undefined{missing}"),
            }
        };
        let needed_words = needed_words(needed, "cases");
        let words = match (outcome, &better) {
            (Outcome::Separated, Some(better)) => {
                let worse = if *better == first { second } else { first };
                // A few large differences may outweigh many small ones in the mean, and not in the ranks.
                let mean_favours = evidence.mean.map(|mean| match evidence.better {
                    Better::Higher => mean > 0.0,
                    Better::Lower => mean < 0.0,
                });
                let against =
                    match mean_favours.is_none_or(|first_is_better| first_is_better == (*better == first)) {
                        true => "",
                        false => "; in most cases, but not on average: inspect the cases",
                    };
                format!(
                    "{better} is better than {worse}: {}, {}, {cases} cases{against}",
                    differ(),
                    p_words(p_holm)
                )
            }
            (Outcome::Same, _) => format!("{first} and {second} have the same scores in all {cases} cases"),
            (Outcome::TooFewCases, _) => format!(
                "{cases} cases cannot separate {first} and {second}: {}; {} cases are the least that could{needed_words}",
                differ(),
                least_cases(level)
            ),
            _ => format!(
                "{cases} cases do not separate {first} and {second}: {}, {}{needed_words}",
                differ(),
                p_words(p_holm)
            ),
        };
        Verdict { outcome, better: better.map(String::from), cases_needed: needed, words }
    }
}

impl<'a> Evidence<'a> {
    /// The one that the test found better, by its ranks.
    fn better_one(&self) -> &'a str {
        let first_is_higher = self.test.positive_ranks > self.test.negative_ranks;
        let [first, second] = self.names;
        if first_is_higher == (self.better == Better::Higher) { first } else { second }
    }
}

/// To two digits: more would say that it is known.
fn rough(count: u64) -> u64 {
    let unit = 10u64.pow(count.max(1).ilog10().saturating_sub(1));
    count.div_ceil(unit) * unit
}

/// Returns the number of cases or images that would likely be needed, in words.
pub(crate) fn needed_words(needed: Option<u64>, of: &str) -> String {
    match needed {
        Some(needed) if needed > MOST_CASES => {
            format!("; a difference like this would likely need more than {MOST_CASES} {of}")
        }
        Some(needed) => {
            format!("; about {} {of} would likely be needed for a difference like this", rough(needed))
        }
        None => "; nothing in them points to a difference".to_string(),
    }
}

/// A corrected p value.
pub(crate) fn p_words(p: f64) -> String {
    match p < 1e-4 {
        true => "p < 0.0001 after Holm's correction".into(),
        false => format!("p = {p:.4} after Holm's correction"),
    }
}

/// The unit in which differences of a score are written. Shares are written in percentage points.
pub(crate) struct Unit {
    /// `true` if it runs from 0 to 1.
    pub is_share: bool,
    /// The unit of other scores, or `None` for plain numbers.
    pub name: Option<&'static str>,
}

impl Unit {
    pub(crate) fn number(&self, difference: f64) -> String {
        if difference.is_infinite() {
            return if difference > 0.0 { "+∞" } else { "−∞" }.into();
        }
        let number = if self.is_share { 100.0 * difference } else { difference };
        let text = format!("{number:+.2}");
        // What rounds to zero has no sign.
        let text = if text == "-0.00" || text == "+0.00" { "0.00".into() } else { text };
        text.replace('-', "−")
    }

    pub(crate) fn with_name(&self, difference: f64) -> String {
        let unit = if self.is_share { Some("points") } else { self.name };
        let unit = unit.map(|unit| format!(" {unit}"));
        format!("{}{}", self.number(difference), unit.unwrap_or_default())
    }
}
