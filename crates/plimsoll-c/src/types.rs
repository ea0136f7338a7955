//! What C and the library give each other: numbers that mean something, and structures.

use std::ffi::c_void;

use crate::model::Held;

/// Voxels or labels of 8 bits, without sign.
pub const PLIMSOLL_U8: u32 = 1;
/// Voxels or labels of 16 bits, without sign.
pub const PLIMSOLL_U16: u32 = 2;
/// Voxels of 16 bits, with sign.
pub const PLIMSOLL_I16: u32 = 3;
/// Voxels of 32 bits, as floating-point numbers.
pub const PLIMSOLL_F32: u32 = 4;

/// Windows are looked at as they are.
pub const PLIMSOLL_MIRROR_OFF: u32 = 0;
/// Windows are looked at mirrored as well.
pub const PLIMSOLL_MIRROR_ON: u32 = 1;
/// As the command line does it: windows of models of nnU-Net are mirrored, those of runs are not.
pub const PLIMSOLL_MIRROR_USUAL: u32 = 2;

/// How a model is opened. `plimsoll_usual_options` fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollOptions {
    /// The most memory in bytes that predictions take, the image's copy included; 0 for what the machine leaves.
    pub ram_bytes: u64,
    /// Threads that compute, from 1 to 256.
    pub threads: u64,
    /// The share of a window from one to the next at most, above 0 and at most 1.
    pub step: f64,
    /// Whether each window is looked at mirrored as well, along the axes that the model allows: PLIMSOLL_MIRROR_OFF, PLIMSOLL_MIRROR_ON, or
    /// PLIMSOLL_MIRROR_USUAL.
    pub mirror: u32,
}

/// What a model is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlimsollDescription {
    /// Channels of its images.
    pub channels: u64,
    /// The largest label that it writes: from 256 on, labels need 16 bits.
    pub largest_label: u32,
    /// Networks whose logits are averaged.
    pub folds: u64,
    /// Voxels of a window along depth, height, width.
    pub window: [u64; 3],
    /// The memory line in bytes.
    pub ram_bytes: u64,
}

/// What predicting an image holds, in bytes, and how many windows it takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlimsollPlan {
    /// Windows, those of each fold counted.
    pub windows: u64,
    /// Code, heap and stacks.
    pub overhead_bytes: u64,
    /// Parameters, features and kernels' scratch.
    pub arena_bytes: u64,
    /// Windows on their way in and out.
    pub window_bytes: u64,
    /// Logits being summed, and a plane of labels.
    pub logits_bytes: u64,
    /// What has to be known of the image before any window.
    pub preparation_bytes: u64,
    /// What decoding the image takes.
    pub decoding_bytes: u64,
    /// The copy of the image.
    pub image_bytes: u64,
    /// What is left of the line for decoded voxels, if they need it.
    pub cache_bytes: u64,
    /// Planes of labels that wait for being handed over, if the line has room for them.
    pub queue_bytes: u64,
    /// All of these, and `spool_bytes`.
    pub total_bytes: u64,
    /// The least line that would do.
    pub minimum_bytes: u64,
    /// Labels of all the image, where they are not decided in the order of its planes.
    pub spool_bytes: u64,
}

/// An image of the caller. Arrays are in the order depth, height, width: a row of voxels, along the width, lies together.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlimsollImage {
    /// For each channel, the address of its first voxel.
    pub channels: *const *const c_void,
    /// How many channels.
    pub channel_count: u64,
    /// The bytes of each channel: voxels times the bytes of one.
    pub channel_bytes: u64,
    /// PLIMSOLL_U8, PLIMSOLL_U16, PLIMSOLL_I16 or PLIMSOLL_F32.
    pub element: u32,
    /// Voxels along depth, height, width.
    pub shape: [u64; 3],
    /// Rows x, y and z (millimetres towards right, anterior, superior) of four numbers each: what one voxel along depth, height and
    /// width adds, and where the first voxel is. `plimsoll_affine` makes it of spacing and direction.
    pub affine: [f64; 12],
}

impl PlimsollPlan {
    pub(crate) fn of(held: &Held) -> PlimsollPlan {
        let Held { plan, image } = held;
        PlimsollPlan {
            windows: plan.windows as u64,
            overhead_bytes: plan.overhead_bytes.0,
            arena_bytes: plan.arena_bytes.0,
            window_bytes: (plan.window_bytes - *image).0,
            logits_bytes: plan.logits_bytes.0,
            preparation_bytes: plan.preparation_bytes.0,
            decoding_bytes: plan.decoding_bytes.0,
            image_bytes: image.0,
            cache_bytes: plan.cache_bytes.0,
            queue_bytes: plan.queue_bytes.0,
            total_bytes: plan.total_bytes.0,
            minimum_bytes: plan.minimum_ram_bytes.0,
            spool_bytes: plan.spool_bytes.0,
        }
    }
}
