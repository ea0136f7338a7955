//! The shares of the memory limit.

use plimsoll_memory::Bytes;

use crate::error::ServeError;
use crate::settings::Bounds;

/// The stack of the thread that plans and predicts.
pub(crate) const WORKER_STACK: usize = 4 << 20;
/// The stack of a thread that writes and reads files of requests.
pub(crate) const FILE_STACK: usize = 256 << 10;
/// Threads that write and read files of requests.
pub(crate) const FILE_THREADS: usize = 2;
/// Series that are fetched from an archive, or stored there, at a time.
pub(crate) const TRANSFERS: usize = 4;
/// The most bytes that are read from, or written to, a socket or a file at a time.
pub(crate) const CHUNK: usize = 16 << 10;

/// The memory of a connection without TLS: chunks in and out of the socket and the file, and the states of tasks.
const PER_CONNECTION: Bytes = Bytes(96 << 10);
/// The additional memory of TLS: records in both directions, decrypted and encrypted, and the state of the session.
const PER_TLS_CONNECTION: Bytes = Bytes(128 << 10);
/// The router, the description of the interface, and the state of the runtime.
const FIXED: Bytes = Bytes::mib(2);

/// The memory limit of a service, and its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShares {
    /// The limit of the process.
    pub limit: Bytes,
    /// The share of connections and of this crate's threads.
    pub transport: Bytes,
    /// The share of the prediction that runs, with code and heap of the process.
    pub predictions: Bytes,
}

impl MemoryShares {
    /// Divides a limit. The process itself needs `own` of the share of predictions.
    ///
    /// # Errors
    /// Returns an error if connections leave nothing beside the process itself.
    pub(crate) fn new(
        limit: Bytes,
        own: Bytes,
        bounds: &Bounds,
        has_tls: bool,
    ) -> Result<MemoryShares, ServeError> {
        let each = if has_tls { PER_CONNECTION + PER_TLS_CONNECTION } else { PER_CONNECTION };
        let stacks = WORKER_STACK + FILE_THREADS * FILE_STACK;
        let transport = FIXED + Bytes(stacks as u64) + Bytes(each.0 * bounds.connections as u64);
        if transport + own >= limit {
            let needed = transport + own;
            return Err(ServeError::Connections { connections: bounds.connections, needed, limit });
        }
        Ok(MemoryShares { limit, transport, predictions: limit - transport })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_limit_and_connections_that_leave_nothing_are_refused() {
        let bounds = Bounds::for_queue(200);
        let shares = MemoryShares::new(Bytes::mib(1024), Bytes::mib(40), &bounds, true).unwrap();
        assert_eq!(shares.transport + shares.predictions, shares.limit);
        let plain = MemoryShares::new(Bytes::mib(1024), Bytes::mib(40), &bounds, false).unwrap();
        assert_eq!(shares.transport - plain.transport, Bytes(216 * (128 << 10)));
        let error = MemoryShares::new(Bytes::mib(60), Bytes::mib(40), &bounds, false).unwrap_err();
        assert!(error.to_string().starts_with("216 connections need "), "{error}");
    }
}
