//! `plimsoll predict`

use crate::args::Predict;
use crate::failure::Outcome;
use crate::jobs::predict::predict_all;
use crate::report::json;
use crate::signals::Stop;

/// Segments images.
pub fn run(args: &Predict, as_json: bool) -> Outcome {
    let stop = Stop::listen()?;
    stop.end_in_order();
    let report =
        predict_all(&args.request()?, stop.flag(), as_json).map_err(|failure| stop.cause_of(failure))?;
    if as_json {
        json(&report)?;
        return report.check();
    }
    for case in &report.cases {
        println!("{} in {:.1} s, holding {}", case.file.display(), case.seconds, case.plan.total_bytes);
    }
    if let Some(planned) = report.planned_bytes {
        println!("planned {planned}, peak resident {}", report.peak_rss_bytes);
    }
    report.check()
}
