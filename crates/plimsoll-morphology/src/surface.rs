//! Areas and lengths of surface elements, by neighbourhood code.
//!
//! A cell between eight voxels holds the part of the surface that marching cubes (Lorensen and Cline, 1987) puts there:
//! the foreground corners, or the background ones where they are fewer, are separated from the others: each group of
//! corners connected by edges is cut off by a polygon through the midpoints of the edges that leave it. Such a polygon
//! need not be planar, so its area depends on its triangulation. This is the one with the largest area in a cube, as in
//! DeepMind's surface-distance, the field's reference.

use crate::MorphologyError;
use crate::grid::check_spacing;

type Corner = [u8; 3];
type Point = [f64; 3];

/// The area in mm² of the surface in a cell, by its code (see [`surface_codes`](crate::surface_codes)), for voxels `spacing` mm
/// apart (depth, height, width).
///
/// # Errors
/// Returns an error if the spacing is not positive and finite.
pub fn surface_areas(spacing: [f64; 3]) -> Result<[f64; 256], MorphologyError> {
    check_spacing([1; 3], spacing)?;
    Ok(std::array::from_fn(|code| area(code as u8, spacing)))
}

/// The length in mm of the contour in a cell between four pixels, by its code (see [`contour_codes`](crate::contour_codes)), for
/// pixels `spacing` mm apart (height, width).
///
/// # Errors
/// Returns an error if the spacing is not positive and finite.
pub fn contour_lengths(spacing: [f64; 2]) -> Result<[f64; 16], MorphologyError> {
    let [height, width] = spacing;
    check_spacing([1; 3], [1.0, height, width])?;
    let diagonal = height.hypot(width) / 2.0;
    Ok(std::array::from_fn(|code| match code {
        0b0000 | 0b1111 => 0.0,
        0b0011 | 0b1100 => width,
        0b0101 | 0b1010 => height,
        // Two diagonally opposite pixels are cut off separately.
        0b0110 | 0b1001 => 2.0 * diagonal,
        _ => diagonal,
    }))
}

fn area(code: u8, spacing: [f64; 3]) -> f64 {
    let smaller = if code.count_ones() > 4 { !code } else { code };
    let mut rest: Vec<Corner> = (0..8u8).filter(|bit| smaller >> bit & 1 == 1).map(corner).collect();
    let mut area = 0.0;
    while let Some(first) = rest.pop() {
        let mut group = vec![first];
        let mut at = 0;
        while let Some(&from) = group.get(at) {
            let (joined, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|to| are_joined(from, *to));
            group.extend(joined);
            rest = others;
            at += 1;
        }
        area += greatest_cut(&outline(&group), spacing).1;
    }
    area
}

/// The corner of a bit: 128 is (0, 0, 0), 1 is (1, 1, 1).
fn corner(bit: u8) -> Corner {
    let place = 7 - bit;
    [place >> 2 & 1, place >> 1 & 1, place & 1]
}

fn are_joined(a: Corner, b: Corner) -> bool {
    (0..3).filter(|axis| a[*axis] != b[*axis]).count() == 1
}

/// The midpoints of the edges that leave a group of corners, in cyclic order.
fn outline(group: &[Corner]) -> Vec<Point> {
    let edges = group.iter().flat_map(|from| {
        let to = (0..8).map(corner).filter(|to| are_joined(*from, *to) && !group.contains(to));
        to.map(|to| std::array::from_fn(|axis| f64::from(from[axis] + to[axis]) / 2.0))
    });
    let mut rest: Vec<Point> = edges.collect();
    let mut outline: Vec<Point> = rest.pop().into_iter().collect();
    while let Some(last) = outline.last() {
        // The polygon passes from face to face, and each face has exactly two of the edges.
        let Some(next) = rest.iter().position(|point| share_a_face(last, point)) else { break };
        outline.push(rest.remove(next));
    }
    outline
}

fn share_a_face(a: &Point, b: &Point) -> bool {
    (0..3).any(|axis| a[axis] == b[axis] && (a[axis] == 0.0 || a[axis] == 1.0))
}

/// The area of the triangulation of a polygon that is largest in the unit cube, in the unit cube and for a spacing.
fn greatest_cut(polygon: &[Point], spacing: [f64; 3]) -> (f64, f64) {
    let (Some(first), Some(last)) = (polygon.first(), polygon.last()) else { return (0.0, 0.0) };
    let cuts = (1..polygon.len().saturating_sub(1)).map(|middle| {
        let (before, behind) =
            (greatest_cut(&polygon[..=middle], spacing), greatest_cut(&polygon[middle..], spacing));
        let triangle = [*first, polygon[middle], *last];
        let own = |spacing| triangle_area(triangle, spacing);
        (before.0 + behind.0 + own([1.0; 3]), before.1 + behind.1 + own(spacing))
    });
    cuts.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

fn triangle_area(corners: [Point; 3], spacing: [f64; 3]) -> f64 {
    let [a, b] = [1, 2].map(|to| -> Point {
        std::array::from_fn(|axis| (corners[to][axis] - corners[0][axis]) * spacing[axis])
    });
    let normal: Point = std::array::from_fn(|axis| {
        let (next, other) = ((axis + 1) % 3, (axis + 2) % 3);
        a[next] * b[other] - a[other] * b[next]
    });
    normal.iter().map(|part| part * part).sum::<f64>().sqrt() / 2.0
}
