//! The curve of memory against time, found from the peak with all values kept down to the floor, as far as requested.

use super::{Choice, Search, Tried};

/// Targets between the peak with everything held and the floor.
const TARGETS: usize = 24;
/// The number of times the largest values are measured while a curve is found, and for one target between two of its points.
const RESCUES: [usize; 2] = [32, 4];

/// A curve while it is being found, from the peak with everything held down to the floor.
#[derive(Clone)]
pub(super) struct Curve {
    /// The choice for each target that was met.
    found: Vec<Choice>,
    /// The last of them.
    last: Tried,
    top: usize,
    /// No schedule needs less: one node needs as much by itself.
    bottom: usize,
    /// The lowest target that was met.
    reached: usize,
    /// The highest target that was missed from there.
    missed: usize,
    target: usize,
    /// The remaining number of times the largest values may be measured.
    rescues: usize,
    is_complete: bool,
}

impl Curve {
    /// From one target to the next.
    fn step(&self) -> usize {
        (self.top - self.bottom.min(self.top)).div_ceil(TARGETS).max(1)
    }

    /// Returns `true` if the floor is found, to the precision of the search.
    fn is_at_end(&self) -> bool {
        self.reached.saturating_sub(self.missed) <= self.step() / 8 + 1
            || self.target <= self.missed
            || self.target >= self.reached
    }
}

impl Search {
    /// Choices from the one that holds everything to the one that needs the least, each the fastest that was found
    /// for its bytes: ever fewer bytes, ever more time.
    pub fn curve(&self) -> Vec<Choice> {
        self.watched_curve(&mut |_| {})
    }

    /// The same; during the search `observer` receives the share of the range from the peak to the floor that is done.
    pub fn watched_curve(&self, observer: &mut dyn FnMut(f64)) -> Vec<Choice> {
        self.curve_down_to(0, observer)
    }

    /// The curve as far as its first choice that needs at most `target` bytes; the whole curve if there is none. It does not depend
    /// on how far the curve was searched before.
    fn curve_down_to(&self, target: usize, observer: &mut dyn FnMut(f64)) -> Vec<Choice> {
        let mut known = self.curve.borrow_mut();
        let curve = known.get_or_insert_with(|| self.begin_curve());
        while !curve.is_complete && curve.last.choice.lower_bound > target {
            let way = curve.top - curve.bottom.min(curve.top);
            observer((curve.top - curve.reached) as f64 / way.max(1) as f64);
            self.rescues.set(curve.rescues);
            self.extend_curve(curve);
            curve.rescues = self.rescues.get();
        }
        let first = curve.found.iter().position(|choice| choice.lower_bound <= target);
        pareto(curve.found[..first.map_or(curve.found.len(), |first| first + 1)].to_vec())
    }

    /// The choices of the curve that take at most `seconds`, down to the first whose lower bound is at most `enough`; and a lower bound
    /// that no choice within `seconds` was found for. They do not depend on how far the curve was searched before.
    pub(crate) fn curve_within(&self, seconds: f64, enough: usize) -> (Vec<Choice>, usize) {
        let mut known = self.curve.borrow_mut();
        let curve = known.get_or_insert_with(|| self.begin_curve());
        let is_beyond = |choice: &Choice| choice.seconds > seconds || choice.lower_bound <= enough;
        while !curve.is_complete && !is_beyond(&curve.last.choice) {
            self.rescues.set(curve.rescues);
            self.extend_curve(curve);
            curve.rescues = self.rescues.get();
        }
        let end = curve.found.iter().position(is_beyond).map_or(curve.found.len(), |first| first + 1);
        let refused = curve.found[..end].last().filter(|last| last.seconds > seconds);
        let refused = refused.map_or(enough, |refused| refused.lower_bound.max(enough));
        let mut choices = pareto(curve.found[..end].to_vec());
        choices.retain(|choice| choice.seconds <= seconds);
        (choices, refused)
    }

    fn begin_curve(&self) -> Curve {
        let everything = self.everything();
        let (top, bottom) = (everything.choice.lower_bound, self.least());
        let mut curve = Curve {
            found: vec![everything.choice.clone()],
            last: everything,
            top,
            bottom,
            reached: top,
            missed: bottom.saturating_sub(1),
            target: top,
            rescues: RESCUES[0],
            is_complete: false,
        };
        curve.target -= curve.step().min(top);
        curve.is_complete = curve.is_at_end();
        curve
    }

    /// Searches for the next point of a curve.
    fn extend_curve(&self, curve: &mut Curve) {
        // What is freed already may be in the way.
        let anew = || if self.is_thorough { None } else { self.fit(&self.everything(), curve.target) };
        match self.fit(&curve.last, curve.target).or_else(anew) {
            Some(next) => {
                curve.reached = next.choice.lower_bound.min(curve.target);
                // From another start, a target may be met that was missed before.
                if curve.reached <= curve.missed {
                    curve.missed = curve.bottom.saturating_sub(1);
                }
                curve.found.push(next.choice.clone());
                curve.last = next;
                let half = curve.missed.midpoint(curve.reached);
                curve.target = curve.reached.saturating_sub(curve.step()).max(half);
            }
            None => {
                curve.missed = curve.target;
                curve.target = curve.missed.midpoint(curve.reached);
            }
        }
        curve.is_complete = curve.is_at_end();
    }

    /// The fastest choice found that needs at most `target` bytes; else the one that needs the least.
    pub fn fastest(&self, target: usize) -> Option<Choice> {
        let everything = self.everything();
        if everything.choice.lower_bound <= target {
            return Some(everything.choice);
        }
        let curve = self.curve_down_to(target, &mut |_| {});
        let fitting = curve.iter().find(|choice| choice.lower_bound <= target);
        let Some(fitting) = fitting else { return curve.last().cloned() };
        // The curve's targets are not this one: a choice between two of its points may be faster.
        self.rescues.set(RESCUES[1]);
        let above = curve.iter().rev().find(|choice| choice.lower_bound > target);
        let between = above
            .and_then(|above| self.measure(above.releases.clone()))
            .and_then(|above| self.fit(&above, target))
            .map(|tried| tried.choice);
        let all = [Some(fitting.clone()), between];
        all.into_iter().flatten().min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
}

/// Those that are faster than all that need no more, from the fastest to the smallest.
fn pareto(mut choices: Vec<Choice>) -> Vec<Choice> {
    choices.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.lower_bound.cmp(&b.lower_bound)));
    let mut least = usize::MAX;
    choices.retain(|choice| {
        let is_new = choice.lower_bound < least;
        least = least.min(choice.lower_bound);
        is_new
    });
    choices
}
