//! What several commands begin with: the line, the data set, its inspection, the plan of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{Dataset, Fold, InspectConfig, Inspection, Severity, Splits};
use plimsoll_memory::{Budget, Bytes, Limits, Reservation, System, limits};
use plimsoll_train::{
    CONFIG_FILE, Concession, Machine, PlannedRun, RunConfig, Settings, overhead, plan_run_allowing,
};

use crate::args::{Ram, RunArgs, Threads};
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;

/// The seed of the samples of foreground voxels. It is no setting: the same data set has one fingerprint.
const INSPECTION_SEED: u64 = 0;

/// The file of folds.
const SPLITS_FILE: &str = "splits_final.json";

/// The line, and the budget under it.
pub struct Line {
    pub limits: Limits,
    pub budget: Budget,
    /// Code, heap and stacks.
    pub overhead: Reservation,
}

impl Line {
    /// Draws the line, and reserves what threads and the process itself take.
    pub fn draw(ram: &Ram, threads: usize) -> Outcome<Line> {
        let limits = limits(&System::default(), ram.ram);
        if let Some(asked) = ram.ram
            && asked > limits.line
            && let Some(tightest) = limits.found.first()
        {
            let message =
                format!("--ram {asked} is more than the {} that {} leaves", tightest.bytes, tightest.source);
            let hint = format!("draw the line at or below {}", tightest.bytes);
            return Err(Failure::new(message, hint));
        }
        let budget = Budget::new(limits.line);
        let needed = overhead(threads);
        let overhead = budget.reserve("overhead", needed).map_err(|_| {
            let message = format!("the process itself needs {needed}, but the line is {}", limits.line);
            Failure::new(message, "raise --ram")
        })?;
        Ok(Line { limits, budget, overhead })
    }
}

/// Threads for kernels and for the loader.
pub fn machine(line: Bytes, threads: Threads, loader_threads: Option<usize>) -> Machine {
    let threads = threads.count();
    Machine { line, threads, loader_threads: loader_threads.unwrap_or(1 + threads / 8).clamp(1, 64) }
}

/// Inspects a data set, or takes what an earlier inspection left in `kept`.
pub fn inspect(
    dataset: &Dataset,
    kept: Option<&Path>,
    threads: usize,
    budget: &Budget,
    quiet: bool,
) -> Outcome<Inspection> {
    let config = InspectConfig { threads, seed: INSPECTION_SEED };
    if let Some(folder) = kept
        && let Some(inspection) = Inspection::load_if_current(folder, dataset, config, budget)?
    {
        return Ok(inspection);
    }
    let progress = Progress::new("inspecting", dataset.cases.len() as u64, quiet);
    let inspection =
        Inspection::run(dataset, config, budget, &|done, _| progress.set(done as u64, String::new()))?;
    progress.finish();
    Ok(inspection)
}

/// That no case has an error; all of them are printed.
pub fn expect_sound(inspection: &Inspection) -> Outcome {
    let errors: Vec<_> =
        inspection.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
    let Some(first) = errors.first() else { return Ok(()) };
    let more = match errors.len() {
        1 => String::new(),
        count => format!(" (and {} more; see `plimsoll inspect`)", count - 1),
    };
    let hint = first.hint.clone().unwrap_or_else(|| "mend the case, or remove it".into());
    Err(Failure::new(format!("{first}{more}"), hint))
}

/// The settings of `plimsoll.toml` under those of flags.
pub fn settings(args: &RunArgs) -> Outcome<Settings> {
    let path = match &args.config {
        Some(path) => path.clone(),
        None if Path::new("plimsoll.toml").is_file() => PathBuf::from("plimsoll.toml"),
        None => return Ok(args.settings()),
    };
    let text = fs::read_to_string(&path).map_err(|error| Failure::of_path(&path, &error))?;
    let from_file: Settings = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let message = format!("{}, line {line}: {}", path.display(), error.message());
        Failure::new(message, "settings are listed in docs/settings.md")
    })?;
    Ok(args.settings().or(from_file))
}

/// A data set with a plan for a run on it.
pub struct Prepared {
    pub dataset: Dataset,
    pub inspection: Arc<Inspection>,
    pub planned: PlannedRun,
    pub machine: Machine,
    pub budget: Budget,
    pub _overhead: Reservation,
}

/// Opens and inspects a data set and plans a run on it. `run` is the folder of the run, if there is to be one; a
/// configuration there holds unless settings are given that say otherwise.
pub fn prepare(args: &RunArgs, settings: &Settings, run: Option<&Path>, quiet: bool) -> Outcome<Prepared> {
    let mut machine = machine(Bytes::ZERO, args.compute.threads, args.loader_threads);
    let line = Line::draw(&args.ram, machine.threads + machine.loader_threads)?;
    machine.line = line.limits.line;
    let dataset = Dataset::open(&args.dataset)?;
    if !quiet {
        for warning in &dataset.warnings {
            eprintln!("warning: {warning}");
        }
    }
    let inspection = inspect(&dataset, run, machine.threads, &line.budget, quiet)?;
    expect_sound(&inspection)?;
    let Some(fingerprint) = &inspection.fingerprint else {
        let message = format!("{} has no case to train on", args.dataset.display());
        return Err(Failure::new(message, "images belong in imagesTr, and their labels in labelsTr"));
    };
    let known = run.filter(|run| run.join(CONFIG_FILE).is_file()).map(RunConfig::read).transpose()?;
    let allowed: Vec<Concession> = args.allow.iter().map(|allowed| (*allowed).into()).collect();
    let config = match known {
        Some(known) if *settings == Settings::default() => known,
        Some(known) => {
            let mut config = RunConfig::resolve(settings, &dataset, fingerprint)?;
            if settings.micro_batch.is_none() {
                config.training.micro_batch = known.training.micro_batch;
            }
            // A run that goes on keeps the changes that it began with.
            for concession in &allowed {
                concession.adopt(&mut config, &known);
            }
            config
        }
        None => RunConfig::resolve(settings, &dataset, fingerprint)?,
    };
    let is_set = settings.micro_batch.is_some() || run.is_some_and(|run| run.join(CONFIG_FILE).is_file());
    let index_bytes = inspection.index_bytes();
    let planned = plan_run_allowing(
        &allowed,
        &config,
        is_set,
        (machine, &*args.compute.open()?),
        fingerprint,
        index_bytes,
    )?;
    if !quiet && planned.numbers.feasible {
        for change in &planned.numbers.changes {
            eprintln!("warning: changed so that the run fits: {change}");
        }
    }
    Ok(Prepared {
        inspection: Arc::new(inspection),
        dataset,
        planned,
        machine,
        budget: line.budget,
        _overhead: line.overhead,
    })
}

/// A fold by its number, or all cases; from the data set's splits, else the run's, else new ones that are written into the
/// run's folder.
pub fn fold(dataset: &Dataset, run: &Path, given: Option<&Path>, which: &str) -> Outcome<Fold> {
    let ids: Vec<String> = dataset.cases.iter().map(|case| case.id.clone()).collect();
    if which == "all" {
        return Ok(Fold::all(&ids));
    }
    let number: usize = which
        .parse()
        .map_err(|_| Failure::new(format!("`--fold {which}` is no fold"), "folds are 0, 1, 2, … or `all`"))?;
    let places =
        [given.map(Path::to_path_buf), Some(dataset.folder.join(SPLITS_FILE)), Some(run.join(SPLITS_FILE))];
    let there = places.into_iter().flatten().find(|path| path.is_file());
    let splits = match (there, given) {
        (_, Some(given)) if !given.is_file() => {
            let message = format!("{} is not there", given.display());
            return Err(Failure::new(message, "leave --splits out to have folds made"));
        }
        (Some(path), _) => Splits::read(path, &ids)?,
        (None, _) => {
            let splits = Splits::make(&ids)?;
            splits.write(run.join(SPLITS_FILE))?;
            splits
        }
    };
    Ok(splits.fold(number)?.clone())
}
