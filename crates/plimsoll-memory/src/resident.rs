//! The resident size of this process, as the system counts it.

use std::io;

use serde::Serialize;

use crate::{Bytes, process};

/// Resident and virtual size of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resident {
    /// Resident now.
    pub now: Bytes,
    /// The largest size that was ever resident (the system's high-water mark), or since [`forget_resident_peak`].
    pub peak: Bytes,
    /// Address space now.
    pub address_space: Bytes,
}

/// Lets the largest size be counted anew, from what is resident now. Only Linux can do that; elsewhere it stays the peak of the whole
/// process.
pub fn forget_resident_peak() {
    process::forget_resident_peak();
}

/// Reads the sizes of this process.
///
/// # Errors
/// If the system does not report them: on Linux, if `/proc` is not mounted.
pub fn resident() -> io::Result<Resident> {
    process::resident()
}

/// The resident memory of this process that belongs to no file: without its code and its libraries, which
/// [`mapped_files`] counts.
///
/// [`mapped_files`]: crate::mapped_files
///
/// # Errors
/// Returns the errors of [`resident`].
pub fn resident_anonymous() -> io::Result<Bytes> {
    process::resident_anonymous()
}
