//! The place of this process among the processes of a launcher, from environment variables.

use std::fmt;

/// A launcher of processes, or the interface by which it passes ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH, Intel MPI and Cray, and every other launcher that speaks PMI.
    Pmi,
    /// `srun` of Slurm.
    Slurm,
    /// A launcher that speaks PMIx and states no number of processes.
    Pmix,
}

/// The variables by which a launcher passes the place of a process.
struct Variables {
    launcher: Launcher,
    rank: &'static str,
    size: Option<&'static str>,
}

/// The variables of all launchers, those that state more first.
///
/// Slurm sets `SLURM_NTASKS` in batch scripts as well, where one process runs; `SLURM_STEP_NUM_TASKS` is set by `srun` alone.
const VARIABLES: [Variables; 4] = [
    Variables {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: Some("OMPI_COMM_WORLD_SIZE"),
    },
    Variables { launcher: Launcher::Pmi, rank: "PMI_RANK", size: Some("PMI_SIZE") },
    Variables { launcher: Launcher::Slurm, rank: "SLURM_PROCID", size: Some("SLURM_STEP_NUM_TASKS") },
    Variables { launcher: Launcher::Pmix, rank: "PMIX_RANK", size: None },
];

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::OpenMpi => "mpirun of Open MPI",
            Launcher::Pmi => "mpiexec (PMI)",
            Launcher::Slurm => "srun of Slurm",
            Launcher::Pmix => "a launcher with PMIx",
        })
    }
}

/// The place of this process among those that one command of a launcher started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The launcher.
    pub launcher: Launcher,
    /// The number of this process, from 0.
    pub rank: usize,
    /// The number of processes; `None` if the launcher does not state it.
    pub size: Option<usize>,
}

/// A variable of a launcher or a scheduler that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A number is none.
    #[error("the environment variable {name} is `{value}`, which is no number of a process")]
    NoNumber {
        /// The name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The number of a process is not below the number of processes.
    #[error("the environment variable {rank_name} is {rank}, but {size_name} is {size}")]
    Outside {
        /// The variable of the number of the process.
        rank_name: &'static str,
        /// Its value.
        rank: usize,
        /// The variable of the number of processes.
        size_name: &'static str,
        /// Its value.
        size: usize,
    },
    /// The numbers of an array are not evenly spaced, so that the place of a task in it is unknown.
    #[error("the Slurm array has {count} tasks from number {first} in steps of {step}, and this one is {id}")]
    UnevenArray {
        /// The number of this task.
        id: usize,
        /// The least number.
        first: usize,
        /// The distance of numbers.
        step: usize,
        /// The number of tasks.
        count: usize,
    },
}

impl LaunchError {
    /// Returns a remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            LaunchError::NoNumber { .. } | LaunchError::Outside { .. } => {
                "start the processes with mpirun, mpiexec or srun, or unset these variables"
            }
            LaunchError::UnevenArray { .. } => {
                "name the part with ‹part›, or number the array evenly, like --array=0-9"
            }
        }
    }
}

/// Reads a number, if the variable is set.
fn number(
    name: &'static str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<usize>, LaunchError> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.trim().parse().map(Some).map_err(|_| LaunchError::NoNumber { name, value })
}

impl Launch {
    /// Reads the place of this process from environment variables, which `variable` returns by name; `None` if no launcher started it.
    ///
    /// # Errors
    /// Returns an error if a variable is no number, or the rank is not below the size.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launch>, LaunchError> {
        for Variables { launcher, rank: rank_name, size } in VARIABLES {
            let Some(rank) = number(rank_name, variable)? else { continue };
            let size = match size {
                None => None,
                Some(size_name) => {
                    // A rank without a size: of another use of the variable, like a batch script of Slurm.
                    let Some(size) = number(size_name, variable)? else { continue };
                    if rank >= size {
                        return Err(LaunchError::Outside { rank_name, rank, size_name, size });
                    }
                    Some(size)
                }
            };
            return Ok(Some(Launch { launcher, rank, size }));
        }
        Ok(None)
    }

    /// Returns `true` if it is known that no other process was started.
    pub fn is_alone(&self) -> bool {
        self.size == Some(1)
    }
}

/// The place of this process in an array of Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayTask {
    /// The place of the task, from 0.
    pub index: usize,
    /// The number of tasks.
    pub count: usize,
}

impl ArrayTask {
    /// Reads the place from environment variables, which `variable` returns by name; `None` outside of an array.
    ///
    /// # Errors
    /// Returns an error if a variable is no number, or the numbers of the array are not evenly spaced.
    pub fn from_variables(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<ArrayTask>, LaunchError> {
        let (Some(id), Some(count)) =
            (number("SLURM_ARRAY_TASK_ID", variable)?, number("SLURM_ARRAY_TASK_COUNT", variable)?)
        else {
            return Ok(None);
        };
        let first = number("SLURM_ARRAY_TASK_MIN", variable)?.unwrap_or(0);
        let step = number("SLURM_ARRAY_TASK_STEP", variable)?.unwrap_or(1).max(1);
        let place =
            id.checked_sub(first).filter(|distance| distance % step == 0).map(|distance| distance / step);
        match place.filter(|place| *place < count) {
            Some(index) => Ok(Some(ArrayTask { index, count })),
            None => Err(LaunchError::UnevenArray { id, first, step, count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>, LaunchError> {
        Launch::from_variables(&lookup(variables))
    }

    fn array(variables: &[(&str, &str)]) -> Result<Option<ArrayTask>, LaunchError> {
        ArrayTask::from_variables(&lookup(variables))
    }

    fn lookup(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let all: Vec<(String, String)> =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        move |name| all.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn each_launcher_passes_rank_and_size_by_its_variables() {
        assert_eq!(launch(&[]), Ok(None));
        let found = |launcher, rank, size| Ok(Some(Launch { launcher, rank, size }));
        let open = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "1")];
        assert_eq!(launch(&open), found(Launcher::OpenMpi, 1, Some(4)));
        assert_eq!(launch(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), found(Launcher::Pmi, 0, Some(2)));
        let step = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_NTASKS", "8")];
        assert_eq!(launch(&step), found(Launcher::Slurm, 3, Some(8)));
        assert_eq!(launch(&[("PMIX_RANK", "2")]), found(Launcher::Pmix, 2, None));
    }

    #[test]
    fn a_batch_script_of_several_tasks_is_one_process() {
        assert_eq!(launch(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), Ok(None));
    }

    #[test]
    fn variables_that_make_no_sense_are_errors_that_name_them() {
        let error = launch(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]).unwrap_err();
        assert!(error.to_string().contains("PMI_RANK is `x`"), "{error}");
        let error = launch(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).unwrap_err();
        assert!(error.to_string().contains("PMI_RANK is 2, but PMI_SIZE is 2"), "{error}");
    }

    #[test]
    fn the_place_in_an_array_counts_from_its_first_number_in_its_steps() {
        let task = |id, count, first, step| {
            array(&[
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_COUNT", count),
                ("SLURM_ARRAY_TASK_MIN", first),
                ("SLURM_ARRAY_TASK_STEP", step),
            ])
        };
        assert_eq!(array(&[("SLURM_ARRAY_TASK_ID", "3")]), Ok(None), "the count is not known");
        assert_eq!(task("0", "4", "0", "1"), Ok(Some(ArrayTask { index: 0, count: 4 })));
        assert_eq!(task("4", "4", "1", "1"), Ok(Some(ArrayTask { index: 3, count: 4 })));
        assert_eq!(task("6", "4", "0", "2"), Ok(Some(ArrayTask { index: 3, count: 4 })));
        for (id, count, first, step) in [("7", "3", "1", "1"), ("3", "4", "0", "2"), ("0", "4", "1", "1")] {
            let error = task(id, count, first, step).unwrap_err();
            assert!(error.to_string().contains(&format!("this one is {id}")), "{error}");
        }
    }
}
