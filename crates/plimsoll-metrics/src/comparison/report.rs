//! All comparisons of several candidates.

use std::collections::BTreeMap;

use plimsoll_memory::{Budget, Bytes};
use serde::Serialize;

use super::candidate::{Candidate, Valued};
use super::choice::Choice;
use super::difference::{Difference, PairedScores};
use super::error::ComparisonError;
use super::holm::holm;
use super::interval::{Resampler, mean, median};
use super::pairing::Paired;
use super::power::cases_needed;
use super::ranking::Ranking;
use super::signed_rank::{SignedRank, signed_rank};
use super::verdict::{Evidence, Verdict};
use crate::classification::Bootstrap;
use crate::{Better, CaseCounts, Metric, Missing, OverFolds};

/// The bytes of a case: its position and its difference, and a sorted copy of both.
const BYTES_OF_DIFFERENCE: usize = 24;

/// The settings of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonSettings {
    /// The scores.
    pub metrics: Vec<Metric>,
    /// The classes; all that are scored if none are named.
    pub classes: Option<Vec<u8>>,
    /// Their names. A class without one is called by its number.
    pub names: BTreeMap<u8, String>,
    /// The treatment of missing scores in means, differences and rankings.
    pub missing: Missing,
    /// The resamples of all intervals and rankings. Its confidence also applies to all tests.
    pub bootstrap: Bootstrap,
}

/// A class, or the mean over all that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassName {
    /// Its number; none of the mean.
    pub number: Option<u8>,
    /// Its name.
    pub name: String,
}

/// The means of repeats, and how far they lie apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverRepeats {
    /// The mean over cases of each repeat.
    pub means: Vec<Option<f64>>,
    /// The standard deviation of these, with n − 1 in the denominator; none of fewer than two.
    pub sd: Option<f64>,
}

/// The scores of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateScores {
    /// The candidate.
    pub candidate: String,
    /// The class.
    pub class: ClassName,
    /// Cases in which it has the score; of a mean over classes, cases and classes.
    pub cases: usize,
    /// The same with the others. With repeats, a case has the score that all repeats have.
    pub counts: CaseCounts,
    /// The mean by the convention for missing scores; of several classes the mean of their means, as of nnU-Net. An infinite one is null in
    /// files.
    pub mean: Option<f64>,
    /// The mean over the cases that have the score.
    pub mean_of_defined: Option<f64>,
    /// The spread over repeats, if the candidate was trained more than once.
    pub over_repeats: Option<OverRepeats>,
}

/// The names of a candidate and its repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CandidateName {
    /// The candidate.
    pub name: String,
    /// Its repeats.
    pub repeats: Vec<String>,
}

/// All about one score.
#[derive(Clone, Debug, Serialize)]
pub struct ScoreComparison {
    /// The score.
    pub metric: Metric,
    /// The direction in which scores are better.
    pub better: Better,
    /// The unit of differences, or `None` for shares and plain numbers.
    pub unit: Option<&'static str>,
    /// The scores of each candidate, by class.
    pub candidates: Vec<CandidateScores>,
    /// The difference of each pair, by class. With several classes, differences of the mean over classes come first.
    pub differences: Vec<Difference>,
    /// The order of all; `None` if no case has the score for all.
    pub ranking: Option<Ranking>,
    /// The one to take.
    pub choice: Option<Choice>,
}

impl ScoreComparison {
    /// The differences in the mean over classes, or in the only class.
    pub fn overall(&self) -> Vec<&Difference> {
        let has_mean = self.differences.iter().any(|difference| difference.class.number.is_none());
        let of_mean = |difference: &&Difference| difference.class.number.is_none() == has_mean;
        self.differences.iter().filter(of_mean).collect()
    }
}

/// All about several candidates.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The candidates.
    pub candidates: Vec<CandidateName>,
    /// The cases that were compared.
    pub cases: Vec<String>,
    /// Those that not all had.
    pub left_out: Vec<String>,
    /// The classes that were compared.
    pub classes: Vec<u8>,
    /// The treatment of missing scores.
    pub missing: Missing,
    /// Resamples, and the confidence of all intervals and tests.
    pub bootstrap: Bootstrap,
    /// Score by score.
    pub scores: Vec<ScoreComparison>,
}

/// Compares all pairs of candidates. Holm's correction is over all pairs and classes of a score; the means over classes are a family of
/// their own. Memory of the resamples is of `budget`.
///
/// # Errors
/// Returns an error if a score or a class is not there, or memory.
pub fn compare_candidates(
    paired: &Paired,
    settings: &ComparisonSettings,
    budget: &Budget,
) -> Result<Comparison, ComparisonError> {
    let classes = paired.chosen(settings.classes.as_deref())?;
    let pairs = paired.candidates().len() * (paired.candidates().len() - 1) / 2;
    let most_differences = pairs * (classes.len() + 1) * paired.cases().len();
    let _held = budget.reserve("differences", Bytes::from_len(most_differences * BYTES_OF_DIFFERENCE))?;
    let mut resampler = Resampler::new(settings.bootstrap, paired.cases().len(), budget)?;
    let mut scores = Vec::new();
    for metric in &settings.metrics {
        let better = paired.expect_score(*metric)?;
        paired.expect_diagonals(*metric, settings.missing)?;
        let name = |class: &u8| ClassName {
            number: Some(*class),
            name: settings.names.get(class).cloned().unwrap_or_else(|| format!("class {class}")),
        };
        let single: Vec<_> = classes.iter().map(|class| (name(class), vec![*class])).collect();
        let of_all = ClassName { number: None, name: "mean of classes".into() };
        let together: Vec<_> = (classes.len() > 1).then(|| (of_all, classes.clone())).into_iter().collect();
        let mut candidates = Vec::new();
        for (class, members) in together.iter().chain(&single) {
            let all = paired.candidates().iter();
            let scores =
                |candidate: &Candidate| candidate.scores(paired, class, members, *metric, settings.missing);
            candidates.extend(all.map(scores));
        }
        let missing = settings.missing;
        let mut family =
            |classes| paired.family(classes, *metric, better, missing, &settings.bootstrap, &mut resampler);
        let (of_mean, of_classes) = (family(&together), family(&single));
        let ranking = paired.ranking(*metric, better, missing, &classes, &settings.bootstrap, budget)?;
        let overall = if together.is_empty() { &of_classes } else { &of_mean };
        let choice = ranking.as_ref().and_then(|ranking| Choice::new(ranking, overall));
        let differences = of_mean.into_iter().chain(of_classes).collect();
        scores.push(ScoreComparison {
            metric: *metric,
            better,
            unit: metric.unit(),
            candidates,
            differences,
            ranking,
            choice,
        });
    }
    let names = |candidate: &Candidate| {
        let repeats = candidate.repeats.iter().map(|repeat| repeat.name().to_string());
        CandidateName { name: candidate.name.clone(), repeats: repeats.collect() }
    };
    Ok(Comparison {
        candidates: paired.candidates().iter().map(names).collect(),
        cases: paired.cases().to_vec(),
        left_out: paired.left_out().to_vec(),
        classes,
        missing: settings.missing,
        bootstrap: settings.bootstrap,
        scores,
    })
}

/// A comparison before it is corrected for the others.
struct Tested {
    class: ClassName,
    pair: [usize; 2],
    scores: PairedScores,
    /// Differences, ascending.
    sorted: Vec<f64>,
    test: Option<SignedRank>,
}

impl Paired {
    fn chosen(&self, asked: Option<&[u8]>) -> Result<Vec<u8>, ComparisonError> {
        let known: Vec<u8> = self.classes().iter().copied().collect();
        let Some(asked) = asked else { return Ok(known) };
        match asked.iter().find(|class| !known.contains(class)) {
            // A class that is named twice counts once, in means and in Holm's correction.
            None => Ok(known.into_iter().filter(|class| asked.contains(class)).collect()),
            Some(class) => Err(ComparisonError::NoClass { class: *class, known }),
        }
    }

    /// All pairs in all of these classes, which are corrected together.
    fn family(
        &self,
        classes: &[(ClassName, Vec<u8>)],
        metric: Metric,
        better: Better,
        missing: Missing,
        settings: &Bootstrap,
        resampler: &mut Resampler,
    ) -> Vec<Difference> {
        let count = self.candidates().len();
        let pairs: Vec<[usize; 2]> =
            (0..count).flat_map(|first| (first + 1..count).map(move |second| [first, second])).collect();
        let tested: Vec<Tested> = classes
            .iter()
            .flat_map(|(class, members)| pairs.iter().map(move |pair| (class, members, *pair)))
            .map(|(class, members, pair)| {
                let scores = self.scores_of_pair(pair, members, metric, missing);
                let mut sorted: Vec<f64> = scores.differences.iter().map(|(_, d)| *d).collect();
                sorted.sort_by(f64::total_cmp);
                let test = (!sorted.is_empty()).then(|| signed_rank(&sorted));
                Tested { class: class.clone(), pair, scores, sorted, test }
            })
            .collect();
        let p: Vec<f64> = tested.iter().filter_map(|tested| Some(tested.test?.p)).collect();
        let mut corrected = holm(&p).into_iter();
        let alpha = 1.0 - settings.confidence;
        let difference = |Tested { class, pair, scores, sorted, test }: Tested| {
            let names = pair.map(|at| self.candidates()[at].name.as_str());
            let mean = mean(&sorted).filter(|mean| !mean.is_nan());
            let intervals = resampler.intervals(&sorted);
            let tested = test.and_then(|test| Some((test, corrected.next()?)));
            let verdict = match tested {
                None => Verdict::without_cases(names, metric),
                Some((test, p_holm)) => Verdict::new(&Evidence {
                    names,
                    metric,
                    better,
                    cases: sorted.len(),
                    mean,
                    missing: scores.missing,
                    interval: intervals.map(|intervals| intervals.mean),
                    test,
                    p_holm,
                    cases_needed: cases_needed(&sorted, alpha / p.len() as f64),
                    alpha,
                    tests: p.len(),
                }),
            };
            Difference {
                class,
                first: names[0].into(),
                second: names[1].into(),
                cases: sorted.len(),
                undefined: scores.undefined,
                missing: scores.missing,
                mean,
                mean_interval: intervals.map(|intervals| intervals.mean),
                median: median(&sorted).filter(|median| !median.is_nan()),
                median_interval: intervals.map(|intervals| intervals.median),
                test,
                p_holm: tested.map(|(.., p_holm)| p_holm),
                verdict,
            }
        };
        tested.into_iter().map(difference).collect()
    }
}

/// The means of a score over cases, or of repeats over cases.
struct Means {
    counts: CaseCounts,
    by_convention: Option<f64>,
    of_defined: Option<f64>,
}

impl Means {
    /// The mean over classes of the means over cases. `valued` gives a score of a case and a class.
    fn new(paired: &Paired, members: &[u8], valued: &dyn Fn(&str, u8) -> Valued) -> Means {
        let mut counts = CaseCounts::default();
        let (mut all, mut defined) = (Vec::new(), Vec::new());
        for class in members {
            let scores: Vec<Valued> = paired.cases().iter().map(|case| valued(case, *class)).collect();
            for score in &scores {
                counts.of += 1;
                counts.missing += usize::from(score.is_missing);
                counts.defined += usize::from(score.number.is_some() && !score.is_missing);
            }
            let numbers: Vec<f64> = scores.iter().filter_map(|score| score.number).collect();
            let of_defined = scores.iter().filter(|score| !score.is_missing);
            let of_defined: Vec<f64> = of_defined.filter_map(|score| score.number).collect();
            all.extend(mean(&numbers));
            defined.extend(mean(&of_defined));
        }
        Means { counts, by_convention: mean(&all), of_defined: mean(&defined) }
    }
}

impl Candidate {
    /// The means of a score over the cases that are compared.
    fn scores(
        &self,
        paired: &Paired,
        class: &ClassName,
        members: &[u8],
        metric: Metric,
        missing: Missing,
    ) -> CandidateScores {
        let found = Means::new(paired, members, &|case, class| self.valued(case, class, metric, missing));
        let over_repeats = (self.repeats.len() > 1).then(|| {
            let one_mean = |repeat: &super::Repeat| {
                let valued = |case: &str, class: u8| repeat.valued(case, class, metric, missing);
                Means::new(paired, members, &valued).by_convention
            };
            let means: Vec<Option<f64>> = self.repeats.iter().map(one_mean).collect();
            let defined: Vec<f64> = means.iter().copied().flatten().collect();
            let sd = OverFolds::new(&defined).filter(|over| over.folds > 1).map(|over| over.sd);
            OverRepeats { means, sd: sd.filter(|sd| sd.is_finite()) }
        });
        CandidateScores {
            candidate: self.name.clone(),
            class: class.clone(),
            cases: found.counts.defined,
            counts: found.counts,
            mean: found.by_convention,
            mean_of_defined: found.of_defined,
            over_repeats,
        }
    }
}
