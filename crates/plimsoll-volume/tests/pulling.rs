//! Interpolation against SciPy, and the properties that patches rely on.

use crate::support::oracle;
use plimsoll_volume::{
    Outside, PullError, Reorientation, SourceBlock, Spacing, VoxelBox, VoxelMap, pull_linear, pull_nearest,
};
use proptest::prelude::*;
use serde_json::Value;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn shape(value: &Value) -> [usize; 3] {
    numbers(value).into_iter().map(|size| size as usize).collect::<Vec<_>>().try_into().unwrap()
}

/// Deterministic pseudo-random voxels.
fn noise(shape: [usize; 3]) -> Vec<f32> {
    let hash = |i: usize| (i as u32 + 1).wrapping_mul(2_654_435_761) >> 12;
    (0..shape.iter().product()).map(|i| hash(i) as f32 / 1000.0 - 500.0).collect()
}

/// The part of a volume that a box covers.
fn cut<T: Copy>(voxels: &[T], shape: [usize; 3], region: VoxelBox) -> Vec<T> {
    let all = VoxelMap::translation(region.start.map(|start| start as f64));
    let mut out = vec![voxels[0]; region.voxel_count().unwrap()];
    let source = SourceBlock::whole(voxels, shape).unwrap();
    pull_nearest(&source, &all, region.shape, Outside::Clamp, &mut out).unwrap();
    out
}

#[test]
fn samples_are_those_of_scipy() {
    let oracle = oracle("volume_pulls.json");
    let source_shape = shape(&oracle["shape"]);
    let image: Vec<f32> = numbers(&oracle["image"]).into_iter().map(|value| value as f32).collect();
    let labels: Vec<u8> = numbers(&oracle["labels"]).into_iter().map(|value| value as u8).collect();
    for pull in oracle["pulls"].as_array().unwrap() {
        let name = &pull["name"];
        let rows: Vec<[f64; 4]> =
            pull["rows"].as_array().unwrap().iter().map(|row| numbers(row).try_into().unwrap()).collect();
        let map = VoxelMap::new(rows.try_into().unwrap());
        let out_shape = shape(&pull["shape"]);
        let count = out_shape.iter().product();
        let (linear, nearest) = (numbers(&pull["linear"]), numbers(&pull["nearest"]));
        let inside: Vec<bool> = numbers(&pull["inside"]).into_iter().map(|inside| inside == 1.0).collect();
        let block = SourceBlock::whole(&image, source_shape).unwrap();
        let label_block = SourceBlock::whole(&labels, source_shape).unwrap();

        let mut out = vec![f32::NAN; count];
        pull_linear(&block, &map, out_shape, Outside::Clamp, &mut out).unwrap();
        for (ours, theirs) in out.iter().zip(&linear) {
            assert!((f64::from(*ours) - theirs).abs() < 5e-4, "{name}: {ours} against {theirs}");
        }
        pull_linear(&block, &map, out_shape, Outside::Constant(-2000.0), &mut out).unwrap();
        for ((ours, theirs), inside) in out.iter().zip(&linear).zip(&inside) {
            let theirs = if *inside { *theirs } else { -2000.0 };
            assert!((f64::from(*ours) - theirs).abs() < 5e-4, "{name}: {ours} against {theirs}");
        }
        let mut out = vec![99; count];
        pull_nearest(&label_block, &map, out_shape, Outside::Clamp, &mut out).unwrap();
        assert!(out.iter().zip(&nearest).all(|(ours, theirs)| f64::from(*ours) == *theirs), "{name}");
        pull_nearest(&label_block, &map, out_shape, Outside::Constant(77), &mut out).unwrap();
        for ((ours, theirs), inside) in out.iter().zip(&nearest).zip(&inside) {
            assert_eq!(f64::from(*ours), if *inside { *theirs } else { 77.0 }, "{name}");
        }
    }
}

#[test]
fn crops_and_reorientations_are_bitwise_copies() {
    let source_shape = [3, 4, 5];
    let mut image = noise(source_shape);
    // Values that arithmetic would not preserve.
    for (i, odd) in [f32::NAN, f32::INFINITY, -0.0, f32::MIN_POSITIVE / 2.0].into_iter().enumerate() {
        image[i * 13] = odd;
    }
    let source = SourceBlock::whole(&image, source_shape).unwrap();
    let bits = |voxels: &[f32]| voxels.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let mut out = vec![0.0; 60];
    pull_linear(&source, &VoxelMap::IDENTITY, source_shape, Outside::Clamp, &mut out).unwrap();
    assert_eq!(bits(&out), bits(&image));
    for (order, flip) in [([2, 0, 1], [true, false, true]), ([0, 2, 1], [false; 3]), ([2, 1, 0], [true; 3])] {
        let reorientation = Reorientation::new(order, flip).unwrap();
        let there = reorientation.shape(source_shape);
        let map = reorientation.voxel_map(source_shape);
        pull_linear(&source, &map, there, Outside::Constant(7.0), &mut out).unwrap();
        let turned = SourceBlock::whole(&out, there).unwrap();
        let mut back = vec![0.0; 60];
        let map = reorientation.inverse().voxel_map(there);
        pull_linear(&turned, &map, source_shape, Outside::Constant(7.0), &mut back).unwrap();
        assert_eq!(bits(&back), bits(&image));
        assert_ne!(bits(&out), bits(&image));
    }
}

#[test]
fn the_constant_begins_half_a_voxel_outside() {
    let source = SourceBlock::whole(&[10.0f32, 20.0], [1, 1, 2]).unwrap();
    let sample = |at: f64| {
        let mut out = [f32::NAN];
        let map = VoxelMap::translation([0.0, 0.0, at]);
        pull_linear(&source, &map, [1; 3], Outside::Constant(-1.0), &mut out).unwrap();
        out[0]
    };
    assert_eq!(
        [-0.6, -0.5, -0.1, 0.25, 1.0, 1.5, 1.6].map(sample),
        [-1.0, 10.0, 10.0, 12.5, 20.0, 20.0, -1.0]
    );
}

#[test]
fn a_constant_image_stays_constant_under_any_map() {
    let image = vec![0.1f32; 5 * 6 * 7];
    let source = SourceBlock::whole(&image, [5, 6, 7]).unwrap();
    let map = VoxelMap::rotation([0.3, -0.2, 0.9], Spacing([3.0, 1.0, 1.0]), [2.0, 3.0, 3.0]);
    let mut out = vec![0.0; 512];
    pull_linear(&source, &map, [8; 3], Outside::Clamp, &mut out).unwrap();
    assert!(out.iter().all(|value| value.to_bits() == 0.1f32.to_bits()));
}

#[test]
fn invalid_samplings_are_errors() {
    let image = noise([4; 3]);
    let region = VoxelBox { start: [0; 3], shape: [4, 4, 2] };
    let block = SourceBlock::new(&image[..32], region, [4; 3]).unwrap();
    let mut out = vec![0.0; 64];
    let error = pull_linear(&block, &VoxelMap::IDENTITY, [4; 3], Outside::Clamp, &mut out).unwrap_err();
    let needed = VoxelBox::whole([4; 3]);
    assert_eq!(error, PullError::BlockTooSmall { needed, given: region });
    assert!(error.remedy().is_some());
    let error = pull_linear(&block, &VoxelMap::IDENTITY, [4, 4, 2], Outside::Clamp, &mut out).unwrap_err();
    assert_eq!(error, PullError::Length { shape: [4, 4, 2], found: 64 });
    for odd in [f64::NAN, f64::INFINITY, 1e308] {
        let map = VoxelMap::scale([odd; 3], [0.0; 3]).then(&VoxelMap::translation([0.0, odd, 0.0]));
        let result = pull_linear(&block, &map, [4; 3], Outside::Clamp, &mut out);
        assert_eq!(result, Err(PullError::NotFinite), "{odd}");
    }
    let outside = VoxelBox { start: [0, 0, 3], shape: [4, 4, 2] };
    assert!(matches!(SourceBlock::new(&image[..32], outside, [4; 3]), Err(PullError::BlockOutside { .. })));
    assert!(matches!(SourceBlock::new(&image[..31], region, [4; 3]), Err(PullError::Length { .. })));
    pull_linear(&block, &VoxelMap::IDENTITY, [0, 4, 4], Outside::Clamp, &mut []).unwrap();
    pull_linear(&block, &VoxelMap::IDENTITY, [4, 4, 0], Outside::Constant(0.0), &mut []).unwrap();
}

prop_compose! {
    /// Maps of both kinds: axis-aligned ones (with permutations, flips and constant axes) and others.
    fn maps()(
        angles in prop::array::uniform3(-3.2..3.2f64),
        factors in prop::array::uniform3(
            prop_oneof![-2.5..2.5f64, Just(0.0), Just(1.0), Just(-1.0), Just(0.5)]
        ),
        offset in prop::array::uniform3(
            prop_oneof![-6.0..10.0f64, (-12i32..20).prop_map(|half| f64::from(half) / 2.0)]
        ),
        order in Just([0usize, 1, 2]).prop_shuffle(),
        aligned: bool,
    ) -> VoxelMap {
        let mut rows = [[0.0; 4]; 3];
        for axis in 0..3 {
            rows[axis][order[axis]] = factors[axis];
            rows[axis][3] = offset[axis];
        }
        let map = VoxelMap::new(rows);
        if aligned { map } else { VoxelMap::rotation(angles, Spacing([1.0; 3]), [2.0; 3]).then(&map) }
    }
}

/// A sample straight from the definition, in f64.
fn by_definition(image: &[f32], shape: [usize; 3], at: [f64; 3], outside: Outside<f32>) -> f64 {
    if let Outside::Constant(value) = outside
        && (0..3).any(|axis| at[axis] < -0.5 || at[axis] > shape[axis] as f64 - 0.5)
    {
        return f64::from(value);
    }
    let at: [f64; 3] = std::array::from_fn(|axis| at[axis].clamp(0.0, (shape[axis] - 1) as f64));
    let mut sum = 0.0;
    for corner in 0..8 {
        let mut weight = 1.0;
        let voxel: [usize; 3] = std::array::from_fn(|axis| {
            let low = at[axis].floor();
            let upper = corner >> axis & 1 == 1;
            weight *= if upper { at[axis] - low } else { 1.0 - (at[axis] - low) };
            (low as usize + usize::from(upper)).min(shape[axis] - 1)
        });
        sum += weight * f64::from(image[(voxel[0] * shape[1] + voxel[1]) * shape[2] + voxel[2]]);
    }
    sum
}

proptest! {
    #[test]
    fn any_map_samples_what_the_definition_says(
        map in maps(),
        source_shape in prop::array::uniform3(1usize..9),
        out_shape in prop::array::uniform3(1usize..7),
        constant: bool,
    ) {
        let image = noise(source_shape);
        let outside = if constant { Outside::Constant(123.0) } else { Outside::Clamp };
        let source = SourceBlock::whole(&image, source_shape).unwrap();
        let mut out = vec![f32::NAN; out_shape.iter().product()];
        pull_linear(&source, &map, out_shape, outside, &mut out).unwrap();
        for (i, ours) in out.iter().enumerate() {
            let index = [i / (out_shape[1] * out_shape[2]), i / out_shape[2] % out_shape[1], i % out_shape[2]];
            let theirs = by_definition(&image, source_shape, map.apply(index.map(|i| i as f64)), outside);
            prop_assert!((f64::from(*ours) - theirs).abs() < 1e-3, "{:?}: {} {}", index, ours, theirs);
        }
    }

    #[test]
    fn the_result_does_not_depend_on_how_much_of_the_source_is_given(
        map in maps(),
        source_shape in prop::array::uniform3(1usize..9),
        out_shape in prop::array::uniform3(1usize..7),
        constant: bool,
        margin in 0usize..2,
    ) {
        let image = noise(source_shape);
        let labels: Vec<u16> = (0..image.len() as u16).collect();
        let count = out_shape.iter().product();
        let (outside, label_outside, needed) = if constant {
            let needed = map.source_box(out_shape, source_shape, margin);
            (Outside::Constant(5.0), Outside::Constant(999), needed)
        } else {
            (Outside::Clamp, Outside::Clamp, map.clamped_source_box(out_shape, source_shape, margin))
        };
        let needed = needed.unwrap_or(VoxelBox { start: [0; 3], shape: [0; 3] });
        let (mut whole, mut part) = (vec![0.0; count], vec![1.0; count]);
        let source = SourceBlock::whole(&image, source_shape).unwrap();
        pull_linear(&source, &map, out_shape, outside, &mut whole).unwrap();
        let block = cut(&image, source_shape, needed);
        let source = SourceBlock::new(&block, needed, source_shape).unwrap();
        pull_linear(&source, &map, out_shape, outside, &mut part).unwrap();
        prop_assert_eq!(whole, part);
        let (mut whole, mut part) = (vec![0; count], vec![1; count]);
        let source = SourceBlock::whole(&labels, source_shape).unwrap();
        pull_nearest(&source, &map, out_shape, label_outside, &mut whole).unwrap();
        let block = cut(&labels, source_shape, needed);
        let source = SourceBlock::new(&block, needed, source_shape).unwrap();
        pull_nearest(&source, &map, out_shape, label_outside, &mut part).unwrap();
        prop_assert_eq!(whole, part);
    }
}
