//! What the CPU backend makes of training programs: nothing is stored that a kernel can compute for itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::DType;
use plimsoll_nn::{DynUNet, Network, Objective, Optimizer, PlainConvUNet, Training};
use plimsoll_plan::Backend;

const FEATURES: [usize; 4] = [16, 24, 32, 32];

/// The kinds of kernels of a step in one micro-batch.
fn kernels(net: Network, max_grad_norm: Option<f32>) -> Vec<String> {
    let training = Training {
        net,
        loss: Objective::default(),
        spacing: [1.0; 3],
        optimizer: Optimizer::adamw(),
        max_grad_norm,
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: [32; 3],
        batch: 2,
        micro_batch: 2,
        precision: DType::F32,
    };
    let programs = training.programs().unwrap().gradients;
    let backend = CpuBackend::new(CpuOptions::new(2)).unwrap();
    let lowered = backend.lower(&programs[..1], true).unwrap().swap_remove(0);
    lowered.nodes.into_iter().map(|node| node.name).collect()
}

/// Without a norm of all gradients, parameters are updated as soon as their gradients are known, in the midst of what is fused.
#[test]
fn heads_and_sums_are_fused_wherever_updates_stand() {
    let strides = [[1; 3], [2; 3], [2; 3], [2; 3]];
    let kernels_of_both = |heads: usize, max_grad_norm| {
        let mut dynunet = DynUNet::new(1, 3, &FEATURES, &[[3; 3]; 4], &strides);
        dynunet.shape.deep_supervision = heads - 1;
        let mut plain = PlainConvUNet::new(1, 3, &FEATURES, &[[3; 3]; 4], &strides);
        plain.shape.deep_supervision = heads - 1;
        [kernels(dynunet.into(), max_grad_norm), kernels(plain.into(), max_grad_norm)]
    };
    for (heads, counted) in [(1, 1), (2, 2), (3, 2)] {
        for kernels in [None, Some(12.0)].into_iter().flat_map(|norm| kernels_of_both(heads, norm)) {
            let count = |name: &str| kernels.iter().filter(|kernel| *kernel == name).count();
            assert_eq!(count("head_stats"), counted, "{kernels:?}");
            assert_eq!(count("head_grad"), counted, "{kernels:?}");
            for stored in
                ["add", "softmax_stats", "composite_loss_grad", "normalise", "leaky_relu", "norm_act"]
            {
                assert_eq!(count(stored), 0, "{heads} heads: {stored} in {kernels:?}");
            }
        }
    }
}
