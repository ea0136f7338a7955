//! `plimsoll doctor`

use plimsoll::backend::CardReport;
use plimsoll::doctor;

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
    println!("processor  {processor}, {} cores, kernels for {}, {products}", machine.cores, machine.simd);
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
