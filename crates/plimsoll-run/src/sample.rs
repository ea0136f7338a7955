//! A sample of the memory of a process and the state of its machine during a run.
//!
//! All of it differs from run to run, so it is among the events.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_memory::{Bytes, CgroupUse, Pressure, System, major_faults, process_time};
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

impl SystemSample {
    /// Samples the system of this process, which writes into `folder`.
    pub fn take(folder: &Path) -> SystemSample {
        SystemSample {
            processor_seconds: process_time().as_secs_f64(),
            major_faults: major_faults(),
            free_disk_bytes: plimsoll_disk::free_bytes(folder).ok().map(Bytes),
            cgroup: CgroupUse::tightest(&System::default()),
            pressure: Pressure::of_machine(&System::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
