//! Errors of communication.

use std::time::Duration;

use crate::launch::Launcher;
#[cfg(unix)]
use crate::nccl::NcclVersion;

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
    /// The launcher has started several processes of a program that is linked statically and can load no library.
    #[error(
        "{launcher} started several processes, but this program is linked statically, so it cannot load an MPI library"
    )]
    StaticProgram {
        /// The launcher.
        launcher: Launcher,
    },
    /// The launcher has started several processes on a system whose MPI has an interface that is not supported.
    #[error(
        "{launcher} started several processes, which cannot communicate on this system: the interface of msmpi.dll is not supported"
    )]
    NoMpiHere {
        /// The launcher.
        launcher: Launcher,
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
    /// The process of a rank uses no processor, moves no files and waits for no other rank.
    #[error("rank {peer} on {host} hangs: it has made no progress for {} s", limit.as_secs_f64())]
    Hangs {
        /// The rank that hangs.
        peer: usize,
        /// Its node.
        host: String,
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
    /// Ranks cannot use NCCL.
    #[cfg(unix)]
    #[error("the ranks cannot use NCCL: {0}")]
    NoNccl(#[from] NoNccl),
    /// A function of NCCL reports an error.
    #[error("rank {rank}: {call}, with rank {peer}: {text}")]
    NcclFailed {
        /// The rank of this process.
        rank: usize,
        /// The rank at the other end of the channel.
        peer: usize,
        /// The function.
        call: &'static str,
        /// The text of the library.
        text: String,
    },
    /// The card of a rank fails to pass messages on.
    #[error("rank {rank}: the GPU does not pass messages on: {text}")]
    Card {
        /// The rank of this process.
        rank: usize,
        /// The error of the card.
        text: String,
    },
    /// A rank sends a notice that is none, or that belongs to no segment.
    #[error("rank {rank} received a notice from rank {peer} that belongs to no segment")]
    Notice {
        /// The rank of this process.
        rank: usize,
        /// The sender.
        peer: usize,
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
            RanksError::StaticProgram { .. } => {
                "use the program for `linux-gnu` or the command of the Python wheel, or train in one process".into()
            }
            RanksError::NoMpiHere { .. } => "train in one process, or on Linux".into(),
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
            RanksError::Hangs { .. } => {
                "look at that process and at the file systems of its node, then start all ranks again with ‹resume›; \
                 ‹patience› is the longest time"
                    .into()
            }
            RanksError::NoThread { .. } => {
                "allow this process one thread more, or start fewer ranks on the node, then start all ranks again".into()
            }
            #[cfg(unix)]
            RanksError::NoNccl(reason) => reason.remedy(),
            RanksError::NcclFailed { .. } => {
                "NCCL_DEBUG=INFO in the environment of all ranks shows more; ‹transport=mpi› does without NCCL".into()
            }
            RanksError::Card { .. } => {
                "`nvidia-smi` on the node of the rank shows more; ‹transport=mpi› does without NCCL".into()
            }
            RanksError::OpenedBefore
            | RanksError::NoRank { .. }
            | RanksError::Length { .. }
            | RanksError::TooLong { .. }
            | RanksError::Notice { .. }
            | RanksError::NoTransfer { .. } => BUG.into(),
        }
    }
}

/// The reason why ranks do not use NCCL. All ranks have the same.
#[cfg(unix)]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoNccl {
    /// No library can be loaded.
    #[error("no NCCL library can be loaded: {tried}")]
    NotLoaded {
        /// The libraries that were tried, each with the reason.
        tried: String,
    },
    /// A library lacks a function of NCCL.
    #[error("{library} is no NCCL library: it has no {name}")]
    NoFunction {
        /// The library.
        library: String,
        /// The function.
        name: &'static str,
    },
    /// The library is too old.
    #[error("{library} is NCCL {found}, but {needed} is needed")]
    TooOld {
        /// The library.
        library: String,
        /// Its version.
        found: NcclVersion,
        /// The oldest version with all functions.
        needed: NcclVersion,
    },
    /// This rank has no card that it can use, or was told not to.
    #[error("{0}")]
    Declined(String),
    /// Another rank cannot use NCCL.
    #[error("rank {rank}: {reason}")]
    OfRank {
        /// The first such rank.
        rank: usize,
        /// Its reason.
        reason: String,
    },
    /// Two ranks have one card, which NCCL refuses.
    #[error("ranks {first} and {second} have the same GPU, {card}")]
    SharedCard {
        /// The first rank.
        first: usize,
        /// The second.
        second: usize,
        /// The name of the card.
        card: String,
    },
    /// There are more ranks than a card has queues for.
    #[error("there are {ranks} ranks, but the {queues} queues of a GPU are enough for {most}")]
    TooManyRanks {
        /// The number of ranks.
        ranks: usize,
        /// The largest number.
        most: usize,
        /// The number of queues.
        queues: usize,
    },
}

#[cfg(unix)]
impl NoNccl {
    /// Returns a remedy.
    pub fn remedy(&self) -> String {
        let own = match self {
            NoNccl::NotLoaded { .. } | NoNccl::NoFunction { .. } | NoNccl::TooOld { .. } => {
                "put the folder of NCCL 2.18 or later into LD_LIBRARY_PATH of all ranks (`pip install nvidia-nccl-cu12` has one)"
            }
            NoNccl::OfRank { .. } => "give each rank a GPU of its own and NCCL 2.18 or later",
            NoNccl::SharedCard { .. } => {
                "give each rank a GPU of its own, like `srun --gpus-per-task 1`, or CUDA_VISIBLE_DEVICES by rank"
            }
            NoNccl::Declined(_) => "train on a GPU with ‹device=cuda:0›",
            NoNccl::TooManyRanks { .. } => {
                "start fewer ranks, or up to 16 with CUDA_DEVICE_MAX_CONNECTIONS=32 in their environment"
            }
        };
        format!("{own}; ‹transport=mpi› does without NCCL")
    }
}
