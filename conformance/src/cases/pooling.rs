//! Layers of residual networks for whole images beside convolutions: max pooling, global means, gates, running
//! statistics, and logits of two classes of one.

use plimsoll_graph::ops::{
    Gate, GateGrad, GlobalMean, GlobalMeanGrad, MaxPool, MaxPoolGrad, NormFromRunning, RunningFactors,
    RunningUpdate, Sigmoid, SigmoidGrad, ZeroClass, ZeroClassGrad,
};
use plimsoll_graph::{DType, Kind, Shape, Window};

use super::{CHANNELS, EXTENTS, Writer};
use crate::Case;

/// Max pools of every way to meet an edge, with their gradients.
pub fn max_pools(precision: DType) -> Vec<Case> {
    let flat = |k: usize, s: usize, p: usize| Window::new([1, k, k], [1, s, s], [0, p, p]);
    let cube = |k: usize, s: usize, p: usize| Window::new([k; 3], [s; 3], [p; 3]);
    let pools = [
        (flat(3, 2, 1), false, [1, 13, 18]),
        (flat(3, 2, 0), true, [1, 12, 17]),
        (flat(2, 2, 1), true, [3, 17, 5]),
        (cube(2, 2, 0), false, [4, 6, 9]),
        (cube(3, 1, 1), true, [2, 2, 2]),
        (cube(2, 3, 0), true, [5, 3, 31]),
        (Window::point(), false, [1, 1, 1]),
    ];
    let cases = pools.into_iter().enumerate().filter_map(|(i, (window, ceil, extent))| {
        let (of, channels) = (MaxPool { window, ceil }, CHANNELS[i % CHANNELS.len()].0);
        let output = of.output(extent)?;
        let mut w = Writer::new(precision);
        let x = w.features("x", 2, channels, extent);
        let dz = w.features("dz", 2, channels, output);
        w.result(of, &[x]);
        w.result(MaxPoolGrad { of }, &[dz, x]);
        Some(w.maps(format!("max pool {window:?} of {channels}×{extent:?}, ceil: {ceil}, {precision:?}")))
    });
    cases.collect()
}

/// Vectors for each sample that are made of features, and features that are weighted by them.
pub fn gates(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, extent) in EXTENTS.into_iter().chain([[1, 1, 1], [1, 70, 73]]).enumerate() {
        let channels = CHANNELS[i % CHANNELS.len()].0;
        let mut w = Writer::new(precision);
        let x = w.features("x", 2, channels, extent);
        let dz = w.features("dz", 2, channels, extent);
        let s = w.image("s", 2, channels, [1; 3]);
        let ds = w.image("ds", 2, channels, [1; 3]);
        w.result(GlobalMean, &[x]);
        w.result(GlobalMeanGrad { input: extent, dtype: precision }, &[ds]);
        w.result(Gate, &[x, s]);
        w.result(GateGrad, &[dz, x]);
        w.result(Sigmoid, &[s]);
        w.result(Sigmoid, &[x]);
        w.result(SigmoidGrad, &[ds, s]);
        w.result(SigmoidGrad, &[dz, x]);
        cases.push(w.maps(format!("gates of {channels}×{extent:?}, {precision:?}")));
    }
    cases
}

/// Running statistics, and what is made of them.
pub fn running() -> Vec<Case> {
    let cases = [1, 16, 33].into_iter().enumerate().map(|(i, channels)| {
        let guarded = i % 2 == 1;
        let mut w = Writer::new(DType::F32);
        let shape = Shape(vec![channels]);
        let [mean, variance] =
            ["mean", "variance"].map(|n| w.program.state(n, shape.clone(), Kind::Channels));
        let batches = w.program.state("batches", Shape(vec![1]), Kind::Table);
        let statistics = w.program.input("statistics", Shape(vec![3, channels, 2]), Kind::Statistics);
        let of_batch = w.channels("variance of the batch", channels);
        let norm = w.program.input("norm", Shape(vec![1]), Kind::Table);
        w.result(NormFromRunning { batch: 2, epsilon: 1e-5 }, &[mean, variance]);
        let operands = [mean, variance, batches, statistics, of_batch, norm];
        let update = RunningUpdate { momentum: 0.125, guarded };
        w.result(update, &operands[..5 + usize::from(guarded)]);
        w.result(NormFromRunning { batch: 3, epsilon: 1e-3 }, &[mean, variance]);
        w.case(format!("running statistics of {channels} channels, guarded: {guarded}"), 0)
    });
    let factors = [1, 33].into_iter().map(|channels| {
        let mut w = Writer::new(DType::F32);
        let variance = w.program.state("variance", Shape(vec![channels]), Kind::Channels);
        let scale = w.channels("scale", channels);
        w.result(RunningFactors { batch: 2, epsilon: 1e-3 }, &[variance, scale]);
        w.case(format!("factors of {channels} running variances"), 0)
    });
    cases.chain(factors).collect()
}

/// Logits of two classes of one.
pub fn zero_classes() -> Vec<Case> {
    let cases = EXTENTS.into_iter().chain([[1, 1, 1]]).map(|extent| {
        let mut w = Writer::new(DType::F32);
        let (x, dz) = (w.image("x", 3, 1, extent), w.image("dz", 3, 2, extent));
        w.result(ZeroClass, &[x]);
        w.result(ZeroClassGrad, &[dz]);
        w.case(format!("two classes of one logit on {extent:?}"), 0)
    });
    cases.collect()
}
