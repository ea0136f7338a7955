//! Losses of mixed classes, of several labels and of thresholds, against PyTorch in f64. `oracles/soft_targets.py` made the numbers.

use std::collections::HashMap;

use conformance::{engine_for, read, write};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::{Array, Kind, Program, Shape, differentiate, interpret};
use plimsoll_nn::{Objective, SoftTargets, names};
use plimsoll_plan::{Options, ProgramId};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    samples: usize,
    classes: usize,
    components: serde_json::Value,
    logits: Vec<f64>,
    labels: Vec<f64>,
    target: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    let scale = expected.iter().fold(1.0, |scale: f64, value| scale.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance * scale, "{what}: {found}, {expected}");
    }
}

#[test]
fn soft_targets_have_the_losses_and_gradients_of_pytorch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../oracles/soft_targets.json")).unwrap();
    assert_eq!(cases.len(), 12);
    for case in cases {
        let mut objective: Objective =
            serde_json::from_value(serde_json::json!({ "components": case.components })).unwrap();
        objective.soft = SoftTargets::Always;
        assert_eq!(objective.fault(case.classes), None);
        let mut program = Program::new("loss");
        let shape = |channels| Shape::volume(case.samples, channels, [1; 3]);
        let logits = program.input("logits", shape(case.classes), Kind::Volume);
        let labels = program.input("labels", shape(1), Kind::Labels);
        let (loss, _) = objective.write(&mut program, logits, labels, [1.0; 3]).unwrap();
        let gradient = differentiate(&mut program, loss, 1.0, &[logits]).unwrap()[0].unwrap();
        program.mark_output(loss, "loss");
        program.mark_output(gradient, "gradient");
        let shift = |at: usize| {
            let is_label = case.labels[at / case.classes] == (at % case.classes) as f64;
            f64::from(u8::from(is_label)) - case.target[at]
        };
        let inputs = HashMap::from([
            ("logits".to_string(), Array::from_fn(shape(case.classes), |at| case.logits[at])),
            ("labels".to_string(), Array::from_fn(shape(1), |at| case.labels[at])),
            (names::TARGET_SHIFT.to_string(), Array::from_fn(shape(case.classes), shift)),
        ]);
        let defined = interpret(&program, &inputs).unwrap();
        close(&defined[loss.index()].data, &[case.value], 1e-7, &case.name);
        close(&defined[gradient.index()].data, &case.gradient, 1e-7, &case.name);
        let backend = CpuBackend::new(CpuOptions::new(1)).unwrap();
        let mut engine = engine_for(&backend, std::slice::from_ref(&program), Options::default()).unwrap();
        let only = ProgramId::new(0);
        for (name, array) in &inputs {
            write(&mut *engine, only, program.find(name).unwrap(), &array.data);
        }
        engine.run(only).unwrap();
        close(&read(&*engine, only, loss), &[case.value], 3e-6, &case.name);
        close(&read(&*engine, only, gradient), &case.gradient, 3e-6, &case.name);
    }
}

#[test]
fn losses_that_are_not_linear_in_their_target_are_refused_by_name() {
    for components in [
        r#"[{"name": "focal"}]"#,
        r#"[{"name": "cross_entropy", "class_weights": [1.0, 2.0, 3.0]}]"#,
        r#"[{"name": "cross_entropy"}, {"name": "soft_dice"}]"#,
        r#"[{"name": "weighted_bce"}]"#,
        r#"[{"name": "weighted_bce", "activation": "sigmoid", "include_background": true, "pos_weight": 2.0}]"#,
    ] {
        let mut objective: Objective =
            serde_json::from_str(&format!("{{\"components\": {components}}}")).unwrap();
        assert_eq!(objective.fault(3), None);
        objective.soft = SoftTargets::Training;
        let (option, found, expected) = objective.fault(3).unwrap();
        assert!(option == "components" && expected.contains("alone"), "{components}");
        assert!(components.contains(found.trim_matches(['[', ']']).split(", ").next().unwrap()));
    }
}
