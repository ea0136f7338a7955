//! A training as one of the processes that a launcher has started.

use std::time::Duration;

use plimsoll::backend::DeviceName;
use plimsoll::{Context, RankResult, mpi_libraries, rank_cores, train_together};
use plimsoll_ranks::{Launch, LaunchError};
use plimsoll_remedy::render;

use super::train::TrainArguments;
use super::{JobFailure, Kind, written};
use crate::open_ranks::with_ranks;
use crate::{Failure, Keywords};

/// The place of this process among the processes of a launcher; `None` if it is alone.
///
/// # Errors
/// Returns an error if the launcher's variables make no sense.
pub fn launched_ranks() -> Result<Option<Launch>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let launch = Launch::from_variables(&variable).map_err(|error: LaunchError| {
        JobFailure::failed(error.to_string(), Some(render(error.remedy(), &Keywords)))
    })?;
    Ok(launch.filter(|launch| !launch.is_alone()))
}

/// Trains a fold together with the other processes. The first validates and returns the result; the others return `null`.
pub(super) fn train(
    arguments: TrainArguments,
    patience: Option<Duration>,
    context: &Context,
) -> Result<String, Failure> {
    let launch = launched_ranks()?.ok_or_else(|| {
        JobFailure::failed(
            "no launcher has started this process as one of several",
            Some("start the script with `mpiexec -n 4 python`, or leave ranks out".into()),
        )
    })?;
    if arguments.one_vs_one {
        return Err(JobFailure::failed(
            format!("{} started several processes, but one_vs_one trains in one", launch.launcher),
            Some("start the script without the launcher, or pass ranks=False in one of them".into()),
        ));
    }
    let libraries = mpi_libraries(launch.launcher, std::env::var_os("PATH").as_deref());
    let context = context_of(&launch, context);
    let context = arguments.files().check(&context)?;
    with_ranks(&launch, libraries, patience, |communicator, patience| {
        let mut arguments = arguments;
        let machine = &mut arguments.run.machine;
        if machine.threads.is_none() {
            machine.threads = Some(rank_cores(communicator, &context).map_err(JobFailure::wrap)?);
        }
        let is_on_card = matches!(machine.device, DeviceName::Cuda(_));
        let mut request = arguments.request()?;
        if is_on_card {
            let note = "ranks send through MPI: NCCL is used by `plimsoll train`, not from Python";
            context.warn(note);
            request.notes.push(note.into());
        }
        let RankResult { is_stopped, trained } =
            train_together(&request, communicator, patience, &context).map_err(JobFailure::wrap)?;
        match is_stopped {
            true => Err(stopped()),
            false => written(&trained),
        }
    })
}

/// The context of a rank: the first reports, and the others report errors alone.
fn context_of(launch: &Launch, context: &Context) -> Context {
    if launch.rank == 0 {
        return context.clone();
    }
    let mut silent = Context::default().with_cache(context.cache().cloned());
    silent.stop = context.stop.clone();
    silent
}

fn stopped() -> Failure {
    JobFailure {
        message: "a rank was asked to stop; a checkpoint is written, and finished predictions are kept"
            .into(),
        remedy: Some("start all ranks again with resume=True".into()),
        kind: Kind::Stopped,
    }
    .into()
}
