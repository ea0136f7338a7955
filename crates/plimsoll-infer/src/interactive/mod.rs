//! Interactive segmentation: prompts mark an object of an image, a network segments it, and further prompts correct the result.
//!
//! An [`InteractiveSession`] follows nnInteractive 2.6 (Isensee et al. 2025, arXiv:2503.08373): the channels of prompts, the zoom of patches and the
//! order of refinements are the same, and so are logits up to rounding. Its memory is not: prompts stay lists, segmentations have one bit for each voxel, and
//! patches that are zoomed out are averaged plane by plane.

mod bits;
mod border;
mod coarse;
mod cover;
mod error;
mod image;
mod marks;
mod network;
mod opening;
mod plan;
mod planes;
mod prediction;
mod profile;
mod prompts;
mod session;
mod sight;
mod zoom;

pub use error::InteractiveError;
pub use marks::PromptMask;
pub use plan::InteractivePlan;
pub use prediction::{Pass, PassKind};
pub use session::{InteractiveOptions, InteractiveSession};
