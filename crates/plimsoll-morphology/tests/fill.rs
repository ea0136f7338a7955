//! Hole filling against SciPy.

use crate::common::oracle;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_morphology::{Connectivity, MorphologyError, fill_holes};

fn fill(mask: &[u8], shape: [usize; 3], background: Connectivity, threads: usize) -> Vec<u8> {
    let mut filled = vec![false; mask.len()];
    let budget = Budget::new(Bytes::mib(16));
    fill_holes(mask, shape, background, &mut filled, &budget, threads).unwrap();
    assert_eq!(budget.used(), Bytes::ZERO);
    filled.into_iter().map(u8::from).collect()
}

#[test]
fn agrees_with_scipy_in_three_dimensions() {
    let (shape, mask) = ([20, 30, 40], oracle("holes.u8"));
    for (background, name) in [(Connectivity::Faces, 6), (Connectivity::Corners, 26)] {
        let expected = oracle(&format!("holes_filled_{name}.u8"));
        assert_ne!(expected, mask);
        for threads in [1, 2, 7, 30] {
            assert_eq!(fill(&mask, shape, background, threads), expected, "{name}");
        }
    }
}

#[test]
fn fills_an_image_as_scipy_does() {
    let (mask, expected) = (oracle("holes.u8"), oracle("holes_filled_slices.u8"));
    for (image, expected) in mask.chunks(30 * 40).zip(expected.chunks(30 * 40)) {
        for shape in [[1, 30, 40], [30, 1, 40], [30, 40, 1]] {
            assert_eq!(fill(image, shape, Connectivity::Faces, 2), expected, "{shape:?}");
        }
    }
}

#[test]
fn a_volume_without_foreground_has_no_holes_and_one_without_background_neither() {
    for value in [0, 1] {
        let mask = [value; 60];
        assert_eq!(fill(&mask, [3, 4, 5], Connectivity::Faces, 2), mask);
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let run = |budget: u64, filled: &mut [bool]| {
        let budget = Budget::new(Bytes(budget));
        fill_holes(&[0u8; 24], [2, 3, 4], Connectivity::Faces, filled, &budget, 1)
    };
    assert!(matches!(run(1 << 20, &mut [false; 23]), Err(MorphologyError::Length { .. })));
    assert!(matches!(run(64, &mut [false; 24]), Err(MorphologyError::Memory(_))));
}
