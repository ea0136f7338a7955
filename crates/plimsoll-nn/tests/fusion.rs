//! The lowering of training programs by the CPU backend: nothing is stored that a kernel can compute for itself.

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::DType;
use plimsoll_nn::{
    DynUNet, Network, Objective, Optimizer, PlainConvUNet, ResidualEncoderUNet, SegResNet, SegResNetDS,
    Training, UpsampleMode,
};
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
        shards: 1,
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

/// A residual block stores no sum, no normalised map and no activated map before a convolution.
#[test]
fn residual_blocks_end_in_one_kernel_and_sums_are_part_of_others() {
    let strides = [[1; 3], [1, 2, 2], [2; 3], [2; 3]];
    let resenc = ResidualEncoderUNet::new(1, 3, &FEATURES, &[[3; 3]; 4], &strides);
    let blocks: usize = resenc.shape.encoder_convs.iter().sum();
    let of_resenc = kernels(resenc.into(), None);
    let count = |kernels: &[String], name: &str| kernels.iter().filter(|kernel| *kernel == name).count();
    assert_eq!(count(&of_resenc, "residual_act"), blocks);
    assert_eq!(count(&of_resenc, "residual_act_grad"), blocks);
    let mut all = vec![of_resenc];
    for upsample in [UpsampleMode::NonTrainable, UpsampleMode::Deconv] {
        all.push(kernels(SegResNet { upsample, ..SegResNet::new(1, 3, 16) }.into(), None));
        all.push(kernels(SegResNetDS { upsample, ..SegResNetDS::new(1, 3, 16) }.into(), None));
    }
    for kernels in all {
        for stored in ["add", "normalise", "leaky_relu", "leaky_relu_grad", "norm_act"] {
            assert_eq!(count(&kernels, stored), 0, "{stored} in {kernels:?}");
        }
    }
}
