//! The one layer through which volumes, runs, predictions and caches are read and written.
//!
//! * [`File`] is the standard library's file that remembers its path; [`read`], [`rename`] and the other functions are
//!   the operations of `std::fs` that this project needs. [`read`] is given the most bytes that it may take.
//! * [`atomic`] writes files that appear under their name only when they are complete, and sweeps away what killed
//!   processes left of such.
//! * [`ScratchFile`] holds what memory has no room for, under no name.
//! * [`MemoryFile`] holds what a caller has in memory, for readers of files.
//! * [`Appender`] appends lines, each of which is on the disk before the next one is begun.
//! * [`outputs`] refuses outputs of a command that would replace its inputs.
//!
//! * What is no file but a pipe, a device, or a text in the place of one is refused by what it is before anything is read: see
//!   [`Substitute`].
//!
//! Nothing here buffers, waits, or retries but what a signal interrupted: a program that is built without the feature
//! `faults` makes the system calls of `std::fs`, those that tell a file from a substitute, the one by which a disk takes room for a
//! file, those that ask for free room and permissions, and no others. Calls that differ between systems are in the folder `system`. With
//! the feature, which only tests ask for, each operation is numbered and can be made to fail, and what a power failure
//! could leave of a folder can be computed: see the module `faults`.

mod appender;
pub mod atomic;
mod count;
mod errors;
#[cfg(feature = "faults")]
pub mod faults;
mod file;
mod folder;
mod gate;
mod memory_file;
mod operation;
pub mod outputs;
mod read;
mod scratch;
mod substitute;
mod system;
pub mod zip;

pub use appender::Appender;
pub use count::ByteCount;
pub use errors::is_device_failure;
pub use file::File;
pub use folder::{
    create_dir_all, entries, exists, expect_writable, free_bytes, metadata, path_bytes, path_from_bytes,
    read_dir, read_dir_within, remove_file, remove_folder, rename, sync_folder,
};
pub use memory_file::MemoryFile;
pub use read::{TooLong, read, read_to_string, without_mark};
pub use scratch::ScratchFile;
pub use substitute::Substitute;
