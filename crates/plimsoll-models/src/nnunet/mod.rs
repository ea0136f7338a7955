//! Models that nnU-Net 2 trained, as it leaves them: read without Python, and without executing anything.
//!
//! ```text
//! DATASET/TRAINER__PLANS__CONFIGURATION/
//!     plans.json                         networks, spacings and how images are prepared, for each configuration
//!     dataset.json                       channels and labels
//!     fold_0/checkpoint_final.pth        weights, and which trainer and configuration they are of
//! ```
//!
//! [`NnUnetModel::open`] makes a [`SegmentationModel`](crate::SegmentationModel) of such a folder. Entries that cannot be followed exactly
//! as nnU-Net does are refused; the error names the file and quotes the entry. Each entry has its meaning in nnU-Net 2.8.1 (Isensee
//! et al. 2021, doi:10.1038/s41592-020-01008-z).

mod adaptation_plan;
mod dataset;
mod entry;
mod error;
mod export;
mod find;
mod import;
mod interactive;
mod model;
mod network;
mod plans;
mod postprocessing;
mod preparation;
mod pretrained_primus;
mod resampling;
mod trainers;

pub use adaptation_plan::{AdaptationPlan, PLAN_FILE};
pub use error::NnUnetError;
pub use export::{DIFFERENCES, ExportedFolder, export_nnunet};
pub use find::{find_model, is_nnunet, models_below};
pub use import::{Imported, import};
pub use interactive::{
    ChannelPair, InteractiveModel, PromptChannels, PromptSettings, REFINED_MARGIN, is_interactive,
};
pub use model::{NnUnetChoice, NnUnetModel};
pub use postprocessing::{KeepLargest, read_postprocessing};
