//! HTTP/1.1 on a socket, with or without TLS.
//!
//! A connection carries one request: predictions take seconds, so a connection more costs little, and the memory of all is the number of connections
//! times the memory of one. One thread serves all connections; files are written and read by others.

mod answer;
mod file_body;
mod listen;
mod openapi;
mod patient;
mod remainder;
mod router;
mod series;
mod tls;
mod upload;

pub(crate) use file_body::FileBody;
pub use listen::{Answered, serve_http};
pub(crate) use tls::expect_processor;
