//! `plimsoll report`

use plimsoll::{ReportRequest, report};

use crate::args;
use crate::failure::Outcome;
use crate::report::json;
use crate::terminal;

/// Writes a page about a run or a sweep.
pub fn run(args: &args::Report, as_json: bool) -> Outcome {
    let request = ReportRequest {
        run: args.run.clone(),
        page: args.output.clone(),
        dataset: args.dataset.clone(),
        allow_outside: args.allow_outside,
        cases: args.cases,
        volumes: args.volumes,
        ram: args.ram.ram,
    };
    let written = report(&request, &terminal::observed(as_json))?;
    if as_json {
        return json(&written);
    }
    println!("{}: {:.2} MB; it needs no network", written.page.display(), written.bytes as f64 / 1e6);
    Ok(())
}
