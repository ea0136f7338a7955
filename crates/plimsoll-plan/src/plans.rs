//! Plans that were made before: each set of programs is planned once for a budget.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::{PlanError, Planner, VerifiedPlan};

/// How many plans are kept: more than planning one run takes.
const MOST: usize = 8;

/// The plans that were made last, each with its budget.
#[derive(Debug, Default)]
pub struct Plans {
    known: Mutex<VecDeque<(Option<usize>, VerifiedPlan)>>,
}

impl Plans {
    /// The plan that a planner makes within a budget; see [`Planner::plan`]. One that was made before for the same programs,
    /// lowered in the same way, is returned again.
    ///
    /// # Errors
    /// If the verifier rejects the plan.
    pub fn plan(&self, planner: &Planner<'_>, budget: Option<usize>) -> Result<VerifiedPlan, PlanError> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&(Option<usize>, VerifiedPlan)| known.0 == budget && planner.made(&known.1);
        if let Some((_, plan)) = lock().iter().find(is_it) {
            return Ok(plan.clone());
        }
        let plan = planner.plan(budget)?;
        let mut known = lock();
        if known.len() == MOST {
            known.pop_front();
        }
        known.push_back((budget, plan.clone()));
        Ok(plan)
    }
}
