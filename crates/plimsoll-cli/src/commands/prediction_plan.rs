//! The output of `plimsoll predict --plan` and `plimsoll segment --plan`.

use plimsoll::{
    PredictRequest, PredictionPlan, plan_ensemble, plan_prediction, ring_line, strips_line, sums_line,
};
use plimsoll_infer::{PredictPlan, Summed};
use plimsoll_memory::Bytes;
use plimsoll_report::duration::{duration, grouped};

use crate::failure::Outcome;
use crate::report::{Table, json};
use crate::terminal;

/// Plans what a model would hold and take, or each of several of which the mean is made; fails if a case could not be predicted.
pub fn run(requests: &[PredictRequest], as_json: bool) -> Outcome {
    let plans = match requests {
        [request] => plan_prediction(request, &terminal::observed(as_json)),
        _ => plan_ensemble(requests, &terminal::observed(as_json)),
    };
    show(&plans?, as_json)
}

/// Shows plans; fails if a case could not be predicted.
pub fn show(plans: &[PredictionPlan], as_json: bool) -> Outcome {
    if as_json {
        json(&plans)?;
    } else {
        plans.iter().for_each(print);
    }
    Ok(plans.iter().try_for_each(PredictionPlan::check)?)
}

fn print(planned: &PredictionPlan) {
    println!("{} on {}, the limit is {}", planned.model, planned.engine, planned.ram_budget_bytes);
    let mut table = Table::new(["case", "windows", "total", "least limit", "sums", "predicted"]);
    for case in &planned.cases {
        table.row([
            case.case.clone(),
            grouped(case.plan.windows as u64),
            case.plan.total_bytes.to_string(),
            case.least_ram_bytes.to_string(),
            format!("{} as {}", case.plan.summed, case.plan.ring),
            duration(case.plan.predicted_seconds),
        ]);
    }
    table.print();
    let largest = planned.cases.iter().max_by_key(|case| case.plan.minimum_ram_bytes);
    if let Some(largest) = largest {
        println!("of {}, which needs most:", largest.case);
        print_parts(&largest.plan, planned.is_ring_asked);
    }
    if planned.cases.len() > 1 {
        println!("all forward passes: about {}", duration(planned.predicted_seconds));
    }
    if planned.kept > 0 {
        println!("{} predictions already exist and would be kept; --overwrite replaces them", planned.kept);
    }
    for case in &planned.cases {
        if let Some(outlier) = &case.outlier {
            let seconds = Some(case.plan.predicted_seconds);
            eprintln!("warning: {}", outlier.line(&case.case, seconds, planned.can_overlap));
        }
    }
}

fn print_parts(plan: &PredictPlan, is_ring_asked: bool) {
    let mut table = Table::new(["part", "bytes", "contents"]);
    for (part, bytes) in plan.parts() {
        let what = match part {
            "overhead" => "code, heap and stacks".into(),
            "arena" => {
                let of = match plan.window_batch {
                    1 => String::new(),
                    windows => format!(" of {windows} windows"),
                };
                format!("parameters, features{of} stored as {}, scratch", plan.precision)
            }
            "windows" => "windows being copied in and out".into(),
            "logits" if plan.device_logits_bytes > Bytes::ZERO => {
                format!(
                    "planes of {} from the device, summed there as {}, and labels",
                    plan.summed, plan.ring
                )
            }
            "logits" => {
                let of = match plan.strips {
                    1 => String::new(),
                    strips => format!(" of one of {strips} strips"),
                };
                let logits = match plan.summed {
                    Summed::Logits => "",
                    Summed::Features => ", logits of two planes",
                };
                format!("sums of {}{of}, stored as {}{logits}, and labels of a plane", plan.summed, plan.ring)
            }
            "preparation" => "statistics of the whole image, needed before the first window".into(),
            "decoding" => "pictures being decoded".into(),
            "cache" => match plan.decompressed_file_bytes {
                Bytes::ZERO => "decoded images; those without room are read again for each window".into(),
                on_disk => {
                    format!(
                        "decoded images; those without room are decompressed on the disk: {on_disk} at most"
                    )
                }
            },
            "spool" => match plan.spool_file_bytes {
                Bytes::ZERO => "labels waiting to be put in order".into(),
                waiting => format!("labels waiting to be put in order: {waiting} on the disk"),
            },
            "queue" => "planes of labels waiting to be written".into(),
            "next case" => "the next case, inspected and decoded meanwhile".into(),
            _ => String::new(),
        };
        table.row([part.into(), bytes.to_string(), what]);
    }
    table.row([
        "total".into(),
        plan.total_bytes.to_string(),
        format!("the limit is {}", plan.ram_budget_bytes),
    ]);
    table.print();
    if let Some(line) = ring_line(plan).filter(|_| !is_ring_asked) {
        println!("{line}");
    }
    if let Some(line) = strips_line(plan) {
        println!("{line}");
    }
    if let Some(device) = plan.device_bytes {
        println!(
            "of the device's memory {device}, {} of it sums of {}",
            plan.device_logits_bytes, plan.summed
        );
    }
    if let Some(line) = sums_line(plan) {
        println!("{line}");
    }
}
