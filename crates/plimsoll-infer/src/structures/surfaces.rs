//! Surfaces of structures: meshes and diameters, of as many structures in one pass as there is room for.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_volume::VoxelBox;

use super::census::Censuses;
use super::extents::{self, Extents};
use super::hull::{Line, Place, hull_of};
use super::mesh::{Cubes, Passed, Surface};
use super::passes::Pass;
use super::runs::Places;
use crate::error::InferError;

/// The largest distances between points of a surface in mm: middles of faces between voxels inside and outside.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Diameters {
    /// Between any two points.
    pub all: f64,
    /// Between points of one plane across depth: PyRadiomics' slices.
    pub slice: f64,
    /// Between points of one plane across height: PyRadiomics' columns.
    pub column: f64,
    /// Between points of one plane across width: PyRadiomics' rows.
    pub row: f64,
}

/// A structure whose surface is found in a pass.
struct Tracked {
    structure: usize,
    start: [usize; 3],
    passed: Box<Passed>,
    extents: Extents,
}

/// The most bytes beside planes and structures: two planes with a margin, and the surface of one structure as large as the
/// image.
pub(super) fn bytes(shape: [usize; 3]) -> u64 {
    const PAGES: u64 = 3 * 4096;
    let margined = shape[1..].iter().fold(2u64, |product, extent| product.saturating_mul(*extent as u64 + 2));
    surface_bytes(shape).saturating_add(margined).saturating_add(PAGES)
}

/// The most bytes of the surface of a structure in a box.
fn surface_bytes(shape: [usize; 3]) -> u64 {
    let lengths: u64 = shape.iter().map(|extent| 2 * *extent as u64 + 1).sum();
    let of_planes = lengths.saturating_mul((size_of::<Plane>() + 2 * size_of::<Place>()) as u64);
    // Corners of hulls are at most two for each line along width, which occupy twice as much as the ends of lines.
    let lines = extents::bytes(shape).saturating_mul(3);
    lines.saturating_add(of_planes).saturating_add(size_of::<Passed>() as u64)
}

/// The surfaces and the diameters of all structures that have voxels.
pub(super) fn measure(
    pass: &mut Pass<'_>,
    censuses: &Censuses,
    budget: &Budget,
) -> Result<Vec<Option<(Surface, Diameters)>>, InferError> {
    let cubes = Cubes::new();
    let (shape, spacing) = (pass.files.shape(), pass.files.spacing());
    let _planes = Window::reserve(shape, budget)?;
    let mut waiting: Vec<(usize, VoxelBox)> =
        censuses.iter().enumerate().filter_map(|(at, census)| Some((at, census.bounds()?))).collect();
    let mut found: Vec<Option<(Surface, Diameters)>> = censuses.iter().map(|_| None).collect();
    while !waiting.is_empty() {
        let mut tracked = Vec::new();
        let mut held = Vec::new();
        let mut later = Vec::new();
        for (structure, bounds) in waiting {
            // The first always fits, or the limit is too low for it.
            if !tracked.is_empty() && budget.free() < Bytes(surface_bytes(bounds.shape)) {
                later.push((structure, bounds));
                continue;
            }
            held.push(budget.reserve("the surface of a structure", Bytes(size_of::<Passed>() as u64))?);
            let extents = Extents::new(bounds, budget)?;
            tracked.push(Tracked { structure, start: bounds.start, passed: Box::default(), extents });
        }
        waiting = later;
        track(pass, &mut tracked, &cubes)?;
        for Tracked { structure, passed, extents, .. } in tracked {
            let diameters = diameters(extents, spacing, budget, pass.stop)?;
            pass.go_on()?;
            found[structure] = Some((cubes.surface(&passed, spacing), diameters));
        }
    }
    Ok(found)
}

/// Two planes of labels with a margin of background, so that each cube has eight voxels.
struct Window {
    before: Vec<u8>,
    here: Vec<u8>,
    width: usize,
}

impl Window {
    fn reserve([_, height, width]: [usize; 3], budget: &Budget) -> Result<Reservation, InferError> {
        Ok(budget.reserve("planes of labels", Bytes::from_len(2 * (height + 2) * (width + 2)))?)
    }

    fn new([_, height, width]: [usize; 3]) -> Window {
        let voxels = (height + 2) * (width + 2);
        Window { before: vec![0; voxels], here: vec![0; voxels], width: width + 2 }
    }

    /// Moves on by a plane.
    fn push(&mut self, plane: &[u8]) {
        std::mem::swap(&mut self.before, &mut self.here);
        let width = self.width - 2;
        let rows = self.here.chunks_exact_mut(self.width).skip(1);
        rows.zip(plane.chunks_exact(width)).for_each(|(to, from)| to[1..=width].copy_from_slice(from));
    }

    /// Moves on to the plane behind the last one.
    fn push_background(&mut self) {
        std::mem::swap(&mut self.before, &mut self.here);
        self.here.fill(0);
    }

    /// Calls `visit` with the labels of each cube that does not lie inside one structure, and with the voxel at its last corner, which may lie
    /// behind the last row and the last column.
    fn for_each_cube(&self, mut visit: impl FnMut([u8; 8], [usize; 2])) {
        let Window { before, here, width } = self;
        let rows = before.chunks_exact(*width).zip(here.chunks_exact(*width));
        for (y, ((a, c), (b, d))) in rows.clone().zip(rows.skip(1)).enumerate() {
            let column = |x: usize| [a[x], b[x], c[x], d[x]];
            let mut left = column(0);
            for x in 1..*width {
                let right = column(x);
                let is_uniform = left == right && left.iter().all(|label| *label == left[0]);
                if !is_uniform {
                    let [[a, b, c, d], [e, f, g, h]] = [left, right];
                    visit([a, e, b, f, c, g, d, h], [y, x - 1]);
                }
                left = right;
            }
        }
    }
}

/// Passes the label map once and counts the cubes of some structures.
fn track(pass: &mut Pass<'_>, tracked: &mut [Tracked], cubes: &Cubes) -> Result<(), InferError> {
    let shape = pass.files.shape();
    let mut of_structure = vec![None; pass.files.places().iter().flatten().max().map_or(0, |last| last + 1)];
    tracked.iter().enumerate().for_each(|(at, of)| of_structure[of.structure] = Some(at));
    let of_label: Places = pass.files.places().map(|place| place.and_then(|place| of_structure[place]));
    let mut window = Window::new(shape);
    let mut depth = 0;
    let mut count = |window: &Window, z: usize| {
        window.for_each_cube(|labels, [y, x]| {
            for (corner, label) in labels.iter().enumerate() {
                let is_again = labels[..corner].contains(label);
                if let (Some(at), false) = (of_label[usize::from(*label)], is_again) {
                    tracked[at].count(cubes, &labels, *label, [z, y, x]);
                }
            }
        });
    };
    pass.over_labels(|z, plane| {
        window.push(plane);
        count(&window, z);
        depth = z + 1;
    })?;
    window.push_background();
    count(&window, depth);
    Ok(())
}

impl Tracked {
    /// Counts a cube. `last` is the voxel at its last corner.
    fn count(&mut self, cubes: &Cubes, labels: &[u8; 8], label: u8, last: [usize; 3]) {
        let is_inside = |corner: usize| labels[corner] == label;
        let inside = (0..8).fold(0u8, |inside, corner| inside | u8::from(is_inside(corner)) << corner);
        let first = std::array::from_fn(|axis| last[axis] - self.start[axis]);
        cubes.count(&mut self.passed, inside, first);
        for (axis, before) in [7 - 4, 7 - 2, 7 - 1].into_iter().enumerate() {
            if is_inside(7) != is_inside(before) {
                self.extents.add(last, axis);
            }
        }
    }
}

/// The diameters of a structure. Its lines are given up for the corners of hulls.
fn diameters(
    extents: Extents,
    spacing: [f64; 3],
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<Diameters, InferError> {
    let [depth, height, width] = extents.places();
    let [z, y, x] = spacing.map(|length| length / 2.0);
    let longest = depth.max(height) * 2;
    let _scratch = budget.reserve("corners of a hull", Bytes::from_len(longest * size_of::<Place>()))?;
    let mut hull = Vec::with_capacity(longest);
    let column = (0..height).map(|at| widest(extents.across_height(at), [z, x], &mut hull));
    let column = column.fold(0.0, f64::max);
    let row = (0..width).map(|at| widest(extents.across_width(at), [z, y], &mut hull)).fold(0.0, f64::max);
    let mut slice: f64 = 0.0;
    let mut count = 0;
    for at in 0..depth {
        slice = slice.max(widest(extents.slice(at), [y, x], &mut hull));
        count += hull.len();
    }
    let mut corners = Mapped::<Place>::zeroed(budget, "corners of hulls", count)?;
    let _ends = budget.reserve("corners of hulls", Bytes::from_len(depth * size_of::<Plane>()))?;
    let mut planes = Vec::with_capacity(depth);
    let mut start = 0;
    for at in 0..depth {
        hull_of(extents.slice(at), &mut hull);
        corners[start..start + hull.len()].copy_from_slice(&hull);
        if let Some(plane) = Plane::of(at, start, &hull) {
            planes.push(plane);
        }
        start += hull.len();
    }
    drop(extents);
    let all = farthest(&planes, &corners, [z, y, x], slice * slice, stop);
    Ok(Diameters { all: all.sqrt(), slice, column, row })
}

/// The largest distance between points of a plane, whose corners are left in `hull`.
fn widest(lines: impl Iterator<Item = Line> + Clone, spacing: [f64; 2], hull: &mut Vec<Place>) -> f64 {
    hull_of(lines, hull);
    let pairs =
        hull.iter().enumerate().flat_map(|(at, one)| hull[..at].iter().map(move |other| (one, other)));
    pairs.map(|(one, other)| square(one, other, spacing)).fold(0.0, f64::max).sqrt()
}

/// The squared distance of two points of a plane.
fn square(one: &Place, other: &Place, spacing: [f64; 2]) -> f64 {
    let along = |axis: usize| f64::from(one[axis].abs_diff(other[axis])) * spacing[axis];
    along(0) * along(0) + along(1) * along(1)
}

/// The corners of a plane's hull among the corners of all planes, and their box.
struct Plane {
    depth: usize,
    start: usize,
    end: usize,
    least: Place,
    most: Place,
}

impl Plane {
    fn of(depth: usize, start: usize, hull: &[Place]) -> Option<Plane> {
        let first = *hull.first()?;
        let end = start + hull.len();
        let (mut least, mut most) = (first, first);
        for corner in hull {
            least = [0, 1].map(|axis| least[axis].min(corner[axis]));
            most = [0, 1].map(|axis| most[axis].max(corner[axis]));
        }
        Some(Plane { depth, start, end, least, most })
    }

    /// No two corners of two planes are farther apart.
    fn bound(&self, other: &Plane, [y, x]: [f64; 2]) -> f64 {
        let along = |axis: usize, spacing: f64| {
            let one = f64::from(self.most[axis]) - f64::from(other.least[axis]);
            let two = f64::from(other.most[axis]) - f64::from(self.least[axis]);
            one.max(two) * spacing
        };
        along(0, y).powi(2) + along(1, x).powi(2)
    }
}

/// The largest squared distance between corners, or `least` if that is larger. Planes far apart are compared first, so that most other pairs
/// cannot be farther apart and are left out.
fn farthest(planes: &[Plane], corners: &[Place], spacing: [f64; 3], least: f64, stop: &AtomicBool) -> f64 {
    let [z, y, x] = spacing;
    let mut most = least;
    for apart in (1..planes.len()).rev() {
        // The caller reports the stop.
        if stop.load(Ordering::Relaxed) {
            return most;
        }
        for (one, other) in planes.iter().zip(&planes[apart..]) {
            let along = ((other.depth - one.depth) as f64 * z).powi(2);
            if along + one.bound(other, [y, x]) <= most {
                continue;
            }
            for corner in &corners[one.start..one.end] {
                for end in &corners[other.start..other.end] {
                    most = most.max(along + square(corner, end, [y, x]));
                }
            }
        }
    }
    most
}
