//! The part of a job that is divided among processes.

use clap::Args as ClapArgs;
use plimsoll::Part;

/// The part of the cases that this process takes.
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct PartArgs {
    /// Take only part I of N of the cases, divided by planned work; the last of the N processes to finish merges their results [default: the
    /// rank of mpirun, mpiexec or srun and the task of a Slurm array, if there are several; else all cases].
    #[arg(long, value_name = "I/N")]
    pub part: Option<Part>,
    /// Under mpirun or mpiexec: load MPI, and end all processes if one makes no progress for this time [default: processes do not know of each other].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub patience: Option<u32>,
}
