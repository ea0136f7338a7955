//! The memory of a session, before anything is allocated for its image.

use plimsoll_memory::{Bytes, MapError};
use serde::Serialize;

use crate::interactive::bits::BitMask;
use crate::interactive::image::NormalisedImage;
use crate::interactive::opening;
use crate::interactive::zoom::{MOST_ZOOM, scaled};

/// The memory of a session with an image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InteractivePlan {
    /// The memory limit.
    pub ram_budget_bytes: Bytes,
    /// Code, heap and stacks.
    pub overhead_bytes: Bytes,
    /// Parameters, features and kernels' scratch: of a device, only what is copied to it through.
    pub arena_bytes: Bytes,
    /// The bytes on a device with memory of its own; `None` on the processor.
    pub device_bytes: Option<Bytes>,
    /// A patch with its prompts, its logits, and planes of prompts that are zoomed out.
    pub patch_bytes: Bytes,
    /// The file of weights while it is read.
    pub weights_bytes: Bytes,
    /// The image in single precision.
    pub image_bytes: Bytes,
    /// The segmentation and the one before it, of one bit for each voxel.
    pub segmentation_bytes: Bytes,
    /// Coarse segmentations, changes and refined patches, of one bit for each voxel, for the largest object.
    pub refinement_bytes: Bytes,
    /// All of these. Masks of scribbles and lassos take one bit for each of their voxels beside them.
    pub total_bytes: Bytes,
    /// The predicted duration of a pass through the network.
    pub predicted_seconds_of_pass: f64,
}

impl InteractivePlan {
    /// The parts of what this process holds.
    pub fn parts(&self) -> [(&'static str, Bytes); 7] {
        [
            ("overhead", self.overhead_bytes),
            ("arena", self.arena_bytes),
            ("patches", self.patch_bytes),
            ("weights", self.weights_bytes),
            ("image", self.image_bytes),
            ("segmentation", self.segmentation_bytes),
            ("refinement", self.refinement_bytes),
        ]
    }
}

/// The needs of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageNeeds {
    pub(crate) image: Bytes,
    pub(crate) segmentation: Bytes,
    pub(crate) refinement: Bytes,
}

impl ImageNeeds {
    /// The needs of an image of a shape for patches of an extent.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn new(shape: [usize; 3], patch: [usize; 3]) -> Result<ImageNeeds, MapError> {
        let widest = scaled(patch, MOST_ZOOM);
        let seen = std::array::from_fn(|axis| shape[axis].min(widest[axis]));
        // Boxes are around voxels of the image, and reach beyond it by half a patch at most.
        let hull = std::array::from_fn(|axis| shape[axis].saturating_add(patch[axis]));
        let coarse = BitMask::bytes(seen)?;
        let planning = BitMask::bytes(seen)? + BitMask::bytes(shape)?.max(opening::scratch_bytes(seen)?);
        Ok(ImageNeeds {
            image: NormalisedImage::bytes(shape)?,
            segmentation: Bytes(2 * BitMask::bytes(shape)?.0),
            refinement: coarse + planning.max(BitMask::bytes(hull)?),
        })
    }

    /// All of them.
    pub(crate) fn total(&self) -> Bytes {
        self.image + self.segmentation + self.refinement
    }
}
