//! The files that each command reads and writes, to be checked before it begins.

use std::path::{Path, PathBuf};

use plimsoll::{CLOSED_FOLDERS, SETTINGS_FILE, dataset_around};
use plimsoll_disk::outputs::{CommandFiles, Contents, Existing, Input, OutputFile, OutputFolder};
use plimsoll_memory::Bytes;
use plimsoll_report::contents;
use plimsoll_run::{FolderUse, RunFolder};

use super::{
    Bench, Command, Compare, Evaluate, Export, ExportFormat, ExportModel, ImportModels, Inspect, Interact,
    Models, Plan, Postprocess, Predict, Report, RunArgs, Segment, Sweep, Train,
};
use crate::failure::Outcome;

/// The name of images that are predicted from.
const IMAGES: &str = "the images";

impl Command {
    /// The files that the command reads and writes by its arguments.
    ///
    /// # Errors
    /// Returns an error if a model is not named, or named twice, or a folder for predictions has another use.
    pub fn files(&self) -> Outcome<CommandFiles> {
        Ok(match self {
            Command::Inspect(args) => inspect_files(args),
            Command::Plan(args) => plan_files(args),
            Command::Train(args) => train_files(args),
            Command::Sweep(args) => sweep_files(args),
            Command::Report(args) => report_files(args),
            Command::Predict(args) => predict_files(args)?,
            Command::Segment(args) => segment_files(args),
            Command::Interact(args) => interact_files(args),
            Command::Postprocess(args) => postprocess_files(args),
            Command::Models(Models::Import(args)) => import_files(args),
            Command::Models(Models::Export(args)) => model_export_files(args),
            Command::Evaluate(args) => evaluate_files(args),
            Command::Compare(args) => compare_files(args),
            Command::Export(args) => export_files(args),
            Command::Bench(Bench::Load(args) | Bench::Patch(args) | Bench::System(args)) => {
                let mut files = run_files(&args.run);
                files.write(args.draw.as_deref().map(|path| ("--draw", path)), contents::DRAWING);
                files
            }
            // These write no file that a user names, begin with an empty folder, or replace nothing unless asked.
            Command::Demo(_)
            | Command::Doctor(_)
            | Command::Settings
            | Command::Completions(_)
            | Command::Manual(_)
            | Command::Status(_)
            | Command::Serve(_)
            | Command::Watch(_)
            | Command::Models(Models::Show(_) | Models::Verify(_))
            | Command::Bench(
                Bench::Step(_)
                | Bench::Curve(_)
                | Bench::Plan(_)
                | Bench::Kernels(_)
                | Bench::Predict(_)
                | Bench::Scaling(_),
            ) => CommandFiles::default(),
        })
    }
}

/// The models that a command reads, and the memory limit of the command.
#[derive(Default)]
pub struct ModelArguments {
    pub paths: Vec<PathBuf>,
    pub ram: Option<Bytes>,
}

impl Command {
    /// The models of a command that may write among files of other contents than its own.
    ///
    /// # Errors
    /// If the model is not named, or named twice.
    pub fn models(&self) -> Outcome<ModelArguments> {
        let (paths, ram) = match self {
            Command::Predict(args) => {
                let (first, others) = args.models()?;
                (std::iter::once(first).chain(others).collect(), args.inference.ram.ram)
            }
            Command::Export(args) => (vec![args.model.clone()], args.ram.ram),
            Command::Models(Models::Export(args)) => (vec![args.run.clone()], args.ram.ram),
            Command::Compare(args) => (args.candidates.clone(), args.ram.ram),
            _ => return Ok(ModelArguments::default()),
        };
        Ok(ModelArguments { paths, ram })
    }
}

/// Lists of files, filled by argument.
trait Listing {
    fn read<'a>(&mut self, name: &'static str, paths: impl IntoIterator<Item = &'a PathBuf>);
    fn write(&mut self, output: Option<(&'static str, &Path)>, contents: Contents);
    fn write_as_allowed(&mut self, name: &'static str, path: &Path, contents: Contents);
    fn write_into(&mut self, name: &'static str, folder: Option<&PathBuf>);
    fn read_settings(&mut self, config: Option<&PathBuf>);
}

impl Listing for CommandFiles {
    fn read<'a>(&mut self, name: &'static str, paths: impl IntoIterator<Item = &'a PathBuf>) {
        let inputs = paths.into_iter().map(|path| {
            let part = if name == IMAGES { "an image" } else { "it" };
            Input { name, part, path: path.clone(), closed: CLOSED_FOLDERS }
        });
        self.inputs.extend(inputs);
    }

    fn write(&mut self, output: Option<(&'static str, &Path)>, contents: Contents) {
        let existing = Existing::SameContents;
        let files = output.map(|(name, path)| OutputFile { name, path: path.into(), contents, existing });
        self.files.extend(files);
    }

    fn write_as_allowed(&mut self, name: &'static str, path: &Path, contents: Contents) {
        self.files.push(OutputFile { name, path: path.into(), contents, existing: Existing::AsAllowed });
    }

    fn write_into(&mut self, name: &'static str, folder: Option<&PathBuf>) {
        self.folders.extend(folder.map(|path| OutputFolder { name, path: path.clone() }));
    }

    fn read_settings(&mut self, config: Option<&PathBuf>) {
        let usual = PathBuf::from(SETTINGS_FILE);
        self.read("the settings", [config.unwrap_or(&usual)]);
    }
}

fn inspect_files(args: &Inspect) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the data set", [&args.dataset]);
    files.read_settings(args.config.as_ref());
    if let Some(page) = &args.page {
        files.write(Some(("--page", page)), contents::INSPECTION_PAGE);
        // A page without room for its numbers is refused by the command, which knows a better name.
        let numbers = Some(page.with_extension("json")).filter(|numbers| numbers != page);
        files.write(numbers.as_deref().map(|path| ("--page", path)), contents::INSPECTION);
    }
    files
}

fn run_files(args: &RunArgs) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the data set", [&args.dataset]);
    files.read("the model", &args.plans_from);
    files.read_settings(args.config.as_ref());
    files
}

fn plan_files(args: &Plan) -> CommandFiles {
    let mut files = run_files(&args.run);
    files.read("the start", &args.start.start);
    files.write(args.draw.as_deref().map(|path| ("--draw", path)), contents::DRAWING);
    files
}

fn train_files(args: &Train) -> CommandFiles {
    let mut files = run_files(&args.run);
    files.read("the start", &args.start.start);
    files.read("the folds", &args.splits);
    files.write_into("--out", args.out.as_ref());
    files.write(args.openmetrics.as_deref().map(|path| ("--openmetrics", path)), contents::METRICS);
    let (slurm, kubernetes) = (args.submission.slurm.as_deref(), args.submission.kubernetes.as_deref());
    files.write(slurm.map(|path| ("--slurm", path)), contents::TRAINING_BATCH);
    files.write(kubernetes.map(|path| ("--kubernetes", path)), contents::TRAINING_MANIFEST);
    files
}

fn sweep_files(args: &Sweep) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the sweep", [&args.sweep]);
    files.read("the data set", &args.dataset);
    files.write_into("--out", Some(&args.out));
    files.write(args.slurm.as_deref().map(|path| ("--slurm", path)), contents::BATCH);
    files.write(args.kubernetes.as_deref().map(|path| ("--kubernetes", path)), contents::MANIFEST);
    files
}

fn report_files(args: &Report) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the run", [&args.run]);
    files.read("the data set", &args.dataset);
    files.write(Some(("--output", &args.output)), contents::PAGE);
    files
}

fn predict_files(args: &Predict) -> Outcome<CommandFiles> {
    let mut files = CommandFiles::default();
    let (model, others) = args.models()?;
    files.read("the model", std::iter::once(&model).chain(&others));
    files.read(IMAGES, [&args.input]);
    files.read("the data set", &dataset_around(&args.input));
    files.read("the labels of the earlier stage", &args.nnunet.prev_stage_predictions);
    files.read("the steps", &args.nnunet.postprocessing);
    // Classifiers write a table, other networks write into a folder.
    let output = &args.output;
    let is_table = output.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    if output.is_file() || (is_table && !output.is_dir()) {
        files.write(Some(("--output", output)), contents::PREDICTIONS);
        let drawing = output.with_extension("mistakes.svg");
        files.write(args.mistakes.map(|_| ("--output", drawing.as_path())), contents::DRAWING);
    } else {
        // A run that it holds is named as such.
        FolderUse::Predictions.expect_in(output)?;
        files.write_into("--output", Some(output));
    }
    Ok(files)
}

fn segment_files(args: &Segment) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read(IMAGES, &args.input);
    files.read("the weights", &args.weights);
    let Some(output) = &args.output else { return files };
    match output.is_file() {
        true => files.write_as_allowed("--output", output, contents::OTHER),
        false => files.write_into("--output", Some(output)),
    }
    files
}

fn interact_files(args: &Interact) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read(IMAGES, [&args.image]);
    files.read("the model", [&args.model]);
    let prompts: Vec<PathBuf> =
        args.prompt.iter().filter_map(|prompt| prompt.file()).map(PathBuf::from).collect();
    files.read("the prompts", &prompts);
    if let Some(output) = &args.output {
        files.write_as_allowed("--output", output, contents::OTHER);
    }
    files
}

fn postprocess_files(args: &Postprocess) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the label maps", &args.input);
    files.read("the steps", &args.steps);
    if let Some(run) = &args.run {
        files.files.push(OutputFile {
            name: "--choose",
            path: RunFolder::new(run).postprocessing(),
            contents: contents::STEPS,
            existing: Existing::SameContentsAtFixedPath,
        });
    }
    let Some(output) = &args.output else { return files };
    match args.input.as_deref().is_some_and(Path::is_dir) {
        true => files.write_into("--output", Some(output)),
        false => files.write_as_allowed("--output", output, contents::OTHER),
    }
    files
}

fn import_files(args: &ImportModels) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the model", [&args.from]);
    files.write_into("--output", args.output.as_ref());
    files
}

fn model_export_files(args: &ExportModel) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the run", [&args.run]);
    files.write_as_allowed("FILE", &args.file, contents::OTHER);
    files
}

fn evaluate_files(args: &Evaluate) -> CommandFiles {
    let mut files = CommandFiles::default();
    if let Some(table) = &args.classification.table {
        files.read("the table", [table]);
        let scores = args.output.clone().unwrap_or_else(|| table.with_file_name("scores.json"));
        files.write_as_allowed("--output", &scores, contents::OTHER);
        files.write_as_allowed("--output", &scores.with_extension("csv"), contents::OTHER);
        files.write_as_allowed("--output", &scores.with_extension("svg"), contents::OTHER);
        return files;
    }
    files.read("the predictions", &args.predictions);
    files.read("the references", &args.references);
    files.read(IMAGES, &args.images);
    files.read_settings(args.config.as_ref());
    files.write_into("--pictures", args.pictures.as_ref());
    let Some(predictions) = &args.predictions else { return files };
    let folder = if predictions.is_dir() { predictions.clone() } else { predictions.with_file_name("") };
    let (scores, tables) = match &args.output {
        Some(scores) => (scores.clone(), scores.clone()),
        None => (folder.join("summary.json"), folder.join("scores.csv")),
    };
    files.write(Some(("--output", &scores)), contents::SCORES);
    files.write(Some(("--output", &tables.with_extension("csv"))), contents::TABLE_OF_SCORES);
    files.write(Some(("--output", &tables.with_extension("svg"))), contents::DRAWING);
    files
}

fn compare_files(args: &Compare) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("a candidate", &args.candidates);
    files.read("the data set", &args.dataset);
    files.write(args.csv.as_deref().map(|path| ("--csv", path)), contents::COMPARISON);
    files.write(args.picture.as_deref().map(|path| ("--picture", path)), contents::PICTURE);
    files.write_into("--ensembles", args.ensembles.as_ref());
    files
}

fn export_files(args: &Export) -> CommandFiles {
    let mut files = CommandFiles::default();
    files.read("the model", [&args.model]);
    let (name, path) = ("--output", args.output.as_path());
    match args.format {
        ExportFormat::Nnunet => files.write_into("--output", Some(&args.output)),
        ExportFormat::Safetensors => files.write_as_allowed(name, path, contents::OTHER),
        ExportFormat::Onnx => files.write_as_allowed(name, path, contents::GRAPH),
    }
    files
}
