//! `plimsoll train` as one of several processes of a launcher.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::{Context, RankResult, backend::all_cores, train_rank};
use plimsoll_ranks::{Communicator, Launch, Launcher, MpiOptions, RanksError, open_mpi};
use plimsoll_remedy::Remedy;

use super::train;
use crate::args::{Compute, Threads, Train, warn_of_unread};
use crate::failure::{Failure, Outcome};
use crate::terminal;

/// The status of a process that should be started again: `EX_TEMPFAIL` of sysexits.h.
const TRY_AGAIN: u8 = 75;
/// The time that a launcher is given to forward an error.
const FORWARDING: Duration = Duration::from_millis(500);
/// The system's description of this process.
const STATUS: &str = "/proc/self/status";
/// The most bytes of it.
const LONGEST_STATUS: u64 = 64 << 10;
/// The most bytes of a node's name and of a list of cores.
const LONGEST: usize = 4096;

/// Trains and validates a fold together with the other processes. The first reports; the others report errors alone.
pub fn run(args: &Train, launch: &Launch, as_json: bool) -> Outcome {
    let mut options = MpiOptions { libraries: libraries_of(launch.launcher), ..MpiOptions::default() };
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

/// The MPI libraries that were installed together with the launcher in `PATH`, as in a virtual environment: in `lib` beside its `bin`. None for Slurm
/// and others that start processes of any MPI, where the system's library is meant.
fn libraries_of(launcher: Launcher) -> Vec<PathBuf> {
    let (program, names) = match launcher {
        Launcher::Pmi => ("mpiexec", &["libmpi_abi.so.1", "libmpi.so.12"][..]),
        Launcher::OpenMpi => ("mpirun", &["libmpi.so.40"][..]),
        Launcher::Slurm | Launcher::Pmix => return Vec::new(),
    };
    let Some(path) = std::env::var_os("PATH") else { return Vec::new() };
    let Some(folder) = std::env::split_paths(&path).find(|folder| folder.join(program).is_file()) else {
        return Vec::new();
    };
    let beside = |name: &&str| folder.join("../lib").join(name).canonicalize().ok();
    names.iter().filter_map(beside).collect()
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
        let threads = own_cores(communicator, &context).map_err(failure)?;
        let compute = Compute { threads: Threads { threads: Some(threads) }, ..args.run.compute };
        (request.plan.threads, request.plan.backend) = (threads, compute.open()?);
    }
    if communicator.rank() == 0 {
        warn_of_unread(&args.run.dataset, args.run.config.as_deref(), &context);
    }
    let training = train_rank(&request, communicator, patience, &context)?;
    Ok(training.validate(communicator, &context)?)
}

/// The cores of this process, divided among the processes on its node that may use the same: a launcher that binds processes gives each its own.
fn own_cores(communicator: &mut dyn Communicator, context: &Context) -> Result<usize, RanksError> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let cores = bound_cores().unwrap_or_else(|reason| {
        context.warn(format_args!(
            "{reason}: rank {} shares all cores with the other ranks of its node, unless --threads sets its number",
            communicator.rank()
        ));
        String::new()
    });
    let own = format!("{host} {cores}");
    let all = communicator.all_gather(own.as_bytes(), LONGEST)?;
    let is_same = |other: &&[u8]| {
        other.strip_prefix(own.as_bytes()).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
    };
    let alike = all.bytes().chunks(LONGEST).filter(is_same).count();
    Ok((all_cores() / alike.max(1)).max(1))
}

/// The cores that the system lets this process use, as a list.
///
/// # Errors
/// Returns the reason if the system does not report them.
fn bound_cores() -> Result<String, String> {
    let status = plimsoll_disk::read_to_string(Path::new(STATUS), LONGEST_STATUS);
    let status = status.map_err(|error| format!("{STATUS}: {error}"))?;
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores.map(|cores| cores.trim().to_owned()).ok_or_else(|| format!("{STATUS} has no list of cores"))
}
