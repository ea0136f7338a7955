//! The form of a step whose batch is divided among ranks with a card each.

use plimsoll_graph::{Role, TensorId};
use plimsoll_nn::trained_tensors;

use super::*;

#[test]
fn gradients_of_shards_are_states_and_the_update_of_each_ranks_own_tensors_is_a_program_behind_their_sum() {
    let site = Site::changed(|settings| settings.shards = Some(2));
    for rank in 0..2 {
        let planned = site.plan(&backend_within(VRAM), RankPlace { rank, ranks: 2 });
        let changed = |program| -> Vec<TensorId> {
            let schedule = planned.plan.schedule(program);
            schedule.launches.iter().flat_map(|launch| launch.outputs.iter().copied()).collect()
        };
        let update = planned.programs.update().unwrap();
        for id in planned.programs.gradients() {
            let program = &planned.programs[*id];
            let trained = trained_tensors(program, 2);
            assert!(trained.iter().any(|tensor| tensor.owner == rank));
            // Launches add to gradients, which outlive the program, and change no parameter.
            let by_gradients = changed(*id);
            for tensor in &trained {
                assert_eq!(program.tensor(tensor.gradient).role, Role::State);
                assert!(by_gradients.contains(&tensor.gradient));
                assert!(!by_gradients.contains(&tensor.parameter));
            }
            // The update changes the rank's own parameters; others get theirs from the owner.
            let by_update = changed(update);
            for tensor in &trained {
                let name = &program.tensor(tensor.parameter).name;
                let parameter = planned.programs[update].find(name);
                let is_changed = parameter.is_some_and(|parameter| by_update.contains(&parameter));
                assert_eq!(is_changed, tensor.owner == rank, "{name}");
            }
        }
        // The norm of the sum, which all ranks compute together, is an input.
        let norm = planned.programs[update].find(plimsoll_nn::names::GRAD_NORM).unwrap();
        assert_eq!(planned.programs[update].tensor(norm).role, Role::Input);
    }
}
