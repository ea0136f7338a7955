//! The processes of one job, which a launcher has started.
//!
//! A [`Launch`] is the place of this process among the processes of one command of `mpirun`, `mpiexec` or `srun`; an [`ArrayTask`] is its place in
//! an array of Slurm. Both are read from environment variables that the caller passes: this crate does not read the environment.
//!
//! A [`Communicator`] sends segments between ranks. [`alone`] is the rank of a process that runs alone, [`thread_ranks`] are ranks within one
//! process, for tests, and [`open_mpi`] loads the MPI library of the launcher at run time, in a thread that moves messages on while the rank computes. Three binary interfaces of MPI are known: the one of
//! MPI 5.0, MPICH's and Open MPI's. Windows has a fourth one, which is not supported. [`open_nccl`] sends long segments of another communicator
//! through the NVIDIA GPUs of the ranks.

#[cfg(any(unix, test))]
mod background;
mod communicator;
mod entries;
mod error;
mod launch;
#[cfg(unix)]
mod load;
#[cfg_attr(not(unix), path = "no_mpi.rs")]
mod mpi;
mod mpi_options;
#[cfg(unix)]
mod nccl;
mod segment;
mod threads;
mod traffic;
mod watch;
#[cfg(any(unix, test))]
mod watcher;

pub use communicator::{Communicator, NodePlace, Tag, Transfer};
#[cfg(unix)]
pub use error::NoNccl;
pub use error::RanksError;
pub use launch::{ArrayTask, Launch, LaunchError, Launcher};
pub use mpi::{map_mpi, open_mpi};
pub use mpi_options::MpiOptions;
#[cfg(unix)]
pub use nccl::{
    LaneError, LaneSizes, Lanes, NcclFailure, NcclLibrary, NcclOptions, NcclVersion, agree_on_nccl,
    check_queues, open_nccl,
};
pub use segment::Segment;
pub use threads::{ThreadRank, alone, thread_ranks};
pub use traffic::{Messages, Traffic};
pub use watch::{Effort, MeasureEffort, ReportHang, Watch};
