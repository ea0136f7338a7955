//! `plimsoll train` as one of several processes of a launcher.

use std::time::Duration;

use plimsoll::{RankResult, mpi_libraries, rank_cores, train_rank};
use plimsoll_ranks::{Communicator, Launch, MpiOptions, RanksError, open_mpi};
use plimsoll_remedy::Remedy;

use super::train;
use crate::args::{Compute, Threads, Train, warn_of_unread};
use crate::failure::{Failure, Outcome};
use crate::terminal;

/// The status of a process that should be started again: `EX_TEMPFAIL` of sysexits.h.
const TRY_AGAIN: u8 = 75;
/// The time that a launcher is given to forward an error.
const FORWARDING: Duration = Duration::from_millis(500);

/// Trains and validates a fold together with the other processes. The first reports; the others report errors alone.
pub fn run(args: &Train, launch: &Launch, as_json: bool) -> Outcome {
    let libraries = mpi_libraries(launch.launcher, std::env::var_os("PATH").as_deref());
    let mut options = MpiOptions { libraries, ..MpiOptions::default() };
    if let Some(seconds) = args.patience {
        options.patience = Duration::from_secs(seconds.into());
    }
    let patience = options.patience;
    let mut communicator = open_mpi(launch, &options).map_err(failure)?;
    let (rank, ranks) = (communicator.rank(), communicator.size());
    match train_and_validate(args, communicator.as_mut(), patience, as_json) {
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
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
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

fn failure(error: RanksError) -> Failure {
    Failure::new(&error, String::from(Remedy::from(error.remedy().as_str())))
}

fn train_and_validate(
    args: &Train,
    communicator: &mut dyn Communicator,
    patience: Duration,
    as_json: bool,
) -> Outcome<RankResult> {
    let context = match communicator.rank() {
        0 => terminal::context(as_json)?,
        _ => terminal::silent_context()?,
    };
    let mut request = args.request()?;
    if args.run.compute.threads.threads.is_none() {
        let threads = rank_cores(communicator, &context)?;
        let compute = Compute { threads: Threads { threads: Some(threads) }, ..args.run.compute };
        (request.plan.threads, request.plan.backend) = (threads, compute.open()?);
    }
    if communicator.rank() == 0 {
        warn_of_unread(&args.run.dataset, args.run.config.as_deref(), &context);
    }
    let training = train_rank(&request, communicator, patience, &context)?;
    Ok(training.validate(communicator, &context)?)
}
