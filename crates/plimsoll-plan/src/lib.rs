//! From programs to places in one arena.
//!
//! A [`Plan`] is made for a set of programs that share parameters and states (train, validate, predict). In order:
//!
//! 1. [`fold`]: normalised and activated maps are not stored; their readers normalise on the way in.
//! 2. [`recompute`]: values may be let go of between two uses and made again; [`search`] chooses which, for a budget.
//! 3. [`liveness`]: from which node to which each value must be held, and which results may take an operand's place.
//! 4. [`place`]: an offset for every value and every kernel's scratch, as near to the lower bound as can be found.
//! 5. [`verify`]: independently of all this, that the scheduled program computes what the given one does, and that every
//!    read sees the value it should.
//!
//! What a tensor takes and what scratch an op needs is the backend's affair; the planner asks it through [`Layout`]. What a
//! backend does with a plan is [`Engine`].

mod engine;
mod error;
pub mod explain;
pub mod fold;
mod fold_heads;
mod layout;
pub mod liveness;
pub mod place;
mod plan;
mod planner;
pub mod recompute;
pub mod search;
pub mod verify;

pub use engine::{Engine, HostSlice, HostSliceMut, OpTime};
pub use error::{PlanError, Unsupported};
pub use layout::Layout;
pub use plan::{Block, Options, Plan, ProgramPlan};
pub use planner::{Planner, Point, plan};
