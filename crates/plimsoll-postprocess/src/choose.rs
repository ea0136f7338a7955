//! The choice of steps that improve predictions whose references are known.
//!
//! Three rounds, each on what the rounds before it have accepted: the largest component of all labels together; of each label the largest
//! component, or those above a size, whichever is best; and the holes of each label. The steps of the last two rounds change each one
//! label and background alone, so that all labels are tried at once. Only of holes within holes may one label take what another would: all
//! steps are measured together at last, and holes whose label falls are left.
//!
//! Regions overlap, so that a step of one changes others: they are tried one after the other, each on what those before it have accepted,
//! and a step is accepted that helps its region and harms none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::LabelValues;
use serde::{Deserialize, Serialize};

use crate::dice::{Mean, counts, pairs};
use crate::{LabelMap, LabelSet, LeastSize, Neighbours, PostprocessError, Step, VoxelGrid, process};

/// Sizes that are tried, as shares of the median volume of a label in the references.
const SHARES: [f64; 5] = [0.001, 0.005, 0.02, 0.05, 0.1];

/// The tolerance between the corners of two grids, in millimetres.
const TOLERANCE: f64 = 1e-3;

/// A prediction, and what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The predicted label map.
    pub prediction: PathBuf,
    /// The reference label map.
    pub reference: PathBuf,
    /// The label that each value of the reference denotes, or `None` if values are labels.
    pub reference_values: Option<Arc<LabelValues>>,
    /// The unit of lengths in millimetres, if it is not the one that headers state.
    pub millimetres_per_unit: Option<f64>,
}

/// The effect of steps on a label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelGain {
    /// Its value, or the number of a region, from 1.
    pub label: u16,
    /// The mean Dice over cases without steps; `None` if it is in no case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dice_before: Option<f64>,
    /// The same with all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dice_after: Option<f64>,
}

/// The labels or regions for which steps are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChoiceTargets {
    /// Labels, each for itself.
    Labels(BTreeSet<u16>),
    /// Sets of labels, which may overlap. They are numbered from 1.
    Regions(Vec<BTreeSet<u16>>),
}

impl ChoiceTargets {
    /// The labels that are scored as one, by the number of the label or region. The background is none of them.
    fn scored(&self) -> BTreeMap<u16, BTreeSet<u16>> {
        match self {
            ChoiceTargets::Labels(labels) => {
                let labels = labels.iter().filter(|label| **label != 0);
                labels.map(|label| (*label, BTreeSet::from([*label]))).collect()
            }
            ChoiceTargets::Regions(regions) => (1..).zip(regions.iter().cloned()).collect(),
        }
    }

    /// Returns the number of times that all cases are read, without the cases that are read again if filling holes is rejected.
    pub fn rounds(&self) -> usize {
        match self {
            ChoiceTargets::Labels(_) => 4,
            ChoiceTargets::Regions(regions) => regions.len() + 2,
        }
    }
}

/// The chosen steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The steps, in the order in which they are done.
    pub steps: Vec<Step>,
    /// The effect on each label.
    pub labels: Vec<LabelGain>,
}

/// Steps that are tried, and the labels that each may help.
type Trial = Vec<Step>;

/// The mean Dice of each label.
type Scores = BTreeMap<u16, Option<f64>>;

/// Chooses steps for labels or regions. Voxels whose reference is `ignore` are not counted. `done` is called whenever a case was read, with how many
/// that are and how many there will be in all, but for the few that are read again where holes have to be given up.
///
/// A step is accepted for a label if it raises the mean Dice of it over all cases; the first round's for all labels, if it raises the mean
/// over labels and lowers none. The mean is over cases that have the label in the prediction or in the reference.
///
/// # Errors
/// Returns an error if a file cannot be read, two are not on one grid, the budget has no room for three label maps of two bytes for each voxel and what
/// steps need, or there is nothing to choose from.
pub fn choose(
    cases: &[Pair],
    targets: &ChoiceTargets,
    ignore: Option<u16>,
    budget: &Budget,
    threads: usize,
    done: &mut dyn FnMut(usize, usize),
) -> Result<Choice, PostprocessError> {
    if cases.is_empty() {
        return Err(PostprocessError::Nothing { missing: "cases" });
    }
    let scored = ScoredLabels { labels: targets.scored(), ignore };
    let labels: BTreeSet<u16> = scored.labels.values().flatten().copied().collect();
    let all = set(labels.iter().copied()).ok_or(PostprocessError::Nothing { missing: "labels" })?;
    let mut read = 0;
    let mut step = || {
        let of = targets.rounds() * cases.len();
        read = of.min(read + 1);
        done(read, of);
    };
    let mut measure = |accepted: &[Step], trials: &[Trial]| {
        measure(cases, &scored, accepted, trials, budget, threads, &mut step)
    };

    let mut accepted = Vec::new();
    let together =
        Step::KeepLargest { labels: all.clone(), together: true, neighbours: Neighbours::default() };
    let first = measure(&accepted, &[vec![], vec![together.clone()]])?;
    if let [before, after] = &first.scores[..]
        && helps_all(before, after)
    {
        accepted.push(together);
    }

    if let ChoiceTargets::Regions(regions) = targets {
        return choose_by_region(regions, accepted, &first.median_volumes, &mut measure);
    }

    let mut trials: Vec<Trial> = vec![vec![]];
    trials.extend(SHARES.map(|share| drop_below(share, &first.median_volumes)));
    let largest = |labels| Step::KeepLargest { labels, together: false, neighbours: Neighbours::default() };
    trials.push(vec![largest(all.clone())]);
    let second = measure(&accepted, &trials)?;
    let best = |label: u16| best_trial(&second.scores, label);
    for (number, trial) in trials.iter().enumerate() {
        for step in trial {
            // The labels of this step that it is the best one for.
            let helped = set(step.labels().iter().filter(|label| best(*label) == number));
            accepted.extend(helped.map(|labels| with_labels(step, labels)));
        }
    }

    let holes = Step::FillHoles { labels: all };
    let third = measure(&accepted, &[vec![], vec![holes.clone()]])?;
    let helped = set(labels.iter().copied().filter(|label| best_trial(&third.scores, *label) == 1));
    accepted.extend(helped.map(|labels| with_labels(&holes, labels)));

    // Holes were filled of all labels at once: without some of them, what these took is left for others, which may be wrong to take it.
    let mut last = measure(&[], &[vec![], accepted.clone()])?;
    loop {
        let falls = |label: &u16| {
            let (without, with) = (score(&third.scores, 0, *label), score(&last.scores, 1, *label));
            without.zip(with).is_some_and(|(without, with)| with < without)
        };
        let fallen: BTreeSet<u16> = labels.iter().copied().filter(falls).collect();
        let kept = without_holes_of(&accepted, &fallen);
        if kept == accepted {
            break;
        }
        accepted = kept;
        last = measure(&[], &[vec![], accepted.clone()])?;
    }
    Ok(Choice { labels: gains(&last.scores, labels.iter().copied()), steps: accepted })
}

/// Returns the effect of the second of two trials on the Dice of labels or regions.
fn gains(scores: &[Scores], labels: impl Iterator<Item = u16>) -> Vec<LabelGain> {
    let gain = |label| LabelGain {
        label,
        dice_before: score(scores, 0, label),
        dice_after: score(scores, 1, label),
    };
    labels.map(gain).collect()
}

/// Measures trials on all cases, after the accepted steps.
type Measure<'a> = dyn FnMut(&[Step], &[Trial]) -> Result<Measured, PostprocessError> + 'a;

/// Tries steps of one region after the other: its largest component, or those above a size.
fn choose_by_region(
    regions: &[BTreeSet<u16>],
    mut accepted: Vec<Step>,
    volumes: &BTreeMap<u16, f64>,
    measure: &mut Measure<'_>,
) -> Result<Choice, PostprocessError> {
    let (together, neighbours) = (true, Neighbours::default());
    for (number, region) in (1..).zip(regions) {
        let Some(labels) = set(region.iter().copied()) else { continue };
        let mut trials: Vec<Trial> = vec![vec![]];
        if let Some(volume) = volumes.get(&number) {
            trials.extend(SHARES.map(|share| {
                let least = LeastSize::Mm3(three_digits(share * volume));
                vec![Step::DropSmall { labels: labels.clone(), together, neighbours, least }]
            }));
        }
        trials.push(vec![Step::KeepLargest { labels, together, neighbours }]);
        let found = measure(&accepted, &trials)?;
        let Some(before) = found.scores.first() else { continue };
        // What harms another region is as if it had not been tried.
        let harmless: Vec<Scores> = found
            .scores
            .iter()
            .map(|after| if harms(before, after) { Scores::new() } else { after.clone() })
            .collect();
        accepted.extend(trials.swap_remove(best_trial(&harmless, number)));
    }
    let last = measure(&[], &[vec![], accepted.clone()])?;
    let numbers = (1..).zip(regions).map(|(number, _)| number);
    Ok(Choice { labels: gains(&last.scores, numbers), steps: accepted })
}

/// The mean Dice of a label in a trial.
fn score(scores: &[Scores], trial: usize, label: u16) -> Option<f64> {
    scores.get(trial)?.get(&label).copied().flatten()
}

/// Steps without filling the holes of some labels.
fn without_holes_of(steps: &[Step], fallen: &BTreeSet<u16>) -> Vec<Step> {
    let kept = |step: &Step| match step {
        Step::FillHoles { labels } => {
            let labels = set(labels.iter().filter(|label| !fallen.contains(label)))?;
            Some(Step::FillHoles { labels })
        }
        other => Some(other.clone()),
    };
    steps.iter().filter_map(kept).collect()
}

/// A set of labels, if there are any.
fn set(labels: impl Iterator<Item = u16>) -> Option<LabelSet> {
    LabelSet::try_from(labels.collect::<BTreeSet<u16>>()).ok()
}

fn with_labels(step: &Step, own: LabelSet) -> Step {
    let mut step = step.clone();
    match &mut step {
        Step::KeepLargest { labels, .. }
        | Step::DropSmall { labels, .. }
        | Step::FillHoles { labels }
        | Step::Close { labels, .. } => *labels = own,
    }
    step
}

/// Drops components of each label below a share of its median volume.
fn drop_below(share: f64, volumes: &BTreeMap<u16, f64>) -> Trial {
    let of_label = |(label, volume): (&u16, &f64)| {
        let least = LeastSize::Mm3(three_digits(share * volume));
        let neighbours = Neighbours::default();
        Some(Step::DropSmall { labels: set([*label].into_iter())?, together: false, neighbours, least })
    };
    volumes.iter().filter_map(of_label).collect()
}

/// A positive number rounded to three digits that count, as people read it.
fn three_digits(value: f64) -> f64 {
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    // A quotient by a power of ten above 1 has fewer digits than a product with one below it.
    if unit < 1.0 { (value / unit).round() / (1.0 / unit).round() } else { (value / unit).round() * unit }
}

/// Returns `true` if the Dice of a label falls.
fn harms(before: &Scores, after: &Scores) -> bool {
    before.iter().any(|(label, before)| {
        before.zip(after.get(label).copied().flatten()).is_some_and(|(before, after)| after < before)
    })
}

/// Returns `true` if the mean over labels rises, and the Dice of none falls.
fn helps_all(before: &Scores, after: &Scores) -> bool {
    let mean = |scores: &Scores| {
        let mut mean = Mean::default();
        scores.values().for_each(|score| mean.add(*score));
        mean.value()
    };
    !harms(before, after) && mean(after).zip(mean(before)).is_some_and(|(after, before)| after > before)
}

/// The number of the trial with the highest Dice of a label: the first of equals, and 0, in which nothing is done, where none is higher.
fn best_trial(scores: &[Scores], label: u16) -> usize {
    let of = |trial: &Scores| trial.get(&label).copied().flatten();
    let mut best = (0, scores.first().and_then(of));
    for (number, score) in scores.iter().map(of).enumerate() {
        if score.zip(best.1).is_some_and(|(score, best)| score > best) {
            best = (number, score);
        }
    }
    best.0
}

/// The measurements of a round.
struct Measured {
    /// The scores of each trial.
    scores: Vec<Scores>,
    /// The median volume in mm³ of each label, over the references that have it.
    median_volumes: BTreeMap<u16, f64>,
}

/// The labels whose Dice is measured.
struct ScoredLabels {
    /// The labels of each measured label or region.
    labels: BTreeMap<u16, BTreeSet<u16>>,
    /// The label of voxels that are not compared.
    ignore: Option<u16>,
}

/// Applies the accepted steps and then the steps of each trial to all cases, and compares the results with the references.
fn measure(
    cases: &[Pair],
    targets: &ScoredLabels,
    accepted: &[Step],
    trials: &[Trial],
    budget: &Budget,
    threads: usize,
    done: &mut dyn FnMut(),
) -> Result<Measured, PostprocessError> {
    let mut means: Vec<BTreeMap<u16, Mean>> = vec![BTreeMap::new(); trials.len()];
    let mut volumes: BTreeMap<u16, Vec<f64>> = BTreeMap::new();
    let mut measure_case =
        |Pair { prediction, reference, reference_values, millimetres_per_unit }: &Pair| -> Result<(), PostprocessError> {
            let mut predicted = LabelMap::read(prediction, budget)?;
            let values = reference_values.as_deref();
            let mut expected = LabelMap::read_on(reference, *predicted.geometry(), values, budget)?;
            if let Some(values) = reference_values {
                expected.replace(reference, values)?;
            }
            if let Some(difference) = expected.geometry().difference(predicted.geometry(), TOLERANCE) {
                let (prediction, reference) = (prediction.clone(), reference.clone());
                return Err(PostprocessError::OtherGrid { prediction, reference, difference });
            }
            let spacing = predicted.spacing(*millimetres_per_unit);
            let grid = VoxelGrid { shape: predicted.geometry().shape(), spacing };
            process(accepted, predicted.labels_mut(), grid, budget, threads)?;
            let mut tried = Mapped::<u16>::zeroed(budget, "labels of a trial", predicted.labels().len())?;
            for (number, (trial, means)) in trials.iter().zip(&mut means).enumerate() {
                tried.copy_from_slice(predicted.labels());
                process(trial, &mut tried, grid, budget, threads)?;
                let pairs = pairs(&tried, expected.labels(), targets.ignore);
                for (label, own) in &targets.labels {
                    let of_label = counts(&pairs, own);
                    means.entry(*label).or_default().add(of_label.dice());
                    if number == 0 && of_label.reference > 0 {
                        let voxel: f64 = spacing.0.iter().product();
                        volumes.entry(*label).or_default().push(of_label.reference as f64 * voxel);
                    }
                }
            }
            Ok(())
        };
    for case in cases {
        measure_case(case).map_err(|error| error.in_map(&case.prediction))?;
        done();
    }
    let upper_median = |(label, mut volumes): (u16, Vec<f64>)| {
        volumes.sort_by(f64::total_cmp);
        Some((label, *volumes.get(volumes.len() / 2)?))
    };
    let scores =
        |means: BTreeMap<u16, Mean>| means.iter().map(|(label, mean)| (*label, mean.value())).collect();
    Ok(Measured {
        scores: means.into_iter().map(scores).collect(),
        median_volumes: volumes.into_iter().filter_map(upper_median).collect(),
    })
}
