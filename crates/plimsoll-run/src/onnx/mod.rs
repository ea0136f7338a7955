//! The forward pass of a run as an ONNX file: one window in, its logits out.
//!
//! The window has the extent that the run was trained with, and any number of samples. How images become windows, and logits become
//! labels, is not in the file: its metadata say it.
//!
//! Weights are in the file itself, which protobuf bounds to 2 GiB; they are written one tensor after the other, of which only one is
//! ever in memory.

mod graph;
pub mod proto;
mod write;

use std::path::Path;

use plimsoll_graph::{DType, Role};
use plimsoll_memory::Budget;
use plimsoll_nn::weights::SafetensorsFile;
use plimsoll_nn::{names, predict};
use serde::Serialize;

use crate::export::{Stored, stored_tensors};
use crate::{RunConfig, RunError, Task};

/// The version of ONNX's operators that files are of.
pub const OPSET: i64 = 17;

/// What an export wrote.
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
}

/// Writes the forward pass of a checkpoint of a run to a file, with averages where the run kept some. A file in the place of `to` is
/// replaced once the new one is whole.
///
/// # Errors
/// If the network has an op that ONNX has no counterpart of, weights come to 2 GiB or more, the checkpoint is damaged or of another
/// network, the budget has no room for its largest tensor, or the disk refuses.
pub fn export_onnx(
    checkpoint: &Path,
    config: &RunConfig,
    to: &Path,
    budget: &Budget,
) -> Result<ExportedGraph, RunError> {
    let net = config.training.net.as_architecture();
    let program = predict(net, config.training.patch, 1, DType::F32)?;
    let graph = graph::graph(&program).map_err(|missing| RunError::NotExported {
        what: format!(
            "{} has the op {}, and ONNX has no counterpart of {}",
            net.name(),
            missing.op,
            missing.what
        ),
        hint: "export its weights with --format safetensors: they load into the network of its authors",
    })?;
    let mut from = SafetensorsFile::open(checkpoint)?;
    let stored: Vec<Stored> = stored_tensors(&from).collect();
    let mut parameters = Vec::new();
    for id in program.with_role(Role::Parameter) {
        let info = program.tensor(id);
        let shape = net.stored_shape(&info.name, &info.shape);
        let source = stored.iter().find(|stored| stored.name == info.name && stored.shape == shape);
        let source = source.map(|stored| stored.source.clone()).ok_or_else(|| RunError::NotExported {
            what: format!("{} has no {} of the shape {shape}", checkpoint.display(), info.name),
            hint: "the checkpoint is of another network: restore it, or train the run again",
        })?;
        parameters.push(write::Parameter {
            name: info.name.clone(),
            source,
            stored: shape,
            shape: info.shape.clone(),
        });
    }
    let find = |name: &str| {
        program.find(name).map(|id| program.shape(id).0.clone()).ok_or_else(|| {
            let (program, tensor) = (program.name.clone(), name.to_string());
            RunError::from(plimsoll_nn::ConfigError::from(plimsoll_graph::GraphError::MissingValue {
                program,
                tensor,
            }))
        })
    };
    let (image, logits) = (find(names::IMAGE)?, find(names::LOGITS)?);
    let file = write::GraphFile { graph, parameters, image, logits, said: said(config)? };
    file.write(&mut from, to, budget)?;
    Ok(ExportedGraph {
        nodes: file.graph.nodes.len(),
        tensors: file.parameters.len() + file.graph.constants.len(),
        opset: OPSET,
        image: file.image.into_iter().skip(1).collect(),
        logits: file.logits.into_iter().skip(1).collect(),
    })
}

/// What whoever runs the graph has to know, as texts by their keys: JSON, as runs have it.
fn said(config: &RunConfig) -> Result<Vec<(String, String)>, RunError> {
    let json = |value: serde_json::Result<String>| {
        value.map_err(|error| RunError::NotExported {
            what: format!("what the run was trained with cannot be said in JSON: {error}"),
            hint: "no setting is at fault: report it with the command and this line",
        })
    };
    let task = match &config.task {
        Task::Segmentation(task) => json(serde_json::to_string(&task.dataset))?,
        Task::Classification(task) => json(serde_json::to_string(&task))?,
    };
    let mut said = vec![("plimsoll.network".into(), json(serde_json::to_string(&config.training.net))?)];
    said.push(("plimsoll.dataset".into(), task));
    if let Task::Segmentation(task) = &config.task {
        said.push(("plimsoll.spacing".into(), json(serde_json::to_string(&task.spacing))?));
        said.push((
            "plimsoll.orientation".into(),
            "axes depth, height, width towards superior, anterior, right".into(),
        ));
    }
    Ok(said)
}
