//! The whole job in the folder that is named: make data, plan, train, predict, evaluate, report.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll::{Context, Event, Observer, StopToken};
use plimsoll::{EvaluateRequest, PlanRequest, PredictRequest, ReportRequest, TrainRequest};
use plimsoll_data::phantom::{self, PhantomConfig};

struct Warnings;

impl Observer for Warnings {
    fn event(&self, event: &Event<'_>) {
        if let Event::Warning { text } = event {
            eprintln!("{text}");
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("name a folder")?);
    let (data, run, labels) = (folder.join("data"), folder.join("run"), folder.join("labels"));
    phantom::write(&data, &PhantomConfig::default())?;
    let context = Context::new(StopToken::default(), Arc::new(Warnings));
    let mut request = PlanRequest::new(&data)?;
    request.settings = toml::from_str("patch_size = [32, 32, 32]\nepochs = 2\niterations_per_epoch = 4")?;
    println!("{} is the least memory limit", plimsoll::plan(&request, &context)?.minimum_ram_bytes);
    plimsoll::train(&TrainRequest::new(request, &run), &context)?;
    plimsoll::predict(&PredictRequest::new(&run, data.join("imagesTs"), &labels)?, &context)?.check()?;
    let scores = plimsoll::evaluate(&EvaluateRequest::new(&labels, data.join("labelsTs")), &context)?;
    println!(
        "mean over {} cases: {:?}",
        scores.summary.metric_per_case.len(),
        scores.summary.foreground_mean
    );
    plimsoll::report(&ReportRequest::new(&run, folder.join("report.html")), &context)?;
    Ok(())
}
