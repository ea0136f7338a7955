//! The components that steps compute, and the programs that follow from them.

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::{DType, Op, Program};
use plimsoll_nn::{ConfigError, DynUNet, Objective, Optimizer, TargetInputKind, Training, Turn, names};
use plimsoll_plan::{Options, plan};

fn objective(components: &str) -> Objective {
    serde_json::from_str(&format!("{{\"components\": [{components}]}}")).unwrap()
}

/// Dice, and a surface distance with more options.
fn with_surface(options: &str) -> Objective {
    objective(&format!("{{\"name\": \"soft_dice\"}}, {{\"name\": \"surface_distance\" {options}}}"))
}

fn training(loss: Objective) -> Training {
    let features = [4, 6, 8, 8];
    let mut net = DynUNet::new(1, 3, &features, &[[3; 3]; 4], &[[1; 3], [1, 2, 2], [2; 3], [2; 3]]);
    net.shape.deep_supervision = 2;
    Training {
        net: net.into(),
        loss,
        optimizer: Optimizer::nnunet(),
        max_grad_norm: Some(12.0),
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: [8, 16, 16],
        spacing: [3.0, 1.0, 1.0],
        batch: 2,
        shards: 1,
        micro_batch: 2,
        precision: DType::F32,
    }
}

fn turns(objective: &Objective, step: u64) -> Vec<Turn> {
    let variants = objective.variants();
    variants[objective.variant_at(&variants, step, 10).unwrap()].turns().collect()
}

#[test]
fn a_component_is_due_by_the_number_of_the_step_alone() {
    use Turn::{Instead, Off, On};
    let objective = objective(
        r#"{"name": "soft_dice"}, {"name": "surface_distance", "every": 3, "phase": 1},
           {"name": "boundary", "from_epoch": 2, "every": 2, "otherwise": "boundary_l1"},
           {"name": "hausdorff_dt", "mode": "validation"}, {"name": "log_hausdorff_dt", "mode": "train"}"#,
    );
    assert_eq!(turns(&objective, 0), [On, Off, Off, Off, On]);
    assert_eq!(turns(&objective, 1), [On, On, Off, Off, On]);
    assert_eq!(turns(&objective, 19), [On, On, Off, Off, On]);
    assert_eq!(turns(&objective, 20), [On, Off, On, Off, On]);
    assert_eq!(turns(&objective, 21), [On, Off, Instead, Off, On]);
    assert_eq!(turns(&objective, 22), [On, On, On, Off, On]);
    assert_eq!(turns(&objective, 25), [On, On, Instead, Off, On]);
    assert_eq!(objective.validation().turns().collect::<Vec<_>>(), [On, On, On, On, Off]);
    let variants = objective.variants();
    assert_eq!(variants.len(), 6, "two before epoch 2, four from then on");
    assert_eq!(variants[0].turns().collect::<Vec<_>>(), [On, On, On, Off, On], "that with most comes first");
    let shares = objective.shares(10, 4);
    let counted = |variant: usize| {
        (0..600 * 4).filter(|step| objective.variant_at(&variants, *step, 600) == Some(variant)).count()
    };
    for (variant, share) in objective.shares(600, 4).iter().enumerate() {
        assert!((share - counted(variant) as f64 / 2400.0).abs() < 1e-12, "{variant}: {share}");
    }
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
}

fn count(program: &Program, is: impl Fn(&Op) -> bool) -> usize {
    program.nodes.iter().filter(|node| is(&node.op)).count()
}

#[test]
fn each_variant_is_a_program_and_each_head_has_its_terms() {
    let loss = with_surface(r#", "every": 2, "weight": 0.5, "rescale": true"#);
    let programs = training(loss.clone()).programs().unwrap();
    let [with, without] = &programs.gradients[..] else { panic!("two programs") };
    let transforms = |program: &Program| count(program, |op| matches!(op, Op::PredictedDistance(_)));
    // The network has three heads, the coarsest of which has no weight.
    assert_eq!([with, without, &programs.validate].map(transforms), [2, 0, 1]);
    let parts = |program: &Program| program.shape(program.find(names::LOSS_PARTS).unwrap()).count();
    assert_eq!([with, without, &programs.validate].map(parts), [2, 1, 2]);
    let names = |variant: usize| -> Vec<String> {
        loss.parts(&loss.variants()[variant]).into_iter().map(|part| loss.part_name(part)).collect()
    };
    assert_eq!(names(0), ["soft_dice", "surface_distance"]);
    assert_eq!(names(1), ["soft_dice"]);
    let cheap = with_surface(r#", "every": 2, "otherwise": "boundary_l1""#);
    let last = cheap.parts(&cheap.variants()[1]).into_iter().map(|part| cheap.part_name(part));
    assert_eq!(last.collect::<Vec<_>>(), ["soft_dice", "boundary_l1 for surface_distance"]);
    // A coarser head's voxels are further apart.
    let spacing = |place: usize| match programs.targets[place].kind {
        TargetInputKind::Distance { spacing } => spacing,
        kind => panic!("{kind:?}"),
    };
    assert_eq!(programs.targets.len(), 2);
    assert_eq!((programs.targets[0].extent, spacing(0)), ([8, 16, 16], [3.0, 1.0, 1.0]));
    assert_eq!((programs.targets[1].extent, spacing(1)), ([8, 8, 8], [3.0, 2.0, 2.0]));
    for target in &programs.targets {
        assert!(with.find(&target.name).is_some() && without.find(&target.name).is_none());
    }
    // The weight of a step that has the component, and of validation.
    let weights = |program: &Program| {
        let of = |op: &Op| match op {
            Op::WeightedSum(sum) => Some(sum.weights.clone()),
            _ => None,
        };
        program.nodes.iter().find_map(|node| of(&node.op)).unwrap()
    };
    let [fine, coarse] = [2.0 / 3.0, 1.0 / 3.0];
    assert_eq!(weights(with), [fine, fine, coarse, coarse]);
    assert_eq!(weights(without), [fine, coarse]);
    assert_eq!(weights(&programs.validate), [1.0, 0.5]);
}

#[test]
fn programs_share_one_arena() {
    let bytes = |loss: Objective| {
        let programs = training(loss).programs().unwrap();
        let all: Vec<Program> = programs.gradients.into_iter().chain([programs.validate]).collect();
        let plan = plan(&all, &CpuBackend::new(CpuOptions::new(2)).unwrap(), Options::default()).unwrap();
        (plan.arena_bytes, plan.schedules.iter().map(|schedule| schedule.arena_bytes).max().unwrap())
    };
    let (scheduled, largest) = bytes(with_surface(r#", "every": 5"#));
    assert_eq!(scheduled, largest);
    // Placements are not perfect, so that the cheaper program may end a little higher.
    let always = bytes(with_surface("")).0;
    assert!(scheduled <= always + always / 20, "{scheduled}, {always} without a schedule");
}

#[test]
fn masks_may_be_coarser_than_a_head() {
    let programs = training(with_surface(r#", "scale": 2"#)).programs().unwrap();
    let extents: Vec<[usize; 3]> = programs.targets.iter().map(|target| target.extent).collect();
    assert_eq!(extents, [[4, 8, 8], [4, 4, 4]]);
    let pools = count(&programs.gradients[0], |op| matches!(op, Op::MeanPool(_)));
    assert_eq!(pools, 2);
}

#[test]
fn what_cannot_be_is_said_with_option_and_component() {
    let fault = |options: &str| {
        let error = training(with_surface(options)).programs().unwrap_err();
        assert!(matches!(error, ConfigError::Loss { .. }), "{error}");
        error.to_string()
    };
    for (options, part) in [
        (r#", "every": 0"#, "every of surface_distance is 0, but it must be at least 1"),
        (
            r#", "every": 2, "phase": 2"#,
            "phase of surface_distance is 2, but it must be below `every`, which is 2",
        ),
        (r#", "scale": 0"#, "scale of surface_distance is 0, but it must be from 1 to 8"),
        (
            r#", "tolerance_mm": 0"#,
            "tolerance_mm of surface_distance is 0, but it must be a number above zero",
        ),
        (
            r#", "weight": -1"#,
            "weight of surface_distance is -1, but it must be a number that is not negative",
        ),
        (r#", "mode": "validation", "every": 2"#, "every of surface_distance is given, but with mode"),
        (r#", "rescale": true"#, "rescale of surface_distance is given, but with every = 1"),
        (r#", "every": 2, "rescale": true, "otherwise": "boundary_l1""#, "keeps the weight"),
    ] {
        let said = fault(options);
        assert!(said.contains(part), "{said}");
    }
    // What takes its place has no effect then, which is reported and no fault.
    for options in
        [r#", "otherwise": "boundary_l1""#, r#", "mode": "validation", "otherwise": "boundary_l1""#]
    {
        let unused = with_surface(options);
        assert_eq!(unused.fault(3), None);
        assert_eq!(unused.unused_otherwise().len(), 1, "{options}");
    }
    let used = with_surface(r#", "every": 2, "otherwise": "boundary_l1""#);
    assert!(used.unused_otherwise().is_empty());
    let said = |components: &str| training(objective(components)).programs().unwrap_err().to_string();
    let never = said(r#"{"name": "boundary", "every": 2}"#);
    assert!(never.contains("some steps have no component"), "{never}");
    let never = said(r#"{"name": "boundary", "mode": "train"}"#);
    assert!(never.contains("validation has no component"), "{never}");
    let term = |every: u64| format!(r#"{{"name": "boundary", "every": {every}}}"#);
    let many = [2, 3, 5, 7].map(term).join(", ");
    let many = said(&format!(r#"{{"name": "soft_dice"}}, {many}"#));
    assert!(many.contains("16 sets of components, but at most 8 are supported"), "{many}");
    let long = [997, 991].map(term).join(", ");
    let long = said(&format!(r#"{{"name": "soft_dice"}}, {long}"#));
    assert!(long.contains("repeat after 988027 steps"), "{long}");
    let unknown = r#"{"components": [{"name": "surface_distance", "form": "best"}]}"#;
    let unknown = serde_json::from_str::<Objective>(unknown).unwrap_err().to_string();
    assert!(unknown.contains("`best`") && unknown.contains("as_published"), "{unknown}");
    let unknown = r#"{"components": [{"name": "soft_dice", "every": 2}]}"#;
    let unknown = serde_json::from_str::<Objective>(unknown).unwrap_err().to_string();
    assert!(unknown.contains("unknown field `every`"), "{unknown}");
    // The logarithm of a mean over a batch is not the mean of logarithms.
    let parts = Training { micro_batch: 1, ..training(objective(r#"{"name": "log_hausdorff_dt"}"#)) };
    assert!(parts.programs().unwrap_err().to_string().contains("cannot be divided"));
}

#[test]
fn an_objective_is_read_back_as_it_was_written() {
    let objective = objective(
        r#"{"name": "weighted_bce", "weight": 0.35, "pos_weight": 2.8},
           {"name": "surface_distance", "weight": 0.07, "tolerance_mm": 2.0, "form": "as_published", "every": 4},
           {"name": "hausdorff_dt", "alpha": 1.5, "unit": "voxels", "mode": "train", "scale": 2}"#,
    );
    let json = serde_json::to_string(&objective).unwrap();
    assert_eq!(serde_json::from_str::<Objective>(&json).unwrap(), objective, "{json}");
}

#[test]
fn components_that_see_shapes_become_coarser_as_far_as_they_may() {
    let first = objective(r#"{"name": "soft_dice"}, {"name": "cldice", "scale": 2}, {"name": "boundary"}"#);
    let scales: Vec<Vec<usize>> =
        std::iter::successors(Some(first), Objective::coarser).map(|loss| loss.scales()).collect();
    assert_eq!(scales, [[2, 1], [4, 2], [8, 4], [8, 8]]);
    assert!(Objective::default().coarser().is_none(), "sums have no scale");
}

#[test]
fn means_over_voxels_need_the_whole_batch_where_a_label_is_ignored() {
    let per_sample = r#"{"name": "soft_dice"}, {"name": "cldice"}, {"name": "toploss_simple"}"#;
    for (components, of_all, with_ignored) in [
        (per_sample, false, false),
        (r#"{"name": "cross_entropy"}"#, false, true),
        (r#"{"name": "cross_entropy", "weight": 0.0}"#, false, false),
        (r#"{"name": "surface_distance"}"#, false, true),
        (r#"{"name": "cldice", "every": 2, "otherwise": "boundary_l1"}"#, false, true),
        (r#"{"name": "soft_dice", "batch": true}"#, true, true),
    ] {
        let whole = objective(components);
        let ignoring = Objective { ignore: Some(2), ..whole.clone() };
        let found = [whole, ignoring].map(|loss| loss.needs_whole_batch());
        assert_eq!(found, [of_all, with_ignored], "{components}");
    }
}
