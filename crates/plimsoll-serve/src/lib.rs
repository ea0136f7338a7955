//! Predictions as a service: over HTTP for other programs and machines, and over the Model Context Protocol for the program that starts this one.
//!
//! A [`Service`] has models and one memory limit. A request is received into a folder of its own on the disk, planned from the headers of its images
//! as soon as the prediction that runs is done, and then refused with the limit that it would need, or queued. One thread plans and
//! predicts, one request at a time with all threads of the backend, so that the plan of a single prediction bounds the whole process:
//!
//! | share of the limit | holder |
//! |---|---|
//! | [`MemoryShares::transport`] | buffers of connections, stacks of this crate's threads |
//! | [`MemoryShares::predictions`] | the prediction that runs, with code and heap of the process |
//!
//! The weights of a model are read for each prediction: they are not held beside another model's.
//!
//! [`serve_http`] answers requests on a socket; [`serve_mcp`] answers them on standard streams. Both call the same operations. Nothing here prints:
//! an observer receives [`Answered`], which has no names of files, patients or cases.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod access;
mod archive;
mod content;
mod dicomweb;
mod error;
mod http;
pub mod inputs;
mod job;
mod mcp;
mod models;
mod problem;
mod service;
mod settings;
mod shares;
mod tasks;
mod wording;
mod worker;
mod workspace;

pub use access::{Access, Token};
pub use error::ServeError;
pub use http::{Answered, serve_http};
pub use mcp::serve_mcp;
pub use models::NamedModel;
pub use service::Service;
pub use settings::{ArchiveSettings, Bounds, HttpSettings, ServiceSettings, TlsFiles};
pub use shares::MemoryShares;
pub use tasks::NamedTask;
