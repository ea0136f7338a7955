//! The forward pass of a window: its program, and the engine that runs it.

use std::sync::Arc;

use plimsoll_graph::{DType, GraphError, Node, Op, Program, TensorId};
use plimsoll_memory::{Budget, Mapped};
use plimsoll_models::{Interpolated, SegmentationModel};
use plimsoll_nn::{Headless, WeightPart, names, predict, split_sources};
use plimsoll_plan::{
    Backend, Engine, HostSlice, HostSliceMut, PlanError, ProgramId, VerifiedPlan, open_engine,
};
use plimsoll_run::{HeadRule, LoadOptions, NumberedProgram, read_parameters};

use crate::error::{InferError, internal};
use crate::options::{PredictOptions, Summed};
use crate::summing::summands::{PointHead, Summands};

/// The forward pass of a window: the only program of the plan and of its engine.
pub(crate) struct Forward {
    pub(crate) program: Program,
    pub(crate) image: TensorId,
    /// The tensor that is summed over windows.
    pub(crate) output: TensorId,
    /// Windows that are looked at at once.
    pub(crate) at_once: usize,
    /// A state that has to be the identity, where that is the features of a head.
    identity: Option<TensorId>,
    /// States that have to be parts of weights.
    parts: Vec<WeightPart>,
}

/// An engine, and what it has.
pub(crate) struct Running {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) forward: ProgramId,
    /// The fold whose weights are loaded.
    fold: Option<usize>,
}

/// The program of a model's forward pass over a window, or over as many as are looked at at once, with features as the model says, or in a precision that is asked for. Where that is
/// of 16 bits, what is summed is stored so as well: of many classes it is most of what a window takes. It ends with logits, or
/// before the head, where features are summed.
///
/// # Errors
/// Returns an error if the network is impossible, or does not fit the model's channels and outputs, the backend has no kernels for what is asked for, or
/// features are to be summed where logits have to be.
pub fn forward_program(
    model: &SegmentationModel,
    options: &PredictOptions,
    backend: &dyn Backend,
) -> Result<Program, InferError> {
    Ok(match written(model, options, backend)?.ending {
        Ending::Logits(program) => program,
        Ending::Features(headless) => headless.program,
    })
}

/// A forward pass, and what has to be written beside its parameters.
struct Written {
    ending: Ending,
    parts: Vec<WeightPart>,
}

/// The output of a forward pass.
enum Ending {
    /// The logits.
    Logits(Program),
    /// The input of the head.
    Features(Headless),
}

fn written(
    model: &SegmentationModel,
    options: &PredictOptions,
    backend: &dyn Backend,
) -> Result<Written, InferError> {
    let program = whole_program(model, options, backend)?;
    // Probabilities are no linear function of features.
    let head = Headless::extent(&program).filter(|_| model.interpolated != Interpolated::MeanProbabilities);
    let no_features = |why| match model.weights.first() {
        Some(weights) => InferError::NoFeatures { model: weights.path.clone(), why },
        None => internal("a model has no weights"),
    };
    let summed = match options.summed {
        None => Summed::best(head, model.weights.len()),
        Some(Summed::Features) if head.is_none() => {
            return Err(no_features("the network does not end with a convolution of one tap"));
        }
        Some(Summed::Features) if model.weights.len() > 1 => {
            return Err(no_features("each fold has a head of its own"));
        }
        Some(summed) => summed,
    };
    let mut ending = match summed {
        Summed::Logits => Ending::Logits(program),
        Summed::Features => Ending::Features(Headless::new(program)?),
    };
    let (Ending::Logits(program) | Ending::Features(Headless { program, .. })) = &mut ending;
    // Kernels of devices do not add to what is there: the sum would be a map of its own.
    let parts = if backend.device_memory().is_none() { split_sources(program) } else { Vec::new() };
    Ok(Written { ending, parts })
}

/// The program to the logits.
fn whole_program(
    model: &SegmentationModel,
    options: &PredictOptions,
    backend: &dyn Backend,
) -> Result<Program, InferError> {
    let asked = options.precision;
    let net = model.net.as_architecture();
    let (outputs, channels) = (model.answers.outputs(), model.channels.len() + model.earlier_labels);
    if (outputs, channels) != (net.classes(), net.in_channels()) {
        return Err(InferError::OtherNetwork {
            expected: (channels, outputs),
            found: (net.in_channels(), net.classes()),
        });
    }
    let stored = backend.storage(asked.unwrap_or(model.precision));
    // A model may be stored wider than it was trained, but who asks for a type asks for what it takes.
    if let Some(dtype) = asked.filter(|asked| *asked != stored) {
        return Err(PlanError::Storage { backend: backend.identity(), dtype }.into());
    }
    let mut program = predict(net, model.patch, options.window_batch, stored)?;
    if let (Some(half @ (DType::Bf16 | DType::F16)), Some(logits)) = (asked, program.find(names::LOGITS)) {
        halve(&mut program, logits, half);
    }
    Ok(program)
}

/// Stores what a convolution makes in 16 bits. What another op makes stays as it is.
fn halve(program: &mut Program, made: TensorId, half: DType) {
    let is_maker = |node: &&mut Node| node.outputs == [made];
    let maker = program.nodes.iter_mut().find(is_maker);
    if let (Some(Node { op: Op::Conv(conv), .. }), Some(tensor)) =
        (maker, program.tensors.get_mut(made.index()))
    {
        conv.dtype = half;
        tensor.dtype = half;
    }
}

impl Forward {
    /// The forward pass, and what is summed of it.
    ///
    /// # Errors
    /// Returns the errors of [`forward_program`], and an error if the head cannot be read.
    pub(crate) fn new(
        model: &SegmentationModel,
        options: &PredictOptions,
        backend: &dyn Backend,
        budget: &Budget,
    ) -> Result<(Forward, Summands), InferError> {
        let Written { ending, parts } = written(model, options, backend)?;
        let (program, output, identity, summands) = match ending {
            Ending::Logits(program) => {
                let output = find(&program, names::LOGITS)?;
                (program, output, None, Summands::Logits(model.answers.outputs()))
            }
            Ending::Features(headless) => {
                let head = PointHead::read(model, &headless, LOADED, budget)?;
                let Headless { program, features, identity, .. } = headless;
                (program, features, Some(identity), Summands::Features(Arc::new(head)))
            }
        };
        let image = find(&program, names::IMAGE)?;
        let at_once = options.window_batch;
        Ok((Forward { program, image, output, at_once, identity, parts }, summands))
    }
}

impl Running {
    /// Allocates the arena of a plan for the forward pass. `buffer` has room for `Buffers::numbers`.
    ///
    /// # Errors
    /// Returns an error if memory is refused, or the plan is of another program.
    pub(crate) fn open(
        plan: VerifiedPlan,
        of: &Forward,
        backend: &dyn Backend,
        buffer: &mut Mapped<f32>,
        budget: &Budget,
    ) -> Result<Running, InferError> {
        let forward = plan.find(&of.program.name);
        let forward = forward.ok_or_else(|| internal("the plan has lost its program"))?;
        let mut engine = open_engine(backend, plan, budget)?;
        if let Some(id) = of.identity {
            let features = of.program.shape(id).dim(0);
            let values = buffer.get_mut(..features * features);
            let values = values.ok_or_else(|| internal("there is no room for the identity"))?;
            for (place, value) in values.iter_mut().enumerate() {
                *value = if place % (features + 1) == 0 { 1.0 } else { 0.0 };
            }
            engine.write(forward, id, HostSlice::F32(values))?;
        }
        Ok(Running { engine, forward, fold: None })
    }

    /// Returns `true` if the weights of a fold are there.
    pub(crate) fn has(&self, fold: usize) -> bool {
        self.fold == Some(fold)
    }

    /// Loads the weights of a fold. `buffer` has room for `Buffers::numbers`.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    pub(crate) fn load(
        &mut self,
        fold: usize,
        model: &SegmentationModel,
        of: &Forward,
        buffer: &mut Mapped<f32>,
        budget: &Budget,
    ) -> Result<(), InferError> {
        let weights = model.weights.get(fold).ok_or_else(|| internal("a fold has no weights"))?;
        let net = model.net.as_architecture();
        let program = NumberedProgram { number: self.forward, program: &of.program };
        // Tensors are written one by one: a load that fails midway leaves the weights of no fold.
        self.fold = None;
        read_parameters(weights, net, &mut *self.engine, program, buffer, LOADED, budget)?;
        of.parts.iter().try_for_each(|part| self.load_part(*part, &of.program, buffer))?;
        self.fold = Some(fold);
        Ok(())
    }

    /// Copies a part of weights from the parameter that it is of.
    fn load_part(
        &mut self,
        WeightPart { whole, part, first }: WeightPart,
        program: &Program,
        buffer: &mut Mapped<f32>,
    ) -> Result<(), InferError> {
        let (of_whole, of_part) = (program.shape(whole), program.shape(part));
        let (outputs, row) = (of_part.dim(0), of_part.count() / of_part.dim(0));
        let (taps, from) = (row / of_part.dim(1), of_whole.count() / outputs);
        let values = buffer.get_mut(..of_part.count());
        let values = values.ok_or_else(|| internal("there is no room for a part of weights"))?;
        for (output, values) in values.chunks_exact_mut(row).enumerate() {
            let first = output * from + first * taps;
            self.engine.read_from(self.forward, whole, first, HostSliceMut::F32(values))?;
        }
        self.engine.write(self.forward, part, HostSlice::F32(values))?;
        Ok(())
    }
}

/// The options of reading weights: averages over the steps, if the file has them.
const LOADED: LoadOptions = LoadOptions {
    allow_extra: false,
    heads: HeadRule::Taken,
    sum_stem: false,
    upkern: false,
    averaged: true,
};

/// The engine of the case that was planned last.
pub(crate) fn planned(running: &mut Option<Running>) -> Result<&mut Running, InferError> {
    running.as_mut().ok_or_else(|| internal("a case is predicted that was not planned"))
}

/// The tensor of a name that a program has to have.
pub(crate) fn find(program: &Program, name: &str) -> Result<TensorId, InferError> {
    program.find(name).ok_or_else(|| {
        let (program, tensor) = (program.name.clone(), name.to_string());
        InferError::Plan(GraphError::MissingValue { program, tensor }.into())
    })
}
