//! The memory limits of the control groups that this process is in: version 1, version 2, and both at once (hybrid).
//!
//! A limit on any ancestor binds, so the whole path from the process's own group up to the mount point is read. Inside
//! a container the path that `/proc/self/cgroup` names may lie outside what is mounted; then what is mounted is the
//! container's own group, and the part of the path above the mount's root is removed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Bytes;
use crate::limit::{Limit, System, Unread};

/// A mounted hierarchy that accounts memory.
struct Hierarchy {
    version: u8,
    /// The mount point.
    mount: PathBuf,
    /// The group, inside the hierarchy, that is visible at the mount point.
    root: String,
}

/// Returns every limit that a control group sets, less what other processes of the group already hold, and adds files that
/// could not be read to `unread`.
pub(crate) fn limits(system: &System, own_resident: Bytes, unread: &mut Vec<Unread>) -> Vec<Limit> {
    let groups = groups(system, unread);
    groups.iter().flat_map(|(group, version)| group_limits(group, *version, own_resident, unread)).collect()
}

/// The number of processes that the kernel has killed for memory in the control group of this process; `None`
/// if no group counts them.
pub(crate) fn oom_kills(system: &System) -> Option<u64> {
    let count = |(group, version): &(PathBuf, u8)| {
        let file = if *version == 1 { "memory.oom_control" } else { "memory.events" };
        field(&fs::read_to_string(group.join(file)).ok()?, "oom_kill").map(|Bytes(count)| count)
    };
    // The group's own count comes before the counts of its ancestors.
    groups(system, &mut Vec::new()).iter().find_map(count)
}

/// The control groups of this process that account memory, with the version of their hierarchy: its own and all above it.
fn groups(system: &System, unread: &mut Vec<Unread>) -> Vec<(PathBuf, u8)> {
    let mut read = |file: &str| Unread::read(&system.proc.join(file), unread);
    let (Some(groups), Some(mounts)) = (read("self/cgroup"), read("self/mountinfo")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for hierarchy in mounts.lines().filter_map(|line| hierarchy(system, line)) {
        let Some(path) = group_path(&groups, hierarchy.version) else {
            continue;
        };
        let below = path.strip_prefix(&hierarchy.root).unwrap_or(path);
        let mut group = hierarchy.mount.clone();
        group.extend(
            Path::new(below).components().filter(|part| matches!(part, std::path::Component::Normal(_))),
        );
        if !group.is_dir() {
            group.clone_from(&hierarchy.mount);
        }
        while group.starts_with(&hierarchy.mount) {
            found.push((group.clone(), hierarchy.version));
            if !group.pop() {
                break;
            }
        }
    }
    found
}

/// One line of `mountinfo`, if it mounts a hierarchy that accounts memory. Fields: id, parent, device, root, mount point,
/// options, optional tags, `-`, type, source, super options.
fn hierarchy(system: &System, line: &str) -> Option<Hierarchy> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut kind = kind.split(' ');
    let version = match (kind.next()?, kind.nth(1)?) {
        ("cgroup2", _) => 2,
        ("cgroup", options) if options.split(',').any(|option| option == "memory") => 1,
        _ => return None,
    };
    let point = system.root.join(point.trim_start_matches('/'));
    Some(Hierarchy { version, mount: point, root: root.trim_end_matches('/').into() })
}

/// The process's group in the hierarchy of a version: lines of `/proc/self/cgroup` are `id:controllers:path`, and
/// version 2 is the one with id 0 and no controllers.
fn group_path(groups: &str, version: u8) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let matches = match version {
            1 => controllers.split(',').any(|name| name == "memory"),
            _ => id == "0" && controllers.is_empty(),
        };
        matches.then_some(path)
    })
}

fn group_limits(group: &Path, version: u8, own_resident: Bytes, unread: &mut Vec<Unread>) -> Vec<Limit> {
    let (files, anonymous): (&[&str], &str) = match version {
        1 => (&["memory.limit_in_bytes"], "total_rss"),
        _ => (&["memory.max", "memory.high"], "anon"),
    };
    // If the statistics cannot be read, only the limit itself is known.
    let statistics = group.join("memory.stat");
    let held = Unread::read(&statistics, unread).and_then(|stat| {
        let held = field(&stat, anonymous);
        if held.is_none() {
            unread.push(Unread { path: statistics, reason: format!("it has no number `{anonymous}`") });
        }
        held
    });
    let held_by_others = held.map_or(Bytes::ZERO, |held| held.saturating_sub(own_resident));
    let mut limits = Vec::new();
    for file in files {
        let path = group.join(file);
        let Some(text) = Unread::read(&path, unread) else { continue };
        match text.trim().parse::<u64>() {
            // Version 1 writes "no limit" as the largest whole number of pages.
            Ok(limit) if limit < 1 << 60 => limits.push(Limit {
                source: format!("cgroup v{version} {}", path.display()),
                bytes: Bytes(limit) - held_by_others,
                ceiling: Bytes(limit),
            }),
            Ok(_) => {}
            Err(_) if text.trim() == "max" => {}
            Err(_) => {
                unread.push(Unread { path, reason: format!("{:?} is not a number of bytes", text.trim()) })
            }
        }
    }
    limits
}

fn field(stat: &str, name: &str) -> Option<Bytes> {
    stat.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.parse().ok().map(Bytes)).flatten()
    })
}
