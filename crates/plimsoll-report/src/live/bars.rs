//! The memory of a fold as rows of a name, a share of its limit and a number, and the lines of text below them.

use plimsoll_memory::Bytes;
use plimsoll_plan::DeviceState;
use plimsoll_run::{Sample, Status};

use crate::duration::duration;

/// The most holders that have a row of their own.
const HOLDERS: usize = 6;
/// The number of kinds of operations whose time is shown.
const LONGEST: usize = 4;

/// A row.
pub struct Bar {
    /// The holder.
    pub name: String,
    /// The share of the memory limit, from 0 to 1.
    pub share: f64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Returns the resident and planned memory and the largest holders; empty before a limit is known.
pub fn bars(status: &Status, sample: Option<&Sample>) -> Vec<Bar> {
    let Some(limit) = status.limit else { return Vec::new() };
    let bar = |name: &str, bytes: Option<Bytes>| {
        let bytes = bytes?;
        let share = (bytes.0 as f64 / (limit.0 as f64).max(1.0)).clamp(0.0, 1.0);
        Some(Bar { name: name.into(), share, bytes })
    };
    let peak = sample.and_then(|sample| sample.peak_resident_bytes);
    let mut bars: Vec<Bar> = [
        bar("resident", status.resident),
        bar("  at most", peak),
        bar("planned", status.planned),
        bar("limit", Some(limit)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut held: Vec<(&String, &Bytes)> = sample.iter().flat_map(|sample| &sample.held_bytes).collect();
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    bars.extend(
        held.into_iter()
            .take(HOLDERS)
            .filter_map(|(holder, bytes)| bar(&format!("  {holder}"), Some(*bytes))),
    );
    bars
}

/// Returns the state of a device in words, or `None` if it is unknown.
fn device_words(state: &DeviceState) -> Option<String> {
    let total = state.total_bytes.map_or_else(String::new, |total| format!(" of {total}"));
    let said = [
        state.busy_percent.map(|percent| format!("{percent} % busy")),
        state.used_bytes.map(|used| format!("{used}{total} in use")),
        state.temperature_celsius.map(|celsius| format!("{celsius} °C")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("GPU {}", said.join(", ")))
}

/// Returns the lines below the bars: the Dice of regions, the machine, and the parts of the time.
pub fn below(status: &Status, sample: Option<&Sample>) -> Vec<String> {
    status.regions_in_words().into_iter().chain(sample.into_iter().flat_map(in_words)).collect()
}

/// The machine and where time went, in lines.
fn in_words(sample: &Sample) -> Vec<String> {
    let system = &sample.system;
    let mut machine = Vec::new();
    if let Some(group) = &system.cgroup {
        let used = group.used_bytes.map_or("?".into(), |used| used.to_string());
        machine.push(format!("cgroup {used} of {}", group.limit_bytes));
    }
    let pressure = system.cgroup.as_ref().and_then(|group| group.pressure).or(system.pressure);
    if let Some(pressure) = pressure {
        let (some, full) = (pressure.some_percent, pressure.full_percent);
        machine.push(format!("memory pressure {some:.1} % some, {full:.1} % full"));
    }
    if let Some(faults) = system.major_faults {
        machine.push(format!("{faults} major page faults"));
    }
    if let Some(free) = system.free_disk_bytes {
        machine.push(format!("{free} free on the disk"));
    }
    if let Some(bytes) = sample.device_bytes {
        machine.push(format!("{bytes} on the device"));
    }
    machine.extend(sample.device_state.and_then(|state| device_words(&state)));
    let mut times = vec![
        format!("processor {}", duration(system.processor_seconds)),
        format!("batches {}", duration(sample.batch_seconds)),
        format!("waiting for them {}", duration(sample.waiting_seconds)),
    ];
    let all: f64 = sample.op_seconds.values().sum();
    let mut ops: Vec<(&String, &f64)> = sample.op_seconds.iter().collect();
    ops.sort_by(|a, b| b.1.total_cmp(a.1));
    if all > 0.0 {
        let longest = ops.iter().take(LONGEST);
        times.extend(longest.map(|(op, seconds)| format!("{op} {:.0} %", 100.0 * *seconds / all)));
    }
    [machine, times].into_iter().filter(|words| !words.is_empty()).map(|words| words.join(" · ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_does_not_say_is_left_out() {
        let state =
            DeviceState { busy_percent: Some(87), temperature_celsius: Some(61), ..DeviceState::default() };
        let sample = Sample { device_state: Some(state), ..Sample::default() };
        let said = in_words(&sample);
        assert!(said.iter().any(|line| line.ends_with("GPU 87 % busy, 61 °C")), "{said:?}");
        let state = DeviceState {
            used_bytes: Some(Bytes::gib(7)),
            total_bytes: Some(Bytes::gib(12)),
            ..DeviceState::default()
        };
        assert_eq!(device_words(&state).as_deref(), Some("GPU 7.00 GiB of 12.00 GiB in use"));
        assert_eq!(device_words(&DeviceState::default()), None);
    }
}
