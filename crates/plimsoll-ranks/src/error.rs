//! Errors of communication.

use std::time::Duration;

use crate::launch::Launcher;

/// An error of communication between processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// The launcher has started several processes, and no MPI library can be loaded.
    #[error("{launcher} started several processes, but no MPI library can be loaded: {tried}")]
    NotLoaded {
        /// The launcher.
        launcher: Launcher,
        /// The libraries that were tried, each with the reason.
        tried: String,
    },
    /// A library lacks a function of MPI.
    #[error("{library} is no MPI library: it has no {name}")]
    NoFunction {
        /// The library.
        library: String,
        /// The function or variable.
        name: String,
    },
    /// The library does not support processes with several threads.
    #[error("{library} supports thread level {provided}, but MPI_THREAD_FUNNELED ({needed}) is needed")]
    ThreadLevel {
        /// The library.
        library: String,
        /// The level that it provides.
        provided: i32,
        /// The needed level.
        needed: i32,
    },
    /// The library counts other processes than the launcher started.
    #[error("{launcher} started {expected} processes, but {library} counts {found}")]
    OtherSize {
        /// The launcher.
        launcher: Launcher,
        /// The number of processes by the launcher.
        expected: usize,
        /// The library.
        library: String,
        /// The number of processes by the library.
        found: usize,
    },
    /// The library belongs to another MPI program than the launcher, and would end the process when it is initialised.
    #[error("{launcher} started the processes, but {library} belongs to {program}")]
    OtherProgram {
        /// The launcher.
        launcher: Launcher,
        /// The library.
        library: String,
        /// The program by the library's own text.
        program: String,
    },
    /// MPI was opened before in this process.
    #[error("MPI was opened before in this process, and can be opened once")]
    OpenedBefore,
    /// The thread that moves messages on does not run.
    #[error("the thread of messages between ranks does not run: {text}")]
    NoThread {
        /// The reason.
        text: String,
    },
    /// A function of MPI reports an error.
    #[error("rank {rank}: {call}: {text}")]
    Failed {
        /// The rank of this process.
        rank: usize,
        /// The function.
        call: &'static str,
        /// The text of the library.
        text: String,
    },
    /// A rank does not answer.
    #[error("rank {rank} waited {} s for rank {peer} without progress", limit.as_secs_f64())]
    NoProgress {
        /// The rank of this process.
        rank: usize,
        /// The rank that does not answer.
        peer: usize,
        /// The longest time without progress.
        limit: Duration,
    },
    /// A rank that does not exist.
    #[error("there is no rank {rank} of {size}")]
    NoRank {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },
    /// A message has another length than its receiver expects.
    #[error("rank {rank} received {found} bytes from rank {peer}, but expected {expected}")]
    Length {
        /// The rank of this process.
        rank: usize,
        /// The sender.
        peer: usize,
        /// The expected bytes.
        expected: usize,
        /// The received bytes.
        found: usize,
    },
    /// A rank has sent more than its receiver takes.
    #[error("rank {peer} sent {bytes} bytes to rank {rank}, which takes {most} at most")]
    TooLong {
        /// The rank of this process.
        rank: usize,
        /// The sender.
        peer: usize,
        /// The bytes.
        bytes: u64,
        /// The most bytes that are taken.
        most: usize,
    },
    /// A rank has ended the job.
    #[error("rank {rank} ended the job with status {status}")]
    Aborted {
        /// The rank.
        rank: usize,
        /// The status.
        status: i32,
    },
    /// A transfer that is not in flight.
    #[error("rank {rank}: the transfer belongs to another communicator")]
    NoTransfer {
        /// The rank of this process.
        rank: usize,
    },
}

impl RanksError {
    /// Returns a remedy.
    pub fn remedy(&self) -> String {
        const BUG: &str = "this is a bug: report it with the command and this message";
        match self {
            RanksError::NotLoaded { .. } => {
                "put the folder of the launcher's MPI library into LD_LIBRARY_PATH, or install one: \
                 `pip install mpich` has mpiexec and a library"
                    .into()
            }
            RanksError::NoFunction { .. } | RanksError::ThreadLevel { .. } => {
                "load another MPI library: MPICH from 3.1, Open MPI from 3.0, or one with the interface of MPI 5.0"
                    .into()
            }
            RanksError::OtherSize { launcher, .. } | RanksError::OtherProgram { launcher, .. } => {
                let own = match launcher {
                    Launcher::OpenMpi => "Open MPI's libmpi.so.40",
                    Launcher::Pmi => "MPICH's libmpi.so.12 or libmpi_abi.so.1",
                    Launcher::Slurm | Launcher::Pmix => "the one that `srun --mpi` is set up for",
                };
                format!("launcher and library belong to different MPI programs: load {own}, or use the library's own mpiexec")
            }
            RanksError::Failed { .. } | RanksError::NoProgress { .. } | RanksError::Aborted { .. } => {
                "look for the first error of another rank, then start all ranks again with ‹resume›".into()
            }
            RanksError::NoThread { .. } => {
                "allow this process one thread more, or start fewer ranks on the node, then start all ranks again".into()
            }
            RanksError::OpenedBefore
            | RanksError::NoRank { .. }
            | RanksError::Length { .. }
            | RanksError::TooLong { .. }
            | RanksError::NoTransfer { .. } => BUG.into(),
        }
    }
}
