//! Volume and area of surface meshes, from counts of cubes.

use super::cubes::{CASES, OUTSIDE, Point, triangles};

/// A surface mesh through the middles between voxels inside and outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surface {
    /// The enclosed volume in mm³.
    pub volume: f64,
    /// The area in mm².
    pub area: f64,
}

/// The cubes that a surface passes, by which of their corners are inside.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    counts: [u64; CASES],
    /// The sum of the determinants of triangles' points: 48 times the volume in voxels.
    determinants: i64,
}

impl Default for Passed {
    fn default() -> Passed {
        Passed { counts: [0; CASES], determinants: 0 }
    }
}

/// The surface of each cube by itself.
pub(super) struct Cubes {
    all: Vec<Cube>,
}

/// The surface inside a cube, with points as [`Point`] has them.
#[derive(Clone, Debug, Default)]
struct Cube {
    triangles: Vec<[Point; 3]>,
    /// The sum of the triangles' determinants.
    determinant: i64,
    /// The change of this sum as the cube moves by half a voxel along each axis.
    slope: Point,
}

impl Cubes {
    pub(super) fn new() -> Cubes {
        Cubes { all: (0..=u8::MAX).map(Cube::new).collect() }
    }

    /// Counts a cube whose first corner is at a voxel index, relative to any origin: the surface is closed, up to faces on which voxels meet in
    /// diagonals only. PyRadiomics' origin is one voxel before the structure's box.
    pub(super) fn count(&self, passed: &mut Passed, inside: u8, at: [usize; 3]) {
        passed.counts[usize::from(inside)] += 1;
        let Cube { determinant, slope, .. } = &self.all[usize::from(inside)];
        let moved: i64 = (0..3).map(|axis| 2 * at[axis] as i64 * slope[axis]).sum();
        passed.determinants += determinant + moved;
    }

    /// The surface that all counted cubes form.
    pub(super) fn surface(&self, passed: &Passed, spacing: [f64; 3]) -> Surface {
        let area = |cube: &Cube| cube.triangles.iter().map(|triangle| area(triangle, spacing)).sum::<f64>();
        let counted = self.all.iter().zip(passed.counts).filter(|(_, count)| *count > 0);
        Surface {
            volume: passed.determinants as f64 / 48.0 * spacing.iter().product::<f64>(),
            area: counted.map(|(cube, count)| count as f64 * area(cube)).sum(),
        }
    }
}

impl Cube {
    fn new(inside: u8) -> Cube {
        let (triangles, sign) = match inside & OUTSIDE {
            0 => (triangles(inside), 1),
            _ => (triangles(!inside), -1),
        };
        let mut cube = Cube::default();
        for [a, b, c] in &triangles {
            cube.determinant += sign * dot(*a, cross(*b, *c));
            let turns = [cross(*a, *b), cross(*b, *c), cross(*c, *a)];
            for axis in 0..3 {
                cube.slope[axis] += sign * turns.iter().map(|turn| turn[axis]).sum::<i64>();
            }
        }
        Cube { triangles, ..cube }
    }
}

fn dot(one: Point, other: Point) -> i64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn cross([a, b, c]: Point, [d, e, f]: Point) -> Point {
    [b * f - c * e, c * d - a * f, a * e - b * d]
}

/// The area of a triangle in mm².
fn area([a, b, c]: &[Point; 3], spacing: [f64; 3]) -> f64 {
    let side = |to: &Point| -> [f64; 3] {
        std::array::from_fn(|axis| (to[axis] - a[axis]) as f64 / 2.0 * spacing[axis])
    };
    let ([p, q, r], [u, v, w]) = (side(b), side(c));
    let normal = [q * w - r * v, r * u - p * w, p * v - q * u];
    normal.iter().map(|part| part * part).sum::<f64>().sqrt() / 2.0
}
