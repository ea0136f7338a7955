//! Regions: sets of labels that may overlap, each with a logit of its own.

use serde::{Deserialize, Serialize};

use super::loss::{Loss, Piece, Voxel, table};
use super::softmax_stats::expect_logits_and_labels;
use super::{Activation, Component, VoxelSum};
use crate::op::{expect_operands, expect_table};
use crate::{Array, DType, GraphError, Rule, Shape, Signature, TensorInfo};

/// The labels of each region. With x the logit of a region its probability is p = σ(x), whatever the other regions are:
/// a region is a set of labels, and the target t is 1 where the label of the voxel is one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regions {
    /// The number of labels, the background's 0 among them. A voxel with another one counts nowhere.
    pub labels: usize,
    /// The labels of each region.
    pub sets: Vec<Vec<u8>>,
}

impl Regions {
    /// Returns `true` if voxels with this label belong to a region.
    pub fn contain(&self, region: usize, label: u8) -> bool {
        self.sets.get(region).is_some_and(|set| set.contains(&label))
    }

    /// Returns `true` if voxels with this label count.
    pub fn count(&self, label: u8, ignore: Option<u8>) -> bool {
        usize::from(label) < self.labels && ignore != Some(label)
    }

    /// Checks logits and labels, and returns (samples, regions).
    fn expect(
        &self,
        op: &'static str,
        logits: &TensorInfo,
        labels: &TensorInfo,
    ) -> Result<(usize, usize), GraphError> {
        let (batch, outputs) = expect_logits_and_labels(op, logits, labels)?;
        let sets = self.sets.len();
        if outputs != sets {
            let expected = format!("a voxel has {outputs} logits");
            return Err(refused(op, "the number of regions", sets, expected));
        }
        let most = usize::from(u8::MAX) + 1;
        if !(2..=most).contains(&self.labels) {
            return Err(refused(
                op,
                "the number of labels",
                self.labels,
                format!("must be from 2 to {most}"),
            ));
        }
        if let Some(label) = self.sets.iter().flatten().find(|label| usize::from(**label) >= self.labels) {
            let expected = format!("there are only {}, numbered from 0", self.labels);
            return Err(refused(op, "a label of a region", label, expected));
        }
        Ok((batch, sets))
    }
}

/// With p = σ of the logits and t the membership in regions, for each sample and region the four sums over voxels Σ p t, Σ p (or Σ p²),
/// Σ t and Σ 1, then the sums of `extra`. Voxels whose label is `ignore`, or is no label, count nowhere.
///
/// Operands: logits `[N, R, D, H, W]` of f32, labels `[N, 1, D, H, W]`. Result: `[N, R, 4 + extra]`. The losses made of these
/// sums carry their gradient to the logits themselves; there is none through the sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionStats {
    /// The regions.
    pub regions: Regions,
    /// `true` if probabilities are squared in the second sum.
    pub squared: bool,
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
    /// More sums, none of which is of the softmax.
    pub extra: Vec<VoxelSum>,
}

/// The gradient of a [`CompositeLoss`](super::CompositeLoss) of regions. Operands: logits, labels, the sums of [`RegionStats`], the
/// gradient of the loss `[1]`. Result: the gradient of the logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionLossGrad {
    /// The components of the loss, which is of regions.
    pub loss: Loss,
}

/// True positives, false positives and false negatives of each region over samples and voxels, where a voxel is predicted to be of a
/// region if its logit is above 0. Operands: logits, labels. Result: `[R, 3]`, f64: exact for any number of voxels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionCounts {
    /// The regions.
    pub regions: Regions,
    /// A label that marks voxels to leave out.
    pub ignore: Option<u8>,
}

const STATS: &str = "region_stats";
const GRAD: &str = "region_loss_grad";
const COUNTS: &str = "region_counts";

impl RegionStats {
    /// Sums of a sample and region.
    pub fn rows(&self) -> usize {
        4 + self.extra.len()
    }
}

fn refused(op: &'static str, attribute: &'static str, found: impl ToString, expected: String) -> GraphError {
    GraphError::Attribute { op, attribute, found: found.to_string(), expected }
}

/// Returns `true` if a sum is of each logit for itself.
fn is_of_sigmoid(sum: VoxelSum) -> bool {
    match sum {
        VoxelSum::Squares => true,
        VoxelSum::MinusLog => false,
        VoxelSum::Focal { activation, .. } | VoxelSum::Bce { activation, .. } => {
            activation == Activation::Sigmoid
        }
    }
}

/// Returns `true` if a component is one of regions: made of probabilities of each region for itself.
pub fn is_of_regions(component: &Component) -> bool {
    !matches!(component, Component::CrossEntropy(_)) && component.own_sum().is_none_or(is_of_sigmoid)
}

/// Calls `visit` for each voxel that counts.
fn for_each_voxel(logits: &Array, labels: &Array, regions: &Regions, ignore: Option<u8>, mut visit: impl FnMut(&Voxel)) {
    let (voxels, outputs) = (logits.shape.voxels(), logits.shape.channels());
    for (place, label) in labels.data.iter().enumerate() {
        let (sample, place) = (place / voxels, place % voxels);
        // Labels are whole numbers of a byte.
        let label = *label as u8;
        if !regions.count(label, ignore) {
            continue;
        }
        let logits: Vec<f64> =
            (0..outputs).map(|region| logits.data[logits.plane(sample, region) + place]).collect();
        let sigmoid = |x: &f64| 1.0 / (1.0 + (-x).exp());
        visit(&Voxel {
            sample,
            place,
            label: usize::from(label),
            here: (0..outputs).map(|region| regions.contain(region, label)).collect(),
            p: logits.iter().map(sigmoid).collect(),
            rest: logits.iter().map(|x| sigmoid(&-x)).collect(),
            logits,
        });
    }
}

impl Rule for RegionStats {
    fn name(&self) -> &'static str {
        STATS
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(STATS, inputs.len(), 2)?;
        let (batch, regions) = self.regions.expect(STATS, inputs[0], inputs[1])?;
        if !self.extra.iter().copied().all(is_of_sigmoid) {
            let expected = "regions have no softmax".to_string();
            return Err(refused(STATS, "a sum", "of the softmax", expected));
        }
        Ok(vec![Signature::table([batch, regions, self.rows()])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut sums = Array::zeros(results[0].clone());
        let regions = inputs[0].shape.channels();
        for_each_voxel(inputs[0], inputs[1], &self.regions, self.ignore, |voxel| {
            for (region, p) in voxel.p.iter().enumerate() {
                let place = (voxel.sample * regions + region) * self.rows();
                let row = &mut sums.data[place..][..self.rows()];
                let here = f64::from(u8::from(voxel.here[region]));
                row[0] += p * here;
                row[1] += if self.squared { p * p } else { *p };
                row[2] += here;
                row[3] += 1.0;
                for (sum, extra) in row[4..].iter_mut().zip(&self.extra) {
                    *sum += extra.value(voxel, region);
                }
            }
        });
        vec![sums]
    }
}

impl Rule for RegionLossGrad {
    fn name(&self) -> &'static str {
        GRAD
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(GRAD, inputs.len(), 4)?;
        let of_classes = || refused(GRAD, "the loss", "of classes", "it must be of regions".into());
        let stats = self.loss.region_stats().ok_or_else(of_classes)?;
        if let Some(other) = self.loss.components.iter().find(|component| !is_of_regions(component)) {
            return Err(refused(GRAD, "a component", other.name(), "it must be of regions".into()));
        }
        let (batch, regions) = stats.regions.expect(GRAD, inputs[0], inputs[1])?;
        expect_table(GRAD, "the sums", inputs[2], &[batch, regions, stats.rows()])?;
        expect_table(GRAD, "the gradient", inputs[3], &[1])?;
        Ok(vec![Signature::like(inputs[0])])
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let (at, (batch, regions)) = table(inputs[2]);
        let own: Vec<VoxelSum> = self.loss.voxel_sums().collect();
        let mut slopes = vec![[0.0; 3]; batch * regions];
        let mut factors = vec![0.0; own.len() * regions];
        self.loss.value(at, batch, regions, inputs[3].data[0], |piece| match piece {
            Piece::Part { .. } | Piece::CrossEntropy { .. } => {}
            Piece::Region { sample, class, slopes: new } => {
                let place = &mut slopes[sample * regions + class];
                place.iter_mut().zip(new).for_each(|(slope, new)| *slope += new);
            }
            Piece::Voxel { sum, class, factor } => factors[sum * regions + class] = factor,
        });
        let mut gradient = Array::zeros(results[0].clone());
        let Some(set) = &self.loss.regions else { return vec![gradient] };
        for_each_voxel(inputs[0], inputs[1], set, self.loss.ignore, |voxel| {
            for region in 0..regions {
                let [by_overlap, by_size, by_squares] = slopes[voxel.sample * regions + region];
                let p = voxel.p[region];
                let here = f64::from(u8::from(voxel.here[region]));
                // p times the derivative by p, and the derivative by the logit itself.
                let mut by_p = p * (here * by_overlap + by_size + 2.0 * p * by_squares);
                let mut direct = 0.0;
                for (sum, factors) in own.iter().zip(factors.chunks_exact(regions)) {
                    let (through_p, by_logit) = sum.slopes(voxel, region);
                    by_p += factors[region] * through_p;
                    direct += factors[region] * by_logit;
                }
                let place = gradient.plane(voxel.sample, region) + voxel.place;
                gradient.data[place] = by_p * voxel.rest[region] + direct;
            }
        });
        vec![gradient]
    }
}

impl Rule for RegionCounts {
    fn name(&self) -> &'static str {
        COUNTS
    }

    fn infer(&self, inputs: &[&TensorInfo]) -> Result<Vec<Signature>, GraphError> {
        expect_operands(COUNTS, inputs.len(), 2)?;
        let (_, regions) = self.regions.expect(COUNTS, inputs[0], inputs[1])?;
        Ok(vec![Signature { dtype: DType::F64, ..Signature::table([regions, 3]) }])
    }

    fn may_be_recomputed(&self) -> bool {
        false
    }

    fn evaluate(&self, inputs: &[&Array], results: &[Shape]) -> Vec<Array> {
        let mut counts = Array::zeros(results[0].clone());
        for_each_voxel(inputs[0], inputs[1], &self.regions, self.ignore, |voxel| {
            for (region, logit) in voxel.logits.iter().enumerate() {
                let kind = match (*logit > 0.0, voxel.here[region]) {
                    (true, true) => 0,
                    (true, false) => 1,
                    (false, true) => 2,
                    (false, false) => continue,
                };
                counts.data[3 * region + kind] += 1.0;
            }
        });
        vec![counts]
    }
}
