//! Connected components against SciPy, cc3d and a flood fill.

use crate::common::{Random, oracle, oracle_u32, place, random_mask, random_shape};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_morphology::{
    Connectivity, Label, MorphologyError, Region, component_sizes, components, largest_component,
};

const ALL: [(Connectivity, usize); 3] =
    [(Connectivity::Faces, 6), (Connectivity::Edges, 18), (Connectivity::Corners, 26)];

fn label<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    connectivity: Connectivity,
    region: Region,
    threads: usize,
) -> (Vec<u32>, u32) {
    let mut labels = vec![99; mask.len()];
    let budget = Budget::new(Bytes::mib(16));
    let count = components(mask, shape, connectivity, region, &mut labels, &budget, threads).unwrap();
    assert_eq!(budget.used(), Bytes::ZERO);
    (labels, count)
}

fn flood(mask: &[u8], shape: [usize; 3], connectivity: Connectivity, region: Region) -> Vec<u32> {
    let axes = ALL.iter().position(|(other, _)| *other == connectivity).unwrap() + 1;
    let mut labels = vec![0; mask.len()];
    let mut count = 0;
    for first in 0..mask.len() {
        if mask[first] == 0 || labels[first] != 0 {
            continue;
        }
        count += 1;
        labels[first] = count;
        let mut open = vec![first];
        while let Some(at) = open.pop() {
            let from = place(at, shape);
            for neighbour in 0..27 {
                let step = [neighbour / 9, neighbour / 3 % 3, neighbour % 3];
                if step.iter().filter(|step| **step != 1).count() > axes {
                    continue;
                }
                let to: [usize; 3] = std::array::from_fn(|axis| (from[axis] + step[axis]).wrapping_sub(1));
                if (0..3).any(|axis| to[axis] >= shape[axis]) {
                    continue;
                }
                let to = (to[0] * shape[1] + to[1]) * shape[2] + to[2];
                let same = if region == Region::SameLabel { mask[to] == mask[at] } else { mask[to] != 0 };
                if same && labels[to] == 0 {
                    labels[to] = count;
                    open.push(to);
                }
            }
        }
    }
    labels
}

#[test]
fn agrees_with_scipy_on_noise() {
    let (shape, mask) = ([18, 21, 35], oracle("components_binary.u8"));
    for (connectivity, name) in ALL {
        let expected = oracle_u32(&format!("components_binary_{name}.u32"));
        for threads in [1, 2, 3, 8] {
            let (labels, count) = label(&mask, shape, connectivity, Region::Foreground, threads);
            assert_eq!(labels, expected, "{name} {threads}");
            assert_eq!(Some(&count), expected.iter().max());
        }
    }
}

#[test]
fn agrees_with_cc3d_on_regions_of_many_labels() {
    let (shape, mask) = ([16, 20, 30], oracle("components_labelled.u8"));
    for (connectivity, name) in ALL {
        let expected = oracle_u32(&format!("components_labelled_{name}.u32"));
        let (labels, _) = label(&mask, shape, connectivity, Region::SameLabel, 2);
        assert_eq!(labels, expected, "{name}");
    }
}

#[test]
fn agrees_with_a_flood_fill_on_random_masks_for_any_number_of_threads() {
    let mut random = Random(6);
    for case in 0..600 {
        let mut shape = random_shape(&mut random, 9);
        if case % 4 == 0 {
            shape[2] = 50 + random.below(90);
        }
        let labels = 2 + random.below(3);
        let mask = random_mask(&mut random, shape, labels);
        for (connectivity, _) in ALL {
            for region in [Region::Foreground, Region::SameLabel] {
                let (found, _) = label(&mask, shape, connectivity, region, 1 + random.below(4));
                assert_eq!(found, flood(&mask, shape, connectivity, region), "case {case} {connectivity:?}");
            }
        }
    }
}

#[test]
fn ties_for_the_largest_component_go_to_the_first() {
    let mask = [1u8, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1];
    let (labels, count) = label(&mask, [1, 1, 12], Connectivity::Faces, Region::Foreground, 1);
    let budget = Budget::new(Bytes::mib(1));
    let sizes = component_sizes(&labels, count, &budget).unwrap();
    assert_eq!(sizes[..], [3, 2, 3, 3, 1]);
    assert_eq!(largest_component(&sizes), Some(2));
    assert_eq!(largest_component(&[12]), None);
}

#[test]
fn an_empty_mask_has_no_components() {
    assert_eq!(label(&[0u16; 24], [2, 3, 4], Connectivity::Corners, Region::Foreground, 2), (vec![0; 24], 0));
    assert_eq!(label::<u8>(&[], [0, 3, 4], Connectivity::Corners, Region::Foreground, 2), (vec![], 0));
}

#[test]
fn invalid_arguments_are_refused() {
    let budget = Budget::new(Bytes::mib(1));
    let shape = [2, 3, 4];
    let run = |mask: &[u8], labels: &mut [u32], shape, threads, budget: &Budget| {
        components(mask, shape, Connectivity::Faces, Region::Foreground, labels, budget, threads)
    };
    assert!(matches!(run(&[0; 23], &mut [0; 24], shape, 1, &budget), Err(MorphologyError::Length { .. })));
    assert!(matches!(run(&[0; 24], &mut [0; 23], shape, 1, &budget), Err(MorphologyError::Length { .. })));
    assert!(matches!(run(&[0; 24], &mut [0; 24], shape, 0, &budget), Err(MorphologyError::NoThreads)));
    let none = Budget::new(Bytes::ZERO);
    assert!(matches!(run(&[0; 24], &mut [0; 24], shape, 1, &none), Err(MorphologyError::Memory(_))));
}
