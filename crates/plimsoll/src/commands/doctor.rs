//! `plimsoll doctor`

use plimsoll_memory::{Limits, System, host, limits};
use serde::Serialize;

use crate::args::Ram;
use crate::backend::instruction_set;
use crate::failure::Outcome;
use crate::report::{Table, json};

#[derive(Serialize)]
struct Machine {
    version: &'static str,
    cores: usize,
    processor: Option<String>,
    simd: String,
    limits: Limits,
}

/// Describes the machine.
pub fn run(ram: &Ram, as_json: bool) -> Outcome {
    let machine = Machine {
        version: env!("CARGO_PKG_VERSION"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        processor: host::processor_model(),
        simd: instruction_set(),
        limits: limits(&System::default(), ram.ram),
    };
    if as_json {
        return json(&machine);
    }
    println!("plimsoll {}", machine.version);
    let processor = machine.processor.as_deref().unwrap_or("unknown processor");
    println!("processor  {processor}, {} cores, kernels for {}", machine.cores, machine.simd);
    println!("memory line  {}", machine.limits.line);
    let mut table = Table::new(["leaves", "of", "limit"]);
    for limit in &machine.limits.found {
        table.row([limit.bytes.to_string(), limit.ceiling.to_string(), limit.source.clone()]);
    }
    table.print();
    Ok(())
}
