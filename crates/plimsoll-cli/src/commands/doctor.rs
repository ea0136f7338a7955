//! `plimsoll doctor`

use plimsoll_memory::{Limits, System, host, limits};
use serde::Serialize;

use crate::args::Ram;
use crate::failure::Outcome;
use crate::report::{Table, json};
use plimsoll::backend::{Card, CardReport, instruction_set, multiplies_bf16};

#[derive(Serialize)]
struct Machine {
    version: &'static str,
    cores: usize,
    processor: Option<String>,
    simd: String,
    /// Whether `--precision bf16-dot` has an instruction, and is fast.
    multiplies_bf16: bool,
    /// The first one that the driver finds.
    gpu: Option<CardReport>,
    /// Why there is none.
    no_gpu: Option<String>,
    limits: Limits,
}

/// Describes the machine.
pub fn run(ram: &Ram, as_json: bool) -> Outcome {
    let gpu = Card::find(0).map(|card| card.report()).map_err(|error| format!("{error}; {}", error.hint()));
    let machine = Machine {
        version: env!("CARGO_PKG_VERSION"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        processor: host::processor_model(),
        simd: instruction_set(),
        multiplies_bf16: multiplies_bf16(),
        no_gpu: gpu.as_ref().err().cloned(),
        gpu: gpu.ok(),
        limits: limits(&System::default(), ram.ram),
    };
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
                None => "what could not be measured".into(),
            };
            let driver = match gpu.driver_resident_bytes {
                Some(bytes) => format!("{bytes}"),
                None => "what could not be measured".into(),
            };
            println!(
                "     a process's context takes {context}, the kernels {}, their threads up to {}, what may be recorded {}, the driver \
                 {driver} of the process's own memory",
                gpu.kernel_bytes, gpu.local_bytes, gpu.recording_bytes
            );
        }
        (None, why) => println!("GPU  none: {}", why.as_deref().unwrap_or("unknown")),
    }
    println!("memory line  {}", machine.limits.line);
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
