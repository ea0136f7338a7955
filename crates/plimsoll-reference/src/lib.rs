//! The f64 definitions of all ops as a backend: slow, obvious, and run over the arena of a verified plan like any other.
//!
//! Every tensor is f64 elements in the logical order of its shape, at the place that the plan gives it, whatever dtype the
//! program stores it in: nothing is rounded. Each node is a launch of its own; nothing is fused, works in place or needs scratch. A
//! launch takes its operands out of the arena, calls [`Rule::evaluate`](plimsoll_graph::Rule::evaluate) and puts the results
//! back. So the values equal those from [`interpret`](plimsoll_graph::interpret), to the bit, if the plan, its recomputation and the
//! verifier are right, and other backends are compared with it through the same traits.
//!
//! It is for checking, not for training: [`Engine::run`](plimsoll_plan::Engine::run) allocates what a node reads and makes.
#![forbid(unsafe_code)]

mod backend;
mod bind;
mod engine;
mod lower;

pub use backend::ReferenceBackend;
