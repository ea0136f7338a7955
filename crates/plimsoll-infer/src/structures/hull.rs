//! Convex hulls of points in a plane that are given by lines.

/// A point of whole numbers.
pub(super) type Place = [u32; 2];

/// The least and the greatest second number of points with one first number; `None` without points.
pub(super) type Line = Option<[u32; 2]>;

/// Puts the corners of the convex hull of points into `hull`, which is emptied first. Lines are in the order of their first number, which is counted
/// from 0. At most two points for each line are added.
pub(super) fn hull_of(lines: impl Iterator<Item = Line> + Clone, hull: &mut Vec<Place>) {
    hull.clear();
    let points = lines.enumerate().filter_map(|(first, line)| line.map(|line| (first as u32, line)));
    chain(points.clone().map(|(first, [least, _])| [first, least]), hull, 1);
    let lower = hull.len();
    chain(points.map(|(first, [_, most])| [first, most]), hull, -1);
    // The ends of both chains may be the same points.
    let mut at = 0;
    let last = lower.checked_sub(1).map(|last| hull[last]);
    let first = hull.first().copied();
    hull.retain(|point| {
        let is_again = at >= lower && (Some(*point) == last || Some(*point) == first);
        at += 1;
        !is_again
    });
}

/// Adds the points that a chain from the first to the last line turns at, in one direction (Andrew, 1979).
fn chain(points: impl Iterator<Item = Place>, hull: &mut Vec<Place>, direction: i64) {
    let start = hull.len();
    for point in points {
        while let [.., before, last] = hull[start..] {
            if turn(before, last, point) * direction > 0 {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
}

/// Returns a number above 0 for a turn to larger second numbers.
fn turn(a: Place, b: Place, c: Place) -> i64 {
    let side = |to: Place| [0, 1].map(|axis| i64::from(to[axis]) - i64::from(a[axis]));
    let ([p, q], [u, v]) = (side(b), side(c));
    p * v - q * u
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_inside_and_on_edges_are_no_corners() {
        let lines = [None, Some([2, 2]), Some([1, 3]), Some([1, 4]), Some([2, 2])];
        let mut hull = Vec::new();
        hull_of(lines.into_iter(), &mut hull);
        hull.sort_unstable();
        assert_eq!(hull, [[1, 2], [2, 1], [3, 1], [3, 4], [4, 2]]);
    }

    #[test]
    fn a_single_line_has_its_two_ends_and_a_single_point_is_its_own_hull() {
        let mut hull = Vec::new();
        hull_of([None, Some([5, 9])].into_iter(), &mut hull);
        assert_eq!(hull, [[1, 5], [1, 9]]);
        hull_of([Some([5, 5])].into_iter(), &mut hull);
        assert_eq!(hull, [[0, 5]]);
        hull_of([None].into_iter(), &mut hull);
        assert!(hull.is_empty());
    }
}
