//! The schedule of a component.

use serde::{Deserialize, Serialize};

/// The programs that have a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppliesTo {
    /// Steps.
    Train,
    /// Validation.
    Validation,
    /// Both.
    #[default]
    Both,
}

/// The replacement of a component on steps on which it is not due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// Nothing.
    #[default]
    Nothing,
    /// The cheap difference of boundaries, [`BoundaryL1`](plimsoll_graph::ops::BoundaryL1), with the same weight.
    BoundaryL1,
}

/// The schedule of a component. Steps and epochs are counted from 0 over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From one step on which it is due to the next, in steps.
    pub every: u64,
    /// The first step on which it is due.
    pub phase: u64,
    /// The first epoch whose steps compute it, or what takes its place. Validation computes it from the beginning.
    pub from_epoch: u64,
    /// The programs that have it.
    pub mode: AppliesTo,
    /// `true` if its weight is multiplied with `every` on steps, so that the mean over steps is the weight.
    pub rescale: bool,
    /// The replacement on steps on which it is not due.
    pub otherwise: Otherwise,
}

/// The part of a component that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Nothing.
    Off,
    /// The replacement of the component.
    Instead,
    /// The component.
    On,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            every: 1,
            phase: 0,
            from_epoch: 0,
            mode: AppliesTo::Both,
            rescale: false,
            otherwise: Otherwise::Nothing,
        }
    }
}

impl Timing {
    /// Returns the part of it that a step computes.
    pub(super) fn at(&self, step: u64, epoch: u64) -> Turn {
        if self.mode == AppliesTo::Validation || epoch < self.from_epoch {
            return Turn::Off;
        }
        match (step % self.every.max(1) == self.phase, self.otherwise) {
            (true, _) => Turn::On,
            (false, Otherwise::Nothing) => Turn::Off,
            (false, Otherwise::BoundaryL1) => Turn::Instead,
        }
    }

    /// Returns the part of it that validation computes.
    pub(super) fn in_validation(&self) -> Turn {
        if self.mode == AppliesTo::Train { Turn::Off } else { Turn::On }
    }

    /// Returns the factor of its weight.
    pub(super) fn factor(&self, validation: bool) -> f32 {
        if self.rescale && !validation { self.every as f32 } else { 1.0 }
    }

    /// Returns the fault of the schedule, if there is one: the option, its value, and the expected value.
    pub(super) fn fault(&self) -> Option<(&'static str, String, String)> {
        let fault = |option, found: String, expected: &str| Some((option, found, expected.to_string()));
        if self.every == 0 {
            return fault("every", "0".into(), "it must be at least 1");
        }
        if self.phase >= self.every {
            let expected = format!("it must be below `every`, which is {}", self.every);
            return fault("phase", self.phase.to_string(), &expected);
        }
        let given =
            [("every", self.every != 1), ("from_epoch", self.from_epoch != 0), ("rescale", self.rescale)];
        if let (AppliesTo::Validation, Some((option, _))) =
            (self.mode, given.iter().find(|(_, given)| *given))
        {
            return fault(option, "given".into(), "with mode = \"validation\" no step has the component");
        }
        if self.every == 1 && self.rescale {
            return fault("rescale", "given".into(), "with every = 1 there is no step without the component");
        }
        if self.rescale && self.otherwise != Otherwise::Nothing {
            let expected = "`otherwise` already keeps the weight on the other steps";
            return fault("rescale", "true".into(), expected);
        }
        None
    }

    /// Why nothing takes the component's place though `otherwise` is set, if that is so. It is no fault: a schedule may be changed while
    /// a run is not running, and the rest of it then stays.
    pub(super) fn unused_otherwise(&self) -> Option<&'static str> {
        match (self.otherwise, self.mode, self.every) {
            (Otherwise::Nothing, ..) => None,
            (_, AppliesTo::Validation, _) => Some("with mode = \"validation\" no step has the component"),
            (_, _, 1) => Some("with every = 1 there is no step without the component"),
            _ => None,
        }
    }
}
