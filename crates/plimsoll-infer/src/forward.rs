//! The forward pass of a window: its program, and the engine that runs it.

use plimsoll_graph::{DType, Node, Op, Program, TensorId};
use plimsoll_memory::{Budget, Mapped};
use plimsoll_nn::{names, predict};
use plimsoll_plan::{Backend, Engine, EngineError, PlanError, ProgramId, VerifiedPlan, open_engine};
use plimsoll_run::{LoadOptions, SegmentationModel, read_parameters};

use crate::InferError;

/// The forward pass of a window: the only program of the plan and of its engine.
pub(crate) struct Forward {
    pub(crate) program: Program,
    pub(crate) image: TensorId,
    pub(crate) logits: TensorId,
}

/// An engine, and what it has.
pub(crate) struct Running {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) forward: ProgramId,
    /// Which fold's weights.
    fold: Option<usize>,
}

/// The program of a model's forward pass over one window, with features as the model says, or in a precision that is asked for. Where that is
/// of 16 bits, logits are stored so as well: of many classes they are most of what a window takes.
///
/// # Errors
/// If the network is impossible, or does not fit the model's channels and outputs, or the backend has no kernels for what is asked for.
pub fn forward_program(
    model: &SegmentationModel,
    asked: Option<DType>,
    backend: &dyn Backend,
) -> Result<Program, InferError> {
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
    let mut program = predict(net, model.patch, 1, stored)?;
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
    pub(crate) fn new(
        model: &SegmentationModel,
        asked: Option<DType>,
        backend: &dyn Backend,
    ) -> Result<Forward, InferError> {
        let program = forward_program(model, asked, backend)?;
        let find = |name: &str| {
            program.find(name).ok_or_else(|| {
                let (program, tensor) = (program.name.clone(), name.to_string());
                InferError::Plan(plimsoll_graph::GraphError::MissingValue { program, tensor }.into())
            })
        };
        let (image, logits) = (find(names::IMAGE)?, find(names::LOGITS)?);
        Ok(Forward { program, image, logits })
    }
}

impl Running {
    /// Allocates the arena of a plan for the forward pass.
    ///
    /// # Errors
    /// If memory is refused, or the plan is of another program.
    pub(crate) fn open(
        plan: VerifiedPlan,
        of: &Forward,
        backend: &dyn Backend,
        budget: &Budget,
    ) -> Result<Running, InferError> {
        let forward = plan.find(&of.program.name);
        let forward = forward.ok_or_else(|| internal("the plan has lost its program"))?;
        let engine = open_engine(backend, plan, budget)?;
        Ok(Running { engine, forward, fold: None })
    }

    /// Whether the weights of a fold are there.
    pub(crate) fn has(&self, fold: usize) -> bool {
        self.fold == Some(fold)
    }

    /// Loads the weights of a fold. `buffer` has room for the largest parameter.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn load(
        &mut self,
        fold: usize,
        (model, of): (&SegmentationModel, &Forward),
        buffer: &mut Mapped<f32>,
        budget: &Budget,
    ) -> Result<(), InferError> {
        let weights = model.weights.get(fold).ok_or_else(|| internal("a fold has no weights"))?;
        let net = model.net.as_architecture();
        let program = (self.forward, &of.program);
        let options = LoadOptions { averaged: true, ..LoadOptions::default() };
        read_parameters(weights, net, &mut *self.engine, program, buffer, options, budget)?;
        self.fold = Some(fold);
        Ok(())
    }
}

/// The engine of the case that was planned last.
pub(crate) fn planned(running: &mut Option<Running>) -> Result<&mut Running, InferError> {
    running.as_mut().ok_or_else(|| internal("a case is predicted that was not planned"))
}

pub(crate) fn internal(fault: &str) -> InferError {
    internal_fault(fault).into()
}

pub(crate) fn internal_fault(fault: &str) -> EngineError {
    EngineError::Internal(fault.into())
}
