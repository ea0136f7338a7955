//! Sums so long that backends cut them into parts, and parts into runs.

use plimsoll_graph::ops::{
    ChannelSum, ConvWeightGrad, GateGrad, GlobalMean, GradNorm, HardCounts, Loss, NormStats, NormaliseGrad,
    Over,
};
use plimsoll_graph::{DType, Kind, Shape, Window};

use super::Writer;
use crate::Case;

/// Sums over more than 2¹⁶ voxels, over more than 2¹⁷ voxels of logits, over many gradients of weights, and over a long vector.
pub fn long_sums() -> Vec<Case> {
    let extent = [1, 300, 301];
    let mut w = Writer::new(DType::F32);
    let (y, dz) = (w.features("y", 1, 2, extent), w.features("dz", 1, 2, extent));
    for over in [Over::Instance, Over::Group(1)] {
        let (_, operands) = w.normalise(y, over, true);
        let operands: Vec<_> = [dz].into_iter().chain(operands).collect();
        w.result(NormaliseGrad { over, affine: true }, &operands);
        w.result(NormStats { over, epsilon: 1e-5 }, &[y]);
    }
    w.result(ChannelSum, &[y]);
    w.result(GlobalMean, &[y]);
    w.result(GateGrad, &[dz, y]);
    let maps = w.maps(format!("long sums of maps on {extent:?}"));

    let extent = [1, 363, 364];
    let mut w = Writer::new(DType::F32);
    let logits = w.image("logits", 1, 2, extent);
    let labels = w.labels("labels", 1, extent);
    w.loss(&Loss::default(), logits, labels);
    w.result(HardCounts { ignore: None }, &[logits, labels]);
    let losses = w.case(format!("long sums of losses on {extent:?}"), 2);

    let (channels, extent) = (364, [1, 23, 23]);
    let mut w = Writer::new(DType::F32);
    let (x, dy) = (w.features("x", 1, channels, extent), w.features("dy", 1, channels, extent));
    w.result(ConvWeightGrad { window: Window::point(), groups: 1 }, &[x, dy]);
    let weights = w.maps(format!("long sums of {channels}×{channels} weights on {extent:?}"));

    let mut w = Writer::new(DType::F32);
    let loss = w.program.input("loss", Shape(vec![1]), Kind::Table);
    let gradients = [550_000, 7].map(|count| w.channels(&format!("gradient of {count}"), count));
    w.result(GradNorm { loss: true }, &[loss, gradients[0], gradients[1]]);
    let norm = w.case("the norm of a long vector".into(), 0);
    vec![maps, losses, weights, norm]
}
