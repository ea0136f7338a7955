//! `plimsoll evaluate`

use std::path::Path;

use plimsoll_data::Dataset;
use plimsoll_memory::{Budget, System, limits};
use plimsoll_metrics::{Scores, Summary, evaluate};

use crate::args::Evaluate;
use crate::failure::{Failure, Outcome};
use crate::picture::{self, Files};
use crate::report::{Table, json};

/// Compares predictions with references.
pub fn run(args: &Evaluate, as_json: bool) -> Outcome {
    let summary = compare(args)?;
    if as_json {
        return json(&summary);
    }
    print(&summary);
    Ok(())
}

/// Compares, and writes the scores.
pub fn compare(args: &Evaluate) -> Outcome<Summary> {
    let folder = args.references.parent().unwrap_or(Path::new("."));
    let described = folder.join("dataset.json").is_file().then(|| Dataset::open(folder)).transpose()?;
    let ending = described.as_ref().map_or(".nii.gz".into(), |dataset| dataset.file_ending.clone());
    let classes: Vec<u8> = match (&args.labels, &described) {
        (Some(labels), _) => labels.clone(),
        (None, Some(dataset)) => (1..dataset.labels.classes()).filter_map(|c| u8::try_from(c).ok()).collect(),
        (None, None) => {
            let message =
                format!("which classes to score is not known: {} has no dataset.json", folder.display());
            return Err(Failure::new(message).hint("name them, like --labels 1,2"));
        }
    };
    let budget = Budget::new(limits(&System::default(), args.ram.ram).line);
    let summary = evaluate(&args.predictions, &args.references, &ending, &classes, args.partial, &budget)?;
    if let (Some(images), Some(pictures)) = (&args.images, &args.pictures) {
        draw_all(&summary, images, &ending, pictures, &budget)?;
    }
    let path = args.output.clone().unwrap_or_else(|| args.predictions.join("summary.json"));
    plimsoll_data::atomic::write(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, &summary)?;
        file.write_all(b"\n")
    })
    .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    Ok(summary)
}

/// Draws every case of a summary.
fn draw_all(summary: &Summary, images: &Path, ending: &str, folder: &Path, budget: &Budget) -> Outcome {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    for case in &summary.metric_per_case {
        let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy();
        let id = name.trim_end_matches(ending);
        let channel = images.join(format!("{id}_0000{ending}"));
        let image = if channel.is_file() { channel } else { images.join(&*name) };
        let files =
            Files { image: &image, reference: &case.reference_file, prediction: &case.prediction_file };
        picture::draw(&files, &folder.join(format!("{id}.png")), budget)?;
    }
    Ok(())
}

/// Prints scores, for people.
pub fn print(summary: &Summary) {
    let score = |score: Option<f64>| score.map_or("–".into(), |score| format!("{score:.4}"));
    let mut table = Table::new(["case", "class", "Dice", "IoU", "volume similarity", "voxels", "reference"]);
    let mut row = |case: &str, class: &str, scores: &Scores| {
        table.row([
            case.into(),
            class.into(),
            score(scores.dice),
            score(scores.iou),
            score(scores.volume_similarity),
            format!("{:.0}", scores.n_pred),
            format!("{:.0}", scores.n_ref),
        ]);
    };
    for case in &summary.metric_per_case {
        let name = case.reference_file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (class, scores) in &case.metrics {
            row(&name, &class.to_string(), scores);
        }
    }
    for (class, scores) in &summary.mean {
        row("mean", &class.to_string(), scores);
    }
    row("mean", "all", &summary.foreground_mean);
    table.print();
}
