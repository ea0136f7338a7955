//! The whole job in a folder that is named: makes data, plans, trains, predicts, evaluates, reports.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use plimsoll::{Context, EvaluateRequest, Event, Observer, PlanRequest, PredictRequest, ReportRequest};
use plimsoll::{StopToken, TrainRequest, evaluate, plan, predict, report, train};
use plimsoll_data::phantom::{self, PhantomConfig};

/// A small network and a short schedule.
pub const SETTINGS: &str = "epochs = 2\niterations_per_epoch = 4\npatch_size = [16, 16, 16]\n[network]\nnet = \"dynunet\"\nfeatures = [8, 16, 24]";

struct Warnings;

impl Observer for Warnings {
    fn event(&self, event: &Event<'_>) {
        if let Event::Warning { text } = event {
            eprintln!("{text}");
        }
    }
}

/// Does the whole job.
pub fn whole_job(folder: &Path) -> Result<(), Box<dyn Error>> {
    let (data, run, labels) = (folder.join("data"), folder.join("run"), folder.join("labels"));
    phantom::write(&data, &PhantomConfig { size: [32, 40], ..PhantomConfig::default() })?;
    let context = Context::new(StopToken::default(), Arc::new(Warnings));
    let mut request = PlanRequest::new(&data)?;
    request.settings = toml::from_str(SETTINGS)?;
    println!("the least memory limit is {}", plan(&request, &context)?.minimum_ram_bytes);
    train(&TrainRequest::new(request, &run), &context)?;
    predict(&PredictRequest::new(&run, data.join("imagesTs"), &labels)?, &context)?.check()?;
    let scores = evaluate(&EvaluateRequest::new(&labels, data.join("labelsTs")), &context)?;
    println!("mean Dice {:?}", scores.summary.foreground_mean.get(plimsoll_metrics::Metric::Dice));
    report(&ReportRequest::new(&run, folder.join("report.html")), &context)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    whole_job(Path::new(&std::env::args_os().nth(1).ok_or("name a folder")?))
}
