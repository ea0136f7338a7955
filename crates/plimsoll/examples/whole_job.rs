//! The whole job in one folder: makes data, plans, trains, predicts, evaluates and reports.
use std::error::Error;
use std::path::Path;

use plimsoll::{Context, EvaluateRequest, Event, PhantomConfig, PlanRequest, PredictRequest, ReportRequest};
use plimsoll::{TrainRequest, evaluate, plan, predict, report, train, write_phantoms};

/// A small network and a short schedule.
pub const SETTINGS: &str = "epochs = 2\niterations_per_epoch = 4\npatch_size = [16, 16, 16]\n[network]\nnet = \"dynunet\"\nfeatures = [8, 16, 24]";

/// Does the whole job.
pub fn whole_job(folder: &Path) -> Result<(), Box<dyn Error>> {
    let (data, run, labels) = (folder.join("data"), folder.join("run"), folder.join("labels"));
    write_phantoms(&data, &PhantomConfig { size: [32, 40], ..PhantomConfig::default() })?;
    let context = Context::observed(|event: &Event<'_>| eprintln!("{event}"));
    let request = PlanRequest { settings: toml::from_str(SETTINGS)?, ..PlanRequest::new(&data)? };
    println!("the smallest memory limit is {}", plan(&request, &context)?.minimum_ram_bytes);
    train(&TrainRequest::new(request, &run), &context)?;
    predict(&PredictRequest::new(&run, data.join("imagesTs"), &labels)?, &context)?.check()?;
    let scores = evaluate(&EvaluateRequest::new(&labels, data.join("labelsTs")), &context)?;
    println!("the mean Dice is {:?}", scores.mean_dice());
    report(&ReportRequest::new(&run, folder.join("report.html")), &context)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    whole_job(Path::new(&std::env::args_os().nth(1).ok_or("name a folder")?))
}
