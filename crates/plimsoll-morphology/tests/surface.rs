//! Surface elements against surface-distance.

use crate::common::oracle;
use plimsoll_morphology::{
    MorphologyError, cell_shape, contour_codes, contour_lengths, surface_areas, surface_codes,
};

fn oracle_f64(name: &str) -> Vec<f64> {
    oracle(name).as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

#[test]
fn areas_and_lengths_of_all_codes_match_surface_distance() {
    for (name, spacing) in [("cubes", [1.0, 1.0, 1.0]), ("slabs", [2.5, 0.7, 1.1])] {
        let expected = oracle_f64(&format!("surface_{name}.f64"));
        let areas = surface_areas(spacing).unwrap();
        let lengths = contour_lengths([spacing[1], spacing[2]]).unwrap();
        for (code, (found, expected)) in areas.iter().chain(&lengths).zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-12, "{name} {code}: {found} is not {expected}");
        }
    }
}

#[test]
fn codes_match_surface_distance() {
    let (shape, mask) = ([9, 13, 17], oracle("surface_mask.u8"));
    let mut codes = vec![7; cell_shape(shape).iter().product()];
    for threads in [1, 2, 3, 20] {
        surface_codes(&mask, shape, &mut codes, threads).unwrap();
        assert_eq!(codes, oracle("surface_codes.u8"));
    }
    let mut codes = vec![7; 14 * 18];
    contour_codes(&mask[4 * 13 * 17..5 * 13 * 17], [13, 17], &mut codes).unwrap();
    assert_eq!(codes, oracle("contour_codes.u8"));
}

#[test]
fn a_box_has_the_surface_of_its_faces_less_that_of_its_edges() {
    let shape = [10, 10, 10];
    let mask = vec![true; 1000];
    let mut codes = vec![0; 11 * 11 * 11];
    surface_codes(&mask, shape, &mut codes, 2).unwrap();
    let areas = surface_areas([1.0; 3]).unwrap();
    let area: f64 = codes.iter().map(|code| areas[usize::from(*code)]).sum();
    // Six faces of 9 × 9, twelve bevels of 9 × √½, eight corners of an equilateral triangle of side √½.
    let expected = 6.0 * 81.0 + 12.0 * 9.0 * 0.5f64.sqrt() + 8.0 * 3.0f64.sqrt() / 8.0;
    assert!((area - expected).abs() < 1e-9);
}

#[test]
fn invalid_arguments_are_refused() {
    assert!(matches!(
        surface_codes(&[0u8; 24], [2, 3, 4], &mut [0; 24], 1),
        Err(MorphologyError::Length { .. })
    ));
    assert!(matches!(contour_codes(&[0u8; 12], [3, 4], &mut [0; 12]), Err(MorphologyError::Length { .. })));
    assert!(matches!(surface_areas([1.0, 0.0, 1.0]), Err(MorphologyError::Spacing { .. })));
    assert!(matches!(contour_lengths([f64::NAN, 1.0]), Err(MorphologyError::Spacing { .. })));
}
