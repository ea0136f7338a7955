//! Why there is no plan.

use plimsoll_graph::{DType, GraphError};

/// A node that a backend cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{backend} cannot run {op}: {why}")]
pub struct Unsupported {
    /// The backend.
    pub backend: String,
    /// The op.
    pub op: &'static str,
    /// The reason.
    pub why: String,
}

/// Why there is no plan, or why one is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A program is not well formed.
    #[error("{0}")]
    Graph(#[from] GraphError),
    /// A backend has no kernel for a node.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// A backend has no kernels for a type that feature maps are to be stored as.
    #[error("{backend} has no kernels for features that are stored as {dtype}")]
    Storage {
        /// The backend.
        backend: String,
        /// The type.
        dtype: DType,
    },
    /// Two programs of a set mean different things by one name.
    #[error("`{name}` is {first} in the program `{program}`, but {second} in another of the set")]
    Conflict {
        /// The parameter or state.
        name: String,
        /// The program.
        program: String,
        /// There.
        first: String,
        /// Elsewhere.
        second: String,
    },
    /// A backend does not multiply bf16.
    #[error("{backend} has no kernels for products of bf16")]
    Products {
        /// The backend.
        backend: String,
    },
    /// A backend does not multiply tf32.
    #[error("{backend} has no kernels for products of tf32")]
    Tf32Products {
        /// The backend.
        backend: String,
    },
    /// The verifier found a fault in the plan of a program: it must not be run.
    #[error("the plan of `{program}` is wrong at launch {launch}: {fault}")]
    Wrong {
        /// The program.
        program: String,
        /// The launch's place.
        launch: usize,
        /// The fault.
        fault: String,
    },
    /// The verifier found a fault in what all programs share: the plan must not be run.
    #[error("the plan is wrong: {fault}")]
    WrongPlan {
        /// The fault.
        fault: String,
    },
}

impl PlanError {
    /// A remedy, if a setting is at fault.
    pub fn remedy(&self) -> Option<String> {
        match self {
            PlanError::Unsupported(_) => Some(
                "‹device=cpu› runs all networks and losses; docs/gpu.md lists the supported ones on GPUs"
                    .into(),
            ),
            PlanError::Storage { .. } => Some(
                "f16 is for GPUs, like ‹device=cuda:0›; ‹precision=bf16› takes as much memory, and processors have kernels for it"
                    .into(),
            ),
            PlanError::Products { .. } => Some(
                "bf16-dot is for processors, ‹device=cpu›; ‹precision=bf16› stores features as bf16 on any device".into(),
            ),
            PlanError::Tf32Products { .. } => Some(
                "tf32 is for GPUs since compute capability 8.0 (Ampere), like ‹device=cuda:0›; ‹precision=f32› rounds no products, on any device".into(),
            ),
            _ => None,
        }
    }
}
