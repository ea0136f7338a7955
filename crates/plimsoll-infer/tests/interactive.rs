//! Interactive sessions, against what nnInteractive's own session makes of the same prompts.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use half::f16;
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_infer::{
    InferError, InteractiveError, InteractiveOptions, InteractiveSession, Pass, PassKind, PromptMask,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::InteractiveModel;
use plimsoll_volume::VoxelBox;
use serde::Deserialize;

const LIMIT: Bytes = Bytes::mib(1024);

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nninteractive")
}

/// The arrays of an archive of NumPy: the bytes of their elements, in the byte order of this machine.
struct Arrays(BTreeMap<String, (String, Vec<u8>)>);

impl Arrays {
    fn read(name: &str) -> Arrays {
        let mut archive = zip::ZipArchive::new(fs::File::open(oracle().join(name)).unwrap()).unwrap();
        let mut arrays = BTreeMap::new();
        for place in 0..archive.len() {
            let mut file = archive.by_index(place).unwrap();
            let (name, mut bytes) = (file.name().unwrap().trim_end_matches(".npy").to_string(), Vec::new());
            file.read_to_end(&mut bytes).unwrap();
            let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
            let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
            let kind = header.split("'descr': '").nth(1).unwrap()[..3].to_string();
            arrays.insert(name, (kind, bytes[10 + length..].to_vec()));
        }
        Arrays(arrays)
    }

    fn bytes(&self, name: &str, kind: &str) -> &[u8] {
        let (found, bytes) = &self.0[name];
        assert_eq!(found, kind, "{name}");
        bytes
    }

    fn f32(&self, name: &str) -> Vec<f32> {
        let bytes = self.bytes(name, "<f4").as_chunks::<4>().0;
        bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn f16(&self, name: &str) -> Vec<f32> {
        let bytes = self.bytes(name, "<f2").as_chunks::<2>().0;
        bytes.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect()
    }

    fn i16(&self, name: &str) -> Vec<f32> {
        let bytes = self.bytes(name, "<i2").as_chunks::<2>().0;
        bytes.iter().map(|bytes| f32::from(i16::from_le_bytes(*bytes))).collect()
    }

    /// A mask of bits, the first voxel in the highest one.
    fn mask(&self, name: &str, count: usize) -> Vec<u8> {
        let bits =
            self.bytes(name, "|u1").iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        bits.take(count).collect()
    }
}

#[derive(Deserialize)]
struct Expected {
    patch: [usize; 3],
    shape: [usize; 3],
    sample: usize,
    sequences: BTreeMap<String, Sequence>,
}

#[derive(Deserialize)]
struct Sequence {
    autozoom: bool,
    decay: f64,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    kind: String,
    passes: Vec<ExpectedPass>,
    foreground: u64,
    undone: Option<bool>,
    changed: Option<[[i64; 2]; 3]>,
    at: Option<serde_json::Value>,
    include: Option<bool>,
    predict: Option<bool>,
}

#[derive(Deserialize)]
struct ExpectedPass {
    centre: Option<[usize; 3]>,
    zoom: Option<f64>,
    #[serde(rename = "box")]
    within: Option<[[i64; 2]; 3]>,
    #[serde(default)]
    prompts: bool,
}

impl Step {
    fn point(&self) -> [i64; 3] {
        serde_json::from_value(self.at.clone().unwrap()).unwrap()
    }

    fn ranges(&self) -> [[i64; 2]; 3] {
        serde_json::from_value(self.at.clone().unwrap()).unwrap()
    }
}

fn expected() -> Expected {
    serde_json::from_slice(&fs::read(oracle().join("sequences.json")).unwrap()).unwrap()
}

fn model(budget: &Budget) -> InteractiveModel {
    InteractiveModel::open(&oracle().join("model"), None, budget).unwrap()
}

fn session(
    model: InteractiveModel,
    threads: usize,
    auto_zoom: bool,
    budget: &Budget,
) -> Result<InteractiveSession, InteractiveError> {
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(threads)).unwrap());
    InteractiveSession::new(model, InteractiveOptions { threads, auto_zoom }, backend, budget)
}

fn set_image(session: &mut InteractiveSession, shape: [usize; 3]) {
    let voxels = Arrays::read("image.npz").i16("image");
    session
        .set_image(shape, &mut |to| {
            to.copy_from_slice(&voxels);
            Ok(())
        })
        .unwrap();
}

/// The largest differences of a sequence.
#[derive(Debug, Default)]
struct Differences {
    prompts: f32,
    image: f32,
    logits: f32,
    passes: usize,
    /// Voxels of segmentations that differ, over all steps.
    labels: usize,
}

fn largest(found: impl Iterator<Item = f32>, expected: &[f32]) -> f32 {
    let mut count = 0;
    let differences = found.zip(expected).map(|(one, other)| {
        count += 1;
        (one - other).abs()
    });
    let most = differences.fold(0.0, f32::max);
    assert_eq!(count, expected.len());
    most
}

/// Checks a pass against the reference's.
fn compare(pass: &Pass<'_>, number: usize, at: &ExpectedPass, of: &Reference<'_>, found: &mut Differences) {
    let voxels: usize = of.expected.patch.iter().product();
    match (pass.kind, at.zoom, at.within) {
        (PassKind::Coarse { centre, zoom }, Some(expected), None) => {
            assert_eq!((Some(centre), zoom), (at.centre, expected), "pass {number}");
        }
        (PassKind::Refinement { start, .. }, None, Some(within)) => {
            assert_eq!(start, within.map(|[first, _]| first), "pass {number}");
        }
        (kind, ..) => panic!("pass {number} is {kind:?}"),
    }
    let sample = of.expected.sample;
    let (image, prompts) = pass.input.split_at(voxels);
    let array = |name: &str| format!("pass_{number}_{name}");
    let image_difference = largest(image.iter().copied().step_by(sample), &of.arrays.f32(&array("image")));
    let logits = of.arrays.f32(&array("logits"));
    let logit_difference = largest(pass.logits.iter().copied().step_by(sample), &logits);
    found.image = found.image.max(image_difference);
    found.logits = found.logits.max(logit_difference);
    if at.prompts {
        let expected = of.arrays.f16(&array("prompts"));
        found.prompts = found.prompts.max(largest(prompts.iter().copied(), &expected));
    }
    found.passes += 1;
}

struct Reference<'a> {
    expected: &'a Expected,
    arrays: &'a Arrays,
}

/// Repeats a sequence of prompts and compares all passes and segmentations.
fn repeat(name: &str, threads: usize) -> (Differences, Vec<u8>) {
    let expected = expected();
    let sequence = &expected.sequences[name];
    let arrays = Arrays::read(&format!("{name}.npz"));
    let of = Reference { expected: &expected, arrays: &arrays };
    let budget = Budget::new(LIMIT);
    let mut model = model(&budget);
    model.prompts.decay = sequence.decay;
    let mut session = session(model, threads, sequence.autozoom, &budget).unwrap();
    set_image(&mut session, expected.shape);
    let count: usize = expected.shape.iter().product();
    let (mut found, mut labels) = (Differences::default(), vec![0; count]);
    for (number, step) in sequence.steps.iter().enumerate() {
        let include = step.include.unwrap_or(true);
        match step.kind.as_str() {
            "point" => session.add_point(step.point(), include).unwrap(),
            "box" => {
                let ranges = step.ranges();
                session.add_box(ranges.map(|[first, _]| first), ranges.map(|[_, end]| end), include).unwrap();
            }
            "initial" => {
                session.add_initial_segmentation(&arrays.mask(&format!("mask_{number}"), count)).unwrap()
            }
            "undo" => assert_eq!(Some(session.undo()), step.undone),
            kind => {
                let ranges = step.ranges().map(|[first, end]| (first as usize, (end - first) as usize));
                let voxels = arrays.bytes(&format!("mask_{number}"), "|u1");
                let mask = PromptMask {
                    start: ranges.map(|(first, _)| first),
                    shape: ranges.map(|(_, extent)| extent),
                    voxels,
                };
                match kind {
                    "scribble" => session.add_scribble(mask, include).unwrap(),
                    "lasso" => session.add_lasso(mask, include).unwrap(),
                    other => panic!("{other}"),
                }
            }
        }
        if step.kind != "undo" && step.predict == Some(true) {
            let mut passes = step.passes.iter();
            let changed = session.predict(&AtomicBool::new(false), &mut |pass| {
                let number = found.passes;
                compare(pass, number, passes.next().unwrap(), &of, &mut found);
            });
            assert!(passes.next().is_none(), "{name}, step {number}");
            let ends = |within: VoxelBox| {
                let end = within.end().unwrap();
                [0, 1, 2].map(|axis| [within.start[axis] as i64, end[axis] as i64])
            };
            assert_eq!(changed.unwrap().map(ends), step.changed, "{name}, step {number}");
        }
        session.write_segmentation(&mut labels).unwrap();
        let reference = arrays.mask(&format!("step_{number}"), count);
        assert_eq!(reference.iter().map(|label| u64::from(*label)).sum::<u64>(), step.foreground);
        found.labels += labels.iter().zip(&reference).filter(|(one, other)| one != other).count();
    }
    println!("{name}: {found:?}");
    (found, labels)
}

fn expect_equal(name: &str, passes: usize) {
    let (found, _) = repeat(name, 2);
    assert!(found.passes >= passes, "{name} had {} passes", found.passes);
    assert_eq!(found.prompts, 0.0, "{name}: prompts");
    assert!(found.image < 5e-6, "{name}: image {}", found.image);
    assert!(found.logits < 2e-4, "{name}: logits {}", found.logits);
    assert_eq!(found.labels, 0, "{name}: labels");
}

#[test]
fn points_give_the_logits_and_labels_of_nninteractive() {
    expect_equal("points", 3);
}

#[test]
fn objects_beyond_a_patch_are_zoomed_out_and_refined_as_by_nninteractive() {
    expect_equal("large", 4);
}

#[test]
fn boxes_and_their_undoing_give_the_labels_of_nninteractive() {
    expect_equal("boxes", 2);
}

#[test]
fn lassos_and_scribbles_give_the_labels_of_nninteractive() {
    expect_equal("masks", 2);
}

#[test]
fn initial_segmentations_are_refined_or_followed_as_by_nninteractive() {
    expect_equal("initial", 3);
}

#[test]
fn prompts_at_the_edges_of_the_image_give_the_labels_of_nninteractive() {
    expect_equal("edges", 2);
}

#[test]
fn without_zooming_out_only_the_patch_changes() {
    expect_equal("still", 2);
}

#[test]
fn prompts_that_fade_beyond_half_precision_are_rescaled_as_by_nninteractive() {
    expect_equal("faint", 4);
}

#[test]
fn one_thread_and_three_give_the_same_bits() {
    let (_, one) = repeat("initial", 1);
    let (_, three) = repeat("initial", 3);
    assert!(one == three);
}

#[test]
fn a_session_holds_what_its_plan_says_and_a_lower_limit_is_refused() {
    let Expected { shape, .. } = expected();
    let budget = Budget::new(LIMIT);
    let mut open = session(model(&budget), 2, true, &budget).unwrap();
    let plan = open.plan(shape).unwrap();
    let parts: u64 = plan.parts().iter().map(|(_, bytes)| bytes.0).sum();
    assert_eq!(parts, plan.total_bytes.0);
    set_image(&mut open, shape);
    open.add_point([58, 70, 58], true).unwrap();
    open.predict(&AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(open.object_voxels() > 1000);
    assert!(budget.peak() <= plan.total_bytes, "{} of {}", budget.peak(), plan.total_bytes);
    drop(open);
    // The least limit: a plan below it says what it needs, and that suffices.
    let low = Budget::new(plan.total_bytes - plan.arena_bytes);
    let refused = session(model(&low), 2, true, &low).unwrap().plan(shape);
    let Err(InteractiveError::Infer(InferError::Infeasible { needed, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(needed > low.limit());
    let enough = Budget::new(needed);
    let mut open = session(model(&enough), 2, false, &enough).unwrap();
    set_image(&mut open, shape);
    open.add_point([58, 70, 58], true).unwrap();
    open.predict(&AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(enough.peak() <= needed);
}

#[test]
fn wrong_prompts_are_refused_with_hints_and_change_nothing() {
    let Expected { shape, .. } = expected();
    let budget = Budget::new(LIMIT);
    let mut session = session(model(&budget), 1, true, &budget).unwrap();
    assert!(matches!(session.add_point([0, 0, 0], true), Err(InteractiveError::NoImage)));
    assert!(matches!(session.predict(&AtomicBool::new(false), &mut |_| {}), Err(InteractiveError::NoImage)));
    set_image(&mut session, shape);
    let mask = |start, shape, voxels| PromptMask { start, shape, voxels };
    let refused = [
        (session.add_point([96, 0, 0], true), "a point at [96, 0, 0] is outside of the image"),
        (session.add_point([0, -1, 0], false), "a point at [0, -1, 0] is outside of the image"),
        (session.add_box([5, 5, 5], [6, 5, 9], true), "has no voxel along an axis"),
        (session.add_box([5, 5, 5], [9, 9, 9], true), "does not support a solid box"),
        (session.add_box([5, 128, 5], [6, 130, 9], true), "a box at [5, 128, 5] is outside of the image"),
        (session.add_scribble(mask([1, 2, 3], [1, 2, 2], &[0; 4]), true), "a scribble marks no voxel"),
        (
            session.add_lasso(mask([1, 2, 3], [1, 2, 2], &[1; 5]), true),
            "has 5 voxels, but a shape of [1, 2, 2] has 4",
        ),
        (session.add_lasso(mask([95, 2, 3], [2, 1, 1], &[1; 2]), true), "is outside of the image"),
        (session.add_initial_segmentation(&[1; 7]), "an initial segmentation has 7 voxels"),
    ];
    for (result, text) in refused {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    }
    assert_eq!((session.prompts(), session.undo()), (0, false));
    assert_eq!(session.predict(&AtomicBool::new(false), &mut |_| {}).unwrap(), None);
    // A stopped prediction leaves the prompt for the next one.
    session.add_point([30, 34, 36], true).unwrap();
    let stopped = session.predict(&AtomicBool::new(true), &mut |_| {});
    assert!(matches!(stopped, Err(InteractiveError::Stopped)));
    assert!(session.predict(&AtomicBool::new(false), &mut |_| {}).unwrap().is_some());
    session.reset();
    assert_eq!((session.prompts(), session.object_voxels()), (0, 0));
}

#[test]
fn images_that_cannot_be_normalised_are_refused() {
    let budget = Budget::new(LIMIT);
    let mut session = session(model(&budget), 1, true, &budget).unwrap();
    let mut set = |value: f32, first: f32| {
        session.set_image([4, 5, 6], &mut |to| {
            to.fill(value);
            to[0] = first;
            Ok(())
        })
    };
    assert!(matches!(set(0.0, 0.0), Err(InteractiveError::EmptyImage)));
    assert!(matches!(set(3.0, 3.0), Err(InteractiveError::ConstantImage)));
    let nan = set(3.0, f32::NAN);
    assert!(matches!(nan, Err(InteractiveError::ImageNotFinite { voxel: [0, 0, 0] })), "{nan:?}");
    assert!(set(3.0, 4.0).is_ok());
    assert!(matches!(session.plan([0, 3, 3]), Err(InteractiveError::NoVoxels { .. })));
}
