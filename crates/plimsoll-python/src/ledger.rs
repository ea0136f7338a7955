//! Budgets of a Python process, and the memory that is reserved from them.

use std::sync::OnceLock;

use plimsoll::backend::default_threads;
use plimsoll_memory::{Budget, Bytes, HolderUse, Resident, mapped_data, mapped_files, resident};

use crate::Failure;

/// The memory and the threads that a call may use.
#[derive(Clone)]
pub struct Resources {
    /// The budget that working memory is reserved from.
    pub budget: Budget,
    /// The number of threads, at least 1.
    pub threads: usize,
}

impl Resources {
    /// The resources of a call: a budget, else the process-wide one without a limit, and a number of threads, else one for each
    /// core that the process may use.
    ///
    /// # Errors
    /// If the number of threads is 0.
    pub fn new(budget: Option<&Budget>, threads: Option<usize>) -> Result<Resources, Failure> {
        let threads = match threads {
            Some(0) => return Err(Failure::argument("threads", "is 0; pass at least 1")),
            Some(threads) => threads,
            None => default_threads(),
        };
        let budget = budget.cloned().unwrap_or_else(unlimited);
        Ok(Resources { budget, threads })
    }
}

/// The budget of calls that are given none: it counts, and limits nothing.
pub fn unlimited() -> Budget {
    static UNLIMITED: OnceLock<Budget> = OnceLock::new();
    UNLIMITED.get_or_init(|| Budget::new(Bytes(u64::MAX))).clone()
}

/// Returns a budget for this process: a limit less the memory that the process holds already.
///
/// # Errors
/// If the system does not tell the resident memory, or it exceeds the limit.
pub fn process_budget(limit: Bytes) -> Result<Budget, Failure> {
    let Resident { now, .. } = resident().map_err(|error| Failure::Failed {
        message: format!("the resident memory of this process cannot be read: {error}"),
        remedy: Some("use plimsoll.Budget with the bytes that are left for Plimsoll".into()),
    })?;
    if now > limit {
        return Err(Failure::Failed {
            message: format!(
                "this process holds {now} already{}, more than the limit of {limit}",
                of_files()
            ),
            remedy: Some(format!("pass a limit above {now}, or free arrays first")),
        });
    }
    Ok(Budget::new(limit - now))
}

/// The resident memory of this process that belongs to files, in words; empty where the system does not tell.
fn of_files() -> String {
    match (mapped_files(), mapped_data()) {
        (Ok(code), Ok(data)) => {
            format!(
                ", {} of them code and {} mapped files such as numpy.memmap",
                code.resident, data.resident
            )
        }
        _ => String::new(),
    }
}

/// Returns the holders of a budget, the largest first: name, bytes now and largest number of bytes.
pub fn holders(budget: &Budget) -> Vec<(String, u64, u64)> {
    let mut holders = budget.holders();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.now));
    holders.into_iter().map(|HolderUse { holder, now, peak }| (holder, now.0, peak.0)).collect()
}
