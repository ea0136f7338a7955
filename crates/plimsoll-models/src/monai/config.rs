//! A `model.toml`: what the weights beside it are of, and how images become what the network sees.

use std::path::{Path, PathBuf};

use plimsoll_data::MonaiIntensity;
use plimsoll_memory::{Budget, Bytes};
use serde::Deserialize;

use super::description::{Activation, Description, Sliding};
use super::error::MonaiError;
use super::network::NetworkArguments;
use crate::{Interpolated, ModelError};

/// The longest file that is read.
pub(super) const LONGEST: u64 = 1 << 20;
/// The most heap that reading one byte takes.
const HEAP_PER_BYTE: u64 = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    weights: PathBuf,
    monai_version: Option<String>,
    network: NetworkArguments,
    images: Images,
    intensity: MonaiIntensity,
    window: Sliding,
    output: Output,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Images {
    channels: Vec<String>,
    #[serde(default = "usual_ending")]
    file_ending: String,
    orientation: String,
    spacing: Option<[f64; 3]>,
}

fn usual_ending() -> String {
    ".nii.gz".into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Output {
    activation: Activation,
    labels: Vec<String>,
    values: Option<Vec<u16>>,
}

/// Reads a file.
pub(super) fn read(path: &Path, budget: &Budget) -> Result<Description, ModelError> {
    let io = |source| ModelError::io(path, source);
    let length = plimsoll_disk::metadata(path).map_err(io)?.len();
    if length > LONGEST {
        return Err(MonaiError::syntax(path, format!("it has {length} bytes, more than {LONGEST}")).into());
    }
    let held = budget.reserve("a model.toml", Bytes(length.saturating_mul(HEAP_PER_BYTE)));
    let _held = held.map_err(|source| MonaiError::OverBudget { path: path.into(), source })?;
    let text = plimsoll_disk::read_to_string(path, length).map_err(io)?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        MonaiError::syntax(path, format!("line {line}: {}", error.message()))
    })?;
    let File { weights, monai_version, network, images, intensity, window, output } = file;
    if images.orientation != "RAS" {
        let why = format!("images.orientation is {:?}, but only \"RAS\" is supported", images.orientation);
        return Err(MonaiError::refuse(path, why).into());
    }
    // The probabilities of a voxel, as where `Activationsd` comes before `Invertd`, which all of MONAI's bundles have.
    let interpolated = Interpolated::Probabilities;
    Ok(Description {
        weights: path.parent().unwrap_or(Path::new("")).join(weights),
        monai_version,
        network,
        channels: images.channels,
        file_ending: images.file_ending,
        spacing: images.spacing,
        intensity,
        sliding: window,
        activation: output.activation,
        interpolated,
        labels: output.labels,
        values: output.values,
    })
}
