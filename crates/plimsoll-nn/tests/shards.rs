//! The programs of a batch with several shards, for one process and for several.

use std::collections::BTreeSet;

use plimsoll_graph::ops::SoftDice;
use plimsoll_graph::{DType, Op, Program, Role};
use plimsoll_nn::{
    DynUNet, Network, NetworkName, Optimizer, RankPlace, Training, TrainingPrograms, names, trained_tensors,
};

fn training(shards: usize, micro_batch: usize) -> Training {
    Training {
        net: DynUNet::new(1, 3, &[4, 6, 20], &[[3; 3]; 3], &[[1; 3], [1, 2, 2], [2; 3]]).into(),
        loss: plimsoll_graph::ops::Loss::dice_ce(SoftDice::default(), 1.0).into(),
        optimizer: Optimizer::adamw(),
        max_grad_norm: Some(12.0),
        ema: Some(0.9),
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: [8, 8, 16],
        spacing: [1.0; 3],
        batch: 8,
        shards,
        micro_batch,
        precision: DType::F32,
    }
}

fn states(program: &Program) -> BTreeSet<String> {
    program.with_role(Role::State).map(|id| program.tensor(id).name.clone()).collect()
}

fn programs_of_rank(training: &Training, rank: usize, ranks: usize) -> TrainingPrograms {
    training.programs_of(RankPlace { rank, ranks }).unwrap()
}

#[test]
fn one_shard_leaves_no_trace_in_a_stored_configuration() {
    let stored = serde_json::to_value(training(1, 2)).unwrap();
    assert!(stored.get("shards").is_none());
    let read: Training = serde_json::from_value(stored).unwrap();
    assert_eq!(read.shards, 1);
    assert_eq!(serde_json::to_value(training(4, 2)).unwrap()["shards"], 4);
}

#[test]
fn each_rank_has_the_moments_and_averages_of_its_own_tensors_and_of_no_others() {
    let training = training(4, 1);
    let whole = training.programs().unwrap();
    let all = whole.update.as_ref().unwrap();
    assert!(whole.whole.is_none());
    let mut seen = BTreeSet::new();
    let mut elements = Vec::new();
    for rank in 0..4 {
        let own = programs_of_rank(&training, rank, 4);
        assert_eq!(own.gradients, whole.gradients, "gradients do not depend on the rank");
        let specified = own.whole.unwrap();
        assert_eq!(specified.update, *all, "checkpoints have all tensors in one order");
        assert_eq!(specified.validate, whole.validate, "nor does the specified validation");
        assert_eq!(own.targets, whole.targets);
        let update = own.update.unwrap();
        // It reads the averages of the rank, and of other tensors the parameters.
        let averages = states(&update).into_iter().filter(|state| whole.validate.find(state).is_some());
        assert_eq!(states(&own.validate), averages.collect(), "rank {rank}");
        assert!(states(&own.validate).len() < states(&whole.validate).len());
        assert_eq!(own.validate.nodes, whole.validate.nodes);
        elements.push(update.with_role(Role::State).map(|id| update.shape(id).count()).sum::<usize>());
        for state in states(&update) {
            assert!(seen.insert(state), "two ranks own one tensor");
        }
    }
    assert_eq!(seen, states(all));
    // A rank has a quarter of all and one tensor more or less.
    let largest = trained_tensors(&whole.gradients[0], 4).iter().map(|tensor| tensor.elements).max().unwrap();
    let (least, most) = (elements.iter().min().unwrap(), elements.iter().max().unwrap());
    assert!(most - least <= 4 * largest, "{elements:?}");
}

#[test]
fn the_norm_is_an_input_of_the_update_where_shards_are_added() {
    let update = training(2, 4).programs().unwrap().update.unwrap();
    let norm = update.find(names::GRAD_NORM).unwrap();
    assert_eq!(update.tensor(norm).role, Role::Input);
    assert!(update.find(names::STEP_LOSS).is_none());
    assert!(update.nodes.iter().all(|node| !matches!(node.op, Op::GradNorm(_))));
    let update = training(1, 4).programs().unwrap().update.unwrap();
    assert_eq!(update.tensor(update.find(names::GRAD_NORM).unwrap()).role, Role::Output);
}

#[test]
fn running_statistics_of_a_shard_are_guarded_by_an_input() {
    let net = Network::reference(NetworkName::SEResNeXt50, None).unwrap();
    let patch = [1, 64, 64];
    let loss = serde_json::from_str(r#"{"components": [{"name": "cross_entropy"}]}"#).unwrap();
    let images =
        |shards, micro_batch| Training { net: net.clone(), loss, patch, ..training(shards, micro_batch) };
    let images = images(2, 4);
    let gradient = images.programs().unwrap().gradients.swap_remove(0);
    let guard = gradient.find(names::RUNNING_GUARD).unwrap();
    let updates: Vec<_> =
        gradient.nodes.iter().filter(|node| matches!(node.op, Op::RunningUpdate(_))).collect();
    assert!(!updates.is_empty());
    for node in updates {
        assert!(matches!(&node.op, Op::RunningUpdate(update) if update.guarded));
        assert_eq!(node.inputs.last(), Some(&guard));
    }
    // Normalisation is over a shard, so a shard may not be divided.
    let error = Training { micro_batch: 2, ..images }.programs().unwrap_err().to_string();
    assert!(error.contains("`micro_batch` is 2") && error.contains("whole shard"), "{error}");
}

#[test]
fn shards_that_do_not_divide_are_refused_by_their_setting() {
    let said = |training: Training| training.programs().unwrap_err().to_string();
    assert!(said(training(3, 1)).starts_with("`shards` is 3, but it must divide the batch"));
    assert!(said(training(0, 1)).starts_with("`shards` is 0"));
    assert!(
        said(training(4, 4)).starts_with("`micro_batch` is 4, but it must divide a shard, which has 2 of")
    );
    let loss = r#"{"components": [{"name": "soft_dice", "batch": true}, {"name": "skeleton_recall", "batch": true}]}"#;
    let error = said(Training { loss: serde_json::from_str(loss).unwrap(), ..training(2, 4) });
    assert!(error.starts_with("`shards` is 2, but the loss `skeleton_recall` needs"), "{error}");
    assert!(error.contains("set `shards` to 1"), "{error}");
    let place = RankPlace { rank: 0, ranks: 3 };
    let error = training(4, 1).programs_of(place).unwrap_err().to_string();
    assert!(error.contains("`shards` is 4, but it must be a multiple of the number of ranks, which is 3"));
    let many = Training { batch: 4096, ..training(4096, 1) };
    let error = many.programs_of(RankPlace { rank: 0, ranks: 4096 }).unwrap_err().to_string();
    assert!(error.contains("tensors are trained, and each rank updates one at least"), "{error}");
}
