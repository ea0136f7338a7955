//! A sample of the memory of a process and the state of its machine during a run.
//!
//! All of it differs from run to run, so it is among the events.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_memory::{Bytes, System, limits};
use plimsoll_plan::DeviceState;
use serde::{Deserialize, Serialize};

/// A moment of a run. Sums begin with the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Steps done since the beginning of the run.
    pub steps: u64,
    /// Resident memory of the process; `None` if the system does not report it.
    pub resident_bytes: Option<Bytes>,
    /// The most that was resident since the process began to train.
    pub peak_resident_bytes: Option<Bytes>,
    /// The memory of each holder now, `heap` among them.
    pub held_bytes: BTreeMap<String, Bytes>,
    /// Memory that the engine holds on a device of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<Bytes>,
    /// The state of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_state: Option<DeviceState>,
    /// The wall time of kernels by kind of operation, validation included.
    pub op_seconds: BTreeMap<String, f64>,
    /// The processor time of making batches.
    pub batch_seconds: f64,
    /// The time that steps waited for batches.
    pub waiting_seconds: f64,
    /// The process and its machine, as the system counts them.
    pub system: SystemSample,
}

/// A process and its machine, as the system counts them; what it does not say is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemSample {
    /// Processor time of all threads of the process.
    pub processor_seconds: f64,
    /// Page faults of the process that waited for a disk.
    pub major_faults: Option<u64>,
    /// Room on the disk that the run is written to.
    pub free_disk_bytes: Option<Bytes>,
    /// The control group that limits memory the most.
    pub cgroup: Option<CgroupUse>,
    /// The machine's memory pressure.
    pub pressure: Option<Pressure>,
}

/// A control group that limits memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CgroupUse {
    /// Its limit.
    pub limit_bytes: Bytes,
    /// The memory of all processes of the group, with the files that the kernel caches for them.
    pub used_bytes: Option<Bytes>,
    /// The group's memory pressure.
    pub pressure: Option<Pressure>,
}

/// Pressure stall information of memory: <https://docs.kernel.org/accounting/psi.html>.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// The share of the last ten seconds in which some task waited for memory, in percent.
    pub some_percent: f64,
    /// The same of all tasks at once.
    pub full_percent: f64,
    /// The time that some task has waited since the machine or the group began.
    pub some_seconds: f64,
    /// The same of all tasks at once.
    pub full_seconds: f64,
}

impl SystemSample {
    /// Samples the system of this process, which writes into `folder`.
    pub fn take(folder: &Path) -> SystemSample {
        let processor = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let disk = rustix::fs::statvfs(folder).ok();
        SystemSample {
            processor_seconds: processor.tv_sec as f64 + processor.tv_nsec as f64 * 1e-9,
            major_faults: text_of("/proc/self/stat").and_then(|stat| major_faults(&stat)),
            free_disk_bytes: disk.map(|disk| Bytes(disk.f_bavail.saturating_mul(disk.f_frsize))),
            cgroup: CgroupUse::tightest(),
            pressure: text_of("/proc/pressure/memory").and_then(|text| Pressure::parse(&text)),
        }
    }
}

impl CgroupUse {
    /// The control group of this process with the least memory left.
    fn tightest() -> Option<CgroupUse> {
        let limits = limits(&System::default(), None).found;
        let (limit, file) = limits
            .iter()
            .find_map(|limit| Some((limit, limit.source.strip_prefix("cgroup v")?.get(2..)?)))?;
        let folder = Path::new(file).parent()?;
        let number = |name: &str| text_of(folder.join(name))?.trim().parse().ok().map(Bytes);
        Some(CgroupUse {
            limit_bytes: limit.ceiling,
            used_bytes: number("memory.current").or_else(|| number("memory.usage_in_bytes")),
            pressure: text_of(folder.join("memory.pressure")).and_then(|text| Pressure::parse(&text)),
        })
    }
}

impl Pressure {
    /// Parses lines like `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, whose total is in microseconds.
    fn parse(text: &str) -> Option<Pressure> {
        let field = |line: &str, name: &str| {
            let line = text.lines().find_map(|found| found.strip_prefix(line))?;
            line.split_whitespace().find_map(|field| field.strip_prefix(name)?.parse::<f64>().ok())
        };
        Some(Pressure {
            some_percent: field("some ", "avg10=")?,
            full_percent: field("full ", "avg10=")?,
            some_seconds: field("some ", "total=")? * 1e-6,
            full_seconds: field("full ", "total=")? * 1e-6,
        })
    }
}

/// The twelfth field of `/proc/self/stat`. The second, the program's name in parentheses, may have spaces.
fn major_faults(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(9)?.parse().ok()
}

/// A file that the kernel makes up when it is read.
#[allow(clippy::disallowed_methods, reason = "no disk is involved that could fail")]
fn text_of(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_understood() {
        let text = "some avg10=1.25 avg60=0.40 avg300=0.09 total=2500000\n\
                    full avg10=0.50 avg60=0.10 avg300=0.01 total=1000000\n";
        let expected =
            Pressure { some_percent: 1.25, full_percent: 0.5, some_seconds: 2.5, full_seconds: 1.0 };
        assert_eq!(Pressure::parse(text), Some(expected));
        assert_eq!(Pressure::parse("some avg10=1.25 total=x\n"), None);
        let stat = "4711 (a ) name) R 1 2 3 4 5 6 7 8 99 10 11";
        assert_eq!(major_faults(stat), Some(99));
        assert_eq!(major_faults("4711"), None);
    }

    #[test]
    fn a_sample_of_this_process_counts_its_time_and_is_read_back() {
        let system = SystemSample::take(Path::new("/"));
        assert!(system.processor_seconds > 0.0 && system.free_disk_bytes > Some(Bytes::ZERO), "{system:?}");
        let sample = Sample {
            steps: 7,
            held_bytes: [("arena".to_string(), Bytes::mib(3))].into(),
            system,
            ..Sample::default()
        };
        let line = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), sample);
    }
}
