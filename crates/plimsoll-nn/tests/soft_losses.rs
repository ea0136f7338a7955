//! Losses made of soft morphology, and their gradients, against MONAI, PyTorch and scikit-image in f64: on labels at random,
//! without foreground, of nothing else, of one voxel, at the border and of a tube, and on logits with and without equal
//! values. `oracles/soft_losses.py` made the numbers.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use conformance::{engine_for, noise, read, write};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_graph::{Array, Kind, Program, Shape, TensorId, differentiate, interpret};
use plimsoll_morphology::{Recheck, tube_scratch_bytes, tubed_skeleton};
use plimsoll_nn::Objective;
use plimsoll_plan::{Options, ProgramId};
use serde::Deserialize;

const BATCH: usize = 2;
const CLASSES: usize = 3;
/// Plans are of one program.
const ONLY: ProgramId = ProgramId::new(0);

#[derive(Deserialize)]
struct Case {
    name: String,
    extent: [usize; 3],
    mask: String,
    logits: String,
    loss: Objective,
    skeleton: Option<Vec<usize>>,
    value: f64,
    gradient: Vec<f64>,
}

/// A program with its loss and the gradient of the logits.
struct Written {
    program: Program,
    loss: TensorId,
    gradient: TensorId,
}

impl Case {
    fn all() -> Vec<Case> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/soft_losses.json");
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    fn shape(&self, channels: usize) -> Shape {
        Shape::volume(BATCH, channels, self.extent)
    }

    fn written(&self) -> Written {
        let mut program = Program::new("loss");
        let logits = program.input("logits", self.shape(CLASSES), Kind::Volume);
        let labels = program.input("labels", self.shape(1), Kind::Labels);
        let (loss, _) = self.loss.write(&mut program, logits, labels, [1.0; 3]).unwrap();
        let gradient = differentiate(&mut program, loss, 1.0, &[logits]).unwrap()[0].unwrap();
        program.mark_output(loss, "loss");
        program.mark_output(gradient, "gradient");
        Written { program, loss, gradient }
    }

    /// Values of the program's inputs, by the same formulas as in the script.
    fn inputs(&self, program: &Program) -> HashMap<String, Array> {
        let voxels = self.shape(1).voxels();
        let logits = |i: usize| match self.logits.as_str() {
            "moderate" => (noise(1, i) * 2.0 * 128.0).round() / 128.0,
            "large" => (noise(1, i) * 12.0 * 128.0).round() / 128.0,
            // Three levels in one class.
            "levels" if i / voxels % CLASSES == 1 => {
                (1.5 * noise(3, i / voxels / CLASSES * voxels + i % voxels)).round()
            }
            _ => 0.0,
        };
        let labels = |i: usize| {
            let [_, height, width] = self.extent;
            let (h, w) = (i / width % height, i % width);
            match self.mask.as_str() {
                "random" => ((noise(2, i) + 1.0) / 2.0 * CLASSES as f64).floor(),
                "full" => 1.0,
                "one_voxel" => f64::from(u8::from(i == 4)),
                "border" => f64::from(u8::from(h < 2)),
                "tube" if h.abs_diff(w) <= 1 => 1.0 + f64::from(u8::from(w > 3)),
                _ => 0.0,
            }
        };
        let skeleton = |i: usize| {
            let (part, voxel) = (i / voxels, i % voxels);
            let class = self.skeleton.as_ref().unwrap()[part / (CLASSES - 1) * voxels + voxel];
            f64::from(u8::from(class == part % (CLASSES - 1) + 1))
        };
        let value = |id: TensorId| {
            let tensor = program.tensor(id);
            let shape = tensor.shape.clone();
            let array = match tensor.name.as_str() {
                "logits" => Array::from_fn(shape, logits),
                "labels" => Array::from_fn(shape, labels),
                _ => Array::from_fn(shape, skeleton),
            };
            (tensor.name.clone(), array)
        };
        program.with_role(plimsoll_graph::Role::Input).map(value).collect()
    }

    /// Returns the error of a value, and the error of a gradient relative to its largest element.
    fn errors(&self, value: f64, gradient: impl Iterator<Item = f64>) -> [f64; 2] {
        let scale = self.gradient.iter().fold(1e-3, |scale: f64, g| scale.max(g.abs()));
        let off = self.gradient.iter().zip(gradient).map(|(expected, found)| (expected - found).abs());
        let worst = off.fold(0.0, f64::max) / scale;
        [(value - self.value).abs() / self.value.abs().max(1e-2), worst]
    }

    fn assert_within(&self, tolerance: f64, errors: [f64; 2]) {
        let Case { name, extent, mask, logits, .. } = self;
        let [value, gradient] = errors;
        assert!(
            value <= tolerance && gradient <= tolerance,
            "{name} on {mask}, {logits} logits, {extent:?}: the value is off by {value:.1e}, the gradient by {gradient:.1e}"
        );
    }
}

/// The loss and its gradient on the CPU.
fn run(written: &Written, inputs: &HashMap<String, Array>, threads: usize) -> (f32, Vec<f32>) {
    let Written { program, loss, gradient } = written;
    let backend = CpuBackend::new(CpuOptions::new(threads)).unwrap();
    let mut engine = engine_for(&backend, std::slice::from_ref(program), Options::default()).unwrap();
    for (name, array) in inputs {
        write(&mut *engine, ONLY, program.find(name).unwrap(), &array.data);
    }
    engine.run(ONLY).unwrap();
    let value = read(&*engine, ONLY, *loss)[0] as f32;
    (value, read(&*engine, ONLY, *gradient).into_iter().map(|x| x as f32).collect())
}

fn worst(errors: impl Iterator<Item = [f64; 2]>) -> [f64; 2] {
    errors.fold([0.0; 2], |worst, errors| [worst[0].max(errors[0]), worst[1].max(errors[1])])
}

#[test]
fn definitions_agree_with_the_references() {
    let errors = Case::all().into_iter().map(|case| {
        let written = case.written();
        let run = interpret(&written.program, &case.inputs(&written.program)).unwrap();
        let gradient = run[written.gradient.index()].data.iter().copied();
        let errors = case.errors(run[written.loss.index()].data[0], gradient);
        case.assert_within(1e-6, errors);
        errors
    });
    let [value, gradient] = worst(errors);
    eprintln!("definitions are off by {value:.1e}, their gradients by {gradient:.1e}");
}

#[test]
fn kernels_agree_with_the_references() {
    let errors = Case::all().into_iter().map(|case| {
        let written = case.written();
        let (value, slopes) = run(&written, &case.inputs(&written.program), 1);
        let errors = case.errors(value.into(), slopes.into_iter().map(f64::from));
        case.assert_within(1e-5, errors);
        errors
    });
    let [value, gradient] = worst(errors);
    eprintln!("kernels are off by {value:.1e}, their gradients by {gradient:.1e}");
}

#[test]
fn tubes_are_those_of_scikit_image() {
    let mut compared = 0;
    for case in Case::all().into_iter().filter(|case| case.name.starts_with("skeleton_recall")) {
        let Some(expected) = &case.skeleton else { panic!("{} comes with a skeleton", case.name) };
        let voxels = case.shape(1).voxels();
        let written = case.written();
        let labels = &case.inputs(&written.program)["labels"].data;
        let counts = |label: f64| label != 0.0 && case.loss.ignore.map(f64::from) != Some(label);
        let mut scratch = vec![0; tube_scratch_bytes(case.extent)];
        for (labels, expected) in labels.chunks(voxels).zip(expected.chunks(voxels)) {
            let mask: Vec<u8> = labels.iter().map(|label| u8::from(counts(*label))).collect();
            let mut tube = vec![0; voxels];
            tubed_skeleton(&mask, case.extent, Recheck::Connectivity, 2, &mut tube, &mut scratch).unwrap();
            let found =
                labels.iter().zip(tube).zip(&mask).map(|((l, tube), m)| *l as usize * usize::from(tube * m));
            assert!(found.eq(expected.iter().copied()), "{} on {}, {:?}", case.name, case.mask, case.extent);
            compared += usize::from(mask.contains(&1));
        }
    }
    assert!(compared > 20);
}

#[test]
fn an_ignored_voxel_has_no_gradient_and_what_it_holds_changes_nothing() {
    for case in Case::all().into_iter().filter(|case| case.loss.ignore.is_some() && case.mask == "random") {
        let written = case.written();
        let mut inputs = case.inputs(&written.program);
        let before = run(&written, &inputs, 1);
        let ignored: Vec<usize> = {
            let (labels, voxels) = (&inputs["labels"], case.shape(1).voxels());
            let of_label = |i: usize| labels.data[i / voxels / CLASSES * voxels + i % voxels];
            (0..case.shape(CLASSES).count()).filter(|i| of_label(*i) == 2.0).collect()
        };
        for i in &ignored {
            assert_eq!(before.1[*i], 0.0, "{}: a gradient at an ignored voxel", case.name);
            inputs.get_mut("logits").unwrap().data[*i] = 5.0 * noise(9, *i);
        }
        assert_eq!(before, run(&written, &inputs, 2), "{}", case.name);
    }
}

#[test]
fn all_is_finite_for_logits_of_any_size_and_where_every_voxel_is_ignored() {
    for case in Case::all().into_iter().filter(|case| case.logits == "moderate") {
        let written = case.written();
        for scale in [0.0, 1e3, 1e30] {
            for all_ignored in [false, true] {
                let mut inputs = case.inputs(&written.program);
                inputs.get_mut("logits").unwrap().data.iter_mut().for_each(|x| *x *= scale);
                if all_ignored {
                    inputs.get_mut("labels").unwrap().data.fill(255.0);
                }
                let (value, slopes) = run(&written, &inputs, 1);
                assert!(value.is_finite(), "{} on {} times {scale}: {value}", case.name, case.mask);
                assert!(slopes.iter().all(|x| x.is_finite()), "{} on {} times {scale}", case.name, case.mask);
            }
        }
    }
}
