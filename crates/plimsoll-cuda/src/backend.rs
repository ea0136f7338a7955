//! The backend: how programs are lowered to launches of kernels.

use std::sync::Arc;

use plimsoll_graph::{Node, Program};
use plimsoll_memory::Reservation;
use plimsoll_plan::{
    Backend, Engine, EngineError, LoweredNode, LoweredProgram, PlanError, Rates, Unsupported, VerifiedPlan,
    agree,
};

use crate::architecture::{Architecture, seconds};
use crate::device::DeviceSource;
use crate::engine::CudaEngine;
use crate::lower::{ALIGNMENT, Context, Lower, Operand, unsupported};
use crate::{layout, ops};

/// A GPU, or a kind of them to plan for.
#[derive(Clone)]
pub struct CudaBackend {
    source: Arc<dyn DeviceSource>,
    architecture: Architecture,
    rates: Rates,
    poison: bool,
}

/// The kernels of an op.
///
/// # Errors
/// If there are none.
pub(crate) fn kernels(node: &Node) -> Result<&dyn Lower, Unsupported> {
    ops::of(&node.op).ok_or_else(|| unsupported(node.op.rule().name(), "there is no kernel for it yet"))
}

impl CudaBackend {
    /// On devices from somewhere, with the rates of a usual card of their kind.
    pub fn new(source: Arc<dyn DeviceSource>) -> CudaBackend {
        let architecture = source.architecture();
        CudaBackend { architecture, rates: architecture.rates(), source, poison: false }
    }

    /// The same, for tests: what no kernel has written yet, and after each node what nobody will read again, is
    /// [poisoned](crate::Device::poison). Inputs are then to be written anew before each run.
    #[must_use]
    pub fn poisoned(self) -> CudaBackend {
        CudaBackend { poison: true, ..self }
    }

    fn node(&self, program: &Program, place: usize, node: &Node) -> Result<LoweredNode, Unsupported> {
        let rule = node.op.rule();
        // Where it will lie is not known yet, and changes nothing but addresses.
        let operands = |ids: &[_]| ids.iter().map(|id| Operand::new(program.tensor(*id), 0)).collect();
        let cx = Context {
            name: rule.name(),
            inputs: operands(&node.inputs),
            outputs: operands(&node.outputs),
            scratch: 0,
        };
        let work = kernels(node)?.lower(&cx)?;
        let cost = program.cost(node);
        Ok(LoweredNode {
            name: rule.name().into(),
            covers: vec![place],
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
            scratch: work.scratch,
            in_place: work.in_place,
            may_be_recomputed: rule.may_be_recomputed(),
            cost,
            seconds: seconds(&self.rates, cost),
        })
    }
}

impl Backend for CudaBackend {
    fn identity(&self) -> String {
        format!("CUDA, {}", self.architecture)
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn lower(&self, programs: &[Program], _inline: bool) -> Result<Vec<LoweredProgram>, PlanError> {
        agree(programs)?;
        let lowered = programs.iter().map(|program| {
            let nodes = program.nodes.iter().enumerate();
            let nodes = nodes.map(|(place, node)| self.node(program, place, node));
            Ok(LoweredProgram {
                bytes: program.tensors.iter().map(layout::bytes).collect(),
                nodes: nodes.collect::<Result<_, Unsupported>>()?,
            })
        });
        lowered.collect()
    }

    /// The reservation is one of the device's memory.
    fn engine(&self, plan: VerifiedPlan, arena: Reservation) -> Result<Box<dyn Engine>, EngineError> {
        plan.expect_for(self)?;
        Ok(Box::new(CudaEngine::new(&*self.source, plan, arena, self.poison)?))
    }

    fn with_rates(&self, rates: Option<Rates>) -> Arc<dyn Backend> {
        let rates = rates.unwrap_or_else(|| self.architecture.rates());
        Arc::new(CudaBackend { rates, ..self.clone() })
    }
}
