//! Plans that may be run.

use std::any::{Any, TypeId};
use std::ops::Deref;

use crate::{Backend, EngineError, Plan, PlanError, verify};

/// A plan that the [verifier](crate::verify) has accepted for a backend. There is no other way to make one, and an engine takes
/// nothing else: so a plan that was read from a file or put together by hand is checked like one that was just made.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedPlan {
    plan: Plan,
    backend: String,
    /// The type of the backend: another type may have the same name.
    kind: TypeId,
}

impl VerifiedPlan {
    /// Verifies a plan for a backend.
    ///
    /// # Errors
    /// At the first fault.
    pub fn new(plan: Plan, backend: &dyn Backend) -> Result<VerifiedPlan, PlanError> {
        verify::verify(&plan, backend)?;
        Ok(VerifiedPlan { plan, backend: backend.identity(), kind: kind(backend) })
    }

    /// The [identity](Backend::identity) of the backend that it was verified for.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Checks that it was verified for this backend.
    ///
    /// # Errors
    /// Returns an error if it was verified for another backend.
    pub fn expect_for(&self, backend: &dyn Backend) -> Result<(), EngineError> {
        let found = backend.identity();
        if (self.kind, &self.backend) == (kind(backend), &found) {
            return Ok(());
        }
        Err(EngineError::OtherBackend { planned: self.backend.clone(), found })
    }

    /// The plan, to be changed and verified anew.
    pub fn into_plan(self) -> Plan {
        self.plan
    }
}

impl Deref for VerifiedPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

fn kind(backend: &dyn Backend) -> TypeId {
    let backend: &dyn Any = backend;
    backend.type_id()
}
