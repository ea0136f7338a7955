//! Operations that fail on demand, and what a power failure leaves. Only tests build with this.
//!
//! # Of a whole process
//! `PLIMSOLL_DISK_FAULT=N:KIND` makes the N-th operation of the process fail; the first has number 1, and KIND is one of
//! [`FaultKind`]'s names. `PLIMSOLL_DISK_TRACE=FILE` appends a line `NUMBER OPERATION PATH` to a file for each operation,
//! so that a test knows how many there are. The operations are `open`, `create`, `read`, `write`, `seek`, `set_len`,
//! `sync`, `sync_folder`, `lock`, `rename`, `remove`, `create_dir`, `read_dir` and `metadata`. Operations of several
//! threads get their numbers in the order in which they begin.
//!
//! # Of one folder
//! [`inject`] does the same for the operations under a folder while a closure runs, on whichever thread, so that tests may
//! run side by side. [`record`] tells what was changed there, and [`crash_states`] what of that a power failure may leave.

mod crash;
mod environment;
mod fault;
pub(crate) mod gate;
mod operation;
mod watch;

pub use crash::crash_states;
pub use fault::{Fault, FaultKind, ParseFaultError};
pub use operation::{Operation, State, lay_out, state_of};
pub use watch::{inject, record};
