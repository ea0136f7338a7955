//! A network as deepbet stores it.

use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use plimsoll_nn::weights::TorchScriptFile;
use plimsoll_nn::{Architecture, LinkNet};

use super::PACKAGE;
use super::topology::topology;
use crate::new_files::NewFiles;
use crate::tensor_copies::TensorSource;
use crate::torch_script::{Graph, Refused, trace};
use crate::{ModelError, PackageError};

/// The tensor that shows the network's size.
const STEM: &str = "init.0.weight";
/// The classes: background and brain.
pub(super) const CLASSES: usize = 2;

/// An open file of a network.
pub(super) struct NetworkFile {
    source: TensorSource,
    net: LinkNet,
}

impl NetworkFile {
    /// Opens a file, and compares its program with deepbet's by its operations and its tensors by names and shapes.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is no TorchScript, or is of another network.
    pub(super) fn open(path: &Path, budget: &Budget) -> Result<NetworkFile, ModelError> {
        let refuse = |why: String| PackageError::Topology { path: path.into(), why, package: &PACKAGE };
        let mut script = TorchScriptFile::open(path, budget)?;
        let mut graph = Graph::default();
        let [image, probabilities] = topology(&mut graph);
        match trace(&mut script, &mut graph, image, budget) {
            Ok(result) if result == probabilities => {}
            Ok(_) => return Err(refuse("its result is not the network's last".into()).into()),
            Err(Refused::Code(error)) => return Err(error.into()),
            Err(Refused::Other(why)) => return Err(refuse(why).into()),
            Err(Refused::OverBudget(source)) => {
                return Err(PackageError::OverBudget { path: path.into(), source }.into());
            }
        }
        let file = script.into_weights();
        let stem = file.shape(STEM).ok_or_else(|| refuse(format!("there is no tensor `{STEM}`")))?;
        let &[init_filters, inputs, 7, 7, 7] = &stem.0[..] else {
            return Err(refuse(format!("`{STEM}` has the shape {stem}, which is no kernel of 7×7×7")).into());
        };
        if inputs != 1 {
            return Err(refuse(format!("its network has {inputs} channels, but deepbet has one")).into());
        }
        let net = LinkNet::new(inputs, CLASSES, init_filters);
        net.check().map_err(|fault| refuse(fault.to_string()))?;
        let source =
            TensorSource::of_network(path, file, &net, "deepbet's network", |why| refuse(why).into())?;
        let idle = net.idle_biases();
        let is_known = |name: &str| {
            source.tensors.iter().any(|(known, _)| known == name)
                || idle.iter().any(|(known, _)| known == name)
        };
        if let Some(name) = source.file.names().find(|name| !is_known(name)) {
            return Err(refuse(format!("deepbet's network has no tensor `{name}`")).into());
        }
        Ok(NetworkFile { source, net })
    }

    /// The network.
    pub(super) fn network(&self) -> &LinkNet {
        &self.net
    }

    /// Writes the tensors that prediction needs to a new file, and checks the others.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, have a value that is not finite, there is no room for the largest, or the disk refuses.
    pub(super) fn write(self, name: &str, files: &mut NewFiles, budget: &Budget) -> Result<(), ModelError> {
        let no_room = |path: PathBuf, source| PackageError::OverBudget { path, source }.into();
        self.source.write(name, files, budget, no_room)
    }
}
