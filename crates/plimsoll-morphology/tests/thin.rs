//! Skeletons against scikit-image.

use crate::common::{Random, oracle, random_mask, random_shape};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_morphology::{
    Connectivity, MorphologyError, Recheck, Topology, betti_numbers, dilate, skeletonize, tube_scratch_bytes,
    tubed_skeleton,
};

fn thin(mask: &[u8], shape: [usize; 3], recheck: Recheck, threads: usize) -> Vec<u8> {
    let mut skeleton = vec![false; mask.len()];
    skeletonize(mask, shape, recheck, &mut skeleton, &Budget::new(Bytes::mib(1)), threads).unwrap();
    skeleton.into_iter().map(u8::from).collect()
}

/// Unpacks bits, the highest of each byte first.
fn bits(name: &str, len: usize) -> Vec<u8> {
    let bytes = oracle(name);
    (0..len).map(|at| bytes[at / 8] >> (7 - at % 8) & 1).collect()
}

#[test]
fn agrees_with_scikit_image_on_volumes() {
    for (name, shape) in [("tubes", [30, 40, 90]), ("lumps", [24, 32, 70]), ("noise", [12, 15, 80])] {
        let voxels = shape.iter().product();
        let mask = bits(&format!("skeleton_{name}.u8"), voxels);
        let expected = bits(&format!("skeleton_{name}_thin.u8"), voxels);
        for threads in [1, 2, 5] {
            assert!(thin(&mask, shape, Recheck::Connectivity, threads) == expected, "{name}");
            // No removal changes the topology here.
            assert!(thin(&mask, shape, Recheck::Topology, threads) == expected, "{name}");
        }
    }
}

#[test]
fn agrees_with_scikit_image_on_images() {
    let pixels = 40 * 70;
    let images = bits("skeleton_images.u8", 8 * pixels);
    let expected = bits("skeleton_images_thin.u8", 8 * pixels);
    for (image, expected) in images.chunks(pixels).zip(expected.chunks(pixels)) {
        assert!(thin(image, [1, 40, 70], Recheck::Connectivity, 2) == expected);
    }
}

#[test]
fn agrees_with_scikit_image_on_boxes_where_that_changes_the_topology() {
    let (shape, voxels) = ([16, 16, 16], 4096);
    let masks = bits("skeleton_boxes.u8", 12 * voxels);
    let expected = bits("skeleton_boxes_thin.u8", 12 * voxels);
    let mut differ = 0;
    for (mask, expected) in masks.chunks(voxels).zip(expected.chunks(voxels)) {
        assert!(thin(mask, shape, Recheck::Connectivity, 2) == expected);
        differ += usize::from(thin(mask, shape, Recheck::Topology, 2) != expected);
    }
    assert!(differ > 0);
}

#[test]
fn a_skeleton_has_the_holes_of_its_mask_and_is_its_own_skeleton() {
    let mut random = Random(7);
    let budget = Budget::new(Bytes::mib(4));
    for case in 0..200 {
        let shape = random_shape(&mut random, 14);
        let mask = random_mask(&mut random, shape, 2);
        let skeleton = thin(&mask, shape, Recheck::Topology, 1);
        let holes = |mask: &[u8]| betti_numbers(mask, shape, Topology::Corners, &budget, 1).unwrap();
        assert_eq!(holes(&skeleton), holes(&mask), "case {case}");
        assert!(skeleton.iter().zip(&mask).all(|(skeleton, mask)| skeleton <= mask));
        assert_eq!(thin(&skeleton, shape, Recheck::Topology, 2), skeleton);
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let run = |budget: u64, skeleton: &mut [bool]| {
        skeletonize(&[1u8; 24], [2, 3, 4], Recheck::Topology, skeleton, &Budget::new(Bytes(budget)), 1)
    };
    assert!(matches!(run(1 << 20, &mut [false; 23]), Err(MorphologyError::Length { .. })));
    assert!(matches!(run(64, &mut [false; 24]), Err(MorphologyError::Memory(_))));
}

#[test]
fn a_tube_is_the_dilated_skeleton() {
    let mut random = Random(7);
    for _ in 0..50 {
        let shape = random_shape(&mut random, 12);
        let mask = random_mask(&mut random, shape, 2);
        let mut skeleton = vec![false; mask.len()];
        let budget = Budget::new(Bytes::mib(1));
        skeletonize(&mask, shape, Recheck::Topology, &mut skeleton, &budget, 1).unwrap();
        let mut expected = vec![false; mask.len()];
        dilate(&skeleton, shape, Connectivity::Faces, 2, &mut expected, &budget, 1).unwrap();
        // The scratch need not be zeroed.
        let mut scratch = vec![0xa5; tube_scratch_bytes(shape)];
        let mut tube = vec![7; mask.len()];
        tubed_skeleton(&mask, shape, Recheck::Topology, 2, &mut tube, &mut scratch).unwrap();
        assert!(tube.iter().map(|voxel| *voxel == 1).eq(expected), "{shape:?}");
        let short = scratch.len() - 1;
        let error = tubed_skeleton(&mask, shape, Recheck::Topology, 2, &mut tube, &mut scratch[..short]);
        assert!(matches!(error, Err(MorphologyError::Scratch { .. })));
    }
}
