//! Linux: the cores of the machine, from sysfs.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use super::allowed_cores;
use crate::host::Cores;
use crate::limit::System;

/// The folder with a folder for each hardware thread.
const PROCESSORS: &str = "sys/devices/system/cpu";

/// The lists of hardware threads on Intel's cores that are slower by design: efficiency cores, and those for low power.
const SLOWER: [&str; 2] = ["sys/devices/cpu_atom/cpus", "sys/devices/cpu_lowpower/cpus"];

/// The cores of the hardware threads that this process may use.
pub(crate) fn cores(system: &System) -> io::Result<Cores> {
    cores_of(&system.root, &parse(&allowed_cores()?))
}

/// The cores of hardware threads, by the files below a root folder.
fn cores_of(root: &Path, threads: &BTreeSet<usize>) -> io::Result<Cores> {
    let slower: BTreeSet<usize> = SLOWER
        .iter()
        .filter_map(|list| fs::read_to_string(root.join(list)).ok())
        .flat_map(|list| parse(&list))
        .collect();
    let mut found = Vec::new();
    for thread in threads {
        let folder = root.join(PROCESSORS).join(format!("cpu{thread}"));
        // A process may be bound to processors that the machine does not have or has switched off: they have no topology.
        let Some(siblings) = siblings(&folder) else { continue };
        // On Arm, the speed of a core relative to the fastest one, which has 1024.
        let capacity = fs::read_to_string(folder.join("cpu_capacity")).ok();
        let capacity: Option<u32> = capacity.and_then(|text| text.trim().parse().ok());
        found.push((siblings, capacity, slower.contains(thread)));
    }
    let fastest = found.iter().filter_map(|(_, capacity, _)| *capacity).max();
    let is_slower =
        |capacity: &Option<u32>, listed: &bool| *listed || capacity.is_some_and(|own| Some(own) < fastest);
    let all: BTreeSet<&str> = found.iter().map(|(core, ..)| core.as_str()).collect();
    let efficient: BTreeSet<&str> = found
        .iter()
        .filter(|(_, capacity, listed)| is_slower(capacity, listed))
        .map(|(core, ..)| core.as_str())
        .collect();
    match all.len() {
        0 => Err(io::Error::other(format!("{} describes no core", root.join(PROCESSORS).display()))),
        count => Ok(Cores { count, efficient: efficient.len(), hardware_threads: found.len() }),
    }
}

/// The list of hardware threads of a core, which names the core. The older of the two files exists in all kernels.
fn siblings(folder: &Path) -> Option<String> {
    ["topology/core_cpus_list", "topology/thread_siblings_list"]
        .iter()
        .find_map(|file| fs::read_to_string(folder.join(file)).ok())
        .map(|list| list.trim().to_owned())
}

/// The numbers of a list such as `0-3,8`, without parts that are no numbers.
fn parse(list: &str) -> BTreeSet<usize> {
    /// The most processors that Linux can be built for, which bounds what a faulty list can ask for.
    const MOST: usize = 8192;
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?.min(MOST))
    };
    list.split(',').filter_map(part).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose hardware threads have these lists of siblings and capacities.
    fn machine(threads: &[(&str, Option<u32>)], atoms: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (number, (siblings, capacity)) in threads.iter().enumerate() {
            let folder = root.path().join(PROCESSORS).join(format!("cpu{number}"));
            fs::create_dir_all(folder.join("topology")).unwrap();
            fs::write(folder.join("topology/thread_siblings_list"), format!("{siblings}\n")).unwrap();
            if let Some(capacity) = capacity {
                fs::write(folder.join("cpu_capacity"), format!("{capacity}\n")).unwrap();
            }
        }
        if let Some(atoms) = atoms {
            fs::create_dir_all(root.path().join("sys/devices/cpu_atom")).unwrap();
            fs::write(root.path().join(SLOWER[0]), atoms).unwrap();
        }
        root
    }

    fn found(root: &tempfile::TempDir, allowed: &str) -> [usize; 3] {
        let Cores { count, efficient, hardware_threads } = cores_of(root.path(), &parse(allowed)).unwrap();
        [count, efficient, hardware_threads]
    }

    #[test]
    fn hardware_threads_of_a_core_are_one_core() {
        let server = machine(&[("0,2", None), ("1,3", None), ("0,2", None), ("1,3", None)], None);
        assert_eq!(found(&server, "0-3"), [2, 0, 4]);
        assert_eq!(found(&server, "0,2"), [1, 0, 2]);
        assert_eq!(found(&server, "0-1"), [2, 0, 2]);
        // A process is often allowed all processors that the kernel could have.
        assert_eq!(found(&server, "0-255"), [2, 0, 4]);
    }

    #[test]
    fn efficiency_cores_are_told_from_the_others() {
        // Two performance cores of two threads each, and four efficiency cores.
        let of_intel: Vec<(&str, Option<u32>)> =
            ["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"].map(|core| (core, None)).into();
        assert_eq!(found(&machine(&of_intel, Some("4-7\n")), "0-7"), [6, 4, 8]);
        let of_arm = ["0", "1", "2", "3"].map(|core| (core, Some(if core < "2" { 446 } else { 1024 })));
        assert_eq!(found(&machine(&of_arm, None), "0-3"), [4, 2, 4]);
        // Alone, slow cores are what there is.
        assert_eq!(found(&machine(&of_arm, None), "0-1"), [2, 0, 2]);
    }

    #[test]
    fn a_system_without_a_description_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let error = cores_of(root.path(), &parse("0-3")).unwrap_err().to_string();
        assert!(error.ends_with("sys/devices/system/cpu describes no core"), "{error}");
    }

    #[test]
    fn this_machine_has_a_core() {
        let cores = cores(&System::default()).unwrap();
        assert!(cores.count >= 1 && cores.hardware_threads >= cores.count && cores.efficient <= cores.count);
    }
}
