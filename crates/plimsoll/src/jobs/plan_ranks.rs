//! The plan of a training by several ranks: memory, messages and time of a step for each number of ranks.

use std::path::PathBuf;

use plimsoll_data::Fold;
use plimsoll_memory::Bytes;
use plimsoll_nn::RankPlace;
use plimsoll_ranks::map_mpi;
use plimsoll_run::{RunConfig, RunPlan, Settings};
use plimsoll_train::{
    FoldsAtOnce, Link, PlannedRun, RankCost, RankScaling, RunPrograms, StepExchange, TrainError,
};
use serde::Serialize;

use super::listed::folds_needs;
use super::plan::{Opened, PlanRequest};
use crate::context::Context;
use crate::error::{Error, Outcome};

/// The code of plugins that MPI libraries load when they are initialised. Without InfiniBand, the plugins of MPICH and Open MPI take 36 KiB.
const PLUGINS: Bytes = Bytes::mib(1);

/// The same of MPICH as Debian builds it, whose library has another name: its plugins for networks take 41 MiB.
const PLUGINS_OF_DEBIAN: Bytes = Bytes::mib(48);
const LIBRARY_OF_DEBIAN: &str = "libmpich.so";

/// The ranks that are planned.
#[derive(Clone, Debug)]
pub struct PlannedRanks {
    /// Their largest number.
    pub ranks: usize,
    /// The network of a rank.
    pub link: Link,
    /// MPI libraries to look for before those that the system finds by their usual names. The code of the first is planned.
    pub libraries: Vec<PathBuf>,
}

/// The plan of a training by several ranks.
#[derive(Serialize)]
pub struct RanksReport {
    /// The plan of one of the requested ranks: that with the most moments.
    pub numbers: RunPlan,
    /// The network in a few words.
    pub network: String,
    /// The costs of one rank up to the requested number.
    pub scaling: RankScaling,
}

/// Plans the first fold of a run by each number of ranks up to the planned one among which its shards can be divided. All have the patch and the batch
/// of the run by the most ranks; each number is planned for the limit by itself.
///
/// # Errors
/// Returns the errors of [`plan`](super::plan::plan), and an error if the batch cannot be divided among the ranks. A run that does not fit is no
/// error here: see [`RunPlan::check`].
pub fn plan_ranks(request: &PlanRequest, planned: &PlannedRanks, context: &Context) -> Outcome<RanksReport> {
    let PlannedRanks { ranks, link, libraries } = planned;
    let (ranks, link) = (*ranks, *link);
    let mut ranked = RankedRun::open(request, ranks, context)?;
    let shards = ranked.config.training.shards;
    let counts: Vec<usize> = divisors(shards).filter(|count| *count <= ranks).collect();
    let progress = context.work("planning", counts.len() as u64);
    let (mut costs, mut last) = (Vec::new(), None);
    // A process alone loads no MPI.
    let mut counts_no_mpi = true;
    for count in counts {
        progress.set(costs.len() as u64, format!("{count} rank(s)"));
        // Warnings are the same for all numbers.
        let silent = context.silent();
        if count > 1 && counts_no_mpi {
            ranked.plugins = count_mpi(libraries, context);
            counts_no_mpi = false;
        }
        let planned = ranked.plan(count, if count == ranks { context } else { &silent })?;
        costs.push(RankCost::new(&planned, link));
        last = Some(planned);
    }
    drop(progress);
    let Some(planned) = last else { return Err(no_ranks()) };
    let scaling = RankScaling::new(&planned.config.training, link, ranked.folds, costs);
    if let Some(folds) = &scaling.folds_at_once {
        context.warn(advice(folds, ranks));
    }
    let network = planned.config.training.net.describe();
    Ok(RanksReport { numbers: planned.numbers, network, scaling })
}

/// Plans the first fold of a run for the rank with the most moments, of `ranks` ranks. `libraries` are as in [`PlannedRanks`].
pub(super) fn plan_rank(
    request: &PlanRequest,
    ranks: usize,
    libraries: &[PathBuf],
    context: &Context,
) -> Outcome<RunPlan> {
    let plugins = if ranks > 1 { count_mpi(libraries, context) } else { Bytes::ZERO };
    let mut ranked = RankedRun { plugins, ..RankedRun::open(request, ranks, context)? };
    Ok(ranked.plan(ranks, context)?.numbers)
}

/// Maps the MPI library of this machine, whose code each rank has within its limit. Returns the code of the plugins that it will load.
fn count_mpi(libraries: &[PathBuf], context: &Context) -> Bytes {
    let library = map_mpi(libraries);
    match &library {
        Some(library) => context.note(format_args!("memory of ranks includes the code of {library}")),
        None => context.warn(
            "no MPI library is found on this machine, so its code is not planned: libraries of MPICH and Open MPI take 11 to 42 MiB of each rank",
        ),
    }
    let is_debian = library.is_some_and(|library| library.contains(LIBRARY_OF_DEBIAN));
    if is_debian { PLUGINS_OF_DEBIAN } else { PLUGINS }
}

/// A run by several ranks that is planned.
struct RankedRun {
    request: PlanRequest,
    opened: Opened,
    config: RunConfig,
    fold: Fold,
    /// The number of folds of the data set.
    folds: usize,
    /// The code of plugins of MPI.
    plugins: Bytes,
    /// The programs of a process that trains alone.
    alone: RunPrograms,
}

impl RankedRun {
    /// Opens the data set, and resolves the settings for `ranks` ranks.
    fn open(request: &PlanRequest, ranks: usize, context: &Context) -> Outcome<RankedRun> {
        let settings = with_shards(&request.settings, ranks)?;
        let asked = &request.settings;
        let request = PlanRequest { settings, ..request.clone() };
        let memory = request.set_limit(context)?;
        let listed = request.open_dataset(&memory, context)?;
        let fold = listed.first_fold()?;
        let splits = listed.own_splits(&memory.budget)?;
        let folds = splits.as_ref().map_or(1, |splits| splits.folds.len());
        let needs = splits.as_ref().map(folds_needs).transpose()?;
        let opened = request.inspect(listed, memory, context)?;
        let place = RankPlace { rank: 0, ranks };
        let mut opened = Opened { folds: needs.unwrap_or_default(), place, ..opened };
        let (config, alone) = resolve(&request, asked, &mut opened, &fold)?;
        let fold = opened.data.used(&config.task, &fold);
        let plugins = PLUGINS;
        Ok(RankedRun { request, opened, config, fold, folds, plugins, alone })
    }

    /// Plans it for the rank with the most moments of `ranks` ranks.
    fn plan(&mut self, ranks: usize, context: &Context) -> Outcome<PlannedRun> {
        let program = &self.alone[self.alone.fullest()];
        let exchange = StepExchange::new(&self.config.training, program, ranks);
        self.opened.place = RankPlace { rank: exchange.largest_owner(), ranks };
        self.opened.later_code = if ranks > 1 { self.plugins } else { Bytes::ZERO };
        let is_set = self.request.settings.micro_batch.is_some();
        self.request.plan(&self.opened, &self.config, &self.fold, is_set, context)
    }
}

/// The configuration of a run by as many ranks as `opened` is planned for, and its programs for a process alone. `asked` are the settings
/// before their shards followed from the ranks.
fn resolve(
    request: &PlanRequest,
    asked: &Settings,
    opened: &mut Opened,
    fold: &Fold,
) -> Outcome<(RunConfig, RunPrograms)> {
    let ranks = opened.place.ranks;
    let resolved = request.resolve(&request.settings, opened, fold, opened.machine);
    // A choice of the patch plans programs, which more ranks than tensors do not have.
    opened.place = RankPlace::ALONE;
    let config = match &resolved {
        Ok(config) => config.clone(),
        Err(_) => request.resolve(&request.settings, opened, fold, opened.machine)?,
    };
    let alone = RunPrograms::new(&config.training, RankPlace::ALONE).map_err(TrainError::from)?;
    let tensors = StepExchange::new(&config.training, &alone[alone.fullest()], 1).tensors();
    if ranks <= tensors {
        return Ok((resolved?, alone));
    }
    let message =
        format!("only {tensors} tensors are trained, but each of {ranks} ranks updates one at least");
    let fewer = (1..=tensors).rev().find(|count| with_shards(asked, *count).is_ok()).unwrap_or(1);
    Err(Error::new(message, format!("plan {fewer} rank(s) at most")))
}

/// The settings with as many shards as ranks, unless they have others.
fn with_shards(settings: &Settings, ranks: usize) -> Outcome<Settings> {
    if ranks == 0 {
        return Err(no_ranks());
    }
    let shards = settings.shards.unwrap_or(ranks);
    if shards == 0 || !shards.is_multiple_of(ranks) {
        let message = format!(
            "`shards` is {shards}, but it must be a multiple of the number of ranks, which is {ranks}"
        );
        let fewer = divisors(shards).filter(|count| *count < ranks).last().unwrap_or(1);
        let remedy = format!("plan {fewer} rank(s), or set `shards` to {}", shards.next_multiple_of(ranks));
        return Err(Error::new(message, remedy));
    }
    if let Some(batch) = settings.batch_size.filter(|batch| !batch.is_multiple_of(shards)) {
        let message = format!("a batch of {batch} sample(s) has no {shards} equal shards for {ranks} ranks");
        let more = format!("set `batch_size` to {}", batch.next_multiple_of(shards));
        let fewer = divisors(batch).filter(|count| *count <= ranks).last().unwrap_or(1);
        let remedy = match settings.shards {
            Some(_) => more,
            None => format!("{more}, or plan {fewer} rank(s)"),
        };
        return Err(Error::new(message, remedy));
    }
    Ok(Settings { shards: Some(shards), ..settings.clone() })
}

/// The divisors of a number, the smallest first.
fn divisors(number: usize) -> impl Iterator<Item = usize> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

fn no_ranks() -> Error {
    Error::new("a training has at least one rank", "plan 1 rank or more")
}

/// The warning that folds at the same time finish earlier.
fn advice(division: &FoldsAtOnce, ranks: usize) -> String {
    let FoldsAtOnce { folds, at_once, ranks_each, predicted_seconds, one_by_one_seconds } = *division;
    let earlier = 100.0 * (1.0 - predicted_seconds / one_by_one_seconds);
    let each = if ranks_each == 1 { "a process alone".into() } else { format!("{ranks_each} ranks") };
    format!(
        "all {folds} folds finish {earlier:.0} % earlier if {at_once} train at the same time, each by {each}, than one after the other by \
         {ranks} ranks"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(shards: Option<usize>, batch_size: Option<usize>) -> Settings {
        Settings { shards, batch_size, ..Settings::default() }
    }

    #[test]
    fn a_batch_that_ranks_cannot_divide_is_refused_with_one_that_they_can() {
        let refused = |shards, batch, ranks| {
            let error = with_shards(&settings(shards, batch), ranks).unwrap_err();
            format!("{error}; {}", error.remedy())
        };
        assert_eq!(
            refused(Some(4), None, 3),
            "`shards` is 4, but it must be a multiple of the number of ranks, which is 3; plan 2 rank(s), or set `shards` to 6"
        );
        assert_eq!(
            refused(None, Some(6), 4),
            "a batch of 6 sample(s) has no 4 equal shards for 4 ranks; set `batch_size` to 8, or plan 3 rank(s)"
        );
        assert_eq!(
            refused(Some(4), Some(6), 2),
            "a batch of 6 sample(s) has no 4 equal shards for 2 ranks; set `batch_size` to 8"
        );
        for (shards, batch, ranks) in [(None, None, 4), (Some(8), None, 4), (Some(8), Some(16), 4)] {
            let with = with_shards(&settings(shards, batch), ranks).unwrap();
            assert_eq!(with.shards, Some(shards.unwrap_or(ranks)));
        }
    }
}
