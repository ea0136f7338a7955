//! `plimsoll plan --ranks`

use plimsoll::{Context, PlanRequest, PlannedRanks, RanksReport, plan_ranks};
use plimsoll_report::duration::duration;
use plimsoll_train::{Link, RankCost};

use crate::failure::Outcome;
use crate::launch::installed_mpi;
use crate::report::{Table, json, or_dash};

/// Plans a training by several ranks; fails if it does not fit the limit.
pub fn run(request: &PlanRequest, ranks: usize, link: Link, as_json: bool, context: &Context) -> Outcome {
    let planned = PlannedRanks { ranks, link, libraries: installed_mpi() };
    let report = plan_ranks(request, &planned, context)?;
    if as_json {
        json(&report)?;
    } else {
        print(&report);
    }
    report.numbers.check()?;
    Ok(())
}

fn print(report: &RanksReport) {
    let (numbers, scaling) = (&report.numbers, &report.scaling);
    let [d, h, w] = numbers.patch_size;
    println!(
        "{}, patch {d}×{h}×{w}, batch {} in {} shards",
        report.network, scaling.batch_size, scaling.shards
    );
    println!("network of a rank: {}", scaling.link);
    let on_device = numbers.device.is_some();
    let least = if on_device { "least device limit" } else { "least limit" };
    let mut table = Table::new([
        "ranks",
        "samples",
        least,
        "sent",
        "received",
        "computing",
        "communication",
        "step",
        "efficiency",
        "",
    ]);
    for cost in &scaling.costs {
        table.row(row(cost));
    }
    table.print();
    println!(
        "bytes are of the busiest rank in a step; communication is what the backward pass does not hide; loading, validation, \
         checkpoints and the host's work on messages are not counted"
    );
    let most = scaling.costs.last().map(|cost| cost.ranks);
    match scaling.useful_ranks {
        Some(useful) if most > Some(useful) => {
            println!("beyond {useful} rank(s), the next number makes a step less than 10 % faster");
        }
        Some(useful) if useful > 1 => println!("each of these numbers makes a step at least 10 % faster"),
        _ => (),
    }
}

fn row(cost: &RankCost) -> [String; 10] {
    [
        cost.ranks.to_string(),
        cost.samples.to_string(),
        cost.minimum_vram_bytes.unwrap_or(cost.minimum_ram_bytes).to_string(),
        cost.sent_bytes_per_step.to_string(),
        cost.received_bytes_per_step.to_string(),
        duration(cost.compute_seconds_per_step),
        duration(cost.communication_seconds_per_step),
        duration(cost.predicted_seconds_per_step),
        or_dash(cost.efficiency.map(|share| format!("{:.0} %", 100.0 * share))),
        if cost.fits { String::new() } else { "does not fit".into() },
    ]
}
