//! Region terms: functions of the sums of each class.

use super::{Component, GeneralizedDice, Piece, SoftDice, VolumeWeight};

/// Below it, a power whose slope has no bound is continued by a straight line.
const STRAIGHT: f64 = 1e-6;

/// Sums of classes, over a sample or over the batch: class and one of [`OVERLAP`], [`PLAIN`], [`SQUARES`], [`TARGET`].
pub(super) struct Sums<F> {
    pub sums: F,
    pub batch: usize,
    pub classes: usize,
    /// `true` if the first class is the background, which components may leave out.
    pub has_background: bool,
}

/// Σpt.
pub(super) const OVERLAP: usize = 0;
/// Σp.
pub(super) const PLAIN: usize = 1;
/// Σp².
pub(super) const SQUARES: usize = 2;
/// Σt.
pub(super) const TARGET: usize = 3;

/// The contribution of one class of a sample (or batch): its term, and the derivatives by its Σpt and by its Σp or Σp².
type Term = (f64, f64, f64);

impl<F: Fn(usize, usize, usize) -> f64> Sums<F> {
    /// The first class that counts in a component.
    fn first(&self, component: &Component) -> usize {
        if self.has_background { component.first_class(self.classes) } else { 0 }
    }

    /// The sum `k` of a class in a group of samples: one, or all of them.
    fn total(&self, batch: bool, group: usize, class: usize, k: usize) -> f64 {
        samples(batch, self.batch, group).map(|sample| (self.sums)(sample, class, k)).sum()
    }

    /// The value of a component without its weight; passes on its slopes times `factor`. None if it is no region term.
    pub(super) fn region(
        &self,
        component: &Component,
        factor: f64,
        visit: &mut impl FnMut(Piece),
    ) -> Option<f64> {
        match component {
            Component::SoftDice(dice) => Some(self.dice(component, dice, factor, visit)),
            Component::LogCoshDice(dice) => {
                let mean = self.dice(component, dice, 0.0, &mut |_| {});
                self.dice(component, dice, factor * mean.tanh(), visit);
                Some(mean.cosh().ln())
            }
            Component::Tversky(t) => {
                let quotient = Quotient {
                    alpha: t.alpha.into(),
                    beta: t.beta.into(),
                    smooth: [t.smooth_numerator.into(), t.smooth_denominator.into()],
                };
                Some(self.mean(component, t.batch, PLAIN, factor, visit, |_, sums| quotient.loss(sums)))
            }
            Component::FocalTversky(t) => {
                let quotient = Quotient {
                    alpha: t.alpha.into(),
                    beta: t.beta.into(),
                    smooth: [t.smooth_numerator.into(), t.smooth_denominator.into()],
                };
                let power = 1.0 / f64::from(t.gamma);
                Some(self.mean(component, t.batch, PLAIN, factor, visit, |_, sums| {
                    let (loss, by_overlap, by_size) = quotient.loss(sums);
                    let (value, slope) = bounded_power(loss, power);
                    (value, slope * by_overlap, slope * by_size)
                }))
            }
            Component::GeneralizedDice(dice) => Some(self.generalized(component, dice, factor, visit)),
            Component::CrossEntropy(_) | Component::WeightedBce(_) | Component::Focal(_) => None,
        }
    }

    fn dice(
        &self,
        component: &Component,
        dice: &SoftDice,
        factor: f64,
        visit: &mut impl FnMut(Piece),
    ) -> f64 {
        let (n, d) = (f64::from(dice.smooth_numerator), f64::from(dice.smooth_denominator));
        let size = if dice.squared { SQUARES } else { PLAIN };
        self.mean(component, dice.batch, size, factor, visit, |class, [overlap, size, target]| {
            let numerator = 2.0 * overlap + n;
            let denominator = size + target + d;
            let weight = component.class_weight(class);
            (
                weight * (1.0 - numerator / denominator),
                weight * (-2.0 / denominator),
                weight * (numerator / denominator.powi(2)),
            )
        })
    }

    /// The mean over groups of samples and classes of a term of Σpt, the sum `size` and Σt.
    fn mean(
        &self,
        component: &Component,
        batch: bool,
        size: usize,
        factor: f64,
        visit: &mut impl FnMut(Piece),
        term: impl Fn(usize, [f64; 3]) -> Term,
    ) -> f64 {
        let first = self.first(component);
        let groups = if batch { 1 } else { self.batch };
        let terms = (groups * (self.classes - first)) as f64;
        let mut mean = 0.0;
        for group in 0..groups {
            for class in first..self.classes {
                let sums = [OVERLAP, size, TARGET].map(|k| self.total(batch, group, class, k));
                let (value, by_overlap, by_size) = term(class, sums);
                mean += value / terms;
                let by_overlap = factor * (by_overlap / terms);
                self.pass_on(batch, group, class, size, by_overlap, factor * (by_size / terms), visit);
            }
        }
        mean
    }

    fn generalized(
        &self,
        component: &Component,
        dice: &GeneralizedDice,
        factor: f64,
        visit: &mut impl FnMut(Piece),
    ) -> f64 {
        let (n, d) = (f64::from(dice.smooth_numerator), f64::from(dice.smooth_denominator));
        let classes = self.first(component)..self.classes;
        let groups = if dice.batch { 1 } else { self.batch };
        let mut mean = 0.0;
        for group in 0..groups {
            let total = |class: usize, k: usize| self.total(dice.batch, group, class, k);
            let weight_of = |volume: f64| match dice.volume_weight {
                VolumeWeight::Square => 1.0 / (volume * volume),
                VolumeWeight::Simple => 1.0 / volume,
                VolumeWeight::Uniform => 1.0,
            };
            let weights = classes.clone().map(|class| weight_of(total(class, TARGET)));
            let largest = weights.filter(|weight| weight.is_finite()).fold(0.0, f64::max);
            let weight = |class: usize| {
                let weight = weight_of(total(class, TARGET));
                if weight.is_finite() { weight } else { largest }
            };
            let (mut numerator, mut denominator) = (n, d);
            for class in classes.clone() {
                numerator += 2.0 * weight(class) * total(class, OVERLAP);
                denominator += weight(class) * (total(class, PLAIN) + total(class, TARGET));
            }
            mean += (1.0 - numerator / denominator) / groups as f64;
            let factor = factor / groups as f64;
            for class in classes.clone() {
                let by_overlap = factor * (-2.0 * weight(class) / denominator);
                let by_size = factor * (weight(class) * numerator / denominator.powi(2));
                self.pass_on(dice.batch, group, class, PLAIN, by_overlap, by_size, visit);
            }
        }
        mean
    }

    fn pass_on(&self, batch: bool, group: usize, class: usize, size: usize, by_overlap: f64, by_size: f64, visit: &mut impl FnMut(Piece)) {
        let slopes = if size == SQUARES { [by_overlap, 0.0, by_size] } else { [by_overlap, by_size, 0.0] };
        for sample in samples(batch, self.batch, group) {
            visit(Piece::Region { sample, class, slopes });
        }
    }
}

/// The samples of a group.
fn samples(batch: bool, count: usize, group: usize) -> std::ops::Range<usize> {
    if batch { 0..count } else { group..group + 1 }
}

/// The quotient that the Tversky losses share.
struct Quotient {
    alpha: f64,
    beta: f64,
    smooth: [f64; 2],
}

impl Quotient {
    fn loss(&self, [overlap, size, target]: [f64; 3]) -> Term {
        let [n, d] = self.smooth;
        let numerator = overlap + n;
        let denominator = overlap + self.alpha * (size - overlap) + self.beta * (target - overlap) + d;
        let by_overlap = (numerator * (1.0 - self.alpha - self.beta) - denominator) / denominator.powi(2);
        let by_size = numerator * self.alpha / denominator.powi(2);
        (1.0 - numerator / denominator, by_overlap, by_size)
    }
}

/// x to a power, and its slope, bounded at zero.
fn bounded_power(x: f64, power: f64) -> (f64, f64) {
    if power < 1.0 && x < STRAIGHT {
        let slope = STRAIGHT.powf(power - 1.0);
        return (slope * x, slope);
    }
    // Rounding of the sums may bring x below zero.
    let x = x.max(0.0);
    (x.powf(power), power * x.powf(power - 1.0))
}
