//! The planner: from programs and a goal to a verified plan.

use std::cmp::Reverse;
use std::collections::HashMap;

use plimsoll_graph::{Program, TensorInfo};
use serde::{Deserialize, Serialize};

use crate::liveness::{Buffer, Span};
use crate::place::{Item, Placement, lower_bound, place_counting};
use crate::recompute::{Release, Schedule};
use crate::search::{Choice, Search};
use crate::{Backend, Block, Launch, Options, Plan, PlanError, ProgramPlan, VerifiedPlan, agree};

/// The most schedules that are chosen because the placement of the one before exceeded the budget.
const TRIES: usize = 6;

/// The number of halvings of the interval in which the least arena of a sparing plan is searched for.
const HALVINGS: usize = 4;

/// The goal of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The least time within a number of bytes: see [`Planner::plan`].
    Fastest {
        /// Bytes of the arena; none if nothing is to be recomputed.
        budget: Option<usize>,
    },
    /// The least memory within a share of the least time: see [`Planner::sparing_plan`].
    Sparing {
        /// Bytes of the arena in which the least time is found.
        budget: Option<usize>,
        /// The fraction by which a program may take longer.
        share: f64,
    },
}

/// One point of the curve of memory against time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size of the arena.
    pub arena_bytes: usize,
    /// A lower bound of the arena of any placement of the same schedules.
    pub lower_bound_bytes: usize,
    /// The operations of recomputation of the first program, as a fraction.
    pub recompute_flops_fraction: f64,
    /// The predicted time of a run of the first program.
    pub predicted_seconds: f64,
    /// The tensors of the first program that are freed and recomputed.
    pub recomputed: Vec<String>,
}

/// Makes plans for a set of programs.
pub struct Planner<'a> {
    backend: &'a dyn Backend,
    options: Options,
    given: &'a [Program],
    searches: Vec<Search>,
    persistent: Vec<(TensorInfo, Block)>,
    by_name: HashMap<&'a str, usize>,
    /// The end of parameters and states.
    top: usize,
}

/// A schedule with places.
struct Placed {
    schedule: Schedule,
    buffers: Vec<Buffer>,
    items: Vec<Item>,
    placement: Placement,
    /// Predicted time of a run.
    seconds: f64,
}

impl Placed {
    /// The one with the smaller arena.
    fn smaller(known: Option<Placed>, new: Placed) -> Placed {
        match known {
            Some(known) if known.placement.bytes <= new.placement.bytes => known,
            _ => new,
        }
    }
}

/// Plans a set of programs: parameters and states of one name are one tensor, at the bottom of the arena; above them
/// each program lays out its own values, in the same space as the others.
///
/// # Errors
/// Returns an error if a program is not well formed, a node has no kernel, two programs disagree about a name or have
/// the same, or — which would be an error in the planner — the verifier rejects the plan.
pub fn plan(
    programs: &[Program],
    backend: &dyn Backend,
    options: Options,
) -> Result<VerifiedPlan, PlanError> {
    Planner::new(programs, backend, options)?.plan(options.budget)
}

impl<'a> Planner<'a> {
    /// Checks programs and gives their parameters and states places.
    ///
    /// # Errors
    /// Returns an error if a program is not well formed, a node has no kernel, or two programs disagree about a name.
    pub fn new(
        given: &'a [Program],
        backend: &'a dyn Backend,
        options: Options,
    ) -> Result<Planner<'a>, PlanError> {
        agree(given)?;
        let lowered = backend.lower(given, options.inline)?;
        for (program, lowered) in given.iter().zip(&lowered) {
            if let Some(fault) = lowered.fault(program) {
                let (name, backend) = (&program.name, backend.identity());
                let fault = format!("`{name}` is not soundly lowered by {backend}: {fault}");
                return Err(PlanError::WrongPlan { fault });
            }
        }
        let alignment = backend.alignment();
        let mut persistent: Vec<(TensorInfo, Block)> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        let mut top = 0;
        for (program, lowered) in given.iter().zip(&lowered) {
            for (tensor, bytes) in program.tensors.iter().zip(&lowered.bytes) {
                if !tensor.role.is_persistent() {
                    continue;
                }
                if !by_name.contains_key(tensor.name.as_str()) {
                    let bytes = bytes.next_multiple_of(alignment);
                    by_name.insert(&tensor.name, persistent.len());
                    persistent.push((tensor.clone(), Block { offset: top, bytes }));
                    top += bytes;
                }
            }
        }
        let searches = given
            .iter()
            .zip(lowered)
            .map(|(program, lowered)| Search::new(program, lowered, alignment))
            .collect();
        Ok(Planner { backend, options, given, searches, persistent, by_name, top })
    }

    /// The fastest plan found whose arena takes at most `budget` bytes; where there is none, the one with the least
    /// arena. Without a budget nothing is recomputed.
    ///
    /// # Errors
    /// Returns an error if the verifier rejects the plan.
    pub fn plan(&self, budget: Option<usize>) -> Result<VerifiedPlan, PlanError> {
        self.verified(self.fastest(budget)?)
    }

    /// The schedules of [`plan`](Planner::plan).
    fn fastest(&self, budget: Option<usize>) -> Result<Vec<Placed>, PlanError> {
        let mut room = budget.map(|budget| budget.saturating_sub(self.top));
        let mut placed = Vec::with_capacity(self.searches.len());
        for search in &self.searches {
            let chosen = self.choose(search, room)?;
            // Programs lie in the same space: one need not be smaller than another that cannot be.
            room = room.map(|room| room.max(chosen.placement.bytes));
            placed.push(chosen);
        }
        Ok(placed)
    }

    /// The plan for a goal.
    ///
    /// # Errors
    /// Returns an error if the verifier rejects the plan.
    pub fn plan_for(&self, goal: Goal) -> Result<VerifiedPlan, PlanError> {
        match goal {
            Goal::Fastest { budget } => self.plan(budget),
            Goal::Sparing { budget, share } => self.sparing_plan(budget, share),
        }
    }

    /// The plan with the least arena in which no program takes more than a `share` longer than in the fastest plan whose arena takes
    /// at most `budget` bytes. Programs share one space, so each is as fast as the arena of the one that needs the most allows.
    ///
    /// # Errors
    /// Returns an error if the verifier rejects a plan.
    pub fn sparing_plan(&self, budget: Option<usize>, share: f64) -> Result<VerifiedPlan, PlanError> {
        let mut placed = self.fastest(budget)?;
        let mut order: Vec<usize> = (0..placed.len()).collect();
        order.sort_by_key(|at| Reverse(placed[*at].placement.bytes));
        let mut spared: Vec<Option<Placed>> = placed.iter().map(|_| None).collect();
        let mut room = 0;
        for at in order {
            let fastest = &placed[at];
            if fastest.placement.bytes <= room {
                break;
            }
            let least = self.least_within(&self.searches[at], (1.0 + share) * fastest.seconds, room);
            room =
                room.max(least.as_ref().map_or(fastest.placement.bytes, |least| {
                    least.placement.bytes.min(fastest.placement.bytes)
                }));
            spared[at] = least;
        }
        for ((search, placed), spared) in self.searches.iter().zip(&mut placed).zip(spared) {
            if placed.placement.bytes > room
                && let Some(spared) = spared
            {
                let again = self.choose(search, Some(room))?;
                let is_better = again.placement.bytes <= room && again.seconds < spared.seconds;
                *placed = if is_better { again } else { spared };
            }
        }
        self.verified(placed)
    }

    /// The schedule of a program with the least arena that takes at most these seconds; none if everything held takes longer. A smaller
    /// arena than `enough` is not searched for.
    fn least_within(&self, search: &Search, seconds: f64, enough: usize) -> Option<Placed> {
        let mut best: Option<Placed> = None;
        let (mut choices, mut refused) = search.curve_within(seconds, enough);
        // From the smallest: one whose lower bound is above an arena that was placed cannot be better.
        while let Some(choice) = choices.pop() {
            if best.as_ref().is_some_and(|best| best.placement.bytes <= choice.lower_bound.max(enough)) {
                break;
            }
            if let Some(placed) = self.place(search, &choice) {
                best = Some(Placed::smaller(best, placed));
            }
        }
        // Points of the curve lie some percent apart: the least arena is between two of them.
        let mut best = best?;
        for _ in 0..HALVINGS {
            let target = refused.midpoint(best.placement.bytes);
            let found = search.fastest(target).filter(|choice| choice.seconds <= seconds);
            match found.and_then(|choice| self.place(search, &choice)) {
                Some(placed) if placed.placement.bytes <= target => best = placed,
                _ => refused = target,
            }
        }
        Some(best)
    }

    /// The plan that frees the given values of each program; none if that is impossible.
    ///
    /// # Errors
    /// Returns an error if the verifier rejects the plan.
    pub fn plan_with(&self, releases: &[Vec<Release>]) -> Result<Option<VerifiedPlan>, PlanError> {
        let placed: Option<Vec<Placed>> = self
            .searches
            .iter()
            .zip(releases)
            .map(|(search, releases)| self.place(search, &search.choice(releases.clone())?))
            .collect();
        placed.map(|placed| self.verified(placed)).transpose()
    }

    /// Returns `true` if a plan is of the same programs for the same backend, lowered in the same way: with one budget, it is the plan
    /// that this planner makes.
    pub(crate) fn made(&self, plan: &VerifiedPlan) -> bool {
        let lowered = self.searches.iter().map(Search::lowered);
        self.options.reuse
            && plan.expect_for(self.backend).is_ok()
            && plan.inline == self.options.inline
            && plan.lowered.iter().eq(lowered)
            && plan.programs == self.given
    }

    /// Operations of searching and placing so far: launches, values and stretches of memory that were looked at. It tells how
    /// planning grows with a program, on any machine.
    pub fn work(&self) -> u64 {
        self.searches.iter().map(|search| search.work().count()).sum()
    }

    /// A size that no arena can do without, whatever is recomputed: parameters and states, and the most that one kernel needs.
    /// It is known without a search.
    pub fn least_bound(&self) -> usize {
        self.top + self.searches.iter().map(Search::least).max().unwrap_or(0)
    }

    /// The search over each program.
    pub fn searches(&self) -> &[Search] {
        &self.searches
    }

    /// The curve of memory against time, from the fastest plan to the smallest.
    ///
    /// # Errors
    /// Returns an error if the verifier rejects a plan.
    pub fn curve(&self) -> Result<Vec<Point>, PlanError> {
        self.watched_curve(&mut |_| {})
    }

    /// The same; `observer` receives the share of the work that is done, from 0 to 1: half of it is the search, half
    /// the placement of its results.
    ///
    /// # Errors
    /// Returns an error if the verifier rejects a plan.
    pub fn watched_curve(&self, observer: &mut dyn FnMut(f64)) -> Result<Vec<Point>, PlanError> {
        let Some(first) = self.searches.first() else { return Ok(Vec::new()) };
        let mut points: Vec<Point> = Vec::new();
        let choices = first.watched_curve(&mut |share| observer(0.5 * share.clamp(0.0, 1.0)));
        for (place, choice) in choices.iter().enumerate() {
            observer(0.5 + 0.5 * place as f64 / choices.len() as f64);
            let plan = self.plan_near(self.top + choice.lower_bound)?;
            let schedule = &plan.schedules[0];
            let point = Point {
                arena_bytes: plan.arena_bytes,
                lower_bound_bytes: plan.lower_bound_bytes,
                recompute_flops_fraction: schedule.recompute_flops_fraction,
                predicted_seconds: schedule.predicted_seconds,
                recomputed: schedule.recomputed(&self.given[0]),
            };
            if points.last().is_none_or(|last| point.arena_bytes < last.arena_bytes) {
                // What needs more and is no faster is not on the curve.
                while points.pop_if(|last| point.predicted_seconds < last.predicted_seconds).is_some() {}
                points.push(point);
            }
        }
        Ok(points)
    }

    /// The plan of the schedules with at most these bytes as their lower bound, wherever placement ends.
    fn plan_near(&self, bytes: usize) -> Result<VerifiedPlan, PlanError> {
        let room = bytes - self.top;
        let placed = self.searches.iter().map(|search| {
            let placed = search.fastest(room).and_then(|choice| self.place(search, &choice));
            placed.map_or_else(|| self.choose(search, None), Ok)
        });
        self.verified(placed.collect::<Result<_, _>>()?)
    }

    /// The fastest schedule found whose placement takes at most `room` bytes; the one with the least if none does.
    fn choose(&self, search: &Search, room: Option<usize>) -> Result<Placed, PlanError> {
        let everything = Choice { releases: Vec::new(), lower_bound: 0, seconds: 0.0 };
        // The order of the program itself needs no recomputation, so there is always a schedule.
        let fault = || PlanError::WrongPlan { fault: "a program without releases has no schedule".into() };
        let kept = || self.place(search, &everything).ok_or_else(fault);
        let Some(room) = room else { return kept() };
        let mut best: Option<Placed> = None;
        if search.peak() <= room {
            let placed = kept()?;
            if placed.placement.bytes <= room {
                return Ok(placed);
            }
            best = Some(placed);
        }
        let (mut target, mut over, mut last) = (room, 1, None);
        for _ in 0..TRIES {
            let Some(choice) = search.fastest(target) else { break };
            let is_floor = choice.lower_bound > target;
            target = choice.lower_bound.min(target);
            // A lower target may lead to the same choice.
            if last.as_ref() != Some(&choice) {
                let Some(placed) = self.place(search, &choice) else { break };
                over = placed.placement.bytes.saturating_sub(room);
                best = Some(Placed::smaller(best, placed));
                last = Some(choice);
            }
            if over == 0 || is_floor {
                break;
            }
            target = target.saturating_sub(over);
        }
        // Where these attempts end above the room, the floor may still fit.
        if best.as_ref().is_none_or(|best| best.placement.bytes > room)
            && let Some(floor) = search.fastest(0).filter(|floor| last.as_ref() != Some(floor))
            && let Some(placed) = self.place(search, &floor)
        {
            best = Some(Placed::smaller(best, placed));
        }
        best.map_or_else(kept, Ok)
    }

    fn place(&self, search: &Search, choice: &Choice) -> Option<Placed> {
        let schedule = search.schedule(choice)?;
        let (buffers, mut items) = search.items(&schedule, self.options.reuse);
        if !self.options.reuse {
            let always = Span { start: 0, end: schedule.runs.len() };
            items.iter_mut().for_each(|item| item.span = always);
        }
        let placement = place_counting(&items, search.work());
        let seconds = schedule.runs.iter().map(|run| search.lowered().nodes[run.node].seconds).sum();
        Some(Placed { schedule, buffers, items, placement, seconds })
    }

    fn verified(&self, placed: Vec<Placed>) -> Result<VerifiedPlan, PlanError> {
        let programs = self.given.iter().zip(&self.searches).zip(placed);
        let schedules: Vec<ProgramPlan> =
            programs.map(|((program, search), placed)| self.program_plan(program, search, placed)).collect();
        let most = |of: fn(&ProgramPlan) -> usize| schedules.iter().map(of).max().unwrap_or(self.top);
        let plan = Plan {
            programs: self.given.to_vec(),
            inline: self.options.inline,
            lowered: self.searches.iter().map(|search| search.lowered().clone()).collect(),
            persistent: self.persistent.clone(),
            arena_bytes: most(|p| p.arena_bytes),
            lower_bound_bytes: most(|p| p.lower_bound_bytes),
            schedules,
        };
        VerifiedPlan::new(plan, self.backend)
    }

    fn program_plan(&self, program: &Program, search: &Search, placed: Placed) -> ProgramPlan {
        let Placed { schedule, buffers, items, placement, seconds } = placed;
        let block =
            |item: usize| Block { offset: self.top + placement.offsets[item], bytes: items[item].bytes };
        let persistent = |tensor: &TensorInfo| {
            let known = tensor.role.is_persistent().then(|| self.by_name.get(tensor.name.as_str()))??;
            Some(self.persistent[*known].1)
        };
        let mut places: Vec<Option<Block>> = program.tensors.iter().map(persistent).collect();
        places.resize(program.tensors.len() + schedule.copies.len(), None);
        for (item, buffer) in buffers.iter().enumerate() {
            for id in &buffer.tensors {
                places[id.index()] = Some(block(item));
            }
        }
        let lowered = search.lowered();
        let nodes = || schedule.runs.iter().map(|run| &lowered.nodes[run.node]);
        let (before, after) =
            (lowered.flops() as f64, nodes().map(|node| node.cost.flops as f64).sum::<f64>());
        ProgramPlan {
            launches: schedule
                .runs
                .iter()
                .zip(buffers.len()..)
                .map(|(run, item)| Launch {
                    node: run.node,
                    inputs: schedule.inputs(run).to_vec(),
                    outputs: schedule.outputs(run).to_vec(),
                    scratch: block(item),
                })
                .collect(),
            places,
            arena_bytes: self.top + placement.bytes,
            lower_bound_bytes: self.top + lower_bound(&items),
            recompute_flops_fraction: if before > 0.0 { after / before - 1.0 } else { 0.0 },
            predicted_seconds: seconds,
            copies: schedule.copies,
        }
    }
}
