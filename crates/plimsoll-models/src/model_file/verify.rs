//! Checking every byte of a model's file.

use std::path::Path;

use plimsoll_graph::{DType, Program};
use plimsoll_memory::Budget;
use plimsoll_nn::predict;
use plimsoll_nn::weights::TensorFault;
use plimsoll_run::{LoadOptions, expect_weights};
use serde::Serialize;

use super::ModelFile;
use crate::ModelError;

/// A file in which nothing is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Its folds.
    pub folds: usize,
    /// Its tensors.
    pub tensors: usize,
    /// The digest of all that it says.
    pub digest: String,
}

impl ModelFile {
    /// Reads all of a file, and checks the header, that the tensors of each fold are exactly the tensors of its network, and that every tensor
    /// has its written bytes and finite values. `observe` receives the number of bytes read so far and the total.
    ///
    /// # Errors
    /// Returns an error if a check fails; the error names all damaged tensors.
    pub fn verify(
        path: &Path,
        budget: &Budget,
        observe: &mut dyn FnMut(u64, u64),
    ) -> Result<Verified, ModelError> {
        let opened = ModelFile::open(path)?;
        let training = &opened.record.config.training;
        let net = training.net.as_architecture();
        let program: Program = predict(net, training.patch, 1, DType::F32)?;
        for weights in opened.weights() {
            expect_weights(&weights, net, &program, LoadOptions::default(), budget)?;
        }
        let faults = ModelFile::read(path)?.0.audit(observe)?;
        let named = |fault: &TensorFault| match fault {
            TensorFault::Damaged { name } => {
                format!("`{name}` does not have the checksum that it was written with")
            }
            TensorFault::NotFinite { name, count } => format!("{count} values of `{name}` are not finite"),
        };
        match faults.first() {
            None => Ok(Verified {
                folds: opened.record.folds.len(),
                tensors: opened.tensors,
                digest: opened.digest,
            }),
            Some(_) => Err(ModelError::DamagedModel {
                path: path.into(),
                faults: faults.iter().map(named).collect(),
                of: opened.tensors,
            }),
        }
    }
}
