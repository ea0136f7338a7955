//! Linux: the files of procfs.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

pub(crate) use crate::cgroup::{limits as group_limits, oom_kills};
use crate::limit::{Limit, System, Unread};
use crate::{Bytes, MappedFiles, Resident};

/// Reads `/proc/self/status`. The kernel batches its counters per thread, so that `now` may lag by some tens of pages.
pub(crate) fn resident() -> io::Result<Resident> {
    let [now, peak, address_space] = status(["VmRSS:", "VmHWM:", "VmSize:"])?;
    Ok(Resident { now, peak, address_space })
}

/// Kernels before 4.5 do not have the field.
pub(crate) fn resident_anonymous() -> io::Result<Bytes> {
    let [anonymous] = status(["RssAnon:"])?;
    Ok(anonymous)
}

/// Works with kernels that were built with `CONFIG_PROC_PAGE_MONITOR`.
pub(crate) fn forget_resident_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Reads `/proc/self/smaps`.
pub(crate) fn mapped_files() -> io::Result<MappedFiles> {
    Ok(parse(&fs::read_to_string("/proc/self/smaps")?).code)
}

/// Reads `/proc/self/smaps`.
pub(crate) fn mapped_data() -> io::Result<MappedFiles> {
    Ok(parse(&fs::read_to_string("/proc/self/smaps")?).data)
}

/// The names of the files in `/proc/self/maps`, without their folders.
pub(crate) fn mapped_names() -> io::Result<Vec<String>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    // Of `7f00-7f10 r-xp 0000 08:01 42 /usr/lib/libc.so.6`: what follows the last slash, which memory without a file does not have.
    let names = maps.lines().filter_map(|line| line.rsplit_once('/'));
    Ok(names.map(|(_, name)| name.to_owned()).collect())
}

/// The first `model name` of `/proc/cpuinfo`, which most ARM machines do not have.
pub(crate) fn processor_model() -> Option<String> {
    model_name(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// The list of cores in `/proc/self/status`.
pub(crate) fn allowed_cores() -> io::Result<String> {
    const STATUS: &str = "/proc/self/status";
    let status = fs::read_to_string(STATUS)
        .map_err(|error| io::Error::new(error.kind(), format!("{STATUS}: {error}")))?;
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores
        .map(|cores| cores.trim().to_owned())
        .ok_or_else(|| io::Error::other(format!("{STATUS} has no list of cores")))
}

/// The text of the kernel's pressure stall information.
pub(crate) fn pressure(system: &System) -> Option<String> {
    fs::read_to_string(system.proc.join("pressure/memory")).ok()
}

/// Page faults that waited for a disk, from `/proc/self/stat`.
pub(crate) fn major_faults() -> Option<u64> {
    faults_of(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// The bytes of all calls that read and write, from `/proc/self/io`.
pub(crate) fn moved_bytes() -> Option<u64> {
    moved_of(&fs::read_to_string("/proc/self/io").ok()?)
}

fn moved_of(io: &str) -> Option<u64> {
    let field = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(field("rchar:")?.saturating_add(field("wchar:")?))
}

/// The twelfth field of `/proc/self/stat`. The second, the program's name in parentheses, may have spaces.
fn faults_of(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(9)?.parse().ok()
}

/// `RLIMIT_AS` and `RLIMIT_DATA`, from `/proc/self/limits`, whose columns are at fixed places: name to 26, soft limit to 47.
pub(crate) fn own_limits(system: &System, unread: &mut Vec<Unread>) -> Vec<Limit> {
    let path = system.proc.join("self/limits");
    let Some(text) = Unread::read(&path, unread) else {
        return Vec::new();
    };
    let mut limits = Vec::new();
    for line in text.lines() {
        let source = match line.get(..26).map(str::trim) {
            Some("Max address space") => "RLIMIT_AS",
            Some("Max data size") => "RLIMIT_DATA",
            _ => continue,
        };
        let value = line.get(26..47).map_or("", str::trim);
        match value.parse().map(Bytes) {
            Ok(bytes) => limits.push(Limit { source: source.into(), bytes, ceiling: bytes }),
            Err(_) if value == "unlimited" => {}
            Err(_) => {
                let reason = format!("{source} is {value:?}, which is not a number of bytes");
                unread.push(Unread { path: path.clone(), reason });
            }
        }
    }
    limits
}

/// Memory that the kernel estimates it could provide without swapping, plus what this process holds already.
pub(crate) fn available(system: &System, own: Bytes, unread: &mut Vec<Unread>) -> Option<Limit> {
    let path = system.proc.join("meminfo");
    let text = Unread::read(&path, unread)?;
    let kib = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let (Some(available), Some(total)) = (kib("MemAvailable:"), kib("MemTotal:")) else {
        unread.push(Unread { path, reason: "it has no MemAvailable or no MemTotal in kB".into() });
        return None;
    };
    let (available, total) = (Bytes(available << 10) + own, Bytes(total << 10));
    Some(Limit {
        source: format!("available memory, {}", path.display()),
        bytes: available.min(total),
        ceiling: total,
    })
}

impl Unread {
    /// Reads a file of the system. Returns `None` if it does not exist, which systems without that kind of limit may do, or if
    /// it cannot be read, which is added to `unread`.
    pub(crate) fn read(path: &Path, unread: &mut Vec<Unread>) -> Option<String> {
        match fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                unread.push(Unread { path: path.into(), reason: error.to_string() });
                None
            }
        }
    }
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

/// Beginnings of paths that are mapped but are not files: devices, such as a driver's own memory, and memory
/// that processes share. Deleted files still count: a program that is rebuilt while it runs keeps its code
/// mapped.
const NO_FILES: [&str; 3] = ["/dev/", "/memfd:", "/SYSV"];

/// Mapped files by what they have.
#[derive(Debug, Default, PartialEq)]
struct Mappings {
    /// Programs and libraries, with their constants.
    code: MappedFiles,
    /// Other files.
    data: MappedFiles,
}

/// The mappings of one file.
#[derive(Default)]
struct OneFile {
    sizes: MappedFiles,
    /// `true` if a part of it may be executed.
    has_code: bool,
}

/// Sums the mappings of files. Their headers are lines like `55d0-55e0 r-xp 0000 fd:00 131 /usr/bin/plimsoll`; the lines
/// below a header say what it has, like `Rss:    64 kB`.
fn parse(smaps: &str) -> Mappings {
    // By device and number.
    let mut files: BTreeMap<[&str; 2], OneFile> = BTreeMap::new();
    let mut current = None;
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, size, ..] if name.ends_with(':') => {
                let Some(file) = current.and_then(|key| files.get_mut(&key)) else { continue };
                let Ok(kib) = size.parse::<u64>() else { continue };
                match name {
                    "Size:" => file.sizes.mapped += Bytes(kib << 10),
                    "Rss:" => file.sizes.resident += Bytes(kib << 10),
                    _ => {}
                }
            }
            [_, permissions, _, device, number, path, ..]
                if path.starts_with('/') && !NO_FILES.iter().any(|no| path.starts_with(no)) =>
            {
                files.entry([device, number]).or_default().has_code |= permissions.contains('x');
                current = Some([device, number]);
            }
            _ => current = None,
        }
    }
    let mut all = Mappings::default();
    for OneFile { sizes, has_code } in files.into_values() {
        let of_kind = if has_code { &mut all.code } else { &mut all.data };
        of_kind.mapped += sizes.mapped;
        of_kind.resident += sizes.resident;
    }
    all
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let (_, name) = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'))?;
    Some(name.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_as_code_if_a_part_of_them_may_be_executed() {
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
7f1000010000-7f1000020000 r-xp 00010000 fd:00 77 /lib/libm.so.6
Size:                 64 kB
Rss:                  32 kB
7f2000000000-7f2040000000 r--s 00000000 fd:00 78 /data/features of a scan.npy
Size:            1048576 kB
Rss:                2048 kB
VmFlags: rd sh mr mw me ms sd
";
        let found = parse(smaps);
        assert_eq!(found.code, MappedFiles { mapped: Bytes(1152 << 10), resident: Bytes(684 << 10) });
        assert_eq!(found.data, MappedFiles { mapped: Bytes::mib(1024), resident: Bytes::mib(2) });
    }

    #[test]
    fn the_model_name_is_that_of_the_first_processor() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8481C @ 2.70GHz\n\n\
                       processor\t: 1\nmodel name\t: another\n";
        assert_eq!(model_name(cpuinfo).as_deref(), Some("Intel(R) Xeon(R) 8481C @ 2.70GHz"));
        assert_eq!(model_name("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
    }

    #[test]
    fn moved_bytes_are_those_read_and_those_written() {
        assert_eq!(moved_of("rchar: 1200\nwchar: 34\nsyscr: 7\nread_bytes: 4096\n"), Some(1234));
        assert_eq!(moved_of("rchar: 1200\n"), None);
    }

    #[test]
    fn faults_are_found_behind_a_name_with_spaces() {
        assert_eq!(faults_of("4711 (a ) name) R 1 2 3 4 5 6 7 8 99 10 11"), Some(99));
        assert_eq!(faults_of("4711"), None);
    }
}
