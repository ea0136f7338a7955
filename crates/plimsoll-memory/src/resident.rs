//! The resident size of this process, as the system counts it.

use std::fs;
use std::io;

use serde::Serialize;

use crate::Bytes;

/// Resident and virtual size of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resident {
    /// Resident now.
    pub now: Bytes,
    /// The largest size that was ever resident (the kernel's high-water mark), or since [`forget_resident_peak`].
    pub peak: Bytes,
    /// Address space now.
    pub address_space: Bytes,
}

/// Lets the largest size be counted anew, from what is resident now, where the kernel can (`CONFIG_PROC_PAGE_MONITOR`); elsewhere
/// it stays the peak of the whole process.
pub fn forget_resident_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Reads `/proc/self/status`. The kernel batches its counters per thread, so that `now` may lag by some tens of pages.
///
/// # Errors
/// Where the system has no `/proc`, or a field is missing.
pub fn resident() -> io::Result<Resident> {
    let [now, peak, address_space] = status(["VmRSS:", "VmHWM:", "VmSize:"])?;
    Ok(Resident { now, peak, address_space })
}

/// The resident memory of this process that belongs to no file: without its code and its libraries, which
/// [`mapped_files`] counts.
///
/// [`mapped_files`]: crate::mapped_files
///
/// # Errors
/// As [`resident`]. Kernels before 4.5 do not have the field.
pub fn resident_anonymous() -> io::Result<Bytes> {
    let [anonymous] = status(["RssAnon:"])?;
    Ok(anonymous)
}

/// Fields of `/proc/self/status` that are sizes.
fn status<const N: usize>(names: [&str; N]) -> io::Result<[Bytes; N]> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mut sizes = [Bytes::ZERO; N];
    for (size, name) in sizes.iter_mut().zip(names) {
        let mut lines = status.lines();
        *size = lines
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
            .map(|kib| Bytes(kib << 10))
            .ok_or_else(|| io::Error::other(format!("no {name} in /proc/self/status")))?;
    }
    Ok(sizes)
}
