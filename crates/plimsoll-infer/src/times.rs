//! What predicting a case took, part by part.

use std::time::Instant;

use serde::Serialize;

use crate::PredictPlan;

/// What came of a case that was predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedCase {
    /// What it held.
    pub plan: PredictPlan,
    /// What it took.
    pub times: CaseTimes,
}

/// Seconds that predicting a case took, by what was done in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CaseTimes {
    /// Inspecting, planning and opening it, and waiting for the next one to be read: what was not done beside other work.
    pub read_seconds: f64,
    /// Pulling windows from its images.
    pub pull_seconds: f64,
    /// The network, and loading its weights.
    pub forward_seconds: f64,
    /// Summing logits, deciding labels and writing them, as far as that was waited for.
    pub sum_seconds: f64,
}

impl CaseTimes {
    /// All of it.
    pub fn all(&self) -> f64 {
        self.read_seconds + self.pull_seconds + self.forward_seconds + self.sum_seconds
    }

    /// With what another model took for the same case.
    #[must_use]
    pub fn and(self, other: CaseTimes) -> CaseTimes {
        CaseTimes {
            read_seconds: self.read_seconds + other.read_seconds,
            pull_seconds: self.pull_seconds + other.pull_seconds,
            forward_seconds: self.forward_seconds + other.forward_seconds,
            sum_seconds: self.sum_seconds + other.sum_seconds,
        }
    }
}

/// Divides the time of a case among what is done in it, without gaps.
pub(crate) struct Clock {
    times: CaseTimes,
    last: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { times: CaseTimes::default(), last: Instant::now() }
    }

    /// All since the last lap was spent on this.
    pub(crate) fn lap(&mut self, on: impl FnOnce(&mut CaseTimes) -> &mut f64) {
        let now = Instant::now();
        *on(&mut self.times) += (now - self.last).as_secs_f64();
        self.last = now;
    }

    pub(crate) fn finish(self) -> CaseTimes {
        self.times
    }
}
