//! Graphs of networks that are stored as TorchScript.
//!
//! A traced program is a text in a small part of Python. [`trace`] follows its calls from the outermost module with symbols in the place of
//! tensors, and compares each operation with a known graph. No operation is computed, and a program that does anything
//! else is refused.

mod code;
mod graph;
mod trace;

pub(crate) use graph::{Argument, Graph, Node};
pub(crate) use trace::{Refused, trace};
