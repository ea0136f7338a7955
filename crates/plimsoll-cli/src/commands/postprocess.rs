//! `plimsoll postprocess`

use std::path::Path;

use plimsoll::{Change, PostprocessRequest, choose_postprocessing, postprocess};

use crate::args::Postprocess;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json};
use crate::terminal;

/// Does steps on label maps, or chooses steps.
pub fn run(args: &Postprocess, as_json: bool) -> Outcome {
    let threads = args.threads.count();
    if let Some(run) = &args.run {
        return choose(run, args, threads, as_json);
    }
    let change = match (&args.steps, args.orthogonal) {
        (Some(steps), _) => Some(Change::Steps(steps.clone())),
        (None, true) => Some(Change::Orthogonal),
        (None, false) => None,
    };
    let (Some(input), Some(output), Some(change)) = (&args.input, &args.output, change) else {
        return Err(Failure::new(
            "label maps, an output folder and steps are needed",
            "`plimsoll postprocess -i LABELS -o OUT --steps postprocessing.toml`, or with --orthogonal in place of steps",
        ));
    };
    let request = PostprocessRequest {
        input: input.clone(),
        output: output.clone(),
        change,
        unit: args.unit,
        overwrite: args.overwrite,
        ram: args.ram.ram,
        threads,
    };
    let report = postprocess(&request, &terminal::observed(as_json))?;
    if as_json {
        return json(&report);
    }
    for step in &report.steps {
        println!("{step}");
    }
    for done in &report.files {
        let file = done.file.display();
        match (done.resampled, args.orthogonal) {
            (true, _) => println!("{file}: on a grid at right angles"),
            (false, true) => println!("{file}: at right angles already"),
            (false, false) => println!("{file}: {} voxels changed", done.changed_voxels),
        }
    }
    for kept in &report.kept {
        println!("{} already existed and was kept; --overwrite replaces it", kept.display());
    }
    println!("reserved {} at most, peak resident {}", report.reserved_bytes, report.peak_rss_bytes);
    Ok(())
}

fn choose(run: &Path, args: &Postprocess, threads: usize, as_json: bool) -> Outcome {
    if args.overwrite {
        return Err(Failure::new(
            "--overwrite has no effect with --choose",
            "leave it out: steps are always chosen again",
        ));
    }
    let report = choose_postprocessing(run, args.unit, args.ram.ram, threads, &terminal::observed(as_json))?;
    if as_json {
        return json(&report);
    }
    let mut table = Table::new(["Dice", "before", "after"]);
    let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.4}"));
    for (name, gain) in report.gains() {
        table.row([name.to_string(), number(gain.dice_before), number(gain.dice_after)]);
    }
    table.print();
    if report.postprocessing.steps.is_empty() {
        println!("no step helps: `predict` leaves labels as they are");
    }
    for step in &report.postprocessing.steps {
        println!("{step}");
    }
    println!("written to {}", report.file.display());
    println!("reserved {} at most, peak resident {}", report.reserved_bytes, report.peak_rss_bytes);
    Ok(())
}
