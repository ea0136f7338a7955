//! Importing MeshNets in TensorFlow.js's format of layers, as brainchop publishes them (Masoud et al. 2023, doi:10.21105/joss.05098).
//!
//! ```text
//! model.json          topology, and the names, shapes and files of the weights
//! *.bin               numbers of all tensors, one behind the other, f32 and little-endian
//! colormap.json       names of the classes, if it is there
//! LICENSE             there or in the folder above, copied if it is there
//! ```
//!
//! becomes a `model.toml` with its weights, see [`monai`](crate::monai). Nothing but a chain of layers is read.

mod error;
mod topology;
mod weights;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_disk::{File, atomic};
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::safetensors;
use plimsoll_nn::{Architecture, MeshNet};
use serde::{Deserialize, Serialize};

pub use error::TensorFlowError;

use crate::ModelError;
use topology::Topology;
use weights::{Stored, Tensors};

/// The longest description that is read.
const LONGEST: u64 = 4 << 20;
/// The format, as it is named at the beginning of a description.
const FORMAT: &[u8] = b"\"layers-model\"";
/// The beginning that is looked at.
const BEGINNING: usize = 4096;
/// The most bytes of memory for a byte of JSON, as for bundles of MONAI.
const HEAP_PER_BYTE: u64 = 128;
/// The longest text of a licence that is copied.
const LONGEST_LICENCE: u64 = 1 << 20;
/// Files of the imported model.
const DESCRIPTION: &str = "model.toml";
const WEIGHTS: &str = "model.safetensors";
const LICENCE: &str = "LICENSE";
/// The extent of the images that brainchop's networks were trained with, along each axis, at 1 mm.
const EXTENT: usize = 256;

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The description, which is the model.
    pub model: PathBuf,
    /// All files, and their bytes.
    pub files: Vec<(PathBuf, u64)>,
    /// The text of the licence, if there was one.
    pub licence: Option<PathBuf>,
    /// The SHA-256 of the imported weights, all files one behind the other, in hexadecimal digits.
    pub sha256: String,
}

/// The `model.json` that a path is or has in it, if its beginning names TensorFlow.js's format of layers.
///
/// # Errors
/// Returns an error if the file is there and cannot be read.
pub fn find(path: &Path) -> Result<Option<PathBuf>, ModelError> {
    let file = if path.is_dir() { path.join("model.json") } else { path.to_path_buf() };
    if !file.is_file() || file.extension().is_none_or(|ending| ending != "json") {
        return Ok(None);
    }
    let mut beginning = Vec::with_capacity(BEGINNING);
    let opened = File::open(&file).map_err(|source| ModelError::io(&file, source))?;
    #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
    let read = opened.take(BEGINNING as u64).read_to_end(&mut beginning);
    read.map_err(|source| ModelError::io(&file, source))?;
    let is_one = beginning.windows(FORMAT.len()).any(|window| window == FORMAT);
    Ok(is_one.then_some(file))
}

/// Imports the model of a [`find`]ed `model.json` into a folder, which is created if it does not exist.
///
/// # Errors
/// Returns an error if the description or its weights cannot be read, do not fit each other, or describe another network than a MeshNet;
/// there is no room to read them; or a file exists already or cannot be written. Then all that was written is removed.
pub fn import(file: &Path, to: &Path, budget: &Budget) -> Result<Imported, ModelError> {
    let failed = |source| ModelError::io(file, source);
    let refuse = |why: String| TensorFlowError::Refused { path: file.into(), why };
    let length = plimsoll_disk::metadata(file).map_err(failed)?.len();
    if length > LONGEST {
        return Err(refuse(format!("it has {length} bytes, more than {LONGEST}")).into());
    }
    let over = |source| TensorFlowError::OverBudget { path: file.into(), source };
    let _held = budget.reserve("a model of TensorFlow.js", Bytes(length * HEAP_PER_BYTE)).map_err(over)?;
    let text = plimsoll_disk::read(file, length).map(plimsoll_disk::without_mark).map_err(failed)?;
    let stored: Stored = serde_json::from_slice(&text).map_err(|problem| refuse(problem.to_string()))?;
    let topology = Topology::read(&stored.topology).map_err(refuse)?;
    let net = topology.network();
    net.check().map_err(|fault| refuse(fault.to_string()))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let tensors = Tensors::read(&stored.manifest, folder, budget)?;
    let tensors_of_net = topology.tensors(&tensors).map_err(refuse)?;
    let labels = labels(folder, net.classes)?;
    let licence = [folder.to_path_buf(), folder.join("..")].into_iter().map(|folder| folder.join(LICENCE));
    let licence = licence.into_iter().find(|path| path.is_file());
    let licence = licence.map(|path| {
        plimsoll_disk::read(&path, LONGEST_LICENCE).map_err(|source| ModelError::io(&path, source))
    });
    let contents = Contents {
        description: description(&net, &labels).map_err(refuse)?,
        tensors: tensors_of_net,
        licence: licence.transpose()?,
    };
    contents.write(to, tensors.sha256, budget)
}

/// The contents of the files of an import.
struct Contents {
    description: String,
    tensors: Vec<(String, Shape, Vec<f32>)>,
    licence: Option<Vec<u8>>,
}

impl Contents {
    /// Writes all files. The description comes last: without it the folder is no model.
    fn write(self, to: &Path, sha256: String, budget: &Budget) -> Result<Imported, ModelError> {
        let paths = [LICENCE, WEIGHTS, DESCRIPTION].map(|name| to.join(name));
        if let Some(path) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(TensorFlowError::Exists { path: path.clone() }.into());
        }
        let is_new = !to.exists();
        plimsoll_disk::create_dir_all(to).map_err(|source| ModelError::io(to, source))?;
        let mut files = Vec::new();
        let written = self.write_each(&paths, budget, &mut files);
        if let Err(error) = written {
            // The first error is the one to report.
            for (path, _) in &files {
                let _ = plimsoll_disk::remove_file(path);
            }
            if is_new {
                let _ = plimsoll_disk::remove_folder(to);
            }
            return Err(error);
        }
        let [licence, _, model] = paths;
        let licence = self.licence.is_some().then_some(licence);
        Ok(Imported { model, files, licence, sha256 })
    }

    fn write_each(
        &self,
        [licence, weights, description]: &[PathBuf; 3],
        budget: &Budget,
        files: &mut Vec<(PathBuf, u64)>,
    ) -> Result<(), ModelError> {
        let mut write = |path: &Path, contents: &[u8]| {
            atomic::write(path, |output| output.write_all(contents))
                .map_err(|source| ModelError::io(path, source))?;
            files.push((path.to_path_buf(), contents.len() as u64));
            Ok::<_, ModelError>(())
        };
        if let Some(text) = &self.licence {
            write(licence, text)?;
        }
        let bytes: usize = self.tensors.iter().map(|(_, _, values)| size_of_val(values.as_slice())).sum();
        // The file, in memory, and the largest tensor once more.
        let over = |source| TensorFlowError::OverBudget { path: weights.clone(), source };
        let _held = budget.reserve("weights in one file", Bytes(3 * bytes as u64 + LONGEST)).map_err(over)?;
        let named: Vec<(String, Shape)> =
            self.tensors.iter().map(|(name, shape, _)| (name.clone(), shape.clone())).collect();
        let largest = self.tensors.iter().map(|(_, _, values)| values.len()).max().unwrap_or(0);
        let mut file = io::Cursor::new(Vec::new());
        let fill = |tensor: usize, values: &mut [f32]| {
            values.copy_from_slice(&self.tensors[tensor].2);
            Ok(())
        };
        safetensors::write(&mut file, &named, &[].into(), &mut vec![0.0; largest], fill)
            .map_err(|source| ModelError::io(weights, source))?;
        write(weights, &file.into_inner())?;
        write(description, self.description.as_bytes())
    }
}

/// The names of the classes, of `colormap.json` beside the model, or numbers.
fn labels(folder: &Path, classes: usize) -> Result<Vec<String>, ModelError> {
    #[derive(Deserialize)]
    struct Colours {
        labels: Vec<String>,
    }
    let file = folder.join("colormap.json");
    let numbers =
        || (0..classes).map(|class| if class == 0 { "background".into() } else { class.to_string() });
    if !file.is_file() {
        return Ok(numbers().collect());
    }
    let text = plimsoll_disk::read(&file, LONGEST).map_err(|source| ModelError::io(&file, source))?;
    let read: Result<Colours, _> = serde_json::from_slice(&text);
    // Colours serve several networks, of which some have fewer classes: names count only if there is one for each.
    Ok(match read {
        Ok(Colours { labels }) if labels.len() == classes => labels,
        _ => numbers().collect(),
    })
}

/// The text of a `model.toml`.
fn description(net: &MeshNet, labels: &[String]) -> Result<String, String> {
    #[derive(Serialize)]
    struct File<'a> {
        weights: &'a str,
        network: NetworkEntry<'a>,
        images: Images<'a>,
        intensity: Intensity<'a>,
        window: Window<'a>,
        output: Output<'a>,
    }
    #[derive(Serialize)]
    struct NetworkEntry<'a> {
        name: &'a str,
        in_channels: usize,
        out_channels: usize,
        features: &'a [usize],
        dilations: &'a [usize],
        activation: plimsoll_nn::MeshActivation,
        instance_norm: bool,
    }
    #[derive(Serialize)]
    struct Images<'a> {
        channels: Vec<&'a str>,
        orientation: &'a str,
        spacing: [f64; 3],
    }
    #[derive(Serialize)]
    struct Intensity<'a> {
        name: &'a str,
    }
    #[derive(Serialize)]
    struct Window<'a> {
        roi_size: [usize; 3],
        overlap: f64,
        mode: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        margin: Option<usize>,
    }
    #[derive(Serialize)]
    struct Output<'a> {
        activation: &'a str,
        labels: &'a [String],
    }
    // With statistics of the whole window, a part of one is another network.
    let margin = (!net.instance_norm).then(|| net.reach());
    let file = File {
        weights: WEIGHTS,
        network: NetworkEntry {
            name: "MeshNet",
            in_channels: net.in_channels,
            out_channels: net.classes,
            features: &net.features,
            dilations: &net.dilations,
            activation: net.activation,
            instance_norm: net.instance_norm,
        },
        images: Images { channels: vec!["T1"], orientation: "RAS", spacing: [1.0; 3] },
        intensity: Intensity { name: "ScaleIntensity" },
        window: Window {
            roi_size: [EXTENT; 3],
            overlap: 0.0,
            mode: if margin.is_some() { "interior" } else { "constant" },
            margin,
        },
        output: Output { activation: "softmax", labels },
    };
    toml::to_string(&file).map_err(|problem| problem.to_string())
}
