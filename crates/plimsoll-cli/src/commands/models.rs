//! `plimsoll models`

use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::model_file::{MODEL_ENDING, ModelFile, export_model};
use plimsoll_models::monai::MonaiModel;
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel, import, models_below};
use plimsoll_models::{Model, ModelSource};
use plimsoll_run::printable;
use serde::Serialize;

use crate::args::{ExportModel, ImportModels, Models, ShowModels, VerifyModel};
use crate::failure::{Failure, Outcome};
use crate::report::json;
use crate::terminal;
use plimsoll::Line;
use plimsoll::Progress;
use plimsoll::pair_run;

/// How deep below a folder models are looked for: those of a data set, of a folder of data sets.
const MOST_DEPTH: usize = 3;
/// How much of the text of a licence is shown.
const MOST_SHOWN: u64 = 64 << 10;

/// Imports models, or says what they are.
pub fn run(command: &Models, as_json: bool) -> Outcome {
    match command {
        Models::Import(args) => import_models(args, as_json),
        Models::Show(args) => show(args, as_json),
        Models::Export(args) => export(args, as_json),
        Models::Verify(args) => verify(args, as_json),
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
        bar.get_or_insert_with(|| terminal::observed(as_json).work("bytes", all)).set(done, String::new());
    });
    drop(bar);
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
    let mut models: Vec<Shown> = match folder.is_dir() {
        true => models_below(folder, MOST_DEPTH)?.iter().map(|folder| shown(folder, &line)).collect(),
        false => Vec::new(),
    };
    if models.is_empty() {
        let lines = lines_of(&ModelSource::of(folder)?, &line.budget)?;
        models.push(Shown { folder: folder.clone(), lines, error: None });
    }
    if as_json {
        return json(&models);
    }
    models.iter().for_each(print);
    Ok(())
}

/// What a model of another kind than nnU-Net's is, in lines.
fn lines_of(source: &ModelSource, budget: &Budget) -> Outcome<Vec<String>> {
    let of_run = |folder: &Path| -> Outcome<Vec<String>> {
        let config = Model::plans(folder)?;
        let [depth, height, width] = config.training.patch;
        Ok(vec![
            format!("network   {}", config.training.net.describe()),
            format!("windows   {depth} × {height} × {width}"),
        ])
    };
    match source {
        ModelSource::Run(folder) => of_run(folder),
        ModelSource::Pairs { folder, pairs } => {
            let first = pairs.first().map(|pair| of_run(pair_run(folder, *pair).path())).transpose()?;
            let mut lines =
                vec![format!("classifiers of {} pairs of classes, of which the first is:", pairs.len())];
            lines.extend(first.into_iter().flatten());
            Ok(lines)
        }
        ModelSource::File(file) => Ok(ModelFile::open(file)?.lines()),
        ModelSource::MonaiBundle(folder) => Ok(MonaiModel::open_bundle(folder, budget)?.lines()),
        ModelSource::MonaiConfig(file) => Ok(MonaiModel::open_config(file, budget)?.lines()),
        ModelSource::NnUnet(folder) => {
            let message = format!("{} holds no model of nnU-Net that can be shown", folder.display());
            Err(Failure::new(message, "name the folder of one that has plans.json and dataset.json"))
        }
    }
}

fn export(args: &ExportModel, as_json: bool) -> Outcome {
    let file = &args.file;
    if file.extension().is_none_or(|ending| ending != MODEL_ENDING) {
        let message = format!("{} does not end in .{MODEL_ENDING}", file.display());
        return Err(Failure::new(message, "`plimsoll export` writes weights alone, to a .safetensors file"));
    }
    if file.exists() && !args.overwrite {
        let message = format!("{} is there already", file.display());
        return Err(Failure::new(message, "choose another file, or --overwrite"));
    }
    if let ModelSource::Pairs { folder, pairs } = ModelSource::of(&args.run)? {
        let message =
            format!("{} has classifiers of {} pairs, each a model of its own", folder.display(), pairs.len());
        let hint =
            pairs.first().map(|pair| format!("name one, like {}", pair_run(&folder, *pair).path().display()));
        return Err(Failure::new(message, hint.unwrap_or_else(|| "name one of them".into())));
    }
    let line = Line::draw(args.ram.ram, 1)?;
    let written = export_model(&args.run, args.checkpoint.into(), file, &line.budget)?;
    if as_json {
        return json(&written);
    }
    let averaged = match written.averaged {
        0 => String::new(),
        count => format!(", {count} of them averages over the steps"),
    };
    println!(
        "{} tensors{averaged} of {} in {}, digest {}",
        written.tensors,
        folds(written.folds),
        file.display(),
        written.digest
    );
    Ok(())
}

/// How many folds, in words.
fn folds(count: usize) -> String {
    if count == 1 { "one fold".into() } else { format!("{count} folds") }
}

fn verify(args: &VerifyModel, as_json: bool) -> Outcome {
    let line = Line::draw(args.ram.ram, 1)?;
    let mut bar: Option<Progress> = None;
    let verified = ModelFile::verify(&args.file, &line.budget, &mut |done, all| {
        bar.get_or_insert_with(|| terminal::observed(as_json).work("bytes", all)).set(done, String::new());
    });
    drop(bar);
    let verified = verified?;
    if as_json {
        return json(&verified);
    }
    println!(
        "{}: all {} tensors of {} are as they were written, digest {}",
        shown_path(&args.file),
        verified.tensors,
        folds(verified.folds),
        verified.digest
    );
    Ok(())
}

fn shown(folder: &Path, line: &Line) -> Shown {
    let opened = NnUnetModel::open(folder, &NnUnetChoice::default(), &line.budget);
    let (lines, error) = match opened {
        Ok(model) => (model.lines(), None),
        Err(error) => (Vec::new(), Some(Failure::from(error).line().to_string())),
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
