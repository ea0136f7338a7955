//! Whatever the planner makes of programs, the verifier accepts; what is damaged afterwards, it rejects. What it accepts computes
//! what the programs say, however it came about.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod damage;
mod execute;
mod growth;
mod paper;

use plimsoll_graph::{Kind, Program, Shape, TensorId};
use plimsoll_plan::recompute::Release;
use plimsoll_plan::verify::verify;
use plimsoll_plan::{LoweredProgram, Options, Plan, PlanError, Planner, VerifiedPlan};
use proptest::prelude::*;

use conformance::random::{Random, damaged, set};
use paper::{Broken, Paper};

/// Plans of a set of programs: everything held, the least, and values recomputed at random.
fn plans(given: &[Program], random: &mut Random) -> Result<Vec<Plan>, PlanError> {
    let (inline, reuse) = [(true, true), (false, true), (true, false)][random.below(3)];
    let planner = Planner::new(given, &Paper, Options { inline, reuse, budget: None })?;
    let mut plans = vec![planner.plan(None)?, planner.plan(Some(0))?];
    for share in [3, 10, 40] {
        let releases = planner.searches().iter().map(|search| search.recomputation().releases());
        let some = releases.map(|all| all.into_iter().filter(|_| random.below(share) == 0).collect());
        let some: Vec<Vec<Release>> = some.collect();
        plans.extend(planner.plan_with(&some)?);
    }
    Ok(plans.into_iter().map(VerifiedPlan::into_plan).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_verifier_accepts_what_is_planned_and_rejects_what_is_damaged(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let given = set(random);
        // Planning verifies.
        for plan in plans(&given, random).unwrap() {
            prop_assert!(plan.arena_bytes >= plan.lower_bound_bytes);
            for (name, damage) in damage::ALL {
                if let Some(damaged) = damage(&plan, random) {
                    prop_assert!(verify(&damaged, &Paper).is_err(), "accepted: {}", name);
                }
            }
        }
    }

    #[test]
    fn what_is_planned_computes_what_the_programs_say(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let given = set(random);
        for plan in plans(&given, random).unwrap() {
            prop_assert_eq!(execute::fault(&plan), None);
        }
    }

    #[test]
    fn a_plan_that_was_damaged_in_its_file_is_rejected_or_computes_what_it_says(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let given = set(random);
        let plans = plans(&given, random).unwrap();
        let plan = random.one_of(&plans).unwrap();
        let file = serde_json::to_value(&plan).unwrap();
        prop_assert!(verify(&serde_json::from_value(file.clone()).unwrap(), &Paper).is_ok());
        for _ in 0..40 {
            let Some(damaged) = damaged::<Plan>(&file, random) else { continue };
            if verify(&damaged, &Paper).is_ok() {
                prop_assert_eq!(execute::fault(&damaged), None);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_budget_is_met_or_the_least_is_given(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let given = set(random);
        let planner = Planner::new(&given, &Paper, Options::default()).unwrap();
        let (most, least) = (planner.plan(None).unwrap(), planner.plan(Some(0)).unwrap());
        prop_assert_eq!(most.schedules[0].recompute_flops_fraction, 0.0);
        prop_assert!(least.arena_bytes <= most.arena_bytes);
        for part in 0..4 {
            let budget = least.arena_bytes + (most.arena_bytes - least.arena_bytes) * part / 4;
            let plan = planner.plan(Some(budget)).unwrap();
            prop_assert!(plan.arena_bytes <= budget, "{} of {budget}", plan.arena_bytes);
            prop_assert!(plan == planner.plan(Some(budget)).unwrap());
            let seconds = |plan: &VerifiedPlan| plan.schedules.iter().map(|plan| plan.predicted_seconds).sum::<f64>();
            for share in [0.0, 0.1, 10.0] {
                let sparing = planner.sparing_plan(Some(budget), share).unwrap();
                prop_assert!(sparing.arena_bytes <= plan.arena_bytes);
                prop_assert!(seconds(&sparing) <= (1.0 + share) * seconds(&plan));
            }
        }
        for search in planner.searches() {
            let recomputation = search.recomputation();
            prop_assert_eq!(Some(recomputation.unchanged()), recomputation.schedule(&[]));
            for pair in search.curve().windows(2) {
                prop_assert!(pair[1].lower_bound < pair[0].lower_bound && pair[1].seconds >= pair[0].seconds);
            }
        }
    }
}

#[test]
fn there_is_something_to_damage_in_every_way() {
    let random = &mut Random(1);
    let mut found = vec![false; damage::ALL.len()];
    for _ in 0..40 {
        let given = set(random);
        for plan in plans(&given, random).unwrap() {
            for ((_, damage), found) in damage::ALL.iter().zip(&mut found) {
                *found |= damage(&plan, random).is_some_and(|damaged| damaged != plan);
            }
        }
    }
    let missing = damage::ALL.iter().zip(found).filter(|(_, found)| !found);
    assert_eq!(missing.map(|((name, _), _)| *name).collect::<Vec<&str>>(), [""; 0]);
}

#[test]
fn programs_without_nodes_and_releases_of_nothing_are_no_trouble() {
    let mut program = Program::new("empty");
    program.input("image", Shape::volume(1, 1, [2, 4, 6]), Kind::Volume);
    let given = [program];
    let planner = Planner::new(&given, &Paper, Options::default()).unwrap();
    assert!(planner.plan(Some(0)).is_ok());
    assert!(planner.curve().is_ok());
    let nothing = Release { after: 3, tensor: TensorId(99) };
    assert!(planner.plan_with(&[vec![nothing]]).unwrap().is_none());
    let none = Planner::new(&[], &Paper, Options::default()).unwrap();
    assert_eq!(none.plan(Some(0)).unwrap().arena_bytes, 0);
    assert!(none.curve().unwrap().is_empty());
}

#[test]
fn programs_that_disagree_about_a_parameter_are_an_error() {
    let program = |name: &str, channels| {
        let mut program = Program::new(name);
        program.parameter("bias", Shape(vec![channels]), Kind::Channels);
        program
    };
    let given = [program("one", 3), program("two", 4)];
    let refused = Planner::new(&given, &Paper, Options::default()).err();
    assert!(matches!(refused, Some(PlanError::Conflict { name, .. }) if name == "bias"));
    // Nor can a plan be made of them by hand.
    let alike = [program("one", 3), program("two", 3)];
    let planner = Planner::new(&alike, &Paper, Options::default()).unwrap();
    let mut plan = planner.plan(None).unwrap().into_plan();
    plan.programs[1] = given[1].clone();
    assert!(verify(&plan, &Paper).is_err());
}

#[test]
fn a_lowering_that_no_plan_can_be_made_of_is_an_error() {
    let given = set(&mut Random(5));
    let ways: [fn(&mut Vec<LoweredProgram>); 8] = [
        |lowered| lowered.clear(),
        |lowered| lowered[0].bytes.clear(),
        |lowered| lowered[0].bytes[0] = usize::MAX,
        |lowered| lowered[0].nodes[0].scratch = usize::MAX,
        |lowered| lowered[0].nodes[0].scratch = isize::MAX as usize,
        |lowered| lowered[0].nodes[0].inputs.push(TensorId(u32::MAX)),
        |lowered| lowered[0].nodes[0].covers.push(usize::MAX),
        |lowered| lowered[0].nodes.truncate(1),
    ];
    for way in ways {
        let broken = Broken(way);
        let planned = Planner::new(&given, &broken, Options::default()).and_then(|p| p.plan(None));
        assert!(planned.is_err());
        // Nor is a plan that was made for another backend verified for it.
        let planner = Planner::new(&given, &Paper, Options::default()).unwrap();
        assert!(verify(&planner.plan(None).unwrap(), &broken).is_err());
    }
}
