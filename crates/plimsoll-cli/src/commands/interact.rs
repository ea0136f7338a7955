//! `plimsoll interact`

use plimsoll::{Prompted, interact, plan_interaction};

use crate::args::Interact;
use crate::failure::Outcome;
use crate::report::json;
use crate::terminal;

/// Segments an object that prompts mark.
pub fn run(args: &Interact, as_json: bool) -> Outcome {
    let request = args.request()?;
    if args.plan {
        let plan = plan_interaction(&request, &terminal::observed(as_json))?;
        if as_json {
            return json(&plan);
        }
        for (part, bytes) in plan.parts() {
            println!("{part:<14}{bytes}");
        }
        println!("{:<14}{}", "total", plan.total_bytes);
        println!("{:.1} s for a pass through the network, predicted", plan.predicted_seconds_of_pass);
        return Ok(());
    }
    let report = interact(&request, &terminal::context(as_json)?)?;
    if as_json {
        return json(&report);
    }
    println!("weights: {}", report.license.as_deref().unwrap_or("unknown licence"));
    for (number, prompt) in (1..).zip(&report.prompts) {
        let Prompted { passes, zoom, object_voxels, seconds } = prompt;
        let zoomed = if *zoom > 1.0 { format!(", zoomed out {zoom:.2} times") } else { String::new() };
        println!("prompt {number}: {object_voxels} voxels after {passes} passes{zoomed}, in {seconds:.1} s");
    }
    println!("{}", report.output.display());
    println!("planned {}, peak resident {}", report.plan.total_bytes, report.peak_rss_bytes);
    Ok(())
}
