//! How a plan is made.

use std::collections::HashMap;

use plimsoll_graph::{Program, TensorInfo};
use serde::{Deserialize, Serialize};

use crate::liveness::{Buffer, Span};
use crate::place::{Item, Placement, lower_bound, place};
use crate::recompute::{Release, Schedule};
use crate::search::{Choice, Search};
use crate::{Block, Layout, Options, Plan, PlanError, ProgramPlan, fold, verify};

/// How often a schedule is chosen anew because the last one's placement went beyond the budget.
const TRIES: usize = 6;

/// One point of the curve of memory against time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size of the arena.
    pub arena_bytes: usize,
    /// What no placement of the same schedules could do without.
    pub lower_bound_bytes: usize,
    /// Of the first program: operations that are done again, as a fraction.
    pub recompute_flops_fraction: f64,
    /// Of the first program: predicted time of a run.
    pub predicted_seconds: f64,
    /// Of the first program: tensors that are let go of and made again.
    pub dropped: Vec<String>,
}

/// Makes plans for a set of programs.
pub struct Planner<'a> {
    layout: &'a dyn Layout,
    options: Options,
    given: &'a [Program],
    searches: Vec<Search>,
    persistent: Vec<(TensorInfo, Block)>,
    by_name: HashMap<&'a str, usize>,
    /// Where parameters and states end.
    top: usize,
}

/// A schedule with places.
#[derive(Default)]
struct Placed {
    schedule: Schedule,
    buffers: Vec<Buffer>,
    items: Vec<Item>,
    placement: Placement,
}

/// Plans a set of programs: parameters and states of one name are one tensor, at the bottom of the arena; above them
/// each program lays out its own values, in the same space as the others.
///
/// # Errors
/// If a program is not well formed, a node has no kernel, two programs disagree about a name, or — which would be an error
/// in the planner — the verifier rejects the plan.
pub fn plan(programs: &[Program], layout: &dyn Layout, options: Options) -> Result<Plan, PlanError> {
    Planner::new(programs, layout, options)?.plan(options.budget)
}

impl<'a> Planner<'a> {
    /// Checks programs and gives their parameters and states places.
    ///
    /// # Errors
    /// If a program is not well formed, a node has no kernel, or two programs disagree about a name.
    pub fn new(
        given: &'a [Program],
        layout: &'a dyn Layout,
        options: Options,
    ) -> Result<Planner<'a>, PlanError> {
        let align = |bytes: usize| bytes.next_multiple_of(layout.alignment());
        let mut persistent: Vec<(TensorInfo, Block)> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        let mut top = 0;
        for program in given {
            program.validate()?;
            for tensor in program.tensors.iter().filter(|tensor| tensor.role.is_persistent()) {
                match by_name.get(tensor.name.as_str()) {
                    Some(known) if persistent[*known].0 != *tensor => {
                        let describe = |tensor: &TensorInfo| format!("{:?} {}", tensor.kind, tensor.shape);
                        return Err(PlanError::Conflict {
                            name: tensor.name.clone(),
                            program: program.name.clone(),
                            first: describe(tensor),
                            second: describe(&persistent[*known].0),
                        });
                    }
                    Some(_) => {}
                    None => {
                        let bytes = align(layout.bytes(tensor));
                        by_name.insert(&tensor.name, persistent.len());
                        persistent.push((tensor.clone(), Block { offset: top, bytes }));
                        top += bytes;
                    }
                }
            }
        }
        let mut searches = Vec::with_capacity(given.len());
        for program in given {
            let folded = if options.fold { fold::fold(program) } else { program.clone() };
            for node in &folded.nodes {
                layout.supports(&folded, node)?;
            }
            searches.push(Search::new(folded, layout));
        }
        Ok(Planner { layout, options, given, searches, persistent, by_name, top })
    }

    /// The fastest plan found whose arena takes at most `budget` bytes; where there is none, the one with the least
    /// arena. Without a budget nothing is made again.
    ///
    /// # Errors
    /// If the verifier rejects the plan.
    pub fn plan(&self, budget: Option<usize>) -> Result<Plan, PlanError> {
        let mut room = budget.map(|budget| budget.saturating_sub(self.top));
        let mut placed = Vec::with_capacity(self.searches.len());
        for search in &self.searches {
            let chosen = self.choose(search, room);
            // Programs lie in the same space: one need not be smaller than another that cannot be.
            room = room.map(|room| room.max(chosen.placement.bytes));
            placed.push(chosen);
        }
        self.verified(placed)
    }

    /// The plan in which values are let go of as is said for each program; none if that is impossible.
    ///
    /// # Errors
    /// If the verifier rejects the plan.
    pub fn plan_with(&self, releases: &[Vec<Release>]) -> Result<Option<Plan>, PlanError> {
        let placed: Option<Vec<Placed>> = self
            .searches
            .iter()
            .zip(releases)
            .map(|(search, releases)| self.place(search, &search.choice(releases.clone())?))
            .collect();
        placed.map(|placed| self.verified(placed)).transpose()
    }

    /// The search over each program.
    pub fn searches(&self) -> &[Search] {
        &self.searches
    }

    /// The curve of memory against time, from the fastest plan to the smallest.
    ///
    /// # Errors
    /// If the verifier rejects a plan.
    pub fn curve(&self) -> Result<Vec<Point>, PlanError> {
        let Some(first) = self.searches.first() else { return Ok(Vec::new()) };
        let mut points: Vec<Point> = Vec::new();
        for choice in first.curve() {
            let plan = self.plan_near(self.top + choice.lower_bound)?;
            let program = &plan.programs[0];
            let point = Point {
                arena_bytes: plan.arena_bytes,
                lower_bound_bytes: plan.lower_bound_bytes,
                recompute_flops_fraction: program.recompute_flops_fraction,
                predicted_seconds: program.predicted_seconds,
                dropped: program.recomputed(),
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
    fn plan_near(&self, bytes: usize) -> Result<Plan, PlanError> {
        let room = bytes - self.top;
        let placed = self.searches.iter().map(|search| {
            let choice = search.fastest(room);
            choice.and_then(|choice| self.place(search, &choice)).unwrap_or_else(|| self.choose(search, None))
        });
        self.verified(placed.collect())
    }

    fn choose(&self, search: &Search, room: Option<usize>) -> Placed {
        let everything = Choice { releases: Vec::new(), lower_bound: 0, seconds: 0.0 };
        let mut best = self.place(search, &everything);
        let (Some(room), Some(first)) = (room, &best) else { return best.unwrap_or_default() };
        if first.placement.bytes <= room {
            return best.unwrap_or_default();
        }
        let mut target = room;
        for _ in 0..TRIES {
            let Some(choice) = search.fastest(target) else { break };
            let Some(placed) = self.place(search, &choice) else { break };
            let over = placed.placement.bytes.saturating_sub(room);
            let is_floor = choice.lower_bound > target;
            if best.as_ref().is_none_or(|best| placed.placement.bytes < best.placement.bytes) {
                best = Some(placed);
            }
            if over == 0 || is_floor {
                break;
            }
            target = choice.lower_bound.min(target).saturating_sub(over);
        }
        best.unwrap_or_default()
    }

    fn place(&self, search: &Search, choice: &Choice) -> Option<Placed> {
        let schedule = search.schedule(choice)?;
        let (buffers, mut items) = search.items(&schedule, self.options.reuse);
        if !self.options.reuse {
            let always = Span { start: 0, end: schedule.steps.len() };
            items.iter_mut().for_each(|item| item.span = always);
        }
        let placement = place(&items);
        Some(Placed { schedule, buffers, items, placement })
    }

    fn verified(&self, placed: Vec<Placed>) -> Result<Plan, PlanError> {
        let mut programs = Vec::with_capacity(placed.len());
        for ((given, search), placed) in self.given.iter().zip(&self.searches).zip(placed) {
            let plan = self.program_plan(search.program(), placed);
            verify::verify(given, &plan, self.layout)?;
            programs.push(plan);
        }
        let most = |of: fn(&ProgramPlan) -> usize| programs.iter().map(of).max().unwrap_or(self.top);
        let (arena_bytes, lower_bound_bytes) = (most(|p| p.arena_bytes), most(|p| p.lower_bound_bytes));
        Ok(Plan { persistent: self.persistent.clone(), programs, arena_bytes, lower_bound_bytes })
    }

    fn program_plan(&self, folded: &Program, placed: Placed) -> ProgramPlan {
        let Placed { schedule, buffers, items, placement } = placed;
        let program = schedule.program(folded);
        let block =
            |item: usize| Block { offset: self.top + placement.offsets[item], bytes: items[item].bytes };
        let persistent = |tensor: &TensorInfo| {
            let known = tensor.role.is_persistent().then(|| self.by_name.get(tensor.name.as_str()))??;
            Some(self.persistent[*known].1)
        };
        let mut places: Vec<Option<Block>> = program.tensors.iter().map(persistent).collect();
        for (item, buffer) in buffers.iter().enumerate() {
            for id in &buffer.tensors {
                places[id.index()] = Some(block(item));
            }
        }
        let (before, after) = (folded.flops() as f64, program.flops() as f64);
        ProgramPlan {
            places,
            scratch: (buffers.len()..items.len()).map(block).collect(),
            arena_bytes: self.top + placement.bytes,
            lower_bound_bytes: self.top + lower_bound(&items),
            recompute_flops_fraction: if before > 0.0 { after / before - 1.0 } else { 0.0 },
            predicted_seconds: program.nodes.iter().map(|node| self.layout.seconds(&program, node)).sum(),
            copies: schedule.copies,
            program,
        }
    }
}
