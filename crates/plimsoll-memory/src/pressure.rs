//! The memory pressure of the machine and of control groups.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Bytes, System, limits, process};

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

/// The number of processes that the kernel has killed for memory in the control group of this process; `None` if it does not report it.
pub fn oom_kills(system: &System) -> Option<u64> {
    process::oom_kills(system)
}

impl CgroupUse {
    /// The control group of this process with the least memory left; `None` if no group limits it, as on systems without control groups.
    pub fn tightest(system: &System) -> Option<CgroupUse> {
        let limits = limits(system, None).found;
        let (limit, file) = limits
            .iter()
            .find_map(|limit| Some((limit, limit.source.strip_prefix("cgroup v")?.get(2..)?)))?;
        let folder = Path::new(file).parent()?;
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok().map(Bytes);
        Some(CgroupUse {
            limit_bytes: limit.ceiling,
            used_bytes: number("memory.current").or_else(|| number("memory.usage_in_bytes")),
            pressure: fs::read_to_string(folder.join("memory.pressure"))
                .ok()
                .and_then(|text| Pressure::parse(&text)),
        })
    }
}

impl Pressure {
    /// The pressure of the whole machine; `None` if the system does not report it. Only Linux does.
    pub fn of_machine(system: &System) -> Option<Pressure> {
        Pressure::parse(&process::pressure(system)?)
    }

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
    }
}
