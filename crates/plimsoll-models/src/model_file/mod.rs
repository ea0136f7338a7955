//! A model in one file, `.plimsoll`: the weights of all folds, what prediction needs to know of them, and where they come from.
//!
//! It is a safetensors file, which other programs read: the tensors of a fold stand under `fold_0.` and the like, in f32 under the names
//! that the authors of the network give them; averages over the steps stand in the place of parameters. Its metadata has the
//! [`ModelRecord`] as JSON under `plimsoll.model`, and checksums of every tensor and of the header, which together cover every byte. They tell
//! damage; they are no signature, and do not tell who made the file.

mod read;
mod record;
mod verify;
mod write;

pub use read::ModelFile;
pub use record::{FoldRecord, ModelRecord};
pub use verify::Verified;
pub use write::{WrittenModel, export_model};

use plimsoll_run::FoldName;

/// The ending of the names of model files.
pub const MODEL_ENDING: &str = "plimsoll";

/// The metadata's key for the record.
const RECORD: &str = "plimsoll.model";

/// The prefix of the names of a fold's tensors.
fn prefix(fold: FoldName) -> String {
    format!("fold_{fold}.")
}
