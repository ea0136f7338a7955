//! `plimsoll train` as one of several processes of a launcher.

use std::time::Duration;

use plimsoll::{
    Context, LinkFailure, LinkOptions, LinkedRanks, RankResult, Transport, link_ranks, mpi_libraries,
    rank_cores, train_rank,
};
use plimsoll_ranks::{Communicator, Launch, MpiOptions, open_mpi};

use super::train;
use crate::args::{Threads, Train, TransportName, warn_of_unread};
use crate::failure::Outcome;
use crate::launch::{FORWARDING, ranks_failure, watch_of};
use crate::terminal;

/// The status of a process that should be started again: `EX_TEMPFAIL` of sysexits.h.
const TRY_AGAIN: u8 = 75;
/// The queues of work that CUDA makes for a GPU unless the environment states another number.
const USUAL_QUEUES: usize = 8;

/// Trains and validates a fold together with the other processes. The first reports; the others report errors alone.
pub fn run(args: &Train, launch: &Launch, as_json: bool) -> Outcome {
    let libraries = mpi_libraries(launch.launcher, std::env::var_os("PATH").as_deref());
    let mut options = MpiOptions { libraries, ..MpiOptions::default() };
    if let Some(seconds) = args.patience {
        options.patience = Duration::from_secs(seconds.into());
    }
    let patience = options.patience;
    options.watch = Some(watch_of(launch));
    let communicator = open_mpi(launch, &options).map_err(|error| ranks_failure(&error))?;
    let (rank, ranks) = (communicator.rank(), communicator.size());
    let (ended, mut communicator) = link_and_train(args, communicator, patience, as_json);
    match ended {
        Ok(RankResult { trained, is_stopped }) => {
            // All processes close MPI together.
            drop(communicator);
            let result = trained.map_or(Ok(()), |trained| train::print(&trained, as_json));
            match is_stopped {
                // The first reports it.
                true if rank > 0 => std::process::exit(TRY_AGAIN.into()),
                true => result.map_err(|failure| failure.with_status(TRY_AGAIN)),
                false => result,
            }
        }
        Err(failure) => {
            let host = plimsoll_memory::host::name();
            let failure = failure.named_for_process(&format!("rank {rank} of {ranks} on {host}"));
            failure.print();
            // A launcher drops what it has not yet forwarded when a process aborts.
            std::thread::sleep(FORWARDING);
            communicator.abort(failure.status().into());
            // MPI has ended the process.
            Err(failure)
        }
    }
}

/// Returns the communicator as well, which other ranks may wait for.
fn link_and_train(
    args: &Train,
    communicator: Box<dyn Communicator + Send>,
    patience: Duration,
    as_json: bool,
) -> (Outcome<RankResult>, Box<dyn Communicator + Send>) {
    let context = match communicator.rank() {
        0 => terminal::context(as_json),
        _ => terminal::silent_context(),
    };
    let context = match context {
        Ok(context) => context,
        Err(failure) => return (Err(failure), communicator),
    };
    let queues = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().and_then(|number| number.parse().ok());
    let options = LinkOptions {
        device: args.run.compute.device,
        transport: args.transport.map(Transport::from),
        queues: queues.unwrap_or(USUAL_QUEUES),
        patience,
    };
    match link_ranks(communicator, &options, &context) {
        Ok(mut linked) => {
            let ended = train_and_validate(args, &mut linked, patience, &context);
            (ended, linked.communicator)
        }
        Err(LinkFailure { error, communicator }) => (Err(error.into()), communicator),
    }
}

fn train_and_validate(
    args: &Train,
    LinkedRanks { communicator, memory, note }: &mut LinkedRanks,
    patience: Duration,
    context: &Context,
) -> Outcome<RankResult> {
    let communicator = communicator.as_mut();
    let mut compute = args.run.compute;
    if compute.threads.threads.is_none() {
        compute.threads = Threads { threads: Some(rank_cores(communicator, context)?) };
    }
    let mut request = args.request_on(compute.open_linked(*memory)?)?;
    request.plan.threads = compute.threads.count();
    request.notes.extend(note.take());
    if communicator.rank() == 0 {
        warn_of_unread(&args.run.dataset, args.run.config.as_deref(), context);
    }
    let training = train_rank(&request, communicator, patience, context)?;
    Ok(training.validate(communicator, context)?)
}

impl From<TransportName> for Transport {
    fn from(name: TransportName) -> Transport {
        match name {
            TransportName::Mpi => Transport::Mpi,
            TransportName::Nccl => Transport::Nccl,
        }
    }
}
