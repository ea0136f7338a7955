//! The memory that this process may use: the least of all limits.

use serde::Serialize;

use crate::limit::{Limit, System, Unread};
use crate::process::{available, group_limits, own_limits};
use crate::{Bytes, resident};

/// All limits that were found, and the memory limit that follows from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Every limit, the tightest first.
    pub found: Vec<Limit>,
    /// Files that exist but could not be read: a limit in them is unknown and may be lower than all that were found.
    pub unread: Vec<Unread>,
    /// The limit that the user set, if any.
    pub asked: Option<Bytes>,
    /// The memory limit that holds: the user's, but never more than the other limits leave.
    pub limit: Bytes,
}

/// The divisor of the share that stays free where the user sets no limit: one sixteenth, for the kernel's own pages and
/// for what other processes may come to need.
const MARGIN: u64 = 16;

/// Reads every limit: control groups, resource limits, job objects, and the memory that is available now. With `asked`, the limit is
/// what was asked for unless a limit is lower; without, it is what the tightest limit leaves, less a sixteenth.
pub fn limits(system: &System, asked: Option<Bytes>) -> Limits {
    limits_of(system, own_share(), asked)
}

/// Returns the resident size of this process. If it is unknown, 0 errs on the side of a lower limit.
fn own_share() -> Bytes {
    resident().map_or(Bytes::ZERO, |resident| resident.now)
}

/// Reads every limit, as [`limits`], for a process of which `own` is resident.
fn limits_of(system: &System, own: Bytes, asked: Option<Bytes>) -> Limits {
    let mut unread = Vec::new();
    let mut found = group_limits(system, own, &mut unread);
    found.extend(own_limits(system, &mut unread));
    found.extend(available(system, own, &mut unread));
    found.sort_by_key(|limit| limit.bytes);
    let tightest = found.first().map_or(Bytes(u64::MAX), |limit| limit.bytes);
    let limit = match asked {
        Some(asked) => asked.min(tightest),
        None => tightest - Bytes(tightest.0 / MARGIN),
    };
    Limits { found, unread, asked, limit }
}

/// The bytes by which the limit exceeds what is left to this process now, since other processes may use more
/// than when the limit was set. A sixteenth of the machine's available memory is not counted, so that there is
/// time to release memory.
pub fn shortfall(system: &System, limit: Bytes) -> Bytes {
    shortfall_of(system, own_share(), limit)
}

/// Returns the shortfall, as [`shortfall`], for a process of which `own` is resident.
fn shortfall_of(system: &System, own: Bytes, limit: Bytes) -> Bytes {
    // Files that cannot be read were reported when the limit was set.
    let mut unread = Vec::new();
    let groups = group_limits(system, own, &mut unread).into_iter().map(|limit| limit.bytes);
    let machine =
        available(system, own, &mut unread).map(|limit| limit.bytes - Bytes(limit.bytes.0 / MARGIN));
    limit - groups.chain(machine).min().unwrap_or(limit)
}

// They describe machines by files of procfs.
#[cfg(not(any(target_os = "macos", windows)))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn machine(dir: &Path, groups: &str, mounts: &str) -> System {
        let system = System { proc: dir.join("proc"), root: dir.into() };
        write(&system.proc.join("self/cgroup"), groups);
        write(&system.proc.join("self/mountinfo"), mounts);
        write(&system.proc.join("meminfo"), "MemTotal:       25165824 kB\nMemAvailable:   20971520 kB\n");
        write(
            &system.proc.join("self/limits"),
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max data size             unlimited            unlimited            bytes     \n\
             Max address space         8589934592           unlimited            bytes     \n",
        );
        system
    }

    #[test]
    fn shortfall_is_what_other_processes_took() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(dir.path(), "", "");
        assert_eq!(shortfall(&system, Bytes::gib(16)), Bytes::ZERO);
        let gone = "MemTotal:       25165824 kB\nMemAvailable:    8388608 kB\n";
        write(&system.proc.join("meminfo"), gone);
        // 8 GiB and the 512 MiB of this process are left, less a sixteenth.
        let left = Bytes::mib(8704 - 544);
        assert_eq!(shortfall_of(&system, Bytes::mib(512), Bytes::gib(16)), Bytes::gib(16) - left);
    }

    #[test]
    fn the_tightest_ancestor_of_a_v1_group_binds() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(
            dir.path(),
            "4:memory:/job/step\n0::/\n",
            "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
        );
        let mount = dir.path().join("sys/fs/cgroup/memory");
        write(&mount.join("memory.limit_in_bytes"), "9223372036854771712\n");
        write(&mount.join("job/memory.limit_in_bytes"), "1073741824\n");
        write(&mount.join("job/step/memory.limit_in_bytes"), "4294967296\n");
        let limits = limits(&system, None);
        assert_eq!(limits.found[0].ceiling, Bytes::gib(1));
        assert!(limits.found[0].source.contains("job/memory.limit_in_bytes"));
        assert_eq!(limits.found.len(), 4, "two groups, RLIMIT_AS, available memory");
        assert_eq!(limits.limit, Bytes(limits.found[0].bytes.0 / 16 * 15));
    }

    #[test]
    fn the_processes_that_the_kernel_killed_for_memory_are_those_of_the_own_group() {
        let mount = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        let dir = tempfile::tempdir().unwrap();
        let system = machine(dir.path(), "4:memory:/job\n", mount);
        assert_eq!(crate::oom_kills(&system), None);
        let group = dir.path().join("sys/fs/cgroup/memory/job");
        write(&group.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        assert_eq!(crate::oom_kills(&system), Some(3));
        let mount = "35 31 0:32 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let dir = tempfile::tempdir().unwrap();
        let system = machine(dir.path(), "0::/user/job\n", mount);
        write(&dir.path().join("sys/fs/cgroup/user/job/memory.events"), "low 0\nmax 9\noom 2\noom_kill 2\n");
        assert_eq!(crate::oom_kills(&system), Some(2));
    }

    #[test]
    fn a_v2_group_counts_what_its_other_processes_hold() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(
            dir.path(),
            "0::/user/job\n",
            "35 31 0:32 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        let mount = dir.path().join("sys/fs/cgroup");
        write(&mount.join("user/job/memory.max"), "max\n");
        write(&mount.join("user/memory.max"), "4294967296\n");
        write(&mount.join("user/memory.stat"), &format!("anon {}\nfile 5\n", 3500_u64 << 20));
        let limits = limits_of(&system, Bytes::mib(500), None);
        assert_eq!(limits.found[0].bytes, Bytes::mib(4096 - 3000), "{limits:?}");
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_reported_and_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(
            dir.path(),
            "0::/job\n",
            "35 31 0:32 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        let group = dir.path().join("sys/fs/cgroup/job");
        write(&group.join("memory.high"), "1 GiB\n");
        // A folder in place of the file: reading it fails for every user, root included.
        fs::create_dir_all(group.join("memory.max")).unwrap();
        let unread: Vec<_> = limits(&system, None).unread.into_iter().map(|unread| unread.path).collect();
        assert_eq!(unread, [group.join("memory.max"), group.join("memory.high")]);
    }

    #[test]
    fn files_without_the_numbers_they_should_have_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(
            dir.path(),
            "0::/job\n",
            "35 31 0:32 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        let statistics = dir.path().join("sys/fs/cgroup/job/memory.stat");
        write(&statistics, "file 5\n");
        write(&system.proc.join("meminfo"), "MemTotal:       25165824 kB\n");
        let columns = "Max address space         8 GiB                unlimited            bytes     \n";
        write(&system.proc.join("self/limits"), columns);
        let unread: Vec<_> = limits(&system, None).unread.into_iter().map(|unread| unread.path).collect();
        assert_eq!(unread, [statistics, system.proc.join("self/limits"), system.proc.join("meminfo")]);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(
            dir.path(),
            "5:memory:/docker/abc\n",
            "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        );
        write(&dir.path().join("sys/fs/cgroup/memory/memory.limit_in_bytes"), "2147483648");
        assert_eq!(limits(&system, None).found[0].ceiling, Bytes::gib(2));
    }

    #[test]
    fn the_memory_limit_never_exceeds_the_tightest_limit() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(dir.path(), "", "");
        assert_eq!(limits(&system, Some(Bytes::gib(2))).limit, Bytes::gib(2));
        assert_eq!(limits(&system, Some(Bytes::gib(64))).limit, Bytes::gib(8), "RLIMIT_AS");
    }
}
