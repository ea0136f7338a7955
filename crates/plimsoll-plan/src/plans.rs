//! Plans that were made before: each set of programs is planned once for a goal.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::{Goal, PlanError, Planner, VerifiedPlan};

/// How many plans are kept: more than planning one run takes.
const MOST: usize = 8;

/// The plans that were made last, each with its goal.
#[derive(Debug, Default)]
pub struct Plans {
    known: Mutex<VecDeque<(Goal, VerifiedPlan)>>,
}

impl Plans {
    /// The plan that a planner makes for a goal; see [`Planner::plan_for`]. One that was made before for the same programs,
    /// lowered in the same way, is returned again.
    ///
    /// # Errors
    /// If the verifier rejects the plan.
    pub fn plan(&self, planner: &Planner<'_>, goal: Goal) -> Result<VerifiedPlan, PlanError> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&(Goal, VerifiedPlan)| known.0 == goal && planner.made(&known.1);
        if let Some((_, plan)) = lock().iter().find(is_it) {
            return Ok(plan.clone());
        }
        let plan = planner.plan_for(goal)?;
        let mut known = lock();
        if known.len() == MOST {
            known.pop_front();
        }
        known.push_back((goal, plan.clone()));
        Ok(plan)
    }
}
