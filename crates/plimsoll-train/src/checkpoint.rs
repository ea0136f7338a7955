//! Checkpoints: everything that a run needs to go on as if it had never stopped.
//!
//! A checkpoint is a safetensors file with the parameters under PyTorch's names, the optimizer's moments behind a slash
//! (`name/exp_avg`), and the run's progress in the header. Patches and augmentation are functions of the step, so there is no
//! state of random numbers. It is written beside its place, synced, and renamed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_data::atomic;
use plimsoll_graph::{Program, Role, Shape, TensorId};
use plimsoll_memory::{Budget, MapError, Mapped};
use plimsoll_nn::Architecture;
use plimsoll_nn::weights::{NamingScheme, SafetensorsFile, WeightFile, safetensors};
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, ProgramId};
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// The last that was written.
    Latest,
    /// That of the highest moving average of the pseudo-Dice.
    Best,
    /// That after the last epoch.
    Final,
}

impl CheckpointKind {
    /// The name of its file in the folder of a fold.
    pub fn file(self) -> &'static str {
        match self {
            CheckpointKind::Latest => "checkpoint_latest.safetensors",
            CheckpointKind::Best => "checkpoint_best.safetensors",
            CheckpointKind::Final => "checkpoint_final.safetensors",
        }
    }
}

/// Sums of the parts of a loss, and of how many values.
pub(crate) type PartSums = Vec<(f64, u64)>;

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Steps done.
    pub(crate) steps: u64,
    /// The sum of the losses of the epoch's steps so far.
    pub(crate) epoch_loss: f64,
    /// Of each part of the loss, the sum over the epoch's steps so far and how many had it.
    #[serde(default)]
    pub(crate) epoch_parts: PartSums,
    /// The moving average of the pseudo-Dice.
    pub(crate) ema: Option<f64>,
    /// The highest it ever was.
    pub(crate) best: Option<f64>,
    /// The length of the journal.
    pub(crate) journal_bytes: u64,
}

const PROGRESS: &str = "plimsoll.progress";

/// Reads and writes checkpoints of one run.
pub struct Checkpoint {
    folder: PathBuf,
    /// (tensor, name, shape) of everything that is kept.
    tensors: Vec<(TensorId, String, Shape)>,
    buffer: Mapped<f32>,
}

impl Checkpoint {
    /// What is kept of a program's tensors: parameters and moments. Accumulated gradients are zero between steps.
    fn kept(program: &Program) -> impl Iterator<Item = TensorId> + '_ {
        program.ids().filter(|id| {
            let tensor = program.tensor(*id);
            tensor.role.is_persistent() && !tensor.name.ends_with("/grad")
        })
    }

    /// Elements of the largest tensor that is kept.
    fn largest(program: &Program) -> usize {
        Checkpoint::kept(program).map(|id| program.shape(id).count()).max().unwrap_or(0)
    }

    /// What writing and reading takes: a copy of the largest tensor.
    ///
    /// # Errors
    /// If it does not fit the address space.
    pub fn bytes(program: &Program) -> Result<plimsoll_memory::Bytes, MapError> {
        Mapped::<f32>::bytes(Checkpoint::largest(program))
    }

    /// For the run in `folder`, whose parameters and moments are those of `program`.
    ///
    /// # Errors
    /// If the budget has no room for a copy of the largest tensor.
    pub fn new(folder: &Path, program: &Program, budget: &Budget) -> Result<Checkpoint, MapError> {
        let tensors = Checkpoint::kept(program)
            .map(|id| {
                let tensor = program.tensor(id);
                (id, tensor.name.clone(), tensor.shape.clone())
            })
            .collect();
        let buffer = Mapped::zeroed(budget, "checkpoint", Checkpoint::largest(program))?;
        Ok(Checkpoint { folder: folder.into(), tensors, buffer })
    }

    pub(crate) fn path(&self, kind: CheckpointKind) -> PathBuf {
        self.folder.join(kind.file())
    }

    /// Writes a checkpoint of what an engine holds for `program`.
    pub(crate) fn write(
        &mut self,
        kind: CheckpointKind,
        engine: &dyn Engine,
        program: ProgramId,
        progress: &Progress,
        net: &dyn Architecture,
    ) -> Result<(), TrainError> {
        let path = self.path(kind);
        let failed = |source| TrainError::io(&path, source);
        let progress = serde_json::to_string(progress).map_err(|problem| failed(problem.into()))?;
        let metadata = BTreeMap::from([(PROGRESS.to_string(), progress)]);
        let mut tensors: Vec<(String, Shape)> =
            self.tensors.iter().map(|(_, name, shape)| (name.clone(), shape.clone())).collect();
        tensors.extend(net.idle_biases().into_iter().map(|(name, channels)| (name, Shape(vec![channels]))));
        let (kept, buffer) = (&self.tensors, &mut self.buffer);
        atomic::write(&path, |file| {
            let mut file = file;
            safetensors::write(&mut file, &tensors, &metadata, buffer, |i, values| match kept.get(i) {
                Some((id, ..)) => {
                    engine.read(program, *id, HostSliceMut::F32(values)).map_err(io::Error::other)
                }
                None => {
                    values.fill(0.0);
                    Ok(())
                }
            })
        })
        .map_err(failed)
    }

    /// Reads the last checkpoint into an engine; none if there is none.
    pub(crate) fn resume(
        &mut self,
        engine: &mut dyn Engine,
        program: ProgramId,
    ) -> Result<Option<Progress>, TrainError> {
        let path = self.path(CheckpointKind::Latest);
        if !path.exists() {
            return Ok(None);
        }
        let mut file = SafetensorsFile::open(&path)?;
        let wrong = |why: String| TrainError::Checkpoint { path: path.clone(), why };
        let text = file.metadata().get(PROGRESS).ok_or_else(|| wrong("it tells no progress".into()))?;
        let progress: Progress = serde_json::from_str(text).map_err(|problem| wrong(problem.to_string()))?;
        for (id, name, shape) in &self.tensors {
            let values = &mut self.buffer[..shape.count()];
            file.read(name, shape, values)?;
            engine.write(program, *id, HostSlice::F32(values))?;
        }
        Ok(Some(progress))
    }

    /// Reads initial parameters from a weight file of the same network into an engine.
    pub(crate) fn load_parameters(
        &mut self,
        weights: &Path,
        net: &dyn Architecture,
        engine: &mut dyn Engine,
        (id, program): (ProgramId, &Program),
    ) -> Result<(), TrainError> {
        read_parameters(weights, net, engine, (id, program), &mut self.buffer)
    }
}

/// Reads the parameters of a network's program from a weight file into an engine. `buffer` must have room for the largest.
///
/// # Errors
/// If the file cannot be read, or is of another network.
pub fn read_parameters(
    weights: &Path,
    net: &dyn Architecture,
    engine: &mut dyn Engine,
    (id_of_program, program): (ProgramId, &Program),
    buffer: &mut [f32],
) -> Result<(), TrainError> {
    let mut file = WeightFile::open(weights)?;
    let names: Vec<&str> =
        program.with_role(Role::Parameter).map(|id| program.tensor(id).name.as_str()).collect();
    let schemes = net.naming_schemes();
    let scheme = NamingScheme::of_file(&schemes, &file, &names);
    for id in program.with_role(Role::Parameter) {
        let info = program.tensor(id);
        let name = scheme.map_or_else(|| info.name.clone(), |scheme| scheme.weight_name(&info.name));
        let values = &mut buffer[..info.shape.count()];
        file.read_named(&name, &info.shape, values)?;
        engine.write(id_of_program, id, HostSlice::F32(values))?;
    }
    Ok(())
}
