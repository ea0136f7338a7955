//! Properties of grids, orientations, boxes and maps.

use plimsoll_volume::{
    Affine, Direction, Geometry, GeometryDifference, GeometryError, Reorientation, SingularMap, Spacing,
    VoxelBox, VoxelMap,
};
use proptest::prelude::*;

fn close(a: [f64; 3], b: [f64; 3], tolerance: f64) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance)
}

fn indices(shape: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [depth, height, width] = shape;
    (0..depth).flat_map(move |d| (0..height).flat_map(move |h| (0..width).map(move |w| [d, h, w])))
}

prop_compose! {
    /// A grid in any orientation, somewhat sheared, up to a metre from the origin.
    fn grids()(
        shape in prop::array::uniform3(1usize..6),
        spacing in prop::array::uniform3(0.1..5.0f64),
        angles in prop::array::uniform3(-3.2..3.2f64),
        shear in -0.3..0.3f64,
        shift in prop::array::uniform3(-1000.0..1000.0f64),
        mirrored: bool,
    ) -> Geometry {
        let turn = VoxelMap::rotation(angles, Spacing([1.0; 3]), [0.0; 3]).rows();
        let mut rows = [[0.0; 4]; 3];
        for (row, values) in rows.iter_mut().enumerate() {
            for column in 0..3 {
                values[column] = turn[row][column] * spacing[column];
            }
            values[0] += shear * values[1];
            if mirrored {
                values[2] = -values[2];
            }
            values[3] = shift[row];
        }
        Geometry::new(shape, Affine(rows)).unwrap()
    }
}

prop_compose! {
    fn maps()(
        angles in prop::array::uniform3(-3.2..3.2f64),
        factors in prop::array::uniform3(0.3..3.0f64),
        centre in prop::array::uniform3(-10.0..10.0f64),
        offset in prop::array::uniform3(-10.0..10.0f64),
    ) -> VoxelMap {
        VoxelMap::translation(offset)
            .then(&VoxelMap::scale(factors, centre))
            .then(&VoxelMap::rotation(angles, Spacing([2.0, 1.0, 0.5]), centre))
    }
}

proptest! {
    #[test]
    fn voxel_to_world_and_back_is_the_identity(grid in grids(), at in prop::array::uniform3(-50.0..50.0f64)) {
        let there = grid.voxel_to_world(at);
        prop_assert!(close(grid.world_to_voxel(there), at, 1e-8));
    }

    #[test]
    fn a_map_between_grids_agrees_with_the_path_through_the_world(
        output in grids(), source in grids(), at in prop::array::uniform3(0.0..5.0f64),
    ) {
        let through = source.world_to_voxel(output.voxel_to_world(at));
        let map = VoxelMap::between(&output, &source);
        prop_assert!(close(map.apply(at), through, 1e-6));
        prop_assert_eq!(VoxelMap::between(&output, &output), VoxelMap::IDENTITY);
    }

    #[test]
    fn maps_compose_and_invert(first in maps(), second in maps(), at in prop::array::uniform3(-20.0..20.0f64)) {
        let both = first.then(&second);
        prop_assert!(close(both.apply(at), second.apply(first.apply(at)), 1e-6));
        let back = first.inverse().unwrap();
        prop_assert!(close(back.apply(first.apply(at)), at, 1e-6));
        prop_assert_eq!(first.then(&back), VoxelMap::IDENTITY);
    }

    #[test]
    fn the_source_box_contains_all_voxels_around_all_samples(
        map in maps(),
        output in prop::array::uniform3(1usize..6),
        source in prop::array::uniform3(1usize..20),
        margin in 0usize..3,
    ) {
        let found = map.source_box(output, source, margin);
        let mut any = false;
        for index in indices(output) {
            let at = map.apply(index.map(|i| i as f64));
            for corner in 0..8 {
                let voxel: [f64; 3] = std::array::from_fn(|axis| {
                    if corner >> axis & 1 == 1 { at[axis].ceil() } else { at[axis].floor() }
                });
                if (0..3).all(|axis| voxel[axis] >= 0.0 && voxel[axis] < source[axis] as f64) {
                    any = true;
                    let voxel = voxel.map(|x| x as usize);
                    prop_assert!(found.is_some_and(|found| found.contains_voxel(voxel)));
                }
            }
        }
        if let Some(found) = found {
            prop_assert!(found.is_within(source) && !found.is_empty());
            prop_assert_eq!(map.clamped_source_box(output, source, margin), Some(found));
        } else {
            prop_assert!(!any);
        }
        let clamped = map.clamped_source_box(output, source, margin).unwrap();
        prop_assert!(clamped.is_within(source) && !clamped.is_empty());
    }

    #[test]
    fn canonical_voxels_keep_their_world_positions(grid in grids()) {
        let (canonical, reorientation) = grid.canonical();
        prop_assert_eq!(canonical.voxel_count(), grid.voxel_count());
        let map = reorientation.voxel_map(grid.shape());
        for index in indices(canonical.shape()) {
            let source = reorientation.source_index(index, grid.shape()).unwrap();
            let (index, source) = (index.map(|i| i as f64), source.map(|i| i as f64));
            prop_assert!(close(canonical.voxel_to_world(index), grid.voxel_to_world(source), 1e-9));
            prop_assert_eq!(map.apply(index), source);
        }
        let axes = canonical.orientation().axes;
        prop_assert_eq!(axes, [Direction::Superior, Direction::Anterior, Direction::Right]);
        prop_assert!((canonical.orientation().obliqueness - grid.orientation().obliqueness).abs() < 1e-9);
        prop_assert_eq!(canonical.canonical(), (canonical, Reorientation::IDENTITY));
    }

    #[test]
    fn a_reorientation_and_its_inverse_cancel(
        grid in grids(), flip: [bool; 3], order in Just([0usize, 1, 2]).prop_shuffle(),
    ) {
        let reorientation = Reorientation::new(order, flip).unwrap();
        let there = reorientation.geometry(&grid);
        let back = reorientation.inverse().geometry(&there);
        prop_assert!(grid.difference(&back, 1e-9).is_none());
        prop_assert_eq!(reorientation.inverse().inverse(), reorientation);
        for index in indices(there.shape()) {
            let source = reorientation.source_index(index, grid.shape()).unwrap();
            prop_assert_eq!(reorientation.inverse().source_index(source, there.shape()), Some(index));
        }
    }

    #[test]
    fn the_intersection_of_boxes_is_their_shared_voxels(
        a in (prop::array::uniform3(0usize..5), prop::array::uniform3(0usize..4)),
        b in (prop::array::uniform3(0usize..5), prop::array::uniform3(0usize..4)),
    ) {
        let [a, b] = [a, b].map(|(start, shape)| VoxelBox { start, shape });
        let both = a.intersect(&b);
        let mut shared = 0;
        for index in indices([9; 3]) {
            let expected = a.contains_voxel(index) && b.contains_voxel(index);
            prop_assert_eq!(both.is_some_and(|both| both.contains_voxel(index)), expected);
            shared += usize::from(expected);
        }
        prop_assert_eq!(both.map_or(Some(0), |both| both.voxel_count()), Some(shared));
        prop_assert!(both.is_none_or(|both| a.contains(&both) && b.contains(&both)));
    }

    #[test]
    fn grids_round_trip_through_json(grid in grids()) {
        let text = serde_json::to_string(&grid).unwrap();
        let back: Geometry = serde_json::from_str(&text).unwrap();
        prop_assert!(grid.difference(&back, 1e-9).is_none());
    }
}

#[test]
fn invalid_grids_are_refused() {
    let straight = Affine::from_spacing(Spacing([3.0, 2.0, 1.0]));
    assert_eq!(straight.0, [[0.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]]);
    assert_eq!(straight.spacing(), Spacing([3.0, 2.0, 1.0]));
    let shape = [3, 0, 1];
    assert_eq!(Geometry::new(shape, straight), Err(GeometryError::Empty { shape }));
    let shape = [usize::MAX, 2, 1];
    assert_eq!(Geometry::new(shape, straight), Err(GeometryError::TooLarge { shape }));
    let mut affine = straight;
    affine.0[2][0] = 0.0;
    assert_eq!(Geometry::new([1; 3], affine), Err(GeometryError::Spacing { axis: "depth", value: 0.0 }));
    affine.0[2] = [0.0, 0.0, 1.0, 0.0];
    affine.0[0] = [1.0, 0.0, 1.0, 0.0];
    affine.0[1] = [0.0, 0.0, 0.0, 0.0];
    affine.0[1][1] = f64::NAN;
    assert!(matches!(Geometry::new([1; 3], affine), Err(GeometryError::NotFinite { row: 1, column: 1, .. })));
    affine.0[1] = [1.0, 1.0, 2.0, 0.0];
    affine.0[2] = [0.0, 1.0, 1.0, 0.0];
    assert!(matches!(Geometry::new([1; 3], affine), Err(GeometryError::Singular { .. })));
    let text = r#"{"shape":[2,0,2],"affine":[[1,0,0,0],[0,1,0,0],[0,0,1,0]]}"#;
    let error = serde_json::from_str::<Geometry>(text).unwrap_err();
    assert!(error.to_string().contains("empty axis"), "{error}");
}

#[test]
fn a_difference_is_the_largest_displacement_of_a_corner() {
    let straight = Affine::from_spacing(Spacing([1.0; 3]));
    let mut stretched = straight;
    stretched.0[0][2] = 1.01;
    let grid = Geometry::new([5, 5, 101], straight).unwrap();
    let other = Geometry::new([5, 5, 101], stretched).unwrap();
    assert_eq!(grid.difference(&other, 1.01), None);
    let Some(GeometryDifference::Affine { displacement }) = grid.difference(&other, 0.99) else { panic!() };
    assert!((displacement - 1.0).abs() < 1e-12);
}

#[test]
fn obliqueness_is_in_degrees() {
    let turn = VoxelMap::rotation([10f64.to_radians(), 0.0, 0.0], Spacing([1.0; 3]), [0.0; 3]).rows();
    // Rows of the map are depth, height, width; rows of an affine are x, y, z.
    let grid = Geometry::new([2; 3], Affine([turn[2], turn[1], turn[0]])).unwrap();
    assert_eq!(grid.orientation().to_string(), "SAR");
    assert!((grid.orientation().obliqueness - 10.0).abs() < 1e-9);
}

#[test]
fn rotations_turn_in_the_documented_direction() {
    let unit = Spacing([1.0; 3]);
    let quarter = std::f64::consts::FRAC_PI_2;
    let turn = |radians| VoxelMap::rotation(radians, unit, [0.0; 3]);
    // Height towards width, width towards depth, depth towards height.
    assert_eq!(turn([quarter, 0.0, 0.0]).apply([0.0, 1.0, 0.0]), [0.0, 0.0, 1.0]);
    assert_eq!(turn([0.0, quarter, 0.0]).apply([0.0, 0.0, 1.0]), [1.0, 0.0, 0.0]);
    assert_eq!(turn([0.0, 0.0, quarter]).apply([1.0, 0.0, 0.0]), [0.0, 1.0, 0.0]);
    // Width first, which turns height away from depth; then height, which turns that towards width.
    assert_eq!(turn([0.0, quarter, quarter]).apply([0.0, 1.0, 0.0]), [0.0, 0.0, 1.0]);
    // On voxels four times as deep as wide, a quarter turn moves eight columns where it moved two slices.
    let map = VoxelMap::rotation([0.0, quarter, 0.0], Spacing([4.0, 1.0, 1.0]), [5.0, 5.0, 5.0]);
    assert!(close(map.apply([5.0, 5.0, 13.0]), [7.0, 5.0, 5.0], 1e-12));
    assert!(close(map.apply([5.0, 5.0, 5.0]), [5.0, 5.0, 5.0], 0.0));
}

#[test]
fn resizing_keeps_the_outer_faces_in_place() {
    let map = VoxelMap::resize([4, 5, 6], [8, 5, 2]);
    assert_eq!(map.apply([-0.5, -0.5, -0.5]), [-0.5, -0.5, -0.5]);
    assert!(close(map.apply([3.5, 4.5, 5.5]), [7.5, 4.5, 1.5], 1e-12));
    assert_eq!(VoxelMap::resize([4; 3], [4; 3]), VoxelMap::IDENTITY);
}

#[test]
fn a_singular_map_has_no_inverse() {
    assert_eq!(VoxelMap::scale([1.0, 0.0, 1.0], [0.0; 3]).inverse(), Err(SingularMap));
}

#[test]
fn an_output_beyond_the_source_touches_nothing() {
    let shape = [4; 3];
    let map = |offset| VoxelMap::translation([0.0, 0.0, offset]);
    assert_eq!(map(4.0).source_box(shape, shape, 0), None);
    assert_eq!(map(-4.0).source_box(shape, shape, 0), None);
    assert_eq!(map(-3.0).source_box(shape, shape, 0), Some(VoxelBox { start: [0; 3], shape: [4, 4, 1] }));
    assert_eq!(map(4.0).source_box(shape, shape, 1), Some(VoxelBox { start: [0, 0, 3], shape: [4, 4, 1] }));
    let edge = map(1e300).clamped_source_box(shape, shape, 0);
    assert_eq!(edge, Some(VoxelBox { start: [0, 0, 3], shape: [4, 4, 1] }));
    assert_eq!(map(f64::NAN).source_box(shape, shape, 0), None);
    assert_eq!(VoxelMap::IDENTITY.source_box([0, 1, 1], shape, 0), None);
}

#[test]
fn boxes_that_overflow_contain_nothing() {
    let far = VoxelBox { start: [usize::MAX, 0, 0], shape: [2, 1, 1] };
    assert_eq!((far.end(), far.intersect(&far), far.is_within([usize::MAX; 3])), (None, None, false));
    assert_eq!(VoxelBox::whole([usize::MAX, 2, 1]).voxel_count(), None);
    assert!(Reorientation::new([0, 0, 2], [false; 3]).is_none());
    assert_eq!(Reorientation::IDENTITY.source_index([0, 0, 9], [4; 3]), None);
}
