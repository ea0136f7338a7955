//! The tensor program.
//!
//! A [`Program`] is a list of nodes in execution order. Each applies one [`Op`] of a small closed set to tensors with a
//! known shape, dtype, kind and role; every tensor but states is written once. Networks, losses and optimizers are
//! programs; [`differentiate`] appends the reverse pass of one. This crate decides neither the place of a tensor nor a
//! fast implementation of an op: the planner and the backends do.
//!
//! An op is one file in `ops/`: its rule of kinds, dtypes and shapes, its gradient, its operation count, whether it is worth
//! computing twice, and its definition in plain f64 loops, from which [`interpret`] runs whole programs as the oracle of
//! all backends. It says what is computed; the order in memory, fusion and kernels are a backend's affair.

mod differentiate;
mod error;
mod interpret;
mod op;
pub mod ops;
mod program;
mod tensor;
mod window;

pub use differentiate::{Tape, differentiate, differentiate_from, differentiate_sum};
pub use error::GraphError;
pub use interpret::{Array, interpret};
pub use op::{Cost, Rule, Signature};
pub use ops::Op;
pub use program::{Node, NodeId, Program};
pub use tensor::{DType, Kind, Role, Shape, TensorId, TensorInfo};
pub use window::Window;
