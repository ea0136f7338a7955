//! The verifier: whether a plan computes what its programs say. It shares nothing with the planner but the types.
//!
//! Four questions. Do all programs agree about what they share, and leave alone what they do not declare (`shared`)? Does the
//! backend lower these programs as the plan says, with these sizes (`same_lowering`)? Do the lowered nodes, and then the
//! launches, compute the values that the programs say (`values`)? And when the launches run in the arena, does every read see
//! the value it should (`memory`)? The last is answered by running them with names instead of numbers: each byte remembers
//! who wrote it last.

mod memory;
mod shared;
mod values;

use std::collections::HashSet;

use crate::{Backend, Plan, PlanError};

/// Checks a plan for a backend.
///
/// # Errors
/// At the first fault.
pub fn verify(plan: &Plan, backend: &dyn Backend) -> Result<(), PlanError> {
    sound_programs(plan)?;
    shared::check(plan, backend.alignment())?;
    same_lowering(plan, backend)?;
    for ((program, lowered), schedule) in plan.programs.iter().zip(&plan.lowered).zip(&plan.schedules) {
        let of = memory::Scheduled { program, lowered, schedule, alignment: backend.alignment() };
        of.check_form()?;
        values::check(&of)?;
        of.check_memory(plan.arena_bytes)?;
    }
    Ok(())
}

/// Checks that each program is sound, with a name, a lowering and a schedule of its own.
fn sound_programs(plan: &Plan) -> Result<(), PlanError> {
    let (programs, lowered, schedules) = (plan.programs.len(), plan.lowered.len(), plan.schedules.len());
    if lowered != programs || schedules != programs {
        return Err(wrong(format!("{programs} programs, {lowered} lowerings and {schedules} schedules")));
    }
    let mut names = HashSet::new();
    for program in &plan.programs {
        program.validate()?;
        if !names.insert(&program.name) {
            return Err(wrong(format!("two programs are called `{}`", program.name)));
        }
    }
    Ok(())
}

/// Checks that the backend, queried again, lowers the programs as in the plan: the same kernels over the same tensors,
/// with the bytes and the scratch that they will use. Threads and instruction set come from the backend, so scratch
/// for another number of threads is found here.
fn same_lowering(plan: &Plan, backend: &dyn Backend) -> Result<(), PlanError> {
    let found = backend.lower(&plan.programs, plan.inline)?;
    if found.len() != plan.programs.len() {
        let (programs, found, backend) = (plan.programs.len(), found.len(), backend.identity());
        return Err(wrong(format!("{backend} lowers {programs} programs to {found}")));
    }
    for ((program, said), found) in plan.programs.iter().zip(&plan.lowered).zip(&found) {
        let (name, backend) = (&program.name, backend.identity());
        if !found.agrees_with(said) {
            return Err(wrong(format!("`{name}` is lowered otherwise by {backend}")));
        }
        if let Some(fault) = said.fault(program) {
            return Err(wrong(format!("`{name}` is not soundly lowered by {backend}: {fault}")));
        }
    }
    Ok(())
}

fn wrong(fault: String) -> PlanError {
    PlanError::WrongPlan { fault }
}
