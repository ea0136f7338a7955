//! A bundle of MONAI: its configuration of inference, its metadata, its weights.

use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes, Reservation};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::description::{Description, Mode, Overlap, Sliding, usual_sigma};
use super::error::MonaiError;
use super::network::NetworkArguments;
use super::transforms::{After, Before, after, before, last_part};
use super::values::{MOST_REPEATED, Values};
use super::yaml;
use crate::ModelError;

/// The configuration of the inference.
const CONFIG: &str = "configs/inference.json";
/// The same in YAML, which is read if there is none in JSON.
const YAML: [&str; 2] = ["configs/inference.yaml", "configs/inference.yml"];
/// The metadata of the bundle.
pub(super) const METADATA: &str = "configs/metadata.json";
/// The weights.
const WEIGHTS: &str = "models/model.pt";

/// The longest file that is read.
const LONGEST: u64 = 4 << 20;
/// The most bytes of memory for a byte of JSON, where the shortest object with an entry has 7 bytes and takes room for eleven entries.
const HEAP_PER_BYTE: u64 = 128;
/// The same of YAML, where the shortest such object, `{a}`, has 3 bytes and a comma.
const HEAP_PER_BYTE_OF_YAML: u64 = 256;

/// Returns the configuration of a bundle: in JSON, or in YAML if there is no JSON.
pub(super) fn config_of(folder: &Path) -> PathBuf {
    let json = folder.join(CONFIG);
    let yaml = || YAML.map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
    if json.is_file() { json } else { yaml().unwrap_or(json) }
}

/// Reads a bundle.
pub(super) fn read(folder: &Path, budget: &Budget) -> Result<Description, ModelError> {
    let (config, metadata) = (config_of(folder), folder.join(METADATA));
    let inference = File::read(&config, budget)?;
    let about = File::read(&metadata, budget)?;
    let values = inference.values(&config);
    let of_key = |key: &str, why: String| values.refuse(format!("`{key}`: {why}"));
    let network = network(&values)?;
    let Before { spacing, intensity } =
        before(&values.need("preprocessing")?).map_err(|why| of_key("preprocessing", why))?;
    let After { activation, interpolated } =
        after(&values.need("postprocessing")?).map_err(|why| of_key("postprocessing", why))?;
    let sliding = inferer(values.need("inferer")?).map_err(|why| of_key("inferer", why))?;
    let about = about.values(&metadata);
    let version = about.get("monai_version")?.and_then(|version| version.as_str().map(str::to_string));
    let format = about.need("network_data_format")?;
    let named = |group: &str| {
        let ports = format.get(group).and_then(Value::as_object);
        if let Some(ports) = ports.filter(|ports| ports.len() != 1) {
            let names: Vec<&str> = ports.keys().map(String::as_str).collect();
            return Err(about.refuse(format!(
                "`network_data_format.{group}` must be one image, and is {}: {}",
                names.len(),
                names.join(", ")
            )));
        }
        let only = ports.and_then(|ports| ports.values().next());
        let defined = only.and_then(|port| port.get("channel_def")).and_then(Value::as_object);
        names(defined).ok_or_else(|| {
            about.refuse(format!(
                "`network_data_format.{group}` does not describe each channel in `channel_def`"
            ))
        })
    };
    let weights = folder.join(WEIGHTS);
    Ok(Description {
        weights,
        monai_version: version,
        network,
        channels: named("inputs")?,
        file_ending: ".nii.gz".into(),
        spacing,
        intensity,
        sliding,
        activation,
        interpolated,
        labels: named("outputs")?,
        values: None,
    })
}

/// A file in JSON or YAML, and the room for it and for all values that are made of it.
struct File {
    root: Map<String, Value>,
    length: usize,
    _held: Reservation,
}

impl File {
    fn read(path: &Path, budget: &Budget) -> Result<File, ModelError> {
        let io = |source| ModelError::io(path, source);
        let wrong = |why: String| MonaiError::syntax(path, why);
        let length = plimsoll_disk::metadata(path).map_err(io)?.len();
        if length > LONGEST {
            return Err(wrong(format!("it has {length} bytes, more than {LONGEST}")).into());
        }
        let is_json = path.extension().is_some_and(|ending| ending == "json");
        let per_byte = if is_json { HEAP_PER_BYTE } else { HEAP_PER_BYTE_OF_YAML };
        // Once as it is read, and once with its references followed.
        let bytes = (2 * length + MOST_REPEATED as u64) * per_byte;
        let held = budget.reserve("a configuration of MONAI", Bytes(bytes));
        let held = held.map_err(|source| MonaiError::OverBudget { path: path.into(), source })?;
        let text = plimsoll_disk::read(path, length).map(plimsoll_disk::without_mark).map_err(io)?;
        let root = match is_json {
            true => serde_json::from_slice(&text).map_err(|problem| wrong(problem.to_string()))?,
            false => {
                let text = std::str::from_utf8(&text).map_err(|problem| wrong(problem.to_string()))?;
                yaml::read(text).map_err(wrong)?
            }
        };
        Ok(File { root, length: text.len(), _held: held })
    }

    fn values<'a>(&'a self, path: &'a Path) -> Values<'a> {
        Values::new(path, &self.root, self.length)
    }
}

/// The network by its constructor: `network_def`, or `network` where that is one.
fn network(values: &Values<'_>) -> Result<NetworkArguments, ModelError> {
    let key = if values.root.contains_key("network_def") { "network_def" } else { "network" };
    let mut found = values.need(key)?;
    let refuse = |why: String| values.refuse(format!("`{key}`: {why}"));
    let Some(arguments) = found.as_object_mut() else {
        return Err(refuse("it is not a network with its arguments".into()).into());
    };
    let target = arguments.remove("_target_");
    let target =
        target.as_ref().and_then(Value::as_str).ok_or_else(|| refuse("it has no _target_".into()))?;
    if let Some(name) = null_in(arguments) {
        return Err(refuse(format!("`{name}` is null: a network without it is not supported")).into());
    }
    arguments.insert("name".into(), last_part(target).into());
    let read = NetworkArguments::deserialize(found);
    read.map_err(|problem| refuse(problem.to_string()).into())
}

/// Arguments of networks that may be null, which is then as if they were not said.
const NULLABLE: [&str; 4] = ["dropout", "dropout_prob", "filters", "use_checkpoint"];

/// The first argument that is null. To MONAI that is another network than one that is not said: without normalisations or activations,
/// or with what counts as false.
fn null_in(arguments: &Map<String, Value>) -> Option<String> {
    arguments.iter().find_map(|(name, value)| match value {
        Value::Null => (!NULLABLE.contains(&name.as_str())).then(|| name.clone()),
        // A layer by its name and arguments.
        Value::Array(items) => {
            let inner = items.iter().filter_map(Value::as_object).find_map(null_in)?;
            Some(format!("{name}.{inner}"))
        }
        _ => None,
    })
}

/// Arguments of `SlidingWindowInferer`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inferer {
    #[serde(rename = "_target_")]
    target: String,
    roi_size: [usize; 3],
    overlap: Option<Overlap>,
    mode: Option<Mode>,
    sigma_scale: Option<f64>,
    padding_mode: Option<String>,
    cval: Option<f64>,
    /// An argument that changes memory or time, but no result.
    #[serde(rename = "sw_batch_size")]
    _sw_batch_size: Option<Value>,
    #[serde(rename = "sw_device")]
    _sw_device: Option<Value>,
    #[serde(rename = "device")]
    _device: Option<Value>,
    #[serde(rename = "progress")]
    _progress: Option<Value>,
    #[serde(rename = "cache_roi_weight_map")]
    _cache_roi_weight_map: Option<Value>,
    #[serde(rename = "cpu_thresh")]
    _cpu_thresh: Option<Value>,
}

fn inferer(value: Value) -> Result<Sliding, String> {
    let read: Inferer = Inferer::deserialize(value).map_err(|problem| problem.to_string())?;
    if last_part(&read.target) != "SlidingWindowInferer" {
        return Err(format!("`{}` is not a SlidingWindowInferer", read.target));
    }
    if read.padding_mode.as_deref().is_some_and(|mode| mode != "constant")
        || read.cval.is_some_and(|cval| cval != 0.0)
    {
        return Err(
            "images smaller than a window are padded with 0: padding_mode must be constant and cval 0".into(),
        );
    }
    Ok(Sliding {
        roi_size: read.roi_size,
        // MONAI's defaults.
        overlap: read.overlap.unwrap_or(Overlap::All(0.25)),
        mode: read.mode.unwrap_or(Mode::Constant),
        sigma_scale: read.sigma_scale.unwrap_or(usual_sigma()),
        margin: None,
    })
}

/// The names of channels, which are given by their numbers from 0 on.
fn names(defined: Option<&Map<String, Value>>) -> Option<Vec<String>> {
    let defined = defined?;
    let name = |number: usize| defined.get(&number.to_string())?.as_str().map(str::to_string);
    (0..defined.len()).map(name).collect()
}
