//! The maps of labels that batches come with.

use std::sync::Arc;

use plimsoll_data::{TargetKind, TargetMap, Targets};
use plimsoll_graph::Program;
use plimsoll_nn::{TargetInput, TargetInputKind};
use plimsoll_run::RunConfig;

use crate::RunPrograms;

/// The maps of labels that batches are to come with, and which steps need them.
pub(crate) fn target_maps(config: &RunConfig, programs: &RunPrograms) -> Targets {
    let has = |program: &Program, target: &TargetInput| program.find(&target.name).is_some();
    let maps = programs.targets().iter().map(|target| TargetMap {
        extent: target.extent,
        kind: match target.kind {
            TargetInputKind::Distance { spacing } => TargetKind::Distance { spacing },
            TargetInputKind::Skeleton { radius } => TargetKind::Skeleton { radius },
        },
        training: programs.gradients().iter().any(|id| has(&programs[*id], target)),
        validation: has(&programs[programs.validate()], target),
    });
    // For each variant, which maps its program has.
    let of_program = |program: &Program| programs.targets().iter().map(|map| has(program, map)).collect();
    let needs: Vec<Vec<bool>> = programs.gradients().iter().map(|id| of_program(&programs[*id])).collect();
    let (loss, variants) = (config.training.loss.clone(), programs.variants().to_vec());
    let per_epoch = config.iterations_per_epoch;
    Targets {
        maps: maps.collect(),
        foreground: config.training.net.classes().saturating_sub(1),
        ignore: config.training.loss.ignore,
        // A step without a variant is refused before it runs.
        needed: Some(Arc::new(move |step, map| {
            loss.variant_at(&variants, step, per_epoch).is_none_or(|variant| needs[variant][map])
        })),
    }
}
