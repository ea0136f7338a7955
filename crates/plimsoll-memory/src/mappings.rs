//! The files in this process's address space: its code, its constants and its libraries.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// The files that are mapped into this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFiles {
    /// Mapped, resident or not.
    pub mapped: Bytes,
    /// Resident now.
    pub resident: Bytes,
}

/// Reads `/proc/self/smaps`.
///
/// # Errors
/// Where the system has no such file.
pub fn mapped_files() -> io::Result<MappedFiles> {
    Ok(parse(&fs::read_to_string("/proc/self/smaps")?))
}

/// Beginnings of paths that are mapped but are not files: devices, such as a driver's own memory, and memory
/// that processes share. Deleted files still count: a program that is rebuilt while it runs keeps its code
/// mapped.
const NO_FILES: [&str; 3] = ["/dev/", "/memfd:", "/SYSV"];

/// Sums the mappings of files. Their headers are lines like `55d0-55e0 r-xp 0000 fd:00 131 /usr/bin/plimsoll`; the lines
/// below a header say what it has, like `Rss:    64 kB`.
fn parse(smaps: &str) -> MappedFiles {
    let mut files = MappedFiles::default();
    let mut is_file = false;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if !first.ends_with(':') {
            let is_mapped =
                |path: &str| path.starts_with('/') && !NO_FILES.iter().any(|no| path.starts_with(no));
            is_file = words.nth(4).is_some_and(is_mapped);
            continue;
        }
        let Some(kib) = words.next().and_then(|word| word.parse::<u64>().ok()).filter(|_| is_file) else {
            continue;
        };
        match first {
            "Size:" => files.mapped += Bytes(kib << 10),
            "Rss:" => files.resident += Bytes(kib << 10),
            _ => {}
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_files_are_counted() {
        let smaps = "\
55d0c8a00000-55d0c8b00000 r-xp 00001000 fd:00 1311 /usr/bin/a program (deleted)
Size:               1024 kB
KernelPageSize:        4 kB
Rss:                 640 kB
VmFlags: rd ex mr mw me sd
55d0c9000000-55d0c9100000 rw-p 00000000 00:00 0    [heap]
Size:               1024 kB
Rss:                1000 kB
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Size:               2048 kB
Rss:                2048 kB
7f0800000000-7f0800400000 rw-s 00000000 00:05 411 /dev/nvidiactl
Size:               4096 kB
Rss:                4096 kB
7f0900000000-7f0900100000 rw-s 00000000 00:01 5120 /dev/zero (deleted)
Size:               1024 kB
Rss:                1024 kB
7f0a00000000-7f0a00100000 rw-s 00000000 00:01 2051 /memfd:cuda (deleted)
Size:               1024 kB
Rss:                1024 kB
7f0b00000000-7f0b00100000 rw-s 00000000 00:01 32770 /SYSV00000000 (deleted)
Size:               1024 kB
Rss:                1024 kB
7f1000000000-7f1000010000 r--p 00000000 fd:00 77 /lib/libm.so.6
Size:                 64 kB
Rss:                  12 kB
";
        assert_eq!(parse(smaps), MappedFiles { mapped: Bytes(1088 << 10), resident: Bytes(652 << 10) });
    }

    #[test]
    #[cfg_attr(miri, ignore = "/proc describes the interpreter")]
    fn this_program_is_mapped_and_some_of_it_resident() {
        let files = mapped_files().unwrap();
        // The kernel may reclaim pages of code at any time, but not the one that it returns to.
        assert!(files.mapped > Bytes::mib(1) && files.resident >= Bytes(4096), "{files:?}");
        assert!(files.resident <= files.mapped, "{files:?}");
    }
}
