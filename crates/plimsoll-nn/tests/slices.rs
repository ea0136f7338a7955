//! Losses of distances on a slice equal the losses of a volume that is made of copies of it.

use std::collections::HashMap;

use conformance::{engine_for, noise, read, write};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::{Array, Kind, Program, Role, Shape, interpret};
use plimsoll_nn::Objective;
use plimsoll_plan::{Options, ProgramId};

const PLANE: [usize; 2] = [7, 9];
const BATCH: usize = 2;
/// The spacing along height and width; the distance between slices must not matter.
const IN_PLANE: [f64; 2] = [2.0, 3.0];
const ONLY: ProgramId = ProgramId::new(0);

fn label(sample: usize, place: usize) -> f64 {
    let (h, w) = (place / PLANE[1], place % PLANE[1]);
    f64::from(u8::from(h.abs_diff(3) + w.abs_diff(4 + sample) <= 2))
}

/// The signed distance of a pixel in its plane, by looking at all others.
fn distance(sample: usize, place: usize) -> f64 {
    let apart = |other: usize| {
        let along = |a: usize, b: usize, mm: f64| a.abs_diff(b) as f64 * mm;
        let rows = along(place / PLANE[1], other / PLANE[1], IN_PLANE[0]);
        rows.hypot(along(place % PLANE[1], other % PLANE[1], IN_PLANE[1]))
    };
    let own = label(sample, place);
    let others = (0..PLANE[0] * PLANE[1]).filter(|other| label(sample, *other) != own);
    let nearest = others.map(apart).fold(f64::INFINITY, f64::min);
    if own == 1.0 { -nearest } else { nearest }
}

/// The loss of this number of copies, `between` millimetres apart: by its definition, and by kernels.
fn losses(component: &str, copies: usize, between: f64) -> [f64; 2] {
    let objective: Objective =
        serde_json::from_str(&format!(r#"{{"components": [{{"name": "{component}"}}], "ignore": null}}"#))
            .unwrap();
    let extent = [copies, PLANE[0], PLANE[1]];
    let (mut program, plane) = (Program::new("loss"), PLANE[0] * PLANE[1]);
    let logits = program.input("logits", Shape::volume(BATCH, 2, extent), Kind::Volume);
    let labels = program.input("labels", Shape::volume(BATCH, 1, extent), Kind::Labels);
    let spacing = [between, IN_PLANE[0], IN_PLANE[1]];
    let (loss, _) = objective.write(&mut program, logits, labels, spacing).unwrap();
    program.mark_output(loss, "loss");
    let inputs: HashMap<String, Array> = program
        .with_role(Role::Input)
        .map(|id| {
            let tensor = program.tensor(id);
            let channels = tensor.shape.channels();
            let value = |i: usize| {
                let (place, channel) = (i % plane, i / (plane * copies));
                match tensor.name.as_str() {
                    "logits" => 3.0 * noise(1, channel * plane + place),
                    "labels" => label(channel, place),
                    _ => distance(channel / channels, place),
                }
            };
            (tensor.name.clone(), Array::from_fn(tensor.shape.clone(), value))
        })
        .collect();
    let defined = interpret(&program, &inputs).unwrap()[loss.index()].data[0];
    let backend = CpuBackend::new(CpuOptions::new(1)).unwrap();
    let mut engine = engine_for(&backend, std::slice::from_ref(&program), Options::default()).unwrap();
    for (name, array) in &inputs {
        write(&mut *engine, ONLY, program.find(name).unwrap(), &array.data);
    }
    engine.run(ONLY).unwrap();
    [defined, read(&*engine, ONLY, loss)[0]]
}

#[test]
fn distances_on_a_slice_are_within_it() {
    for component in ["boundary", "hausdorff_dt", "log_hausdorff_dt", "surface_distance"] {
        let [slice, by_kernels] = losses(component, 1, IN_PLANE[0]);
        let [copies, _] = losses(component, 5, 11.0);
        assert!(slice.abs() > 1e-3, "{component}: {slice}");
        assert!((slice - copies).abs() < 1e-12 * slice.abs().max(1.0), "{component}: {slice} and {copies}");
        assert!(
            (slice - by_kernels).abs() < 1e-5 * slice.abs().max(1.0),
            "{component}: {slice} and {by_kernels}"
        );
    }
}
