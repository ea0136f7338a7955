//! `plimsoll plan`

use std::collections::BTreeSet;

use plimsoll::{
    Context, PlanDetails, PlanReport, PlanRequest, PlannedPair, PlannedPairs, plan_pairs, plan_with_details,
};
use plimsoll_data::{TargetSpacing, is_picture_ending};
use plimsoll_graph::Role;
use plimsoll_memory::Bytes;
use plimsoll_plan::explain::{Explanation, Fate, Maker};
use plimsoll_report::duration::{duration, grouped};
use plimsoll_run::{DevicePlan, RunPlan, StartTable, printable};
use plimsoll_train::{PlannedRun, RunPoint};

use super::plan_ranks;
use crate::args::{Plan, warn_of_unread};
use crate::failure::Outcome;
use crate::report::{Table, json};
use crate::terminal;

/// Plans a run; fails if it does not fit the limit.
pub fn run(args: &Plan, as_json: bool) -> Outcome {
    let request = args.run.request_from(&args.start, false, args.run.compute.open_to_plan()?)?;
    let context = terminal::observed(as_json);
    warn_of_unread(&args.run.dataset, args.run.config.as_deref(), &context);
    if args.one_vs_one {
        return run_pairs(&request, as_json, &context);
    }
    if let (Some(ranks), Some(link)) = (args.ranks, args.network) {
        return plan_ranks::run(&request, ranks, link, as_json, &context);
    }
    let details = PlanDetails {
        patches: !args.pareto && args.explain.is_none(),
        curve: args.pareto,
        explain: args.explain.clone().filter(|_| !args.pareto),
        drawing: args.draw.clone(),
    };
    let report = plan_with_details(&request, &details, &context)?;
    let numbers = &report.numbers;
    if let Some(curve) = &report.curve {
        return if as_json { json(curve) } else { print_curve(curve, numbers) };
    }
    if let Some(explanations) = &report.explanations {
        return if as_json { json(explanations) } else { print_explanations(explanations) };
    }
    if as_json {
        json(numbers)?;
    } else {
        print(&report.planned);
        if let Some(start) = &numbers.start {
            print_start(start);
        }
        print_patches(&report);
    }
    numbers.check()?;
    Ok(())
}

/// Plans a run for each pair of classes; fails if one does not fit the limit.
fn run_pairs(request: &PlanRequest, as_json: bool, context: &Context) -> Outcome {
    let planned = plan_pairs(request, context)?;
    if as_json {
        json(&planned)?;
    } else {
        print_pairs(&planned);
    }
    planned.pairs.iter().try_for_each(|pair| pair.plan.check())?;
    Ok(())
}

fn print_pairs(planned: &PlannedPairs) {
    let mut table =
        Table::new(["classes", "planned", "arena", "least limit", "steps", "predicted step", "time"]);
    for PlannedPair { classes: [one, other], plan, .. } in &planned.pairs {
        table.row([
            format!("{one} and {other}"),
            plan.total_bytes.to_string(),
            plan.arena_bytes.to_string(),
            plan.minimum_ram_bytes.to_string(),
            grouped(plan.steps),
            format!("{:.3} s", plan.predicted_seconds_per_step),
            duration(plan.predicted_seconds),
        ]);
    }
    table.row([
        "all, one after the other".into(),
        planned.planned_bytes.to_string(),
        String::new(),
        planned.minimum_ram_bytes.to_string(),
        grouped(planned.steps),
        String::new(),
        duration(planned.predicted_seconds),
    ]);
    table.print();
    for PlannedPair { classes: [one, other], plan, .. } in &planned.pairs {
        for change in &plan.changes {
            eprintln!("warning: {one} and {other}: changed so that the run fits: {change}");
        }
    }
}

/// Prints the fate of each tensor of a start.
fn print_start(start: &StartTable) {
    let mut table = Table::new(["tensor", "shape", "fate", "why"]);
    for tensor in &start.tensors {
        let extents: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
        let (shape, kind) = (extents.join("×"), tensor.fate.kind().to_string());
        table.row([printable(&tensor.name), shape, kind, tensor.fate.note()]);
    }
    table.print();
    println!("start: {start}");
}

/// Prints a plan as a table.
pub fn print(planned: &PlannedRun) {
    let RunPlan { batch_size, micro_batch, accumulation, precision, products, parameters, .. } =
        &planned.numbers;
    let numbers = &planned.numbers;
    let [d, h, w] = numbers.patch_size;
    if let Some(preset) = &numbers.preset {
        println!("preset {preset}");
        if preset.has_low_resolution() {
            println!(
                "a patch covers less than a quarter of the median image: the preset has a 3d_lowres as well (--lowres)"
            );
        }
    }
    println!(
        "{}, {:.1} million parameters",
        planned.config.training.net.describe(),
        *parameters as f64 / 1e6
    );
    println!(
        "patch {d}×{h}×{w}, batch {batch_size} as {accumulation} × {micro_batch}, features stored as {precision}, products of {products}, {:.0} GFLOP \
         and about {:.2} s per step, {:+.1} % operations for recomputation",
        numbers.flops_per_step as f64 / 1e9,
        numbers.predicted_seconds_per_step,
        100.0 * numbers.recompute_flops_fraction
    );
    if let Some(line) = slices(planned) {
        println!("{line}");
    }
    if let Some(line) = blocks(planned) {
        println!("{line}");
    }
    let mut table = Table::new(["part", "bytes", "contents"]);
    for part in numbers.parts() {
        let what = match part.name.as_str() {
            "code" => "the program and its libraries".into(),
            "heap" => "programs, plans, settings, file buffers".into(),
            "stacks" => "stacks of kernel threads".into(),
            "messages" => "buffers of messages between ranks".into(),
            "driver" => "memory of the device's driver in this process; a reserve".into(),
            "staging" => "buffers for transfers to and from the device".into(),
            "arena" => arena(numbers),
            "loader" => "batches in preparation and waiting".into(),
            "index" => "names of the cases and positions of their classes".into(),
            "decoding" => "pictures being decoded, one case at a time".into(),
            "checkpoint" => "a copy of the largest tensor".into(),
            "shards" => format!("sums of gradients over the {} shards of a batch", numbers.shards),
            "cache" => numbers.cache_says(),
            _ => String::new(),
        };
        table.row([part.name, part.bytes.to_string(), what]);
    }
    table.row([
        "total".into(),
        numbers.total_bytes.to_string(),
        format!("the limit is {}", numbers.ram_budget_bytes),
    ]);
    table.print();
    println!("the least limit for this run is {}", numbers.minimum_ram_bytes);
    if let Some(device) = &numbers.device {
        print_device(numbers, device);
    }
    println!("{}", times(numbers));
}

/// Prints the costs of smaller and larger patches.
fn print_patches(report: &PlanReport) {
    let numbers = &report.numbers;
    if numbers.patches.is_empty() {
        return;
    }
    let on_device = numbers.patches.iter().any(|cost| cost.vram_bytes.is_some());
    let limit = if on_device { "device limit" } else { "limit" };
    let mut table = Table::new(["patch", "batch", limit, "predicted step", ""]);
    for cost in &numbers.patches {
        let [d, h, w] = cost.patch_size;
        let said = match (cost.patch_size == numbers.patch_size, cost.fits) {
            (true, _) => "this run's",
            (false, true) => "fits",
            (false, false) => "",
        };
        table.row([
            format!("{d}×{h}×{w}"),
            cost.batch_size.to_string(),
            cost.vram_bytes.unwrap_or(cost.ram_bytes).to_string(),
            format!("{:.2} s", cost.predicted_seconds_per_step),
            said.into(),
        ]);
    }
    println!("cost of patches in the smallest micro-batches, without recomputation and cache:");
    table.print();
    if let Some([d, h, w]) = report.larger_patch() {
        println!(
            "the limit has room for larger patches, which see more and take longer: --patch-size {d},{h},{w}"
        );
    }
}

fn arena(numbers: &RunPlan) -> String {
    format!(
        "parameters, moments, features, scratch; {} values recomputed; no placement needs less than {}",
        numbers.recomputed.len(),
        numbers.arena_lower_bound_bytes
    )
}

/// Prints the memory of a device.
fn print_device(numbers: &RunPlan, device: &DevicePlan) {
    println!("of the memory of {}:", device.name);
    let mut table = Table::new(["part", "bytes", "contents"]);
    for part in numbers.device_parts() {
        let what = match (part.name.as_str(), device.driver.is_measured) {
            ("arena", _) => arena(numbers),
            ("next batch", _) => "the inputs of the next step, copied while a step runs".into(),
            ("recordings", true) => "for kernel threads and recorded launches, as measured now".into(),
            ("recordings", false) => {
                "a reserve for kernel threads and recorded launches; not measured".into()
            }
            ("ranks", _) => "channels to other ranks, as measured now".into(),
            (_, true) => "the driver's context and the kernels, as measured now".into(),
            (_, false) => "a reserve for the driver's context and the kernels; not measured".into(),
        };
        table.row([part.name, part.bytes.to_string(), what]);
    }
    let limit = format!("the limit there is {}", device.vram_budget_bytes);
    table.row(["total".into(), device.total_bytes.to_string(), limit]);
    table.print();
    println!("the least limit there for this run is {}", device.minimum_vram_bytes);
}

/// The line about a segmentation in two dimensions.
fn slices(planned: &PlannedRun) -> Option<String> {
    let task = planned.config.task.segmentation().ok()?;
    let TargetSpacing::InPlane([height, width]) = task.spacing else { return None };
    if is_picture_ending(&task.dataset.file_ending) {
        return Some(format!(
            "in two dimensions: images are planes with pixels of 1 × 1, brought to {height} × {width}"
        ));
    }
    Some(format!(
        "in two dimensions: a patch is one slice across the depth (S, inferior to superior), brought to {height} × {width} mm in \
         its plane; nothing is resampled from slice to slice"
    ))
}

/// Channels that kernels of the processor compute together.
const BLOCK: usize = 16;

/// The line about features that do not fill the blocks of channels of the processor's kernels.
fn blocks(planned: &PlannedRun) -> Option<String> {
    if planned.numbers.device.is_some() {
        return None;
    }
    let program = &planned.programs[planned.programs.fullest()];
    let weights = program.with_role(Role::Parameter).map(|id| program.shape(id));
    let (mut given, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for shape in weights {
        if let [out, into, _, _, _] = shape.0[..] {
            given.insert(out);
            taken.insert(into);
        }
    }
    // Neither channels of images nor classes: what one layer gives and another takes.
    let part: Vec<String> = given
        .intersection(&taken)
        .filter(|features| !features.is_multiple_of(BLOCK))
        .map(|features| format!("{features} cost as much as {}", features.next_multiple_of(BLOCK)))
        .collect();
    let is_any = !part.is_empty();
    is_any
        .then(|| format!("kernels compute {BLOCK} channels at a time: of the features, {}", part.join(", ")))
}

/// The time of the run, and the steps of a day.
fn times(numbers: &RunPlan) -> String {
    const DAY: f64 = 86_400.0;
    let RunPlan { predicted_seconds_per_step: step, predicted_seconds_per_epoch: epoch, .. } = *numbers;
    let all = format!(
        "{} steps × {} and {} validation(s): about {}, of which {} is an epoch's",
        grouped(numbers.steps),
        duration(step),
        grouped(numbers.epochs),
        duration(numbers.predicted_seconds),
        duration(epoch),
    );
    if numbers.predicted_seconds < DAY || epoch <= 0.0 {
        return all;
    }
    let epochs = DAY / epoch;
    let steps = (epochs * numbers.steps as f64 / numbers.epochs.max(1) as f64) as u64;
    let epochs = if epochs < 10.0 { format!("{epochs:.1}") } else { grouped(epochs as u64) };
    format!("{all}; in a day {} steps ({epochs} epochs)", grouped(steps))
}

fn print_curve(curve: &[RunPoint], numbers: &RunPlan) -> Outcome {
    let device = numbers.device.as_ref();
    let limit = device.map_or(numbers.ram_budget_bytes, |device| device.vram_budget_bytes);
    let mut table = Table::new([
        "limit",
        "arena",
        "micro-batch",
        "operations",
        "predicted step",
        "values recomputed",
        "",
    ]);
    for point in curve {
        let needed = point.vram_bytes.unwrap_or(point.ram_bytes);
        table.row([
            needed.to_string(),
            point.arena_bytes.to_string(),
            point.micro_batch.to_string(),
            format!("{:+.1} %", 100.0 * point.recompute_flops_fraction),
            format!("{:.3} s", point.predicted_seconds_per_step),
            point.recomputed.len().to_string(),
            if needed <= limit { "fits".into() } else { String::new() },
        ]);
    }
    table.print();
    match device {
        Some(device) => println!("the limit is {limit}, of the memory of {}", device.name),
        None => println!("the limit is {limit}; limits are without a cache of decoded volumes"),
    }
    Ok(())
}

fn print_explanations(explanations: &[Explanation]) -> Outcome {
    for it in explanations {
        let shape: Vec<String> = it.shape.iter().map(usize::to_string).collect();
        println!("{} [{}], {}", it.tensor, shape.join("×"), Bytes::from_len(it.bytes));
        let held: Vec<String> = it.held.iter().map(|(from, to)| format!("{from}–{to}")).collect();
        let held = format!("launches {} of {}", held.join(", "), it.launches);
        let mut kernels: Vec<&str> = it.made_by.iter().map(|maker| maker.kernel.as_str()).collect();
        kernels.dedup();
        let cost = match it.made_by.first() {
            Some(Maker { kernel, flops, seconds }) => format!(
                "to recompute it ({kernel}) takes {:.2} GFLOP, about {:.1} ms",
                *flops as f64 / 1e9,
                seconds * 1e3
            ),
            None => "it is an input and cannot be recomputed".into(),
        };
        let peak = match it.is_held_at_peak {
            true => format!("it is in memory at the peak (launch {})", it.peak),
            false => {
                format!("it is not in memory at the peak (launch {}), where freeing it would help", it.peak)
            }
        };
        match it.fate {
            Fate::Persistent => println!("  persistent: parameters and states keep their places"),
            Fate::Kept => println!("  kept over {held}: {peak}, and the arena fits with it; {cost}"),
            Fate::Fused => {
                println!(
                    "  fused: it is never stored as a whole; {} compute what they need of it",
                    kernels.join(", ")
                )
            }
            Fate::Recomputed => {
                println!("  recomputed: in memory over {held}, else its place is free; {cost}")
            }
            Fate::Unused => println!("  unused: no kernel of the plan makes or reads it"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::Overhead;

    fn numbers(step: f64, validation: f64, epochs: u64) -> RunPlan {
        let bytes = Bytes::mib(1);
        RunPlan {
            ram_budget_bytes: bytes,
            overhead: Overhead { code: bytes, heap: bytes, stacks: bytes, messages: Bytes::ZERO },
            device: None,
            arena_bytes: bytes,
            arena_lower_bound_bytes: bytes,
            loader_bytes: bytes,
            index_bytes: bytes,
            decoding_bytes: bytes,
            checkpoint_bytes: bytes,
            shard_bytes: Bytes::ZERO,
            cache_bytes: bytes,
            total_bytes: bytes,
            feasible: true,
            minimum_ram_bytes: bytes,
            changes: Vec::new(),
            ways_out: Vec::new(),
            preset: None,
            start: None,
            dimensions: 3,
            patch_size: [8; 3],
            batch_size: 1,
            shards: 1,
            micro_batch: 1,
            accumulation: 1,
            whole_batch: None,
            precision: plimsoll_graph::DType::F32,
            products: plimsoll_run::Products::F32,
            recompute_flops_fraction: 0.0,
            recomputed: Vec::new(),
            flops_per_step: 1,
            predicted_seconds_per_step: step,
            predicted_seconds_per_epoch: 250.0 * step + validation,
            predicted_seconds: epochs as f64 * (250.0 * step + validation),
            steps: 250 * epochs,
            epochs,
            parameters: 1,
            decoded_bytes: bytes,
            largest_case_bytes: bytes,
            loader_threads: 1,
            patches: Vec::new(),
        }
    }

    #[test]
    fn the_time_of_a_run_is_said_with_what_a_day_buys() {
        // By hand: 250,000 × 3 s = 8.68 days; 86,400 s / 750 s = 115.2 epochs of 250 steps.
        assert_eq!(
            times(&numbers(3.0, 0.0, 1000)),
            "250,000 steps × 3.0 s and 1,000 validation(s): about 8.7 days, of which 13 min is an epoch's; \
             in a day 28,800 steps (115 epochs)"
        );
        let short = times(&numbers(0.1, 5.0, 4));
        assert_eq!(
            short,
            "1,000 steps × 0.10 s and 4 validation(s): about 2 min, of which 30 s is an epoch's"
        );
    }
}
