//! From programs to places in one arena, on any backend.
//!
//! A [`Backend`] lowers programs: it says which kernels it will run, what each reads and writes, and what that takes. A
//! [`Plan`] is made for a set of programs that share parameters and states (train, validate, predict). In order:
//!
//! 1. [`Backend::lower`]: the kernels of each program, with whatever the backend fuses.
//! 2. [`recompute`]: values may be freed between two uses and recomputed; [`search`] chooses which, for a budget.
//! 3. [`liveness`]: from which launch to which each value must be held, and which results may take an operand's place.
//! 4. [`place`]: an offset for every value and every kernel's scratch, as near to the lower bound as can be found.
//! 5. [`verify`]: independently of all this, that the launches compute what the programs say, and that every read sees the
//!    value it should. What passes is a [`VerifiedPlan`], which cannot be made otherwise, and nothing else is run.
//!
//! [`fusing`] has the parts shared by backends that run several nodes as one.
//!
//! The planner knows lowered nodes and no op. An [`Engine`] is what a backend makes of a verified plan.

mod agree;
mod ahead;
mod backend;
mod bound;
mod device_memory;
mod device_state;
mod engine;
mod error;
pub mod explain;
pub mod fusing;
pub mod liveness;
mod lowered;
pub mod place;
mod plan;
mod plane_sums;
mod planner;
mod plans;
mod products;
pub mod recompute;
pub mod search;
mod timing;
mod verified;
pub mod verify;
mod work;

pub use agree::agree;
pub use ahead::{RunsAhead, ahead_bytes, ahead_places};
pub use backend::{Backend, Rates};
pub use bound::Bound;
pub use device_memory::{
    DeviceMemory, DriverUse, EngineMemory, arena_memory, engine_bytes, open_engine, open_engine_ahead,
};
pub use device_state::DeviceState;
pub use engine::{Engine, EngineError, HostSlice, HostSliceMut, HostView};
pub use error::{PlanError, Unsupported};
pub use lowered::{LoweredNode, LoweredProgram};
pub use plan::{Block, Launch, Options, Plan, ProgramId, ProgramPlan};
pub use plane_sums::{PlaneSums, SampleLogits, SummedWindow, SumsPlanes};
pub use planner::{Goal, Planner, Point, plan};
pub use plans::Plans;
pub use products::Bf16Products;
pub use timing::{NodeTime, OpTime, Timings};
pub use verified::VerifiedPlan;
