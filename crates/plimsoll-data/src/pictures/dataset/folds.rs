//! Folds of cases in which each class has its share (stratified), and all cases of a group stay together.

use std::collections::BTreeMap;

use plimsoll_random::{Draws, Purpose};

use super::ImageDataset;

/// One division of the cases, by their places in the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The cases to train on.
    pub train: Vec<usize>,
    /// The cases to validate with.
    pub val: Vec<usize>,
}

/// Why cases cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// There must be two folds or more.
    #[error("{count} folds cannot be trained and validated: at least 2 are needed")]
    TooFew {
        /// The number of folds.
        count: usize,
    },
    /// There are fewer groups than folds.
    #[error("{groups} groups of cases cannot be divided into {count} folds: each fold needs one")]
    TooFewGroups {
        /// Groups, where a case without one is its own.
        groups: usize,
        /// The number of folds.
        count: usize,
    },
}

/// Divides `cases` into `count` folds. Groups are taken in the order of how unevenly their cases are distributed over classes, and
/// each goes where the shares of classes then differ the least between folds: the algorithm of scikit-learn's
/// `StratifiedGroupKFold`. Groups that are alike are shuffled by `seed`; without one they stay in the order of their names.
///
/// # Errors
/// If there are fewer groups than folds, or fewer than two folds.
pub fn folds(
    dataset: &ImageDataset,
    cases: &[usize],
    count: usize,
    seed: Option<u64>,
) -> Result<Vec<Fold>, FoldError> {
    if count < 2 {
        return Err(FoldError::TooFew { count });
    }
    // Cases without any label are a class of their own, so that they are divided evenly, too.
    let classes = dataset.classes.len() + 1;
    let mut groups: BTreeMap<(bool, &str), Group> = BTreeMap::new();
    for at in cases {
        let Some(case) = dataset.cases.get(*at) else { continue };
        // Groups and cases may have the same name.
        let key = (case.group.is_some(), case.group.as_deref().unwrap_or(&case.name));
        let group =
            groups.entry(key).or_insert_with(|| Group { cases: Vec::new(), counts: vec![0.0; classes] });
        group.cases.push(*at);
        if case.labels.is_empty() {
            group.counts[classes - 1] += 1.0;
        }
        for label in &case.labels {
            if let Some(count) = group.counts.get_mut(*label as usize) {
                *count += 1.0;
            }
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    if groups.len() < count {
        return Err(FoldError::TooFewGroups { groups: groups.len(), count });
    }
    if let Some(seed) = seed {
        Draws::new(seed, Purpose::Folds, 0, 0, 0).shuffle(&mut groups);
    }
    let mut totals = vec![0.0; classes];
    groups.iter().for_each(|group| add(&mut totals, &group.counts));
    // Classes without any case have no shares that could differ.
    let present: Vec<usize> = (0..classes).filter(|class| totals[*class] > 0.0).collect();
    let unevenness = |group: &Group| deviation(present.iter().map(|class| group.counts[*class]));
    groups.sort_by(|a, b| unevenness(b).total_cmp(&unevenness(a)));
    let mut counts = vec![vec![0.0; classes]; count];
    let mut members = vec![Vec::new(); count];
    for group in groups {
        let best = best_fold(&mut counts, &totals, &present, &group.counts);
        add(&mut counts[best], &group.counts);
        members[best].extend(group.cases);
    }
    let mut fold_of = BTreeMap::new();
    for (fold, members) in members.iter().enumerate() {
        fold_of.extend(members.iter().map(|case| (*case, fold)));
    }
    let pick = |wanted: &dyn Fn(usize) -> bool| {
        cases.iter().copied().filter(|case| fold_of.get(case).is_some_and(|fold| wanted(*fold))).collect()
    };
    Ok((0..count)
        .map(|fold| Fold { train: pick(&|other| other != fold), val: pick(&|other| other == fold) })
        .collect())
}

struct Group {
    cases: Vec<usize>,
    counts: Vec<f64>,
}

fn add(to: &mut [f64], counts: &[f64]) {
    to.iter_mut().zip(counts).for_each(|(to, count)| *to += count);
}

/// The deviation, with all values and not one less as the divisor.
fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (values.map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// The fold in which a group makes the shares of classes differ the least between folds; among equals, the one with fewest cases.
fn best_fold(counts: &mut [Vec<f64>], totals: &[f64], present: &[usize], group: &[f64]) -> usize {
    let (mut best, mut least, mut fewest) = (0, f64::INFINITY, f64::INFINITY);
    for fold in 0..counts.len() {
        let own: f64 = counts[fold].iter().sum();
        add(&mut counts[fold], group);
        let of_class = |class: &usize| deviation(counts.iter().map(|fold| fold[*class] / totals[*class]));
        let mean = present.iter().map(of_class).sum::<f64>() / present.len() as f64;
        counts[fold].iter_mut().zip(group).for_each(|(to, count)| *to -= count);
        // Equal but for rounding.
        let ties = least.is_finite() && (mean - least).abs() <= 1e-8 + 1e-5 * least.abs();
        if mean < least || ties && own < fewest {
            (best, least, fewest) = (fold, mean, own);
        }
    }
    best
}
