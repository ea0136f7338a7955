//! The server as a process: requests of many clients, good and bad, within one memory limit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "serve/client.rs"]
mod client;
#[path = "serve/dicomweb.rs"]
mod dicomweb;
#[path = "serve/load.rs"]
mod load;
#[path = "serve/mcp.rs"]
mod mcp;
#[path = "serve/requests.rs"]
mod requests;
#[allow(unused_imports, reason = "other tests use more of it")]
mod support;
#[path = "serve/tasks.rs"]
mod tasks;
#[path = "serve/tls.rs"]
mod tls;
