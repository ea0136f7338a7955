//! The Dice of labels over cases.

use std::collections::{BTreeMap, BTreeSet};

/// Voxels of a label: in both maps, in the prediction, in the reference.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) both: u64,
    pub(crate) predicted: u64,
    pub(crate) reference: u64,
}

impl Counts {
    /// 2 |both| / (|predicted| + |reference|) (Dice 1945); `None` if the label is in neither, as nnU-Net leaves such cases out.
    pub(crate) fn dice(&self) -> Option<f64> {
        let sum = self.predicted + self.reference;
        (sum > 0).then(|| 2.0 * self.both as f64 / sum as f64)
    }
}

/// Counts voxels of each pair of labels, predicted and in the reference, but for those whose reference is `ignore`: nobody knows what
/// they are.
pub(crate) fn pairs(prediction: &[u16], reference: &[u16], ignore: Option<u16>) -> BTreeMap<(u16, u16), u64> {
    let mut all: BTreeMap<(u16, u16), u64> = BTreeMap::new();
    let mut add = |pair: (u16, u16), voxels: u64| {
        if ignore != Some(pair.1) {
            *all.entry(pair).or_default() += voxels;
        }
    };
    // Label maps have long runs of equal pairs, so counting by run is cheap.
    let mut pairs = prediction.iter().copied().zip(reference.iter().copied());
    if let Some(mut pair) = pairs.next() {
        let mut voxels = 1;
        for next in pairs {
            if next == pair {
                voxels += 1;
            } else {
                add(pair, voxels);
                (pair, voxels) = (next, 1);
            }
        }
        add(pair, voxels);
    }
    all
}

/// The voxels of several labels taken as one.
pub(crate) fn counts(pairs: &BTreeMap<(u16, u16), u64>, labels: &BTreeSet<u16>) -> Counts {
    let mut counts = Counts::default();
    for ((predicted, reference), voxels) in pairs {
        let (predicted, reference) = (labels.contains(predicted), labels.contains(reference));
        counts.predicted += if predicted { *voxels } else { 0 };
        counts.reference += if reference { *voxels } else { 0 };
        counts.both += if predicted && reference { *voxels } else { 0 };
    }
    counts
}

/// A mean over the cases where there is something to be meant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    cases: u32,
}

impl Mean {
    pub(crate) fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.cases += 1;
        }
    }

    pub(crate) fn value(&self) -> Option<f64> {
        (self.cases > 0).then(|| self.sum / f64::from(self.cases))
    }
}
