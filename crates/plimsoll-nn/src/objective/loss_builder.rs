//! The tensors that components are built on: logits of heads, labels and probabilities at any scale, and distances.

use std::collections::BTreeMap;

use plimsoll_graph::ops::{
    BoundaryL1, Counted, DownsampleLabels, MeanPool, OneHot, PredictedDistance, Probabilities,
};
use plimsoll_graph::{GraphError, Kind, Op, Program, Shape, TensorId};

use super::Unit;
use crate::names;

/// A head of the network: its logits `[N, C, D, H, W]`.
#[derive(Clone, Copy)]
pub(crate) struct HeadLogits {
    pub(crate) logits: TensorId,
    /// The sums of the batch, if the program has a part of it.
    pub(crate) batch_sums: Option<TensorId>,
}

/// An input of programs that is computed from the labels alone, `[N, C−1, D, H, W]` for the foreground classes. At a
/// coarser extent the labels come from the nearest voxel, as
/// [`DownsampleLabels`](plimsoll_graph::ops::DownsampleLabels) takes them from the patch's.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetInput {
    /// The input.
    pub name: String,
    /// Depth, height, width.
    pub extent: [usize; 3],
    /// The kind of values it takes.
    pub kind: TargetInputKind,
}

/// The content of a [`TargetInput`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetInputKind {
    /// Signed distances: of each voxel to the nearest voxel of the class, positive, and of its own voxels minus the distance to
    /// the nearest other; ∞ where there is none of the class, −∞ where there is no other.
    Distance {
        /// From one voxel to the next along depth, height and width, in the unit of the distances.
        spacing: [f64; 3],
    },
    /// 1 where a voxel of the class lies on the skeleton of the foreground, of all classes together, dilated `radius` times
    /// by the neighbours that share a face; else 0.
    Skeleton {
        /// The number of dilations.
        radius: usize,
    },
}

/// A program being written, with what several components share.
pub(crate) struct LossBuilder<'p> {
    program: &'p mut Program,
    /// The labels at full resolution `[N, 1, D, H, W]`.
    finest: TensorId,
    /// From one of their voxels to the next, in millimetres.
    spacing: [f64; 3],
    ignore: Option<u8>,
    labels: BTreeMap<[usize; 3], TensorId>,
    probabilities: BTreeMap<(TensorId, [usize; 3]), TensorId>,
    /// By what they are of: probabilities where the label counts, and one-hot labels.
    masked: BTreeMap<TensorId, TensorId>,
    predicted: BTreeMap<(TensorId, Unit, bool), TensorId>,
    targets: Vec<(TargetInput, TensorId)>,
}

impl<'p> LossBuilder<'p> {
    pub(crate) fn new(
        program: &'p mut Program,
        labels: TensorId,
        spacing: [f64; 3],
        ignore: Option<u8>,
    ) -> LossBuilder<'p> {
        let extent = program.shape(labels).spatial();
        LossBuilder {
            program,
            finest: labels,
            spacing,
            ignore,
            labels: BTreeMap::from([(extent, labels)]),
            probabilities: BTreeMap::new(),
            masked: BTreeMap::new(),
            predicted: BTreeMap::new(),
            targets: Vec::new(),
        }
    }

    /// The label that does not count.
    pub(crate) fn ignore(&self) -> Option<u8> {
        self.ignore
    }

    /// Classes of a head, the background among them.
    pub(crate) fn classes(&self, head: HeadLogits) -> usize {
        self.program.shape(head.logits).channels()
    }

    /// Appends a node; its first result.
    pub(crate) fn push(&mut self, op: impl Into<Op>, operands: &[TensorId]) -> Result<TensorId, GraphError> {
        self.program.push_one(op, operands)
    }

    /// Appends a node; its results.
    pub(crate) fn push_all(
        &mut self,
        op: impl Into<Op>,
        operands: &[TensorId],
    ) -> Result<Vec<TensorId>, GraphError> {
        self.program.push(op, operands)
    }

    /// Depth, height and width of a head.
    pub(crate) fn extent(&self, head: HeadLogits) -> [usize; 3] {
        self.program.shape(head.logits).spatial()
    }

    /// The extent of a head at a scale: ⌈n / scale⌉ along each axis.
    fn scaled_extent(&self, head: HeadLogits, scale: usize) -> [usize; 3] {
        self.extent(head).map(|extent| extent.div_ceil(scale))
    }

    /// The labels at an extent.
    pub(crate) fn labels(&mut self, output: [usize; 3]) -> Result<TensorId, GraphError> {
        if let Some(known) = self.labels.get(&output) {
            return Ok(*known);
        }
        let labels = self.program.push_one(DownsampleLabels { output }, &[self.finest])?;
        self.labels.insert(output, labels);
        Ok(labels)
    }

    /// Probabilities of the foreground classes of a head at a scale, means of blocks, and the labels there.
    pub(crate) fn scaled(
        &mut self,
        head: HeadLogits,
        scale: usize,
    ) -> Result<(TensorId, TensorId), GraphError> {
        let output = self.scaled_extent(head, scale);
        Ok((self.probabilities(head, output)?, self.labels(output)?))
    }

    fn probabilities(&mut self, head: HeadLogits, output: [usize; 3]) -> Result<TensorId, GraphError> {
        if let Some(known) = self.probabilities.get(&(head.logits, output)) {
            return Ok(*known);
        }
        let finest = self.extent(head);
        let probabilities = match output == finest {
            true => self.program.push_one(Probabilities, &[head.logits])?,
            false => {
                let fine = self.probabilities(head, finest)?;
                self.program.push_one(MeanPool { output }, &[fine])?
            }
        };
        self.probabilities.insert((head.logits, output), probabilities);
        Ok(probabilities)
    }

    /// Probabilities of the foreground classes of a head at a scale and its target, 1 where the label names the class; both 0
    /// where the label does not count; and the labels.
    pub(crate) fn pair(
        &mut self,
        head: HeadLogits,
        scale: usize,
    ) -> Result<(TensorId, TensorId, TensorId), GraphError> {
        let (probabilities, labels) = self.scaled(head, scale)?;
        let foreground = self.program.shape(probabilities).channels();
        let p = self.masked(Counted { ignore: self.ignore }.into(), &[probabilities, labels])?;
        let t = self.masked(OneHot { foreground, ignore: self.ignore }.into(), &[labels])?;
        Ok((p, t, labels))
    }

    fn masked(&mut self, op: Op, operands: &[TensorId]) -> Result<TensorId, GraphError> {
        if let Some(known) = self.masked.get(&operands[0]) {
            return Ok(*known);
        }
        let masked = self.program.push_one(op, operands)?;
        self.masked.insert(operands[0], masked);
        Ok(masked)
    }

    /// From one voxel to the next at an extent.
    fn spacing(&self, extent: [usize; 3], unit: Unit) -> [f64; 3] {
        let finest = self.program.shape(self.finest).spatial();
        [0, 1, 2].map(|axis| match unit {
            Unit::Voxels => 1.0,
            Unit::Mm => self.spacing[axis] * finest[axis] as f64 / extent[axis] as f64,
        })
    }

    /// Distances to the target of a head at a scale.
    pub(crate) fn target_distance(&mut self, head: HeadLogits, scale: usize, unit: Unit) -> TensorId {
        let extent = self.scaled_extent(head, scale);
        let [depth, height, width] = extent;
        let of = match unit {
            Unit::Mm => "mm",
            Unit::Voxels => "voxels",
        };
        let name = format!("distances {depth}×{height}×{width} {of}");
        let kind = TargetInputKind::Distance { spacing: self.spacing(extent, unit) };
        self.target(head, TargetInput { name, extent, kind })
    }

    /// The skeleton of the target of a head at a scale.
    pub(crate) fn target_skeleton(&mut self, head: HeadLogits, scale: usize, radius: usize) -> TensorId {
        let extent = self.scaled_extent(head, scale);
        let [depth, height, width] = extent;
        let name = format!("skeleton {depth}×{height}×{width} radius {radius}");
        self.target(head, TargetInput { name, extent, kind: TargetInputKind::Skeleton { radius } })
    }

    /// The input of a map of the target.
    fn target(&mut self, head: HeadLogits, map: TargetInput) -> TensorId {
        if let Some((_, known)) = self.targets.iter().find(|(target, _)| target.name == map.name) {
            return *known;
        }
        let logits = self.program.shape(head.logits);
        let shape = Shape::volume(logits.batch(), logits.channels() - 1, map.extent);
        let input = self.program.input(map.name.clone(), shape, Kind::Volume);
        self.targets.push((map, input));
        input
    }

    /// The input of what the label's target is more than the soft one, `[N, C, D, H, W]` like the logits.
    pub(crate) fn target_shift(&mut self, head: HeadLogits) -> TensorId {
        let shape = self.program.shape(head.logits).clone();
        self.program.input(names::TARGET_SHIFT, shape, Kind::Volume)
    }

    /// Distances to what is predicted by a head at a scale.
    pub(crate) fn predicted_distance(
        &mut self,
        head: HeadLogits,
        scale: usize,
        unit: Unit,
        signed: bool,
    ) -> Result<TensorId, GraphError> {
        let (probabilities, labels) = self.scaled(head, scale)?;
        let key = (probabilities, unit, signed);
        if let Some(known) = self.predicted.get(&key) {
            return Ok(*known);
        }
        let spacing = self.spacing(self.scaled_extent(head, scale), unit);
        let op = PredictedDistance { spacing, signed, ignore: self.ignore };
        let distances = self.program.push_one(op, &[probabilities, labels])?;
        self.predicted.insert(key, distances);
        Ok(distances)
    }

    /// The cheap difference of boundaries.
    pub(crate) fn boundary_l1(&mut self, head: HeadLogits, scale: usize) -> Result<TensorId, GraphError> {
        let (probabilities, labels) = self.scaled(head, scale)?;
        self.program.push_one(BoundaryL1 { ignore: self.ignore }, &[probabilities, labels])
    }

    /// The maps of the target that were asked for.
    pub(crate) fn targets(self) -> Vec<TargetInput> {
        self.targets.into_iter().map(|(target, _)| target).collect()
    }
}
