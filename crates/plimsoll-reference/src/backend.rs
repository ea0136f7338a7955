//! The backend.

use std::sync::Arc;

use plimsoll_graph::Program;
use plimsoll_memory::Reservation;
use plimsoll_plan::{Backend, Engine, EngineError, LoweredProgram, PlanError, Rates, VerifiedPlan, agree};

use crate::engine::ReferenceEngine;
use crate::lower::{ALIGNMENT, lower};

/// Runs the definitions of ops in f64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceBackend {
    poison: bool,
}

impl ReferenceBackend {
    /// A new one.
    pub fn new() -> ReferenceBackend {
        ReferenceBackend::default()
    }

    /// The same, for tests: what no node has written yet, and after each node what nobody will read again, is NaN. Inputs are
    /// then to be written anew before each run.
    #[must_use]
    pub fn poisoned(self) -> ReferenceBackend {
        ReferenceBackend { poison: true }
    }
}

impl Backend for ReferenceBackend {
    fn identity(&self) -> String {
        "reference, f64".into()
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn lower(&self, programs: &[Program], _inline: bool) -> Result<Vec<LoweredProgram>, PlanError> {
        agree(programs)?;
        Ok(programs.iter().map(lower).collect())
    }

    fn engine(&self, plan: VerifiedPlan, arena: Reservation) -> Result<Box<dyn Engine>, EngineError> {
        plan.expect_for(self)?;
        Ok(Box::new(ReferenceEngine::new(plan, arena, self.poison)?))
    }

    fn with_rates(&self, _rates: Option<Rates>) -> Arc<dyn Backend> {
        Arc::new(*self)
    }
}
