//! `plimsoll predict`

use crate::args::Predict;
use crate::failure::{Failure, Outcome};
use crate::jobs::classify::{classify, is_classifier};
use crate::jobs::predict::predict_all;
use crate::report::json;
use crate::signals::Stop;

/// Segments images.
pub fn run(args: &Predict, as_json: bool) -> Outcome {
    let stop = Stop::listen()?;
    stop.end_in_order();
    if is_classifier(&args.model)? {
        let classified = classify(&args.request()?, args.votes.into(), stop.flag(), as_json);
        let classified = classified.map_err(|failure| stop.cause_of(failure))?;
        if as_json {
            return json(&classified);
        }
        let voted = match classified.classifiers {
            1 => String::new(),
            count => format!(" by the votes of {count} classifiers"),
        };
        println!("{} images{voted} in {}", classified.images, classified.file.display());
        println!("planned {}, peak resident {}", classified.planned_bytes, classified.peak_rss_bytes);
        return match classified.failed.first() {
            None => Ok(()),
            Some(first) => {
                let message = format!("{} images could not be read: {first}", classified.failed.len());
                Err(Failure::new(message, "mend them, or leave them out"))
            }
        };
    }
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
