//! Which values to free and recompute, so that a program fits into a number of bytes at the least cost in time.
//!
//! What a choice needs at the least and how long it takes follow from liveness alone, in microseconds; so the search
//! tries many. It begins with everything held and a target a little below the peak. Of all values that are held,
//! idle, while more than the target is held, it frees the one that takes away the most excess (bytes above the
//! target, summed over the nodes) per second of added time, and again, until the target is met; then it holds again
//! what turned out to be needless. The next, lower target starts from there, down to the floor where nothing helps
//! any more. So one search gives the whole curve of memory against time. Everything is counted, nothing is timed: the
//! same program gives the same curve. Large programs are searched with less effort.

use std::cell::OnceCell;

use plimsoll_graph::{Program, Role, TensorId};

use crate::LoweredProgram;
use crate::liveness::{Buffer, FlowValue, Span};
use crate::place::Item;
use crate::recompute::{Recomputation, Release, Run, Schedule};

/// A choice of values to free, and what it comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What is freed, in ascending order.
    pub releases: Vec<Release>,
    /// The most bytes held at a time, parameters and states left out.
    pub lower_bound: usize,
    /// Predicted time of a run.
    pub seconds: f64,
}

/// A choice while it is being improved.
#[derive(Clone)]
struct Tried {
    choice: Choice,
    schedule: Schedule,
    /// Bytes held at each run.
    held: Vec<usize>,
}

/// Targets between the peak with everything held and the floor.
const TARGETS: usize = 24;
/// Of several values that only help together, how many are tried in pairs.
const PAIRED: usize = 24;
/// Values smaller than this part of the peak are always held.
const SMALLEST: usize = 2000;
/// How many times a choice is shaken to find a faster one.
const SHAKES: usize = 8;
/// Nodes of a program up to which the search is as thorough as that. What it takes grows with the third power of the nodes: a
/// program of a thousand would be searched for many minutes.
const THOROUGH: usize = 600;

/// How thorough a search is.
#[derive(Clone, Copy)]
struct Effort {
    /// Of the values that may be freed next, how many are tried, the largest first.
    tried: usize,
    /// See [`PAIRED`].
    paired: usize,
    /// See [`SHAKES`].
    shakes: usize,
    /// How many of the best are freed at once, where that takes away more than the best alone.
    together: usize,
}

impl Effort {
    /// For a program of so many nodes.
    fn of(nodes: usize) -> Effort {
        match nodes {
            0..=THOROUGH => Effort { tried: usize::MAX, paired: PAIRED, shakes: SHAKES, together: 1 },
            _ => Effort { tried: 2 * PAIRED, paired: PAIRED / 3, shakes: 1, together: 6 },
        }
    }
}

/// The search over one program.
pub struct Search {
    recomputation: Recomputation,
    values: Vec<FlowValue>,
    /// Bytes of each node's scratch, aligned.
    scratch: Vec<usize>,
    /// Tensors that are worth freeing.
    is_large: Vec<bool>,
    effort: Effort,
    curve: OnceCell<Vec<Choice>>,
}

impl Search {
    /// Prepares the search over a lowered program.
    pub fn new(program: &Program, lowered: LoweredProgram, alignment: usize) -> Search {
        let align = |bytes: usize| bytes.next_multiple_of(alignment);
        let values = program.tensors.iter().zip(&lowered.bytes);
        let mut search = Search {
            values: values
                .map(|(tensor, bytes)| FlowValue { role: tensor.role, bytes: align(*bytes) })
                .collect(),
            scratch: lowered.nodes.iter().map(|node| align(node.scratch)).collect(),
            is_large: vec![true; program.tensors.len()],
            effort: Effort::of(lowered.nodes.len()),
            recomputation: Recomputation::of(program, lowered),
            curve: OnceCell::new(),
        };
        let peak = search.everything().choice.lower_bound;
        for (is_large, value) in search.is_large.iter_mut().zip(&search.values) {
            *is_large = value.role == Role::Intermediate && value.bytes >= peak / SMALLEST && value.bytes > 0;
        }
        search
    }

    /// The lowered program.
    pub fn lowered(&self) -> &LoweredProgram {
        self.recomputation.lowered()
    }

    /// The pairs of a run's node that may share a place.
    fn in_place(&self, run: &Run) -> &[(usize, usize)] {
        &self.lowered().nodes[run.node].in_place
    }

    /// Where its values come from.
    pub fn recomputation(&self) -> &Recomputation {
        &self.recomputation
    }

    /// The schedule of a choice.
    pub fn schedule(&self, choice: &Choice) -> Option<Schedule> {
        self.recomputation.schedule(&choice.releases)
    }

    /// What a choice comes to; none if it is impossible.
    pub fn choice(&self, releases: Vec<Release>) -> Option<Choice> {
        self.measure(releases).map(|tried| tried.choice)
    }

    /// The buffers of a schedule's values, and what is to be placed: those, then the scratch of its runs. Nothing
    /// works in place unless `in_place`.
    pub fn items(&self, schedule: &Schedule, in_place: bool) -> (Vec<Buffer>, Vec<Item>) {
        let pairs = |run: &Run| if in_place { self.in_place(run) } else { &[] };
        let buffers = schedule.flow(&self.values, pairs).buffers();
        let scratch = schedule
            .runs
            .iter()
            .enumerate()
            .map(|(at, run)| Item { bytes: self.scratch[run.node], span: Span { start: at, end: at } });
        let items = buffers.iter().map(|buffer| Item { bytes: buffer.bytes, span: buffer.span });
        let items = items.chain(scratch).collect();
        (buffers, items)
    }

    /// Choices from the one that holds everything to the one that needs the least, each the fastest that was found
    /// for its bytes: ever fewer bytes, ever more time.
    pub fn curve(&self) -> &[Choice] {
        self.watched_curve(&mut |_| {})
    }

    /// The same; while it is searched for, `observer` is told the share of the way from the peak to the floor that is done.
    pub fn watched_curve(&self, observer: &mut dyn FnMut(f64)) -> &[Choice] {
        self.curve.get_or_init(|| self.find_curve(observer))
    }

    fn find_curve(&self, observer: &mut dyn FnMut(f64)) -> Vec<Choice> {
        let everything = self.everything();
        let top = everything.choice.lower_bound;
        // No schedule does with less than one node needs by itself.
        let bottom = self.least();
        let step = (top - bottom.min(top)).div_ceil(TARGETS).max(1);
        let mut found = vec![everything.clone()];
        let mut last = everything;
        let impossible = bottom.saturating_sub(1);
        let (mut reached, mut missed) = (top, impossible);
        let mut target = top - step.min(top);
        while reached.saturating_sub(missed) > step / 8 + 1 && target > missed {
            observer((top - reached) as f64 / (top - bottom.min(top)).max(1) as f64);
            match self.fit(&last, target) {
                Some(next) => {
                    reached = next.choice.lower_bound.min(target);
                    // From another start, a target may be met that was missed before.
                    if reached <= missed {
                        missed = impossible;
                    }
                    last = next.clone();
                    found.push(next);
                    target = reached.saturating_sub(step).max(missed.midpoint(reached));
                }
                None => {
                    missed = target;
                    target = missed.midpoint(reached);
                }
            }
            if target >= reached {
                break;
            }
        }
        pareto(found.into_iter().map(|tried| tried.choice).collect())
    }

    /// The fastest choice found that needs at most `target` bytes; else the one that needs the least.
    pub fn fastest(&self, target: usize) -> Option<Choice> {
        let everything = self.everything();
        if everything.choice.lower_bound <= target {
            return Some(everything.choice);
        }
        let curve = self.curve();
        let fitting = curve.iter().find(|choice| choice.lower_bound <= target);
        let Some(fitting) = fitting else { return curve.last().cloned() };
        // The curve's targets are not this one: a choice between two of its points may be faster.
        let above = curve.iter().rev().find(|choice| choice.lower_bound > target);
        let between = above
            .and_then(|above| self.measure(above.releases.clone()))
            .and_then(|above| self.fit(&above, target))
            .map(|tried| tried.choice);
        let all = [Some(fitting.clone()), between];
        all.into_iter().flatten().min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// The most that one node needs for its operands, results and scratch.
    fn least(&self) -> usize {
        let of = |(node, scratch): (&crate::LoweredNode, &usize)| {
            let mut ids: Vec<TensorId> = node.inputs.iter().chain(&node.outputs).copied().collect();
            ids.sort_unstable();
            ids.dedup();
            let held =
                ids.iter().map(|id| self.values[id.index()]).filter(|value| !value.role.is_persistent());
            // One result may lie where an operand lay.
            let shared = ids.iter().map(|id| self.values[id.index()].bytes).max().unwrap_or(0);
            (held.map(|value| value.bytes).sum::<usize>() + scratch).saturating_sub(shared)
        };
        self.lowered().nodes.iter().zip(&self.scratch).map(of).max().unwrap_or(0)
    }

    /// Frees more until the target is met, holds again what is needless, and shakes the result for a faster one.
    fn fit(&self, from: &Tried, target: usize) -> Option<Tried> {
        let mut best = self.hold_again(self.descend(from.clone(), target)?, target);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ target as u64;
        for shake in 0..self.effort.shakes {
            if best.choice.releases.is_empty() {
                break;
            }
            let mut releases = best.choice.releases.clone();
            for _ in 0..=shake % 3 {
                // Knuth's MMIX generator: any spread of choices will do.
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if !releases.is_empty() {
                    releases.remove((random >> 33) as usize % releases.len());
                }
            }
            let shaken = self
                .measure(releases)
                .and_then(|tried| self.descend(tried, target))
                .map(|tried| self.hold_again(tried, target));
            if let Some(shaken) = shaken
                && shaken.choice.seconds < best.choice.seconds
            {
                best = shaken;
            }
        }
        Some(best)
    }

    /// Frees values until at most `target` bytes are held at any time; none if nothing helps before.
    fn descend(&self, mut from: Tried, target: usize) -> Option<Tried> {
        while from.choice.lower_bound > target {
            let mut candidates = self.candidates(&from, target);
            candidates.truncate(self.effort.tried);
            from = self.best_of(&from, target, candidates.iter().map(|one| vec![*one])).or_else(|| {
                let few = &candidates[..candidates.len().min(self.effort.paired)];
                let pairs =
                    few.iter().enumerate().flat_map(|(i, a)| few[i + 1..].iter().map(|b| vec![*a, *b]));
                self.best_of(&from, target, pairs)
            })?;
        }
        Some(from)
    }

    /// The addition that takes away the most excess per second.
    fn best_of(
        &self,
        from: &Tried,
        target: usize,
        additions: impl Iterator<Item = Vec<Release>>,
    ) -> Option<Tried> {
        let excess = from.excess(target);
        let with = |addition: &[Release]| {
            let mut releases = from.choice.releases.clone();
            releases.extend(addition);
            releases.sort_unstable();
            releases.dedup();
            self.measure(releases)
        };
        let mut best: Option<(f64, Tried)> = None;
        let mut good: Vec<(f64, Vec<Release>)> = Vec::new();
        for addition in additions {
            let Some(tried) = with(&addition) else { continue };
            let gain = excess - tried.excess(target);
            let added = (tried.choice.seconds - from.choice.seconds).max(1e-7);
            if gain <= 0.0 {
                continue;
            }
            good.push((gain / added, addition));
            if best.as_ref().is_none_or(|(score, _)| gain / added > *score) {
                best = Some((gain / added, tried));
            }
        }
        let best = best.map(|(_, tried)| tried)?;
        if self.effort.together == 1 {
            return Some(best);
        }
        // In a stable order: equal ones as they were tried.
        good.sort_by(|a, b| b.0.total_cmp(&a.0));
        let all: Vec<Release> =
            good.into_iter().take(self.effort.together).flat_map(|(_, addition)| addition).collect();
        match with(&all) {
            Some(tried) if tried.excess(target) < best.excess(target) => Some(tried),
            _ => Some(best),
        }
    }

    /// Holds again what need not be freed, the most expensive first.
    fn hold_again(&self, mut from: Tried, target: usize) -> Tried {
        let mut order = from.choice.releases.clone();
        let cost = |release: &Release| {
            let maker = self.recomputation.maker(release.tensor);
            maker.map_or(0.0, |node| self.lowered().nodes[node].seconds)
        };
        order.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
        for release in order {
            let mut releases = from.choice.releases.clone();
            releases.retain(|other| *other != release);
            if let Some(tried) = self.measure(releases)
                && tried.choice.lower_bound <= target
                && tried.choice.seconds <= from.choice.seconds
            {
                from = tried;
            }
        }
        from
    }

    /// What is held, untouched, at a time when more than `target` is held; the largest first.
    fn candidates(&self, from: &Tried, target: usize) -> Vec<Release> {
        let schedule = &from.schedule;
        let spans = schedule.flow(&self.values, |run| self.in_place(run)).spans();
        // The runs above the target, up to each run.
        let mut above = vec![0usize; from.held.len() + 1];
        for (at, held) in from.held.iter().enumerate() {
            above[at + 1] = above[at] + usize::from(*held > target);
        }
        let mut found = Vec::new();
        for (index, span) in spans.iter().enumerate() {
            let own = self.values.len();
            let tensor = if index < own { TensorId(index as u32) } else { schedule.copies[index - own] };
            let Some(span) = span.filter(|_| self.is_large[tensor.index()]) else { continue };
            if above[span.end] <= above[span.start] {
                continue;
            }
            let mut at = span.start;
            while at < span.end {
                at += 1;
                if from.held[at] > target {
                    found.extend(self.recomputation.release_before(tensor, schedule.runs[at].place));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found.retain(|release| from.choice.releases.binary_search(release).is_err());
        found.sort_by_key(|release| (std::cmp::Reverse(self.values[release.tensor.index()].bytes), *release));
        found
    }

    /// With everything held, which is always possible.
    fn everything(&self) -> Tried {
        self.measured(self.recomputation.unchanged(), Vec::new())
    }

    fn measure(&self, releases: Vec<Release>) -> Option<Tried> {
        Some(self.measured(self.recomputation.schedule(&releases)?, releases))
    }

    fn measured(&self, schedule: Schedule, releases: Vec<Release>) -> Tried {
        let mut change = vec![0isize; schedule.runs.len() + 2];
        for (span, bytes) in schedule.flow(&self.values, |run| self.in_place(run)).stretches().0 {
            change[span.start] += bytes as isize;
            change[span.end + 1] -= bytes as isize;
        }
        let mut now = 0;
        let mut held = Vec::with_capacity(schedule.runs.len());
        let mut seconds = 0.0;
        for (run, change) in schedule.runs.iter().zip(change) {
            now += change;
            held.push(now as usize + self.scratch[run.node]);
            seconds += self.lowered().nodes[run.node].seconds;
        }
        let lower_bound = held.iter().copied().max().unwrap_or(0);
        Tried { choice: Choice { releases, lower_bound, seconds }, schedule, held }
    }
}

impl Tried {
    /// Bytes above the target, summed over the nodes of the program; of the runs before a node, the worst
    /// counts.
    fn excess(&self, target: usize) -> f64 {
        let mut sum = 0.0;
        let (mut place, mut worst) = (0, 0);
        for (run, held) in self.schedule.runs.iter().zip(&self.held) {
            if run.place != place {
                sum += worst as f64;
                (place, worst) = (run.place, 0);
            }
            worst = worst.max(held.saturating_sub(target));
        }
        sum + worst as f64
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
