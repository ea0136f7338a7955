//! Euler and Betti numbers against scikit-image, cc3d and shapes with known holes.

use crate::common::{oracle, place};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_morphology::{Betti, Topology, betti_numbers, euler_number};

fn betti(mask: &[u8], shape: [usize; 3], topology: Topology, threads: usize) -> [u64; 3] {
    let budget = Budget::new(Bytes::mib(4));
    let betti = betti_numbers(mask, shape, topology, &budget, threads).unwrap();
    let euler = euler_number(mask, shape, topology, &budget).unwrap();
    let Betti { components, tunnels, cavities } = betti;
    assert_eq!(components as i64 - tunnels as i64 + cavities as i64, euler);
    [components, tunnels, cavities]
}

#[test]
fn agrees_with_scikit_image_and_cc3d_on_random_masks() {
    let masks = oracle("topology.u8");
    let text = String::from_utf8(oracle("topology.txt")).unwrap();
    let mut rest = &masks[..];
    for lines in text.lines().collect::<Vec<_>>().chunks(2) {
        let mut voxels = 0;
        for line in lines {
            let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            let shape = [0, 1, 2].map(|axis| numbers[axis] as usize);
            voxels = shape.iter().product();
            let topology = if numbers[3] == 6 { Topology::Faces } else { Topology::Corners };
            let euler = euler_number(&rest[..voxels], shape, topology, &Budget::new(Bytes::mib(1))).unwrap();
            assert_eq!(euler, numbers[4], "{line}");
            let [components, _, cavities] = betti(&rest[..voxels], shape, topology, 2);
            assert_eq!([components as i64, cavities as i64], numbers[5..7], "{line}");
        }
        rest = &rest[voxels..];
    }
    assert!(rest.is_empty());
}

fn shape_of(inside: impl Fn([f64; 3]) -> bool) -> Vec<u8> {
    (0..24 * 24 * 24).map(|at| u8::from(inside(place(at, [24; 3]).map(|n| n as f64 - 11.5)))).collect()
}

#[test]
fn counts_the_holes_of_shapes() {
    let shell = |[z, y, x]: [f64; 3]| (5.0..10.0).contains(&(z * z + y * y + x * x).sqrt());
    let ring = |[z, y, x]: [f64; 3]| ((y.hypot(x) - 7.0).hypot(z)) < 2.5;
    let hollow_ring = |[z, y, x]: [f64; 3]| (1.3..3.8).contains(&(y.hypot(x) - 7.0).hypot(z));
    let balls = |[z, y, x]: [f64; 3]| z.hypot(y).hypot(x.abs() - 6.0) < 4.0;
    for topology in [Topology::Faces, Topology::Corners] {
        for threads in [1, 3] {
            assert_eq!(betti(&shape_of(shell), [24; 3], topology, threads), [1, 0, 1]);
            assert_eq!(betti(&shape_of(ring), [24; 3], topology, threads), [1, 1, 0]);
            assert_eq!(betti(&shape_of(hollow_ring), [24; 3], topology, threads), [1, 2, 1]);
            assert_eq!(betti(&shape_of(balls), [24; 3], topology, threads), [2, 0, 0]);
        }
    }
}

#[test]
fn two_voxels_at_a_corner_are_one_or_two() {
    let mask = [1, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(betti(&mask, [2; 3], Topology::Corners, 1), [1, 0, 0]);
    assert_eq!(betti(&mask, [2; 3], Topology::Faces, 1), [2, 0, 0]);
}

#[test]
fn a_hole_in_an_image_is_a_tunnel() {
    let image = [1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0];
    for shape in [[1, 3, 4], [3, 1, 4], [3, 4, 1]] {
        assert_eq!(betti(&image, shape, Topology::Faces, 1), [1, 1, 0]);
    }
    // Closed only at corners.
    let diamond = [0, 1, 0, 1, 0, 1, 0, 1, 0];
    assert_eq!(betti(&diamond, [1, 3, 3], Topology::Corners, 1), [1, 1, 0]);
    assert_eq!(betti(&diamond, [1, 3, 3], Topology::Faces, 1), [4, 0, 0]);
}
