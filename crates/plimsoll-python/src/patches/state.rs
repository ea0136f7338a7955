//! The state of a stream, from which another resumes.

use plimsoll_memory::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Failure;

/// The version of states.
const VERSION: u32 = 1;

/// The position of a stream, and the facts that must be the same for its batches to have the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamState {
    version: u32,
    /// The step of the next batch.
    pub(super) step: u64,
    /// The batches of the epoch that were handed over.
    pub(super) iteration: u64,
    settings: Map<String, Value>,
    /// The digest of the data.
    data: String,
}

/// The settings of a stream as its states name them.
pub(super) fn written_settings(settings: &impl Serialize) -> Result<Map<String, Value>, Failure> {
    let failed = |problem: String| Failure::Failed {
        message: format!("the settings cannot be written: {problem}"),
        remedy: None,
    };
    match serde_json::to_value(settings).map_err(|error| failed(error.to_string()))? {
        Value::Object(settings) => Ok(settings),
        other => Err(failed(other.to_string())),
    }
}

impl StreamState {
    pub(super) fn new(step: u64, iteration: u64, settings: &Map<String, Value>, data: Digest) -> StreamState {
        StreamState { version: VERSION, step, iteration, settings: settings.clone(), data: data.to_string() }
    }

    pub(super) fn read(text: &str) -> Result<StreamState, Failure> {
        let read = serde_json::from_str(text);
        read.map_err(|error| Failure::argument("state_dict", format!("is not the state of Patches: {error}")))
    }

    /// Checks that a stream continues this state with the same bits: `own` is the present state of that stream.
    pub(super) fn expect_alike(&self, own: &StreamState) -> Result<(), Failure> {
        let refuse = |message: String| Err(Failure::argument("state_dict", message));
        if self.version != own.version {
            return refuse(format!(
                "has version {}, but this version of Plimsoll writes {}",
                self.version, own.version
            ));
        }
        for (name, here) in &own.settings {
            let saved = self.settings.get(name).unwrap_or(&Value::Null);
            if saved != here {
                return refuse(format!(
                    "was saved with {name}={saved}, but these patches have {name}={here}"
                ));
            }
        }
        if self.data != own.data {
            return refuse(
                "was saved with other data: the cases, their contents or the fold have changed".into(),
            );
        }
        Ok(())
    }
}
