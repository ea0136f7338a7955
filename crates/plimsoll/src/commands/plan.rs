//! `plimsoll plan`

use plimsoll_train::{PlannedRun, RunPlan};

use super::session::{prepare, settings};
use crate::args::Plan;
use crate::failure::Outcome;
use crate::report::{Table, json};

/// Plans a run; fails if it does not fit the line.
pub fn run(args: &Plan, as_json: bool) -> Outcome {
    let prepared = prepare(&args.run, &settings(&args.run)?, None, as_json)?;
    let numbers = &prepared.planned.numbers;
    if as_json {
        json(&numbers)?;
    } else {
        print(&prepared.planned);
    }
    numbers.check()?;
    Ok(())
}

/// Prints a plan, for people.
pub fn print(planned: &PlannedRun) {
    let RunPlan { batch_size, micro_batch, accumulation, precision, parameters, .. } = &planned.numbers;
    let numbers = &planned.numbers;
    let net = &planned.config.training.net;
    let [d, h, w] = numbers.patch_size;
    println!(
        "{:?}, {} stages of {:?} features, {:.1} million parameters",
        net.family,
        net.features.len(),
        net.features,
        *parameters as f64 / 1e6
    );
    let precision = serde_json::to_value(precision).unwrap_or_default();
    println!(
        "patch {d}×{h}×{w}, batch {batch_size} as {accumulation} × {micro_batch}, features stored as {}, {:.0} GFLOP \
         per step, {:.1} % of it recomputed",
        precision.as_str().unwrap_or_default(),
        numbers.flops_per_step as f64 / 1e9,
        100.0 * numbers.recompute_flops_fraction
    );
    let mut table = Table::new(["part", "bytes", "what it is"]);
    for part in numbers.parts() {
        let what = match part.name.as_str() {
            "overhead" => "code, heap, stacks".into(),
            "arena" => format!(
                "parameters, moments, features, scratch; no placement needs less than {}",
                numbers.arena_lower_bound_bytes
            ),
            "loader" => "batches being made and waiting".into(),
            "foreground index" => "where the classes are".into(),
            "checkpoint" => "a copy of the largest tensor".into(),
            "cache" => format!("decoded volumes; all of them would be {}", numbers.decoded_bytes),
            _ => String::new(),
        };
        table.row([part.name, part.bytes.to_string(), what]);
    }
    table.row([
        "total".into(),
        numbers.total_bytes.to_string(),
        format!("the line is {}", numbers.ram_budget_bytes),
    ]);
    table.print();
    println!("the least line for this run is {}", numbers.minimum_ram_bytes);
}
