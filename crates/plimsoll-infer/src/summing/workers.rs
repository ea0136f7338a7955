//! Threads that share the work on planes of logits.

use plimsoll_memory::Bytes;
use plimsoll_parallel::Pool;

/// They keep large data in memory that was reserved.
const STACK: usize = 128 << 10;
/// A thread's guard page and thread-local data.
const BESIDE_STACK: usize = 16 << 10;

/// The threads of a pool, each with buffers of its own.
pub(crate) struct Workers<'a, B> {
    pub(crate) pool: &'a Pool,
    pub(crate) buffers: &'a mut [B],
}

/// The bytes that the stacks of `threads` threads take, the caller's not counted.
pub(crate) fn stacks(threads: usize) -> Bytes {
    Bytes::from_len(threads.saturating_sub(1).saturating_mul(STACK + BESIDE_STACK))
}

/// Starts `threads` threads, the caller's one of them, which wait for work from one plane to the next: starting them for each plane
/// would take longer than many planes do. If the system refuses a thread, the caller's does the work alone.
pub(crate) fn start(threads: usize) -> Pool {
    Pool::named(threads, "logits", STACK).unwrap_or_else(|_| Pool::single())
}
