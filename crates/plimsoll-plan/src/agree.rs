//! Checks that the programs of one set agree, before they are lowered.

use std::collections::HashMap;

use plimsoll_graph::{Program, TensorInfo};

use crate::PlanError;

/// Checks that each program of a set is well formed, and that parameters and states of one name are the same in all of them.
/// Whoever lowers programs does this first: no layout fits two shapes.
///
/// # Errors
/// At the first fault.
pub fn agree(programs: &[Program]) -> Result<(), PlanError> {
    let mut known: HashMap<&str, &TensorInfo> = HashMap::new();
    for program in programs {
        program.validate()?;
        for tensor in program.tensors.iter().filter(|tensor| tensor.role.is_persistent()) {
            let first = *known.entry(&tensor.name).or_insert(tensor);
            if first != tensor {
                return Err(PlanError::Conflict {
                    name: tensor.name.clone(),
                    program: program.name.clone(),
                    first: tensor.describe(),
                    second: first.describe(),
                });
            }
        }
    }
    Ok(())
}
