//! Losses over twenty steps against PyTorch in f32, and gradients of the first step against PyTorch in f64: MONAI's DynUNet
//! (plain, with deep supervision, with flat kernels) and nnU-Net's PlainConvUNet. `oracles/unet_training.py` made the numbers.
//!
//! Losses are to agree within 1e-4, gradients within 1e-3. Large networks with kinks are the exception: an
//! activation that rounding puts on the other side of the leaky ReLU's kink changes gradients by far more than rounding does. So
//! there is a run of each without the kink, which is held to the strict bounds.

use std::path::PathBuf;

use crate::training::{bf16_losses_agree, gradients_agree, losses_agree, oracles};

#[test]
fn dynunet_trains_as_in_pytorch() {
    losses_agree(&oracles(), "unet_plain");
    bf16_losses_agree(&oracles(), "unet_plain");
    gradients_agree(&oracles(), "unet_plain");
}

#[test]
fn dynunet_with_deep_supervision_trains_as_in_pytorch() {
    losses_agree(&oracles(), "unet_supervised");
    gradients_agree(&oracles(), "unet_supervised");
}

#[test]
fn dynunet_with_flat_kernels_and_nesterov_momentum_trains_as_in_pytorch() {
    losses_agree(&oracles(), "unet_anisotropic");
    bf16_losses_agree(&oracles(), "unet_anisotropic");
    gradients_agree(&oracles(), "unet_anisotropic");
}

#[test]
fn the_plain_unet_of_nnunet_trains_as_in_pytorch_from_its_checkpoint() {
    losses_agree(&oracles(), "unet_nnunet");
    bf16_losses_agree(&oracles(), "unet_nnunet");
    gradients_agree(&oracles(), "unet_nnunet");
}

/// The networks of the documentation, 32 to 320 features: `python oracles/unet_training.py full DIR` makes the numbers, then
/// `PLIMSOLL_ORACLE=DIR cargo test --release -p plimsoll-nn --test all pytorch:: -- --ignored --nocapture`.
#[test]
#[ignore = "needs numbers that are too large to commit"]
fn full_size_networks_train_as_in_pytorch() {
    let folder = PathBuf::from(std::env::var("PLIMSOLL_ORACLE").unwrap());
    for net in ["full", "full_supervised", "full_anisotropic"] {
        for run in ["smooth", "sgd", "adamw"] {
            let name = format!("unet_{net}_{run}");
            losses_agree(&folder, &name);
            gradients_agree(&folder, &name);
        }
    }
}
