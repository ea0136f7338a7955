//! Operands that do not fit an op are refused: every operand of every op in the cases is replaced by one of another kind, dtype
//! or shape.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use conformance::cases;
use plimsoll_graph::{DType, Kind, Node, Op, Program, Shape, TensorInfo};

const KINDS: [Kind; 6] =
    [Kind::Volume, Kind::Labels, Kind::Weights, Kind::Channels, Kind::Statistics, Kind::Table];
const DTYPES: [DType; 5] = [DType::F32, DType::Bf16, DType::F16, DType::F64, DType::U8];

/// The property of an operand that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Kind,
    DType,
    /// One axis more or fewer.
    Axes,
    /// An extent is larger by one.
    Extent(usize),
}

/// All that an operand may be replaced by.
fn others(of: &TensorInfo) -> Vec<(Change, TensorInfo)> {
    let mut others = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| *kind != of.kind) {
        for dtype in DTYPES {
            others.push((Change::Kind, TensorInfo { kind, dtype, ..of.clone() }));
        }
    }
    for dtype in DTYPES.into_iter().filter(|dtype| *dtype != of.dtype) {
        others.push((Change::DType, TensorInfo { dtype, ..of.clone() }));
    }
    let with = |extents: Vec<usize>| TensorInfo { shape: Shape(extents), ..of.clone() };
    let extents = &of.shape.0;
    others.push((Change::Axes, with([&extents[..], &[1]].concat())));
    others.push((Change::Axes, with(extents[..extents.len() - 1].to_vec())));
    for axis in 0..extents.len() {
        let mut larger = extents.clone();
        larger[axis] += 1;
        others.push((Change::Extent(axis), with(larger)));
    }
    others
}

/// The nodes of all cases, with their programs.
fn nodes() -> Vec<(Program, Node)> {
    let all = [DType::F32, DType::Bf16].into_iter().flat_map(cases::all);
    all.flat_map(|case| case.program.nodes.clone().into_iter().map(move |node| (case.program.clone(), node)))
        .collect()
}

/// Returns `true` if an op accepts an operand after this change, since no other operand determines that property.
fn is_free(op: &Op, operand: usize, operands: usize, change: Change) -> bool {
    use Change::{Axes, DType, Extent, Kind};
    match (op, operand, change) {
        // Whatever is learned has a norm, and any tables can be joined.
        (Op::GradNorm(norm), _, Kind | Extent(_) | Axes) => operand >= usize::from(norm.loss),
        (Op::Join(_), _, Extent(_) | Axes) => true,
        (Op::WeightedSum(_), 0, Axes) => operands == 1,
        // A convolution chooses the dtype of its result; with one source, any extent has one.
        (Op::Conv(conv), 0, DType) => conv.sources(operands) == 1,
        (Op::Conv(conv), 0, Extent(axis)) => conv.sources(operands) == 1 && axis != 1,
        (Op::Conv(conv), _, Extent(0)) => operand == conv.sources(operands) && !conv.bias,
        (Op::ConvTranspose(_), 0, DType | Extent(0)) => true,
        // It may make some channels of many.
        (Op::ConvTranspose(_), 1, Extent(1)) => true,
        (Op::ConvWeightGrad(_), _, DType) => operand + 1 == operands || operands == 2,
        (Op::ConvWeightGrad(grad), _, Extent(1)) => grad.groups == 1,
        // Where the window does not reach the last voxels.
        (Op::ConvWeightGrad(grad), 0, Extent(2..=4)) => grad.window.stride != [1; 3] && operands == 2,
        // Volumes of f32 and bf16, by themselves.
        (
            Op::LeakyRelu(_)
            | Op::ChannelSum(_)
            | Op::NormStats(_)
            | Op::Dropout(_)
            | Op::Normalise(_)
            | Op::MaxPool(_)
            | Op::GlobalMean(_)
            | Op::Gate(_)
            | Op::Sigmoid(_)
            | Op::AvgPool(_)
            | Op::AvgPoolGrad(_)
            | Op::Upsample2(_)
            | Op::Upsample2Grad(_)
            | Op::UpsampleAligned(_)
            | Op::Subpixel(_)
            | Op::SubpixelGrad(_)
            | Op::Elu(_)
            | Op::Gelu(_)
            | Op::SampleDrop(_)
            | Op::SpaceToDepth(_)
            | Op::SpaceToDepthGrad(_)
            | Op::TokenNorm(_)
            | Op::WindowAttention(_)
            | Op::PadFront(_)
            | Op::PadFrontGrad(_)
            | Op::ResponseNorm(_)
            | Op::Prelu(_)
            | Op::AddPositions(_)
            | Op::AddPositionsGrad(_)
            | Op::ChannelScale(_)
            | Op::DepthToSpace(_)
            | Op::DepthToSpaceGrad(_),
            0,
            DType,
        ) => true,
        // The factors say nothing of the extent, and windows may not reach the last voxels.
        (Op::Gate(_), 0, Extent(2..=4)) => true,
        // The factors say nothing of the channels, and a slope nothing of the map.
        (Op::VoxelGate(_), 0, Extent(1)) | (Op::Prelu(_), 0, Extent(_)) => true,
        // The same vectors of positions for any number of samples.
        (Op::AddPositions(_), 0, Extent(0)) => true,
        // The factors say nothing of the extent, nor one for all of the channels.
        (Op::ChannelScale(_), 0, Extent(0 | 2..=4)) => true,
        (Op::ChannelScale(scale), 0, Extent(1)) => scale.shared,
        (Op::DepthToSpace(_), 0, Extent(0 | 2..=4)) => true,
        (Op::MaxPoolGrad(_), 1, Extent(2..=4)) => true,
        (Op::GlobalMeanGrad(_), 0, Extent(axis)) => axis < 2,
        // The statistics of a batch are alike for all its samples.
        (Op::RunningUpdate(_), 3, Extent(0)) => true,
        (Op::Normalise(_), 0, Extent(2..=4)) | (Op::Dropout(_) | Op::SampleDrop(_), 0, Extent(_)) => true,
        (Op::TokenNorm(_) | Op::WindowAttention(_) | Op::ResponseNorm(_), 0, Extent(0 | 2..=4)) => true,
        // As many classes as there are.
        (
            Op::SoftmaxStats(_)
            | Op::HardCounts(_)
            | Op::Counted(_)
            | Op::BoundaryL1(_)
            | Op::BoundaryL1Grad(_)
            | Op::PredictedDistance(_),
            0,
            Extent(1),
        ) => true,
        (Op::OverlapSumsGrad(grad), 1, Extent(axis)) => axis > usize::from(grad.of.by_channel),
        (Op::SoftRecallGrad(_), 1, Extent(0 | 1)) => true,
        (Op::CompositeLoss(_) | Op::SoftRecall(_), 0, Extent(axis)) => axis < 2,
        (Op::DownsampleLabels(_) | Op::OneHot(_), 0, Extent(axis)) => axis != 1,
        (_, 0, Extent(_)) => operands == 1,
        _ => false,
    }
}

#[test]
fn operands_of_another_kind_dtype_or_shape_are_refused() {
    let mut tried: BTreeMap<&str, BTreeSet<Change>> = BTreeMap::new();
    for (program, node) in nodes() {
        let own: Vec<&TensorInfo> = node.inputs.iter().map(|id| program.tensor(*id)).collect();
        let rule = node.op.rule();
        rule.infer(&own).unwrap();
        tried.entry(node.op.variant()).or_default();
        for (operand, of) in own.iter().enumerate() {
            for (change, other) in others(of) {
                let mut operands = own.clone();
                operands[operand] = &other;
                let found = rule.infer(&operands);
                tried.entry(node.op.variant()).or_default().insert(change);
                let what = || format!("{:?}, operand {operand}: {}", node.op, other.describe());
                let is_free = is_free(&node.op, operand, own.len(), change);
                assert!(found.is_err() || is_free, "{}, was {}", what(), of.describe());
            }
        }
    }
    assert_eq!(tried.len(), Op::VARIANTS.len(), "{tried:?}");
}

#[test]
fn too_few_and_too_many_operands_are_refused() {
    for (program, node) in nodes() {
        let own: Vec<&TensorInfo> = node.inputs.iter().map(|id| program.tensor(*id)).collect();
        let rule = node.op.rule();
        let takes_any = matches!(node.op, Op::GradNorm(_) | Op::Join(_) | Op::ConvWeightGrad(_));
        for fewer in 0..own.len() {
            let found = rule.infer(&own[..fewer]);
            let is_free = takes_any && (fewer > 0 || matches!(node.op, Op::GradNorm(_)));
            assert!(found.is_err() || is_free, "{:?} with {fewer} operands", node.op);
        }
        for extra in program.tensors.iter().take(12) {
            let found = rule.infer(&[&own[..], &[extra]].concat());
            assert!(found.is_err() || takes_any, "{:?} with {} as well", node.op, extra.describe());
        }
    }
}
