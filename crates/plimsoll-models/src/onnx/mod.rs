//! The forward pass of a network as an ONNX file: one window in, its logits out.
//!
//! The window has the extent that the network was trained with, and any number of samples. How images become windows, and logits become
//! labels, is not in the file: its metadata say it.
//!
//! Weights are in the file itself, which protobuf bounds to 2 GiB, or in one beside it; they are written one tensor after the other, of
//! which only one is ever in memory.

mod attention;
mod constant;
mod external;
mod graph;
pub mod proto;
mod rearrange;
mod rotary;
mod write;

use std::path::{Path, PathBuf};

use plimsoll_graph::{DType, Program};
use plimsoll_memory::{Budget, Mapped};
use plimsoll_nn::weights::WeightSource;
use plimsoll_nn::{Network, names, predict};
use serde::Serialize;

use crate::{ModelError, SegmentationModel};
use plimsoll_run::{LoadOptions, each_parameter};
use plimsoll_run::{RunConfig, Task};

pub use write::Visit;

/// The version of ONNX's operators that files are of.
pub const OPSET: i64 = 17;

/// The place of the values of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightsGo {
    /// Into the file of the graph, which has 2 GiB at most.
    #[default]
    Inside,
    /// Into a file beside it, `NAME.onnx.DIGEST.data`, of any length.
    Beside,
}

/// The result of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportedGraph {
    /// Nodes.
    pub nodes: usize,
    /// Tensors with values: parameters and constants.
    pub tensors: usize,
    /// The version of ONNX's operators.
    pub opset: i64,
    /// Channels, depth, height, width of the input.
    pub image: Vec<usize>,
    /// Classes, depth, height, width of the output.
    pub logits: Vec<usize>,
    /// The file of weights beside it, if there is one.
    pub data: Option<PathBuf>,
}

/// A network with its weights, whoever trained it.
#[derive(Clone, Debug)]
pub struct OnnxModel<'m> {
    /// The network.
    pub net: &'m Network,
    /// Depth, height, width of a window.
    pub patch: [usize; 3],
    /// Its weights, of which averages over the steps are taken where there are some.
    pub weights: &'m WeightSource,
    /// Facts that a user of the graph needs, as texts by their keys.
    pub said: Vec<(String, String)>,
}

impl<'m> OnnxModel<'m> {
    /// One fold of a run.
    ///
    /// # Errors
    /// Returns an error if what the run was trained with cannot be said in JSON.
    pub fn from_run(config: &'m RunConfig, weights: &'m WeightSource) -> Result<OnnxModel<'m>, ModelError> {
        let mut said = network_facts(&config.training.net)?;
        match &config.task {
            Task::Segmentation(task) => {
                said.push(("plimsoll.dataset".into(), json(&task.dataset)?));
                said.push(("plimsoll.spacing".into(), json(&task.spacing)?));
                said.push((
                    "plimsoll.orientation".into(),
                    "axes depth, height, width towards superior, anterior, right".into(),
                ));
            }
            Task::Classification(task) => said.push(("plimsoll.dataset".into(), json(task)?)),
        }
        Ok(OnnxModel { net: &config.training.net, patch: config.training.patch, weights, said })
    }

    /// One fold of a model of another program. The preparation of images is described only in the words of its own files.
    ///
    /// # Errors
    /// Returns an error if its network cannot be written as JSON.
    pub fn from_model(
        model: &'m SegmentationModel,
        weights: &'m WeightSource,
    ) -> Result<OnnxModel<'m>, ModelError> {
        let mut said = network_facts(&model.net)?;
        let channels: Vec<&str> = model.channels.iter().map(|channel| channel.name.as_str()).collect();
        said.push(("plimsoll.channels".into(), json(&channels)?));
        said.push(("plimsoll.outputs".into(), json(&model.outputs)?));
        Ok(OnnxModel { net: &model.net, patch: model.patch, weights, said })
    }
}

fn network_facts(net: &Network) -> Result<Vec<(String, String)>, ModelError> {
    Ok(vec![("plimsoll.network".into(), json(net)?)])
}

fn json(value: &impl Serialize) -> Result<String, ModelError> {
    serde_json::to_string(value).map_err(|error| ModelError::NotExported {
        what: format!("the settings of the model cannot be written as JSON: {error}"),
        hint: "this is a bug: report it with the command and this message",
    })
}

/// Writes the forward pass of a model to a file. A file in the place of `to` is replaced once the new one is whole, and files of weights
/// beside it that it does not name are removed then.
///
/// # Errors
/// Returns an error if the network has an op that ONNX has no counterpart of, the graph comes to 2 GiB or more, the weights are damaged
/// or of another network, the budget has no room for the largest tensor, or the disk refuses.
pub fn export_onnx(
    model: &OnnxModel<'_>,
    to: &Path,
    weights: WeightsGo,
    budget: &Budget,
) -> Result<ExportedGraph, ModelError> {
    let net = model.net.as_architecture();
    let program = predict(net, model.patch, 1, DType::F32)?;
    let file = graph_file(&program, net.name(), model.said.clone())?;
    let largest = file.parameters().map(|(_, count)| count).max();
    // A network without parameters has nothing to hold.
    let mut buffer = Mapped::<f32>::zeroed(budget, "weights to export", largest.unwrap_or(1))?;
    let options = LoadOptions { averaged: true, ..LoadOptions::default() };
    let data = file.write(to, weights, &mut |visit| {
        each_parameter(model.weights, net, &program, &mut buffer, options, budget, visit)
    })?;
    Ok(exported(&file, data))
}

/// Writes any program of one input [`names::IMAGE`] and one output [`names::LOGITS`]. `each` hands the values of each parameter to what it
/// is given, once, in any order.
///
/// # Errors
/// Returns the errors of [`export_onnx`] and of `each`.
pub fn export_program(
    program: &Program,
    to: &Path,
    weights: WeightsGo,
    each: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), ModelError>,
) -> Result<ExportedGraph, ModelError> {
    let file = graph_file(program, &program.name, Vec::new())?;
    let data = file.write(to, weights, each)?;
    Ok(exported(&file, data))
}

fn graph_file<'p>(
    program: &'p Program,
    network: &str,
    said: Vec<(String, String)>,
) -> Result<write::GraphFile<'p>, ModelError> {
    let graph = graph::graph(program).map_err(|missing| ModelError::NotExported {
        what: format!("{network} has the op {}, but ONNX has no counterpart of {}", missing.op, missing.what),
        hint: "export its weights with ‹format=safetensors›: they load into its authors' network",
    })?;
    let find = |name: &str| {
        program.find(name).map(|id| program.shape(id).0.clone()).ok_or_else(|| {
            let (program, tensor) = (program.name.clone(), name.to_string());
            ModelError::from(plimsoll_nn::ConfigError::from(plimsoll_graph::GraphError::MissingValue {
                program,
                tensor,
            }))
        })
    };
    let (image, logits) = (find(names::IMAGE)?, find(names::LOGITS)?);
    Ok(write::GraphFile { program, graph, image, logits, said })
}

fn exported(file: &write::GraphFile<'_>, data: Option<PathBuf>) -> ExportedGraph {
    ExportedGraph {
        nodes: file.graph.nodes.len(),
        tensors: file.parameters().count() + file.graph.constants.len(),
        opset: OPSET,
        image: file.image.iter().skip(1).copied().collect(),
        logits: file.logits.iter().skip(1).copied().collect(),
        data,
    }
}
