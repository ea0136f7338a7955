//! `plimsoll doctor`

use plimsoll::backend::CardReport;
use plimsoll::doctor;
use plimsoll_memory::host::Cores;

use crate::args::Ram;
use crate::failure::Outcome;
use crate::report::{Table, json};

/// Describes the machine.
pub fn run(ram: &Ram, as_json: bool) -> Outcome {
    let machine = doctor(ram.ram);
    if as_json {
        return json(&machine);
    }
    println!("plimsoll {}", machine.version);
    let processor = machine.processor.as_deref().unwrap_or("unknown processor");
    let products = match machine.multiplies_bf16 {
        true => "with an instruction for products of bf16",
        false => {
            "without an instruction for products of bf16: predictions with --precision bf16-dot are slower than with bf16"
        }
    };
    println!(
        "processor  {processor}, {}, kernels for {}, {products}",
        cores(machine.cores.as_ref()),
        machine.simd
    );
    println!("threads    {} by default", machine.threads);
    match (&machine.gpu, &machine.no_gpu) {
        (Some(gpu), _) => {
            let CardReport { device, name, architecture, memory_bytes, free_bytes, .. } = gpu;
            println!("GPU  {device}: {name}, {architecture}, {memory_bytes}, of which {free_bytes} are free");
            let context = match gpu.context_bytes {
                Some(bytes) => format!("{bytes}"),
                None => "unknown amounts".into(),
            };
            let driver = match gpu.driver_resident_bytes {
                Some(bytes) => format!("{bytes}"),
                None => "unknown amounts".into(),
            };
            println!(
                "     a process's context takes {context}, the kernels {}, their threads up to {}, recorded launches {}, the driver \
                 {driver} of the process's own memory",
                gpu.kernel_bytes, gpu.local_bytes, gpu.recording_bytes
            );
        }
        (None, why) => println!("GPU  none: {}", why.as_deref().unwrap_or("unknown")),
    }
    println!("memory limit {}", machine.limits.limit);
    let mut table = Table::new(["leaves", "of", "limit"]);
    for limit in &machine.limits.found {
        table.row([limit.bytes.to_string(), limit.ceiling.to_string(), limit.source.clone()]);
    }
    table.print();
    for unread in &machine.limits.unread {
        println!("unknown  {}: {}", unread.path.display(), unread.reason);
    }
    Ok(())
}

/// The cores of the machine in words.
fn cores(cores: Option<&Cores>) -> String {
    let Some(Cores { count, efficient, hardware_threads }) = cores else {
        return "an unknown number of cores".into();
    };
    let counted =
        |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let mut text = counted(*count, "core");
    if *efficient > 0 {
        text = format!("{text} ({} fast, {efficient} for efficiency)", count - efficient);
    }
    if hardware_threads > count {
        text = format!("{text} with {}", counted(*hardware_threads, "hardware thread"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_told_from_hardware_threads_and_slow_cores() {
        let said =
            |count, efficient, hardware_threads| cores(Some(&Cores { count, efficient, hardware_threads }));
        assert_eq!(said(2, 0, 2), "2 cores");
        assert_eq!(said(1, 0, 2), "1 core with 2 hardware threads");
        assert_eq!(said(14, 8, 20), "14 cores (6 fast, 8 for efficiency) with 20 hardware threads");
        assert_eq!(cores(None), "an unknown number of cores");
    }
}
