//! The surface inside a cube of eight voxels, for each choice of those that belong to a structure (marching cubes; Lorensen and Cline,
//! SIGGRAPH 1987).
//!
//! A corner is numbered by its place along depth, height and width: 4, 2 and 1. Points of the surface are the middles of edges between a voxel
//! inside and one outside. On each face of the cube, runs of corners inside are cut off by a segment each; the segments of all faces form
//! loops. A loop in a plane has one area however it is divided into triangles. Others do not, and are divided along the
//! [diagonals](DIAGONALS) that PyRadiomics 3.0.1 divides them along, since its areas and volumes follow from them.

/// A point of the surface: twice its place along depth, height and width.
pub(super) type Point = [i64; 3];

/// The corner whose voxel is outside in each cube that is looked up: of others, the complement is looked up, with its inside out.
pub(super) const OUTSIDE: u8 = 1 << 6;

/// The number of corners' choices.
pub(super) const CASES: usize = 256;

/// Diagonals of loops that lie in no plane, by the corners inside. The octal digits of a point are twice its place along depth, height and width.
#[rustfmt::skip]
const DIAGONALS: [(u8, &[[u16; 2]]); 60] = [
    (0b0000_0111, &[[0o012, 0o120], [0o102, 0o120]]),
    (0b0000_1011, &[[0o021, 0o100], [0o100, 0o122]]),
    (0b0000_1101, &[[0o001, 0o122], [0o100, 0o122]]),
    (0b0000_1110, &[[0o010, 0o102], [0o102, 0o120]]),
    (0b0001_0011, &[[0o012, 0o201], [0o012, 0o210]]),
    (0b0001_0101, &[[0o021, 0o201], [0o120, 0o201]]),
    (0b0001_1011, &[[0o021, 0o102], [0o021, 0o210], [0o102, 0o210]]),
    (0b0001_1101, &[[0o012, 0o120], [0o012, 0o201], [0o120, 0o201]]),
    (0b0001_1110, &[[0o010, 0o102], [0o102, 0o120]]),
    (0b0001_1111, &[[0o102, 0o120], [0o120, 0o201]]),
    (0b0010_0011, &[[0o010, 0o212], [0o100, 0o212]]),
    (0b0010_0111, &[[0o021, 0o100], [0o021, 0o212], [0o100, 0o212]]),
    (0b0010_1010, &[[0o021, 0o201], [0o021, 0o212]]),
    (0b0010_1101, &[[0o001, 0o122], [0o100, 0o122]]),
    (0b0010_1110, &[[0o001, 0o120], [0o001, 0o212], [0o120, 0o212]]),
    (0b0010_1111, &[[0o100, 0o122], [0o100, 0o212]]),
    (0b0011_0001, &[[0o010, 0o102], [0o010, 0o212]]),
    (0b0011_0010, &[[0o001, 0o210], [0o012, 0o210]]),
    (0b0011_0101, &[[0o021, 0o102], [0o021, 0o210], [0o102, 0o210]]),
    (0b0011_0110, &[[0o012, 0o100], [0o012, 0o210]]),
    (0b0011_0111, &[[0o012, 0o120], [0o012, 0o210]]),
    (0b0011_1001, &[[0o010, 0o102], [0o010, 0o212]]),
    (0b0011_1010, &[[0o021, 0o100], [0o021, 0o212], [0o100, 0o212]]),
    (0b0011_1011, &[[0o010, 0o212], [0o021, 0o212]]),
    (0b0011_1101, &[[0o001, 0o120], [0o001, 0o122], [0o001, 0o210], [0o001, 0o212]]),
    (0b0011_1110, &[[0o001, 0o120], [0o001, 0o122], [0o001, 0o210], [0o001, 0o212]]),
    (0b1000_0111, &[[0o012, 0o120], [0o102, 0o120]]),
    (0b1000_1010, &[[0o001, 0o221], [0o102, 0o221]]),
    (0b1000_1011, &[[0o021, 0o100], [0o021, 0o212], [0o100, 0o212]]),
    (0b1000_1100, &[[0o010, 0o212], [0o010, 0o221]]),
    (0b1000_1101, &[[0o001, 0o120], [0o001, 0o212], [0o120, 0o212]]),
    (0b1000_1111, &[[0o102, 0o120], [0o102, 0o221]]),
    (0b1001_0011, &[[0o012, 0o201], [0o012, 0o210]]),
    (0b1001_0101, &[[0o021, 0o201], [0o120, 0o201]]),
    (0b1001_1010, &[[0o001, 0o221], [0o102, 0o221]]),
    (0b1001_1011, &[[0o010, 0o102], [0o021, 0o102], [0o102, 0o210], [0o102, 0o221]]),
    (0b1001_1100, &[[0o010, 0o212], [0o010, 0o221]]),
    (0b1001_1101, &[[0o001, 0o120], [0o012, 0o120], [0o120, 0o201], [0o120, 0o212]]),
    (0b1001_1111, &[[0o102, 0o120], [0o102, 0o210], [0o102, 0o221]]),
    (0b1010_0010, &[[0o001, 0o122], [0o001, 0o221]]),
    (0b1010_0011, &[[0o012, 0o100], [0o012, 0o221], [0o100, 0o221]]),
    (0b1010_0110, &[[0o001, 0o122], [0o001, 0o221]]),
    (0b1010_0111, &[[0o012, 0o100], [0o012, 0o120], [0o012, 0o201], [0o012, 0o221]]),
    (0b1010_1000, &[[0o012, 0o201], [0o021, 0o201]]),
    (0b1010_1001, &[[0o012, 0o201], [0o021, 0o201]]),
    (0b1010_1011, &[[0o021, 0o100], [0o021, 0o201]]),
    (0b1010_1100, &[[0o010, 0o102], [0o010, 0o221], [0o102, 0o221]]),
    (0b1010_1101, &[[0o012, 0o100], [0o012, 0o120], [0o012, 0o201], [0o012, 0o221]]),
    (0b1010_1110, &[[0o001, 0o221], [0o010, 0o221]]),
    (0b1011_0000, &[[0o100, 0o122], [0o122, 0o210]]),
    (0b1011_0001, &[[0o001, 0o122], [0o001, 0o210], [0o122, 0o210]]),
    (0b1011_0011, &[[0o012, 0o210], [0o122, 0o210]]),
    (0b1011_0100, &[[0o100, 0o122], [0o122, 0o210]]),
    (0b1011_0101, &[[0o001, 0o210], [0o021, 0o210], [0o102, 0o210], [0o122, 0o210]]),
    (0b1011_0111, &[[0o012, 0o120], [0o012, 0o210], [0o012, 0o221]]),
    (0b1011_1000, &[[0o012, 0o100], [0o012, 0o221], [0o100, 0o221]]),
    (0b1011_1001, &[[0o010, 0o102], [0o021, 0o102], [0o102, 0o210], [0o102, 0o221]]),
    (0b1011_1010, &[[0o001, 0o210], [0o001, 0o221]]),
    (0b1011_1100, &[[0o010, 0o221], [0o012, 0o221], [0o100, 0o221], [0o102, 0o221]]),
    (0b1011_1110, &[[0o001, 0o120], [0o001, 0o210], [0o001, 0o221]]),
];

/// The triangles of a cube, whose corners turn around normals that point outwards.
pub(super) fn triangles(inside: u8) -> Vec<[Point; 3]> {
    let cuts = DIAGONALS.iter().find(|(case, _)| *case == inside).map_or(&[][..], |(_, cuts)| cuts);
    let cuts: Vec<[Point; 2]> = cuts.iter().map(|cut| cut.map(point)).collect();
    loops(inside).into_iter().flat_map(|points| divide(points, &cuts)).collect()
}

/// The point of three octal digits.
fn point(digits: u16) -> Point {
    [6, 3, 0].map(|shift| i64::from(digits >> shift & 7))
}

/// The loops of a cube's surface.
fn loops(inside: u8) -> Vec<Vec<Point>> {
    let mut segments: Vec<[Point; 2]> = faces().iter().flat_map(|face| cut_off(face, inside)).collect();
    let mut loops = Vec::new();
    while let Some([first, mut next]) = segments.pop() {
        let mut points = vec![first];
        while let Some(at) = segments.iter().position(|[from, _]| *from == next) {
            points.push(next);
            [_, next] = segments.swap_remove(at);
        }
        loops.push(points);
    }
    loops
}

/// The corners of each face, in the turn that makes normals point outwards.
fn faces() -> Vec<[usize; 4]> {
    let mut faces = Vec::new();
    for [across, one, other, is_odd] in [[4, 2, 1, 0], [2, 4, 1, 1], [1, 4, 2, 0]] {
        for side in [0, 1] {
            let at = side * across;
            let face = [at, at + other, at + one + other, at + one];
            faces.push(if side == is_odd { face } else { [face[3], face[2], face[1], face[0]] });
        }
    }
    faces
}

/// The segments of a face: each cuts off a run of corners inside.
fn cut_off(face: &[usize; 4], inside: u8) -> Vec<[Point; 2]> {
    let is_inside = |at: usize| inside >> face[at % 4] & 1 == 1;
    let middle = |at: usize| {
        let [one, other] = [face[at % 4], face[(at + 1) % 4]].map(corner);
        std::array::from_fn(|axis| one[axis] + other[axis])
    };
    let begins = (0..4).filter(|at| is_inside(*at) && !is_inside(at + 3));
    begins
        .map(|begin| {
            let end = (begin..begin + 4).find(|at| !is_inside(at + 1)).unwrap_or(begin);
            [middle(begin + 3), middle(end)]
        })
        .collect()
}

/// The place of a corner.
fn corner(number: usize) -> Point {
    [number >> 2 & 1, number >> 1 & 1, number & 1].map(|place| place as i64)
}

/// Divides a loop into triangles along the given diagonals, and along any where none of them applies.
fn divide(mut points: Vec<Point>, cuts: &[[Point; 2]]) -> Vec<[Point; 3]> {
    let mut triangles = Vec::new();
    while points.len() >= 3 {
        let count = points.len();
        let around = |at: usize| [points[(at + count - 1) % count], points[(at + 1) % count]];
        let is_cut = |at: &usize| {
            let [one, other] = around(*at);
            cuts.contains(&[one, other]) || cuts.contains(&[other, one])
        };
        let at = (0..count).find(is_cut).unwrap_or(0);
        let [before, after] = around(at);
        triangles.push([before, points[at], after]);
        points.remove(at);
    }
    triangles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cube_has_a_loop_through_each_edge_that_its_surface_crosses() {
        for inside in 0..=u8::MAX {
            let mut crossed = 0;
            for one in 0..8usize {
                for axis in [1, 2, 4].into_iter().filter(|axis| one & axis == 0) {
                    crossed += usize::from(inside >> one & 1 != inside >> (one + axis) & 1);
                }
            }
            let points: Vec<Point> = loops(inside).into_iter().flatten().collect();
            assert_eq!(points.len(), crossed, "{inside:08b}");
        }
    }

    #[test]
    fn a_loop_of_n_points_has_n_minus_two_triangles() {
        for inside in 0..=u8::MAX {
            let expected: usize = loops(inside).iter().map(|points| points.len() - 2).sum();
            assert_eq!(triangles(inside).len(), expected, "{inside:08b}");
        }
    }
}
