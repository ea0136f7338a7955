//! The outlines of all labels of a plane, along the edges of its pixels.
//!
//! Outlines go round the pixels of a label clockwise, so that a corner is never the centre of a pixel, and whoever fills them by the centres
//! of pixels has the same pixels. Pixels of a label that touch at a corner alone are of two outlines. What a label has a hole of is joined
//! with what is around it by a channel without width, which is walked there and back (PS3.3 C.8.8.6.3): from the upper left corner of the
//! hole to the left, as far as the label's pixels go in that row.

use plimsoll_memory::{Budget, Mapped, OverBudget};

use crate::DicomError;
use crate::reserved_list::ReservedList;

/// A corner of pixels: column and row of the pixel to the lower right of it.
pub(super) type Corner = [u32; 2];

/// The direction of an edge. The pixel of its label is on its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Right,
    Down,
    Left,
}

/// An edge of a pixel, from a corner to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edge {
    from: Corner,
    way: Way,
}

/// A plane of labels; 0 is no label.
#[derive(Clone, Copy)]
struct Plane<'a> {
    labels: &'a [u16],
    width: u32,
}

/// A closed outline.
#[derive(Clone, Copy, Debug)]
struct Loop {
    label: u16,
    /// The first of the pixels whose left edges it has.
    pixel: u32,
    is_hole: bool,
}

/// A hole and its channel.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// The pixel at whose upper left corner the channel begins.
    from: u32,
    /// The hole's upper left corner, where it ends.
    to: Corner,
}

/// The outlines of a plane, whose room is kept from one plane to the next.
pub(super) struct Contours {
    width: u32,
    /// A flag for each pixel: its left edge has been walked.
    walked: Mapped<u8>,
    outlines: ReservedList<Loop>,
    /// By the pixels that their channels begin at.
    holes: ReservedList<Hole>,
    points: ReservedList<Corner>,
    stack: ReservedList<Walk>,
}

/// An outline on its way.
#[derive(Clone, Copy)]
struct Walk {
    first: Edge,
    next: Edge,
    is_done: bool,
    /// Holes whose channels begin where it is, that are still to be walked.
    holes: [usize; 2],
    /// The corner where the channel of a hole begins.
    back: Corner,
}

/// A function that takes the corners of an outline of a label.
type Visit<'a, E> = dyn FnMut(u16, &[Corner]) -> Result<(), E> + 'a;

impl Edge {
    fn end(self) -> Corner {
        let [x, y] = self.from;
        match self.way {
            Way::Up => [x, y - 1],
            Way::Right => [x + 1, y],
            Way::Down => [x, y + 1],
            Way::Left => [x - 1, y],
        }
    }

    /// The edge behind it: round the same pixel where the next one on the right is of another label.
    fn next(self, plane: Plane<'_>, label: u16) -> Edge {
        let from = self.end();
        let [x, y] = from;
        let is = |left: u32, above: u32| plane.has(x, y, left, above, label);
        let (right, left) = match self.way {
            Way::Up => (is(0, 1), is(1, 1)),
            Way::Right => (is(0, 0), is(0, 1)),
            Way::Down => (is(1, 0), is(0, 0)),
            Way::Left => (is(1, 1), is(1, 0)),
        };
        let way = match (right, left) {
            (false, _) => self.way.to_the_right(),
            (true, false) => self.way,
            (true, true) => self.way.to_the_left(),
        };
        Edge { from, way }
    }
}

impl Way {
    fn to_the_right(self) -> Way {
        match self {
            Way::Up => Way::Right,
            Way::Right => Way::Down,
            Way::Down => Way::Left,
            Way::Left => Way::Up,
        }
    }

    fn to_the_left(self) -> Way {
        self.to_the_right().to_the_right().to_the_right()
    }
}

impl Plane<'_> {
    /// Returns `true` if the pixel at a distance to the left of a corner and above it has a label.
    fn has(self, x: u32, y: u32, left: u32, above: u32, label: u16) -> bool {
        let (Some(x), Some(y)) = (x.checked_sub(left), y.checked_sub(above)) else { return false };
        x < self.width && self.at(y * self.width + x) == label
    }

    /// The label of a pixel; none beyond the last.
    fn at(self, pixel: u32) -> u16 {
        self.labels.get(pixel as usize).copied().unwrap_or(0)
    }

    /// Returns `true` if a pixel has the label of its left neighbour.
    fn goes_on(self, pixel: u32) -> bool {
        !pixel.is_multiple_of(self.width) && self.at(pixel - 1) == self.at(pixel)
    }

    /// The left edge of a pixel.
    fn left_edge(self, pixel: u32) -> Edge {
        Edge { from: [pixel % self.width, pixel / self.width + 1], way: Way::Up }
    }

    /// The pixel whose left edge it is.
    fn pixel_of(self, edge: Edge) -> Option<u32> {
        (edge.way == Way::Up).then(|| (edge.from[1] - 1) * self.width + edge.from[0])
    }
}

impl Contours {
    /// Room for planes of this size, of fewer than 2³² pixels.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(super) fn new([height, width]: [u32; 2], budget: &Budget) -> Result<Contours, DicomError> {
        Ok(Contours {
            width,
            walked: Mapped::zeroed(budget, "edges of labels", height as usize * width as usize)?,
            outlines: ReservedList::new(budget, "outlines of labels"),
            holes: ReservedList::new(budget, "outlines of labels"),
            points: ReservedList::new(budget, "an outline"),
            stack: ReservedList::new(budget, "an outline"),
        })
    }

    /// Finds the outlines of all labels of a plane, in one pass over its pixels, and hands on each that is no hole, label after label: its
    /// label and its corners, of which no three follow each other along a straight line.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for them. It also returns the errors of `visit`.
    pub(super) fn each<E: From<OverBudget>>(
        &mut self,
        labels: &[u16],
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        let plane = Plane { labels, width: self.width };
        self.find(plane)?;
        self.outlines.as_mut_slice().sort_unstable_by_key(|found| (found.label, found.pixel));
        self.holes.as_mut_slice().sort_unstable_by_key(|hole| (hole.from, hole.to));
        for number in 0..self.outlines.len() {
            let Loop { label, pixel, is_hole } = self.outlines[number];
            if !is_hole {
                self.walk(plane, label, plane.left_edge(pixel))?;
                visit(label, &self.points)?;
            }
        }
        Ok(())
    }

    fn find(&mut self, plane: Plane<'_>) -> Result<(), OverBudget> {
        self.walked.fill(0);
        self.outlines.clear();
        self.holes.clear();
        for pixel in 0..plane.labels.len() as u32 {
            let label = plane.at(pixel);
            if label == 0 || plane.goes_on(pixel) || self.walked[pixel as usize] != 0 {
                continue;
            }
            let first = plane.left_edge(pixel);
            let (mut edge, mut area) = (first, 0i64);
            loop {
                if let Some(pixel) = plane.pixel_of(edge) {
                    self.walked[pixel as usize] = 1;
                }
                let ([x, y], [to_x, to_y]) = (edge.from, edge.end());
                area += i64::from(x) * i64::from(to_y) - i64::from(to_x) * i64::from(y);
                edge = edge.next(plane, label);
                if edge == first {
                    break;
                }
            }
            // What is gone round the other way is a hole.
            let is_hole = area < 0;
            self.outlines.push(Loop { label, pixel, is_hole })?;
            if is_hole {
                self.holes.push(plane.hole(pixel, label))?;
            }
        }
        Ok(())
    }

    /// The corners of an outline with its holes.
    fn walk(&mut self, plane: Plane<'_>, label: u16, first: Edge) -> Result<(), OverBudget> {
        self.points.clear();
        self.stack.clear();
        self.point(first.from)?;
        self.stack.push(Walk::from(first))?;
        while let Some(walk) = self.stack.last().copied() {
            let last = self.stack.len() - 1;
            let [hole, end] = walk.holes;
            if hole < end {
                // Its channel begins where the walk is.
                let Hole { to, .. } = self.holes[hole];
                self.stack.as_mut_slice()[last].holes = [hole + 1, end];
                self.point(to)?;
                let back = walk.next.from;
                self.stack.push(Walk { back, ..Walk::from(Edge { from: to, way: Way::Down }) })?;
            } else if walk.is_done {
                self.stack.pop();
                if last > 0 {
                    self.point(walk.back)?;
                }
            } else {
                let next = walk.next.next(plane, label);
                let holes = match plane.pixel_of(walk.next) {
                    Some(pixel) => [
                        self.holes.partition_point(|hole| hole.from < pixel),
                        self.holes.partition_point(|hole| hole.from <= pixel),
                    ],
                    None => [0, 0],
                };
                let is_done = next == walk.first;
                self.stack.as_mut_slice()[last] = Walk { next, is_done, holes, ..walk };
                self.point(next.from)?;
            }
        }
        // The last corner is the first one again, from which it may go straight on.
        self.points.pop();
        if let [first, second, .., last] = self.points[..]
            && is_straight(last, first, second)
        {
            self.points.as_mut_slice()[0] = last;
            self.points.pop();
        }
        Ok(())
    }

    /// Appends a corner, in the place of the last one where that is on the way to it.
    fn point(&mut self, corner: Corner) -> Result<(), OverBudget> {
        match self.points[..] {
            [.., last] if last == corner => Ok(()),
            [.., before, last] if is_straight(before, last, corner) => {
                let place = self.points.len() - 1;
                self.points.as_mut_slice()[place] = corner;
                Ok(())
            }
            _ => self.points.push(corner),
        }
    }
}

impl Walk {
    fn from(first: Edge) -> Walk {
        Walk { first, next: first, is_done: false, holes: [0, 0], back: first.from }
    }
}

impl Plane<'_> {
    /// The hole of a label in whose outline the left edge of a pixel is the first: in its uppermost row.
    fn hole(self, pixel: u32, label: u16) -> Hole {
        let (row, mut x) = (pixel / self.width, pixel % self.width);
        let at = |x: u32| self.at(row * self.width + x);
        // A hole has the label on both sides.
        while x > 0 && at(x - 1) != label {
            x -= 1;
        }
        let to = [x, row];
        while x > 0 && at(x - 1) == label {
            x -= 1;
        }
        Hole { from: row * self.width + x, to }
    }
}

/// Returns `true` if three corners follow each other in one direction along a row or a column.
fn is_straight(first: Corner, second: Corner, third: Corner) -> bool {
    let step = |from: Corner, to: Corner| [0, 1].map(|axis| to[axis].cmp(&from[axis]));
    step(first, second) == step(second, third)
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn outlines(labels: &[u16], [height, width]: [u32; 2]) -> Vec<(u16, Vec<Corner>)> {
        let budget = Budget::new(Bytes::mib(8));
        let mut contours = Contours::new([height, width], &budget).unwrap();
        let mut found = Vec::new();
        for _ in 0..2 {
            // The second time with the room of the first.
            found.clear();
            contours
                .each(labels, &mut |label, corners| {
                    found.push((label, corners.to_vec()));
                    Ok::<(), OverBudget>(())
                })
                .unwrap();
        }
        found
    }

    /// The winding number of a closed line of axis-parallel steps around the centre of a pixel, and the number of its crossings of the row to the left.
    fn winding(corners: &[Corner], [x, y]: [u32; 2]) -> (i32, u32) {
        let next = corners.iter().cycle().skip(1);
        let (mut turns, mut crossings) = (0, 0);
        for (from, to) in corners.iter().zip(next) {
            assert!(from[0] == to[0] || from[1] == to[1], "{from:?} to {to:?}");
            if from[0] <= x && from[1].min(to[1]) <= y && y < from[1].max(to[1]) {
                turns += if to[1] < from[1] { 1 } else { -1 };
                crossings += 1;
            }
        }
        (turns, crossings)
    }

    /// Pixels that outlines have, whether they are filled by the number of crossings or of turns.
    fn filled(found: &[(u16, Vec<Corner>)], [height, width]: [u32; 2]) -> Vec<u16> {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| [x, y]));
        pixels
            .map(|pixel| {
                let inside: Vec<u16> = found
                    .iter()
                    .filter_map(|(label, corners)| {
                        let (turns, crossings) = winding(corners, pixel);
                        assert_eq!(turns, i32::from(crossings % 2 == 1), "{pixel:?} of {corners:?}");
                        (turns == 1).then_some(*label)
                    })
                    .collect();
                match inside[..] {
                    [] => 0,
                    [label] => label,
                    _ => panic!("{pixel:?} is in several: {inside:?}"),
                }
            })
            .collect()
    }

    #[test]
    fn a_ring_is_one_outline_with_a_channel_and_straight_lines_have_two_ends() {
        #[rustfmt::skip]
        let labels = [
            1, 1, 1, 1,
            1, 0, 2, 1,
            1, 1, 1, 1,
        ];
        let found = outlines(&labels, [3, 4]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], (2, vec![[2, 2], [2, 1], [3, 1], [3, 2]]));
        assert_eq!(filled(&found, [3, 4]), labels);
        // Four corners, the channel's beginning before and behind it, and the four of the hole.
        assert_eq!(found[0].1.len(), 10);
        assert_eq!(outlines(&[7; 12], [3, 4]), [(7, vec![[0, 3], [0, 0], [4, 0], [4, 3]])]);
    }

    proptest! {
        #[test]
        fn any_labels_have_outlines_with_the_same_pixels(
            (labels, size) in (1u32..9, 1u32..9).prop_flat_map(|(height, width)| {
                let labels = prop::collection::vec(0u16..3, (height * width) as usize);
                (labels, Just([height, width]))
            })
        ) {
            let found = outlines(&labels, size);
            prop_assert_eq!(filled(&found, size), labels);
            for (_, corners) in &found {
                for n in 0..corners.len() {
                    let at = |k: usize| corners[(n + k) % corners.len()];
                    prop_assert!(at(0) != at(1) && !is_straight(at(0), at(1), at(2)), "{:?}", corners);
                }
            }
        }
    }
}
