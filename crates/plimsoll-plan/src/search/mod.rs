//! The search for values to free and recompute, so that a program fits into a number of bytes at the least cost in time.
//!
//! The search begins with all values kept and a target a little below the peak (`curve`). Of all values that are live,
//! idle, while more than the target is live, it frees those that remove the most excess (bytes above the target, summed
//! over the nodes) per second of added time, and repeats this until the target is met; then it keeps the values that
//! need not be freed. The next, lower target starts from there, down to the floor where nothing helps any more; so one
//! search gives the curve of memory against time, as far down as requested.
//!
//! A choice is measured by writing its schedule, which takes time proportional to the program. In a small program every
//! candidate is measured (`thorough`). In a larger one candidates are compared by estimates (`candidates`), freed in batches
//! (`batches`) and held again where there is room (`hold`), so that the number of measurements does not depend on the size of the
//! program. Everything is counted, nothing is timed: the same program gives the same curve.

mod batches;
mod candidates;
mod curve;
mod hold;
mod thorough;

use std::cell::{Cell, RefCell};

use plimsoll_graph::{Program, Role, TensorId};

use crate::LoweredProgram;
use crate::liveness::{Buffer, FlowValue, Span};
use crate::place::Item;
use crate::recompute::{Recomputation, Release, Run, Schedule};
use crate::work::Work;
use curve::Curve;

/// A choice of values to free, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The freed values, in ascending order.
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

/// Values smaller than this part of the peak are always held.
const SMALLEST: usize = 2000;
/// Nodes of a program up to which every candidate is measured, one by one, which takes time that grows with the third power of
/// the nodes.
const THOROUGH: usize = 160;

/// The search over one program.
pub struct Search {
    recomputation: Recomputation,
    values: Vec<FlowValue>,
    /// Bytes of each node's scratch, aligned.
    scratch: Vec<usize>,
    /// Tensors that are worth freeing.
    is_large: Vec<bool>,
    /// The most bytes held at a time with nothing recomputed.
    peak: usize,
    /// `true` if every candidate is measured.
    is_thorough: bool,
    curve: RefCell<Option<Curve>>,
    /// The remaining number of times the largest values may be measured for the present target.
    rescues: Cell<usize>,
    work: Work,
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
            peak: 0,
            is_thorough: lowered.nodes.len() <= THOROUGH,
            recomputation: Recomputation::new(program, lowered),
            curve: RefCell::new(None),
            rescues: Cell::new(0),
            work: Work::default(),
        };
        let peak = search.everything().choice.lower_bound;
        search.peak = peak;
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

    /// The origin of its values.
    pub fn recomputation(&self) -> &Recomputation {
        &self.recomputation
    }

    /// The schedule of a choice.
    pub fn schedule(&self, choice: &Choice) -> Option<Schedule> {
        self.recomputation.schedule(&choice.releases)
    }

    /// The schedule and cost of a choice; `None` if it is impossible.
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

    /// The most bytes held at a time with nothing recomputed.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// The operations of the search so far.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// Frees more until the target is met, and holds again what is needless. None if nothing helps before.
    fn fit(&self, from: &Tried, target: usize) -> Option<Tried> {
        match self.is_thorough {
            true => self.fit_thoroughly(from, target),
            false => self.fit_in_batches(from, target),
        }
    }

    /// The most that one node needs for its operands, results and scratch: no schedule does with less.
    pub fn least(&self) -> usize {
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

    fn measure_with<'r>(
        &self,
        from: &Tried,
        addition: impl IntoIterator<Item = &'r Release>,
    ) -> Option<Tried> {
        let mut releases = from.choice.releases.clone();
        releases.extend(addition);
        releases.sort_unstable();
        releases.dedup();
        self.measure(releases)
    }

    /// The value that takes away the most excess per second; if none does by itself, the best two of the first `paired`.
    fn best_alone_or_paired(
        &self,
        from: &Tried,
        target: usize,
        candidates: &[Release],
        paired: usize,
    ) -> Option<Tried> {
        self.best_of(from, target, candidates.iter().map(|one| vec![*one])).or_else(|| {
            let few = &candidates[..candidates.len().min(paired)];
            let pairs = few.iter().enumerate().flat_map(|(i, a)| few[i + 1..].iter().map(|b| vec![*a, *b]));
            self.best_of(from, target, pairs)
        })
    }

    /// The addition that takes away the most excess per second.
    fn best_of(
        &self,
        from: &Tried,
        target: usize,
        additions: impl Iterator<Item = Vec<Release>>,
    ) -> Option<Tried> {
        let excess = from.excess(target);
        let mut best: Option<(f64, Tried)> = None;
        for addition in additions {
            let Some(tried) = self.measure_with(from, &addition) else { continue };
            let gain = excess - tried.excess(target);
            let added = (tried.choice.seconds - from.choice.seconds).max(1e-7);
            if gain > 0.0 && best.as_ref().is_none_or(|(score, _)| gain / added > *score) {
                best = Some((gain / added, tried));
            }
        }
        best.map(|(_, tried)| tried)
    }

    /// With everything held, which is always possible.
    fn everything(&self) -> Tried {
        self.measured(self.recomputation.unchanged(), Vec::new())
    }

    fn measure(&self, releases: Vec<Release>) -> Option<Tried> {
        Some(self.measured(self.recomputation.schedule(&releases)?, releases))
    }

    fn measured(&self, schedule: Schedule, releases: Vec<Release>) -> Tried {
        self.work.add(schedule.runs.len() + self.values.len() + schedule.copies.len());
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
