//! Scores from C agree with known scores of simple shapes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "the functions are those of C")]

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use plimsoll_memory::System;

use crate::interface::limit_warnings;
use crate::*;

const SHAPE: [usize; 3] = [4, 4, 5];

/// A cube of 2 × 2 × 2 voxels of label 1 that begins at `x`, and other voxels.
fn map(x: usize, others: &[(usize, u8)]) -> Vec<u8> {
    let mut labels = vec![0; SHAPE.iter().product()];
    for z in 1..3 {
        for y in 1..3 {
            let row = (z * SHAPE[1] + y) * SHAPE[2];
            labels[row + x..row + x + 2].fill(1);
        }
    }
    others.iter().for_each(|(voxel, label)| labels[*voxel] = *label);
    labels
}

fn maps(prediction: &[u8], reference: &[u8]) -> PlimsollLabelMaps {
    PlimsollLabelMaps {
        prediction: prediction.as_ptr(),
        reference: reference.as_ptr(),
        map_bytes: prediction.len() as u64,
        shape: SHAPE.map(|extent| extent as u64),
        spacing: [1.0, 1.0, 2.0],
    }
}

fn comparison() -> PlimsollComparison {
    let mut comparison = plimsoll_usual_comparison();
    (comparison.ram_bytes, comparison.threads) = (64 << 20, 1);
    comparison.surface = PLIMSOLL_SURFACE_VOXELS;
    comparison
}

/// The status, the scores of labels, and the text of an error.
fn evaluate(
    maps: &PlimsollLabelMaps,
    comparison: &PlimsollComparison,
    labels: &[u8],
) -> (PlimsollStatus, Vec<PlimsollScores>, String) {
    let mut scores = Vec::with_capacity(labels.len());
    let mut text = [0; 1024];
    // SAFETY: all pointers are of slices of as many elements as are stated, but for scores, which have the capacity.
    let status = unsafe {
        plimsoll_evaluate(
            maps,
            comparison,
            labels.as_ptr(),
            labels.len() as u64,
            scores.as_mut_ptr(),
            text.as_mut_ptr(),
            1024,
        )
    };
    if status == PlimsollStatus::Ok {
        // SAFETY: one was written for each label.
        unsafe { scores.set_len(labels.len()) };
    }
    // SAFETY: the text was zeros, or ends in one.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().into();
    (status, scores, text)
}

#[test]
fn a_cube_that_is_shifted_by_a_voxel_has_the_scores_of_its_geometry() {
    // Label 2 is in the prediction alone, label 7 in neither.
    let (reference, prediction) = (map(1, &[]), map(2, &[(0, 2)]));
    let (status, scores, text) = evaluate(&maps(&prediction, &reference), &comparison(), &[1, 2, 7]);
    assert_eq!((status, text.as_str()), (PlimsollStatus::Ok, ""));
    let [cube, alone, absent] = scores[..] else { panic!("{scores:?}") };
    assert_eq!((cube.label, alone.label, absent.label), (1, 2, 7));
    assert_eq!((cube.true_positives, cube.false_positives, cube.false_negatives), (4, 4, 4));
    assert_eq!((cube.dice, cube.iou), (0.5, 1.0 / 3.0));
    assert_eq!((cube.sensitivity, cube.precision, cube.volume_similarity), (0.5, 0.5, 1.0));
    // Half of the voxels of each surface are a voxel of 2 mm from the other one.
    assert_eq!((cube.hausdorff, cube.hausdorff_95, cube.average_distance), (2.0, 2.0, 1.0));
    assert_eq!(cube.surface_dice, 0.5);
    assert_eq!((alone.true_positives, alone.false_positives, alone.dice), (0, 1, 0.0));
    assert!(alone.sensitivity.is_nan() && alone.hausdorff.is_nan() && alone.surface_dice == 0.0);
    assert_eq!((absent.true_positives, absent.false_positives, absent.false_negatives), (0, 0, 0));
    assert!(absent.dice.is_nan() && absent.surface_dice.is_nan());

    let wide = PlimsollComparison { tolerance: 2.0, ..comparison() };
    assert_eq!(evaluate(&maps(&prediction, &reference), &wide, &[1]).1[0].surface_dice, 1.0);
    let none = PlimsollComparison { surface: PLIMSOLL_SURFACE_NONE, ..comparison() };
    let cube = evaluate(&maps(&prediction, &reference), &none, &[1]).1[0];
    assert!(cube.dice == 0.5 && cube.hausdorff.is_nan());
}

#[test]
fn what_cannot_be_compared_is_refused_with_a_text() {
    let (reference, prediction) = (map(1, &[]), map(2, &[]));
    let (sound, usual) = (maps(&prediction, &reference), comparison());
    let refused = |maps: PlimsollLabelMaps, comparison: PlimsollComparison, labels: &[u8], word: &str| {
        let (status, _, text) = evaluate(&maps, &comparison, labels);
        assert_eq!(status, PlimsollStatus::Argument, "{word}: {text}");
        assert!(text.contains(word), "{word}: {text}");
    };
    refused(PlimsollLabelMaps { map_bytes: 79, ..sound }, usual, &[1], "80 bytes, but 79");
    refused(PlimsollLabelMaps { shape: [4, 0, 5], ..sound }, usual, &[1], "have no voxels");
    refused(PlimsollLabelMaps { shape: [u64::MAX; 3], ..sound }, usual, &[1], "address space");
    refused(PlimsollLabelMaps { spacing: [1.0, 0.0, 1.0], ..sound }, usual, &[1], "spacing is 0 mm");
    refused(PlimsollLabelMaps { spacing: [1.0, f64::NAN, 1.0], ..sound }, usual, &[1], "NaN");
    refused(PlimsollLabelMaps { reference: null(), ..sound }, usual, &[1], "the reference: a null pointer");
    refused(sound, PlimsollComparison { threads: 0, ..usual }, &[1], "threads is 0");
    refused(sound, PlimsollComparison { surface: 3, ..usual }, &[1], "surface is 3");
    refused(sound, PlimsollComparison { tolerance: -1.0, ..usual }, &[1], "tolerance");
    refused(sound, usual, &[], "label_count is 0");
    let (status, _, text) = evaluate(&sound, &PlimsollComparison { ram_bytes: 100, ..usual }, &[1]);
    assert_eq!(status, PlimsollStatus::Memory, "{text}");
    assert!(text.contains("\nhint: ") && text.contains("ram_bytes") && !text.contains("--"), "{text}");
    // SAFETY: null pointers are refused.
    let status = unsafe { plimsoll_evaluate(null(), null(), null(), 0, null_mut(), null_mut(), 0) };
    assert_eq!(status, PlimsollStatus::Argument);
}

/// A control group whose limit is a folder in the place of a file, which fails for root as well.
#[test]
fn a_memory_limit_that_cannot_be_read_is_a_warning_that_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/self/cgroup", "0::/job\n");
    write("proc/self/mountinfo", "35 31 0:32 / /cgroup rw - cgroup2 cgroup2 rw\n");
    write("proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n");
    std::fs::create_dir_all(folder.path().join("cgroup/job/memory.max")).unwrap();
    let system = System { proc: folder.path().join("proc"), root: folder.path().into() };
    let warnings = limit_warnings(&system);
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    assert!(warnings.contains("cgroup/job/memory.max"), "{warnings}");
    assert!(warnings.ends_with("a memory limit set there is not enforced"), "{warnings}");
}

#[test]
fn warnings_are_copied_as_far_as_there_is_room() {
    // SAFETY: a text that is null is not written.
    let needed = unsafe { plimsoll_limit_warnings(null_mut(), 0) };
    assert!(needed >= 1);
    let mut text = vec![1; usize::try_from(needed).unwrap()];
    // SAFETY: the text can be written for its length.
    assert_eq!(unsafe { plimsoll_limit_warnings(text.as_mut_ptr(), needed) }, needed);
    assert_eq!(text.last(), Some(&0));
}
