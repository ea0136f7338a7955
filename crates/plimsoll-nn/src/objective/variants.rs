//! The different sets of components that steps may have.

use super::{Objective, Term, Turn};

/// The part of each component that a program computes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    turns: Vec<Turn>,
    validation: bool,
}

/// Each variant is a program, and each program has a place in the arena and kernels of its own.
const MOST_VARIANTS: usize = 8;
/// Schedules repeat after this many steps at the most.
const LONGEST_PERIOD: u64 = 100_000;

impl Variant {
    /// Returns the part that is computed of each component.
    pub fn turns(&self) -> impl Iterator<Item = Turn> + '_ {
        self.turns.iter().copied()
    }

    /// Returns `true` if it is the variant of validation.
    pub fn is_validation(&self) -> bool {
        self.validation
    }
}

fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

impl Objective {
    /// Returns the index in `variants`, the list of all variants, of the one that a step runs, in a run with
    /// `steps_per_epoch` steps per epoch; `None` if the list is of another objective. It allocates nothing.
    pub fn variant_at(&self, variants: &[Variant], step: u64, steps_per_epoch: u64) -> Option<usize> {
        let turns = || self.turns(step, step / steps_per_epoch.max(1));
        variants.iter().position(|variant| variant.turns().eq(turns()))
    }

    fn turns(&self, step: u64, epoch: u64) -> impl Iterator<Item = Turn> + '_ {
        let turn = move |term: &Term| match term.weight() {
            0.0 => Turn::Off,
            _ => term.timing().at(step, epoch),
        };
        self.components.iter().map(turn)
    }

    fn variant(&self, step: u64, epoch: u64) -> Variant {
        Variant { turns: self.turns(step, epoch).collect(), validation: false }
    }

    /// Returns the variant that validation runs.
    pub fn validation(&self) -> Variant {
        let turn = |term: &Term| if term.weight() == 0.0 { Turn::Off } else { term.timing().in_validation() };
        Variant { turns: self.components.iter().map(turn).collect(), validation: true }
    }

    /// After how many steps the schedules of all components repeat.
    fn period(&self) -> u64 {
        self.components.iter().fold(1, |period, term| common_multiple(period, term.timing().every.max(1)))
    }

    /// The epochs at which components come in, in order.
    fn beginnings(&self) -> Vec<u64> {
        let mut epochs: Vec<u64> = self.components.iter().map(|term| term.timing().from_epoch).collect();
        epochs.push(0);
        epochs.sort_unstable();
        epochs.dedup();
        epochs
    }

    /// All that steps may have, those with most first.
    pub fn variants(&self) -> Vec<Variant> {
        let period = self.period().min(LONGEST_PERIOD);
        let mut found: Vec<Variant> = Vec::new();
        for epoch in self.beginnings() {
            for step in 0..period {
                let variant = self.variant(step, epoch);
                if !found.contains(&variant) {
                    found.push(variant);
                }
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    /// The share of the steps of a run that each of [`variants`](Objective::variants) has.
    pub fn shares(&self, steps_per_epoch: u64, epochs: u64) -> Vec<f64> {
        let variants = self.variants();
        let mut shares = vec![0.0; variants.len()];
        let period = self.period().min(LONGEST_PERIOD);
        let beginnings = self.beginnings();
        for (at, epoch) in beginnings.iter().enumerate() {
            let end = beginnings.get(at + 1).map_or(epochs, |next| (*next).min(epochs));
            let steps = end.saturating_sub(*epoch) as f64 * steps_per_epoch as f64;
            for step in 0..period {
                let variant = self.variant(step, *epoch);
                if let Some(place) = variants.iter().position(|known| *known == variant) {
                    shares[place] += steps / period as f64;
                }
            }
        }
        let total: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total.max(f64::MIN_POSITIVE));
        shares
    }

    /// Returns the fault of the objective in a run of `epochs` epochs, if there is one: the option, its value, and the
    /// expected value.
    pub fn epochs_fault(&self, epochs: u64) -> Option<(String, String, String)> {
        let late = self.components.iter().find(|term| term.timing().from_epoch >= epochs)?;
        let option = format!("from_epoch of {}", late.name());
        let found = late.timing().from_epoch.to_string();
        Some((option, found, format!("the run has {epochs} epochs, the first of which is 0")))
    }

    /// The components whose `otherwise` is set without effect, each with the reason.
    pub fn unused_otherwise(&self) -> Vec<(&'static str, &'static str)> {
        let of_term = |term: &Term| Some((term.name(), term.timing().unused_otherwise()?));
        self.components.iter().filter_map(of_term).collect()
    }

    /// Returns the fault of all components' schedules together, if there is one.
    pub(super) fn variants_fault(&self) -> Option<(String, String, String)> {
        if self.period() > LONGEST_PERIOD {
            let found = format!("such that schedules repeat after {} steps", self.period());
            return Some(("every".into(), found, format!("at most {LONGEST_PERIOD} are supported")));
        }
        let variants = self.variants();
        if variants.len() > MOST_VARIANTS {
            let found = format!("such that steps may have {} sets of components", variants.len());
            return Some((
                "every".into(),
                found,
                format!("at most {MOST_VARIANTS} are supported, because each is a program"),
            ));
        }
        let counts = |variant: &Variant| {
            let mut terms = self.components.iter().zip(variant.turns());
            terms.any(|(term, turn)| term.weight() != 0.0 && turn != Turn::Off)
        };
        if !variants.iter().all(counts) {
            let found = "such that some steps have no component".to_string();
            return Some(("components".into(), found, "each step needs one with a weight".into()));
        }
        if !counts(&self.validation()) {
            let found = "such that validation has no component".to_string();
            return Some(("components".into(), found, "validation needs one with a weight".into()));
        }
        None
    }
}
