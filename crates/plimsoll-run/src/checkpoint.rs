//! Checkpoints: the state from which a run resumes as if it had never stopped.
//!
//! A checkpoint is a safetensors file with the parameters under PyTorch's names and the optimizer's moments after a slash
//! (`name/exp_avg`). Its header has the run's progress, the identity of its specification, and checksums of the header and of each tensor.
//! Patches and augmentation are functions of the step, so there is no state of random numbers. The file does not depend on time or speed:
//! the same step has the same bytes.
//!
//! It is written beside its place, synced, and renamed. The latest one before stays as `checkpoint_previous`, so that a
//! file that the disk has damaged costs an epoch and not the run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::{Program, Shape, TensorId};
use plimsoll_memory::{Budget, Digest, MapError, Mapped};
use plimsoll_nn::weights::{SafetensorsFile, exchange_axes, safetensors};
use plimsoll_nn::{Architecture, PlateauState};
use plimsoll_plan::{Engine, HostSlice, HostSliceMut, ProgramId};
use serde::{Deserialize, Serialize};

use crate::{
    FoldFolder, LossScale, NumberedProgram, RunError, Specification, StartRule, StartTable, each_started,
};

/// The kind of a checkpoint of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointKind {
    /// The last that was written.
    Latest,
    /// The last but one.
    Previous,
    /// The checkpoint with the highest moving average of the pseudo-Dice.
    Best,
    /// The checkpoint after the last epoch.
    #[default]
    Final,
}

impl CheckpointKind {
    /// The name of its file in the folder of a fold.
    pub fn file(self) -> &'static str {
        match self {
            CheckpointKind::Latest => "checkpoint_latest.safetensors",
            CheckpointKind::Previous => "checkpoint_previous.safetensors",
            CheckpointKind::Best => "checkpoint_best.safetensors",
            CheckpointKind::Final => "checkpoint_final.safetensors",
        }
    }
}

/// Sums of the parts of a loss, and of how many values.
pub type PartSums = Vec<(f64, u64)>;

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Steps done.
    pub steps: u64,
    /// Epochs done and validated.
    pub validated: u64,
    /// The sum of the losses of the epoch's steps so far, and of how many.
    pub epoch_loss: (f64, u64),
    /// The sum of each part of the loss over the epoch's steps so far, and the number of steps that had it.
    pub epoch_parts: PartSums,
    /// The moving average of the pseudo-Dice.
    pub ema: Option<f64>,
    /// The highest it ever was.
    pub best: Option<f64>,
    /// Steps whose numbers went wrong and that were skipped; in all, and since the last update. Steps whose gradients overflow in f16 neither
    /// count nor end the row: they update nothing either.
    pub skipped: (u64, u64),
    /// The number of returns to a checkpoint after bad numbers; each return changes the patches.
    pub rollbacks: u64,
    /// The best score that could end the run early, and for how many epochs it has not been better.
    pub patience: Option<(f64, u64)>,
    /// The state of a learning rate that falls at plateaus.
    pub plateau: PlateauState,
    /// The factor of the loss for features in half precision; unchanged otherwise.
    pub loss_scale: LossScale,
    /// The number of amendments of the run that it includes, see [`Specification::adapt`].
    #[serde(default)]
    pub amendments: usize,
}

/// Keys of the header.
const PROGRESS: &str = "plimsoll.progress";
const SPECIFICATION: &str = "plimsoll.specification";

/// Reads the identity of the specification of a checkpoint, and its progress.
///
/// # Errors
/// Returns an error if the header lacks either, or has something else in its place.
pub fn checkpoint_header(path: &Path, file: &SafetensorsFile) -> Result<(Digest, Progress), RunError> {
    let wrong = |why: String| RunError::Checkpoint { path: path.into(), why };
    let said = |key: &str| file.metadata().get(key).ok_or_else(|| wrong(format!("it has no `{key}`")));
    let of: Digest =
        said(SPECIFICATION)?.parse().map_err(|_| wrong("its specification is invalid".into()))?;
    let progress: Progress =
        serde_json::from_str(said(PROGRESS)?).map_err(|problem| wrong(problem.to_string()))?;
    Ok((of, progress))
}

/// The identity of the specification of a checkpoint, and its number of steps.
///
/// # Errors
/// Returns an error if the checkpoint does not exist, or its header lacks them.
pub fn checkpoint_origin(folder: &FoldFolder, kind: CheckpointKind) -> Result<(Digest, u64), RunError> {
    let path = folder.checkpoint(kind);
    let file = SafetensorsFile::open(&path)?;
    let (specification, progress) = checkpoint_header(&path, &file)?;
    Ok((specification, progress.steps))
}

/// Reads and writes checkpoints of one fold.
pub struct Checkpoints {
    folder: FoldFolder,
    /// Everything that is kept, in its order.
    tensors: Vec<Stored>,
    buffer: Mapped<f32>,
    budget: Budget,
    /// `true` if this process wrote or read the latest checkpoint; only then does it replace the previous one.
    latest_is_sound: bool,
}

/// A tensor has values that are no numbers: a checkpoint with it would be worth less than the one before.
#[derive(Debug, thiserror::Error)]
#[error("`{tensor}` has values that are not finite")]
struct NotFinite {
    tensor: String,
}

/// A tensor of a checkpoint.
struct Stored {
    /// The tensor in the program of this process; `None` if another process has it.
    id: Option<TensorId>,
    name: String,
    shape: Shape,
}

/// The state of a run, of which a checkpoint is written.
#[derive(Clone, Copy)]
pub struct RunState<'a> {
    /// The engine with the parameters and moments.
    pub engine: &'a dyn Engine,
    /// The program that names them.
    pub program: ProgramId,
    /// The identity of the run's specification.
    pub specification: Digest,
    /// The progress of the run.
    pub progress: &'a Progress,
    /// The network.
    pub net: &'a dyn Architecture,
}

/// A checkpoint from which a run resumes.
pub struct Resumed {
    /// The progress of the run.
    pub progress: Progress,
    /// The path of the checkpoint.
    pub path: PathBuf,
    /// Later ones that could not be used, and why.
    pub damaged: Vec<RunError>,
}

impl Checkpoints {
    /// The tensors of a program that are stored: parameters and moments. Accumulated gradients are zero between steps.
    fn kept(program: &Program) -> impl Iterator<Item = TensorId> + '_ {
        program.ids().filter(|id| {
            let tensor = program.tensor(*id);
            tensor.role.is_persistent() && !tensor.name.ends_with("/grad")
        })
    }

    /// Elements of the largest tensor that is written.
    fn largest(program: &Program, net: &dyn Architecture) -> usize {
        let kept = Checkpoints::kept(program).map(|id| program.shape(id).count());
        kept.chain(net.constants().iter().map(|constant| constant.shape().count())).max().unwrap_or(0)
    }

    /// The memory for writing and reading: a copy of the largest tensor.
    ///
    /// # Errors
    /// Returns an error if it does not fit the address space.
    pub fn bytes(program: &Program, net: &dyn Architecture) -> Result<plimsoll_memory::Bytes, MapError> {
        Mapped::<f32>::bytes(Checkpoints::largest(program, net))
    }

    /// The checkpoints of the fold in `folder`, with the parameters and moments of `program`, which trains `net`.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for a copy of the largest tensor.
    pub fn new(
        folder: &FoldFolder,
        program: &Program,
        net: &dyn Architecture,
        budget: &Budget,
    ) -> Result<Checkpoints, MapError> {
        Checkpoints::with_stored(folder, program, program, net, budget)
    }

    /// The same with the parameters and moments of `stored`, of which `program` has a part: other processes have the rest.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for a copy of the largest tensor.
    pub fn with_stored(
        folder: &FoldFolder,
        program: &Program,
        stored: &Program,
        net: &dyn Architecture,
        budget: &Budget,
    ) -> Result<Checkpoints, MapError> {
        let tensors = Checkpoints::kept(stored)
            .map(|id| {
                let tensor = stored.tensor(id);
                let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
                Stored { id: program.find(&name), name, shape }
            })
            .collect();
        let buffer = Mapped::zeroed(budget, "checkpoint", Checkpoints::largest(stored, net))?;
        let (folder, budget) = (folder.clone(), budget.clone());
        Ok(Checkpoints { folder, tensors, buffer, budget, latest_is_sound: false })
    }

    /// Room for the largest tensor, for whoever reads or writes tensors between two checkpoints.
    pub fn buffer(&mut self) -> &mut [f32] {
        &mut self.buffer
    }

    /// Writes a state as a checkpoint. The latest checkpoint becomes the previous one unless it was found damaged; the previous one is then
    /// the only sound one until the new one is on the disk.
    ///
    /// # Errors
    /// Returns an error if the disk refuses, or a tensor has values that are not finite; existing checkpoints stay.
    pub fn write(&mut self, kind: CheckpointKind, state: RunState<'_>) -> Result<(), RunError> {
        self.write_gathered(kind, state, &mut |name, _| {
            Err(io::Error::other(format!("`{name}` is a tensor of another process")))
        })
    }

    /// The same if other processes have some of the tensors: `elsewhere` gets the name of each of these and writes its values, in the order of
    /// the checkpoint.
    ///
    /// # Errors
    /// Returns the errors of [`write`](Self::write) and of `elsewhere`.
    pub fn write_gathered(
        &mut self,
        kind: CheckpointKind,
        state: RunState<'_>,
        elsewhere: &mut dyn FnMut(&str, &mut [f32]) -> io::Result<()>,
    ) -> Result<(), RunError> {
        let path = self.folder.checkpoint(kind);
        let written = self.write_file(&path, state, elsewhere).and_then(|file| {
            if kind == CheckpointKind::Latest {
                if std::mem::take(&mut self.latest_is_sound) {
                    plimsoll_disk::rename(&path, self.folder.checkpoint(CheckpointKind::Previous))?;
                }
                file.commit()?;
                self.latest_is_sound = true;
                return Ok(());
            }
            file.commit()
        });
        written.map_err(|source| match source.downcast::<NotFinite>() {
            Ok(NotFinite { tensor }) => RunError::NotFinite { tensor, steps: state.progress.steps },
            Err(source) => RunError::io(&path, source),
        })
    }

    fn write_file(
        &mut self,
        path: &Path,
        state: RunState<'_>,
        elsewhere: &mut dyn FnMut(&str, &mut [f32]) -> io::Result<()>,
    ) -> io::Result<AtomicFile> {
        let RunState { engine, program, specification, progress, net } = state;
        let metadata = BTreeMap::from([
            (PROGRESS.to_string(), serde_json::to_string(progress)?),
            (SPECIFICATION.to_string(), specification.to_string()),
        ]);
        let stored = |Stored { name, shape, .. }: &Stored| (name.clone(), net.stored_shape(name, shape));
        let mut tensors: Vec<(String, Shape)> = self.tensors.iter().map(stored).collect();
        let constants = net.constants();
        tensors.extend(constants.iter().map(|constant| (constant.name.clone(), constant.shape())));
        tensors.extend(net.idle_biases().into_iter().map(|(name, channels)| (name, Shape(vec![channels]))));
        let (kept, buffer) = (&self.tensors, &mut self.buffer);
        // The header is written once more when the checksums are known, so the file must be one that can be sought in.
        let mut file = BufWriter::with_capacity(BUFFER, AtomicFile::create(path)?);
        safetensors::write(&mut file, &tensors, &metadata, buffer, |i, values| match kept.get(i) {
            Some(Stored { id, name, shape }) => {
                match id {
                    Some(id) => {
                        engine.read(program, *id, HostSliceMut::F32(values)).map_err(io::Error::other)?;
                    }
                    None => elsewhere(name, values)?,
                }
                if net.is_exchanged(name) {
                    exchange_axes(values, shape.dim(0));
                }
                match values.iter().all(|value| value.is_finite()) {
                    true => Ok(()),
                    false => Err(io::Error::other(NotFinite { tensor: name.clone() })),
                }
            }
            None => {
                match constants.get(i - kept.len()) {
                    Some(constant) => constant.fill(values),
                    None => values.fill(0.0),
                }
                Ok(())
            }
        })?;
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }

    /// Reads the newest sound checkpoint of a run into an engine; `None` if none was ever written. A checkpoint that is torn, damaged or
    /// of another run is skipped for an older one.
    ///
    /// # Errors
    /// Returns an error if there are checkpoints but none is sound; the error names all of them.
    pub fn resume(
        &mut self,
        specification: &Specification,
        engine: &mut dyn Engine,
        program: ProgramId,
    ) -> Result<Option<Resumed>, RunError> {
        let mut damaged = Vec::new();
        for kind in [CheckpointKind::Latest, CheckpointKind::Previous, CheckpointKind::Final] {
            let path = self.folder.checkpoint(kind);
            if !path.exists() {
                continue;
            }
            match self.read(&path, specification, engine, program) {
                Ok(progress) => {
                    self.latest_is_sound = kind == CheckpointKind::Latest;
                    return Ok(Some(Resumed { progress, path, damaged }));
                }
                Err(problem) => damaged.push(problem),
            }
        }
        match damaged.is_empty() {
            true => Ok(None),
            false => Err(RunError::NoSoundCheckpoint { folder: self.folder.path().into(), damaged }),
        }
    }

    fn read(
        &mut self,
        path: &Path,
        specification: &Specification,
        engine: &mut dyn Engine,
        program: ProgramId,
    ) -> Result<Progress, RunError> {
        let mut file = SafetensorsFile::open(path)?;
        let (of, progress) = checkpoint_header(path, &file)?;
        if !specification.owns(of)? {
            let why = format!("it belongs to a run with the specification {of}");
            return Err(RunError::Checkpoint { path: path.into(), why });
        }
        if !progress.loss_scale.is_sound_after(progress.steps) {
            let why = format!("no number of steps leads to its {:?}", progress.loss_scale);
            return Err(RunError::Checkpoint { path: path.into(), why });
        }
        // A fault in a tensor that this program does not use still shows that the file is damaged.
        file.verify_others(&BTreeSet::new())?;
        let net = specification.config.training.net.as_architecture();
        for Stored { id, name, shape } in &self.tensors {
            let Some(id) = id else { continue };
            let values = &mut self.buffer[..shape.count()];
            if net.is_exchanged(name) {
                let stored = net.stored_shape(name, shape);
                file.read(name, &stored, values)?;
                exchange_axes(values, stored.dim(0));
            } else {
                file.read(name, shape, values)?;
            }
            engine.write(program, *id, HostSlice::F32(values))?;
        }
        Ok(progress)
    }

    /// Writes the parameters that a start has into an engine, in which all have their initial values. Returns the fate of each tensor.
    ///
    /// # Errors
    /// Returns the errors of [`each_started`].
    pub fn read_start(
        &mut self,
        path: &Path,
        rule: &StartRule,
        net: &dyn Architecture,
        engine: &mut dyn Engine,
        program: NumberedProgram<'_>,
    ) -> Result<StartTable, RunError> {
        let NumberedProgram { number, program } = program;
        each_started(path, rule, net, program, &mut self.buffer, &self.budget, &mut |id, values| {
            Ok(engine.write(number, id, HostSlice::F32(values))?)
        })
    }
}
