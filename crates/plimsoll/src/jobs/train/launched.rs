//! The share of the machine that a launcher gives each rank, and the MPI that belongs to the launcher.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_memory::{host, moved_bytes, process_time, thread_time};
use plimsoll_ranks::{Communicator, Effort, Launcher, RanksError, Watch};

use crate::backend::default_threads;
use crate::context::Context;
use crate::error::Outcome;

/// The most bytes of a node's name and of a list of cores.
const LONGEST: usize = 4096;

/// The MPI libraries that were installed together with the launcher in `path`, the value of `PATH`, as in a virtual environment: in `lib`
/// beside its `bin`. None for Slurm and others that start processes of any MPI, where the system's library is meant.
pub fn mpi_libraries(launcher: Launcher, path: Option<&OsStr>) -> Vec<PathBuf> {
    let (program, names) = match launcher {
        Launcher::Pmi => ("mpiexec", &["libmpi_abi.so.1", "libmpi.so.12"][..]),
        Launcher::OpenMpi => ("mpirun", &["libmpi.so.40"][..]),
        Launcher::Slurm | Launcher::Pmix => return Vec::new(),
    };
    let Some(path) = path else { return Vec::new() };
    let Some(folder) = std::env::split_paths(path).find(|folder| folder.join(program).is_file()) else {
        return Vec::new();
    };
    let beside = |name: &&str| folder.join("../lib").join(name).canonicalize().ok();
    names.iter().filter_map(beside).collect()
}

/// The watch over the ranks of a job by what their processes do. `has_work` returns `false` while this process does nothing for the job, so that it
/// cannot hang. `report` reports a rank that hangs; the job is ended afterwards.
pub fn rank_watch(
    has_work: impl Fn() -> bool + Send + Sync + 'static,
    report: impl Fn(&RanksError) + Send + Sync + 'static,
) -> Watch {
    let effort = move || {
        has_work().then(|| Effort {
            // The thread of messages calls this, and looks for messages all the time.
            processor: process_time().saturating_sub(thread_time()),
            bytes: moved_bytes().unwrap_or(0),
        })
    };
    Watch { host: host::name(), effort: Arc::new(effort), report: Arc::new(report) }
}

/// Returns the number of cores of this rank: its cores, divided among the ranks on its node that may use the same. A launcher that binds
/// processes gives each its own. A system that does not report them is a warning.
///
/// # Errors
/// Returns an error if communication fails.
pub fn rank_cores(communicator: &mut dyn Communicator, context: &Context) -> Outcome<usize> {
    let host = host::name();
    let cores = host::allowed_cores().unwrap_or_else(|reason| {
        context.warn(format_args!(
            "{reason}: rank {} shares all cores with the other ranks of its node, unless its number of threads is set",
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
    Ok((default_threads() / alike.max(1)).max(1))
}
