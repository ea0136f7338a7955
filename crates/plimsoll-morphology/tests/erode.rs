//! Erosion and dilation against SciPy.

use crate::common::oracle;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_morphology::{Connectivity, MorphologyError, dilate, erode};

fn both(
    mask: &[u8],
    shape: [usize; 3],
    connectivity: Connectivity,
    times: usize,
    threads: usize,
) -> [Vec<u8>; 2] {
    let budget = Budget::new(Bytes::mib(1));
    let mut out = vec![false; mask.len()];
    let numbers = |out: &[bool]| out.iter().map(|voxel| u8::from(*voxel)).collect();
    erode(mask, shape, connectivity, times, &mut out, &budget, threads).unwrap();
    let eroded = numbers(&out);
    dilate(mask, shape, connectivity, times, &mut out, &budget, threads).unwrap();
    [eroded, numbers(&out)]
}

#[test]
fn agrees_with_scipy_in_three_dimensions() {
    let (shape, mask) = ([14, 17, 75], oracle("erosion.u8"));
    for (connectivity, name) in
        [(Connectivity::Faces, 6), (Connectivity::Edges, 18), (Connectivity::Corners, 26)]
    {
        for times in [1, 3] {
            for threads in [1, 2, 5, 400] {
                let [eroded, dilated] = both(&mask, shape, connectivity, times, threads);
                assert_eq!(eroded, oracle(&format!("eroded_{name}_{times}.u8")), "{name} {times}");
                assert_eq!(dilated, oracle(&format!("dilated_{name}_{times}.u8")), "{name} {times}");
            }
        }
    }
}

#[test]
fn agrees_with_scipy_on_images() {
    let mask = oracle("erosion.u8");
    for (connectivity, name) in
        [(Connectivity::Faces, 4), (Connectivity::Edges, 8), (Connectivity::Corners, 8)]
    {
        let eroded = oracle(&format!("eroded_{name}_2.u8"));
        let dilated = oracle(&format!("dilated_{name}_2.u8"));
        for (at, image) in mask.chunks(17 * 75).enumerate() {
            let part = at * 17 * 75..(at + 1) * 17 * 75;
            for shape in [[1, 17, 75], [17, 1, 75], [17, 75, 1]] {
                let found = both(image, shape, connectivity, 2, 2);
                assert_eq!(found[0], eroded[part.clone()], "{shape:?}");
                assert_eq!(found[1], dilated[part.clone()], "{shape:?}");
            }
        }
    }
}

#[test]
fn zero_iterations_change_nothing() {
    let mask = oracle("erosion.u8");
    let [eroded, dilated] = both(&mask, [14, 17, 75], Connectivity::Corners, 0, 2);
    assert_eq!(eroded, mask);
    assert_eq!(dilated, mask);
}

#[test]
fn invalid_arguments_are_refused() {
    let run = |budget: u64, out: &mut [bool], threads| {
        let budget = Budget::new(Bytes(budget));
        erode(&[1u8; 24], [2, 3, 4], Connectivity::Faces, 1, out, &budget, threads)
    };
    assert!(matches!(run(1 << 20, &mut [false; 23], 1), Err(MorphologyError::Length { .. })));
    assert!(matches!(run(1 << 20, &mut [false; 24], 0), Err(MorphologyError::NoThreads)));
    assert!(matches!(run(64, &mut [false; 24], 1), Err(MorphologyError::Memory(_))));
}
