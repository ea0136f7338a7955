//! The state of a stream, from which another resumes.

use plimsoll_memory::{Digest, Digester};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use plimsoll::FoldData;

use crate::{Failure, PatchSettings};

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

impl StreamState {
    pub(super) fn new(
        step: u64,
        iteration: u64,
        settings: &PatchSettings,
        data: Digest,
    ) -> Result<StreamState, Failure> {
        let failed = |problem: String| Failure::Failed {
            message: format!("the settings cannot be written: {problem}"),
            remedy: None,
        };
        match serde_json::to_value(settings).map_err(|error| failed(error.to_string()))? {
            Value::Object(settings) => {
                Ok(StreamState { version: VERSION, step, iteration, settings, data: data.to_string() })
            }
            other => Err(failed(other.to_string())),
        }
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

/// The digest of everything in a data set that patches depend on.
pub(super) fn digest_of(data: &FoldData) -> Digest {
    let mut digest = Digester::default();
    let mut add = |text: &str| {
        digest.update(&(text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    };
    for channel in &data.dataset.channels {
        add(&channel.name);
        add(&format!("{:?}", channel.normalisation));
    }
    data.dataset.labels.names().iter().for_each(|name| add(name));
    for case in data.inspection.fingerprint.iter().flat_map(|all| &all.cases) {
        add(&case.id);
        add(&case.content.to_string());
    }
    for cases in [&data.fold.train, &data.fold.val] {
        add(&cases.len().to_string());
        cases.iter().for_each(|case| add(case));
    }
    digest.finish()
}
