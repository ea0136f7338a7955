//! The progress of predicting a case, and its times, part by part.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The progress of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Windows done, each fold counted.
    pub windows: usize,
    /// The number of all windows.
    pub of: usize,
    /// The predicted duration of all of its forward passes.
    pub predicted_seconds: f64,
}

/// Seconds that predicting a case took, by what was done in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseTimes {
    /// Reading its images to inspect them, planning it, and waiting for the next one to be read: what was not done beside other work.
    pub read_seconds: f64,
    /// Measuring what preparation must know of whole images before any window: nonzero voxels, intensities, ranges of slices.
    pub prepare_seconds: f64,
    /// Pulling windows from its images.
    pub pull_seconds: f64,
    /// The network, and loading its weights.
    pub forward_seconds: f64,
    /// Summing what the network says of windows.
    pub sum_seconds: f64,
    /// Bringing sums to the grid of the image, and deciding labels there.
    pub export_seconds: f64,
    /// Putting labels and probabilities in order, compressing and writing them, as far as that was waited for.
    pub write_seconds: f64,
}

impl CaseTimes {
    /// Each part, with what it is called.
    pub fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("read", self.read_seconds),
            ("prepare", self.prepare_seconds),
            ("pull", self.pull_seconds),
            ("forward", self.forward_seconds),
            ("sum", self.sum_seconds),
            ("export", self.export_seconds),
            ("write", self.write_seconds),
        ]
    }

    /// All of it.
    pub fn all(&self) -> f64 {
        self.parts().into_iter().map(|(_, seconds)| seconds).sum()
    }

    /// With what another model took for the same case, or what another case took.
    #[must_use]
    pub fn and(self, other: CaseTimes) -> CaseTimes {
        CaseTimes {
            read_seconds: self.read_seconds + other.read_seconds,
            prepare_seconds: self.prepare_seconds + other.prepare_seconds,
            pull_seconds: self.pull_seconds + other.pull_seconds,
            forward_seconds: self.forward_seconds + other.forward_seconds,
            sum_seconds: self.sum_seconds + other.sum_seconds,
            export_seconds: self.export_seconds + other.export_seconds,
            write_seconds: self.write_seconds + other.write_seconds,
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
