//! `plimsoll models`

use std::path::{Path, PathBuf};

use plimsoll_memory::Bytes;
use plimsoll_run::nnunet::{NnUnetChoice, NnUnetModel, import, models_below};
use plimsoll_run::{Model, RunError, printable};
use serde::Serialize;

use crate::args::{ImportModels, Models, ShowModels};
use crate::failure::{Failure, Outcome};
use crate::jobs::line::Line;
use crate::progress::Progress;
use crate::report::json;

/// How deep below a folder models are looked for: those of a data set, of a folder of data sets.
const MOST_DEPTH: usize = 3;
/// How much of the text of a licence is shown.
const MOST_SHOWN: u64 = 64 << 10;

/// Imports models, or says what they are.
pub fn run(command: &Models, as_json: bool) -> Outcome {
    match command {
        Models::Import(args) => import_models(args, as_json),
        Models::Show(args) => show(args, as_json),
    }
}

/// What is said of a model.
#[derive(Serialize)]
struct Shown {
    folder: PathBuf,
    /// What it is; none if it cannot be used.
    lines: Vec<String>,
    /// Why it cannot be used.
    error: Option<String>,
}

/// What is said of an import.
#[derive(Serialize)]
struct Report {
    folder: PathBuf,
    files: usize,
    bytes: u64,
    licences: Vec<PathBuf>,
    models: Vec<Shown>,
}

fn import_models(args: &ImportModels, as_json: bool) -> Outcome {
    let to = match (&args.output, std::env::var_os("nnUNet_results").filter(|folder| !folder.is_empty())) {
        (Some(to), _) => to.clone(),
        (None, Some(results)) => results.into(),
        (None, None) => PathBuf::from("."),
    };
    let line = Line::draw(args.ram.ram, 1)?;
    let mut bar: Option<Progress> = None;
    let imported = import(&args.from, &to, &line.budget, &mut |done, all| {
        bar.get_or_insert_with(|| Progress::new("bytes", all, as_json)).set(done, String::new());
    });
    if let Some(bar) = bar {
        bar.finish();
    }
    let imported = imported?;
    let models = imported.models.iter().map(|folder| shown(folder, &line)).collect();
    let report = Report {
        folder: to,
        files: imported.files,
        bytes: imported.bytes,
        licences: imported.licences,
        models,
    };
    if as_json {
        return json(&report);
    }
    for licence in &report.licences {
        println!("{}:", shown_path(licence));
        match plimsoll_disk::read_to_string(licence, MOST_SHOWN) {
            Ok(text) => println!("{}\n", printable(text.trim_end())),
            Err(error) => println!("(not shown: {error})\n"),
        }
    }
    println!("{} files, {}, in {}", report.files, Bytes(report.bytes), shown_path(&report.folder));
    report.models.iter().for_each(print);
    Ok(())
}

fn show(args: &ShowModels, as_json: bool) -> Outcome {
    let line = Line::draw(args.ram.ram, 1)?;
    let folder = &args.folder;
    let mut models: Vec<Shown> =
        models_below(folder, MOST_DEPTH)?.iter().map(|folder| shown(folder, &line)).collect();
    if models.is_empty() {
        // A run of ours.
        let config = Model::plans(folder).map_err(|error| match error {
            RunError::NoRun { folder } => {
                let message =
                    format!("{} holds no model, neither of this program nor of nnU-Net 2", folder.display());
                Failure::new(message, "name the folder of a run, or one that has plans.json and dataset.json")
            }
            other => other.into(),
        })?;
        let [depth, height, width] = config.training.patch;
        let lines = vec![
            format!("network   {}", config.training.net.describe()),
            format!("windows   {depth} × {height} × {width}"),
        ];
        models.push(Shown { folder: folder.clone(), lines, error: None });
    }
    if as_json {
        return json(&models);
    }
    models.iter().for_each(print);
    Ok(())
}

fn shown(folder: &Path, line: &Line) -> Shown {
    let opened = NnUnetModel::open(folder, &NnUnetChoice::default(), &line.budget);
    let (lines, error) = match opened {
        Ok(model) => (model.lines(), None),
        Err(error) => (Vec::new(), Some(Failure::from(error).line())),
    };
    Shown { folder: folder.into(), lines, error }
}

/// A path on one line of a terminal, whatever its names are made of.
fn shown_path(path: &Path) -> String {
    printable(&path.display().to_string()).replace(['\n', '\t'], " ")
}

fn print(model: &Shown) {
    println!("{}", shown_path(&model.folder));
    for line in &model.lines {
        println!("  {line}");
    }
    if let Some(error) = &model.error {
        println!("  cannot be used: {error}");
    }
}
