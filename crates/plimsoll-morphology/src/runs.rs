//! Rows as runs of equal voxels, and which runs of two rows touch.

use crate::carve::{Carver, bytes_of};
use crate::rows::{Bits, Rows, WORD, words};
use crate::simd::Instructions;

/// Voxels `start..end` of a row, all of one label or all foreground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The voxels that form runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// All but background.
    Foreground,
    /// Background.
    Background,
    /// Voxels of the same label other than background.
    Label,
}

/// Reads the runs of slices.
pub(crate) struct RunReader<'a> {
    mask: &'a dyn Rows,
    kind: RunKind,
    height: usize,
    width: usize,
    instructions: Instructions,
    foreground: &'a mut [u64],
    boundary: &'a mut [u64],
}

impl<'a> RunReader<'a> {
    /// The bytes of a reader of slices of `height` × `width`: a slice of bits, twice.
    pub(crate) fn bytes(height: usize, width: usize) -> usize {
        2 * bytes_of::<u64>(height * words(width))
    }

    /// A reader of slices of `height` × `width`.
    pub(crate) fn new(
        mask: &'a dyn Rows,
        kind: RunKind,
        height: usize,
        width: usize,
        carver: &mut Carver<'a>,
    ) -> RunReader<'a> {
        let len = height * words(width);
        let instructions = Instructions::widest();
        let (foreground, boundary) = (carver.take(len), carver.take(len));
        RunReader { mask, kind, height, width, instructions, foreground, boundary }
    }

    /// Reads slice `z`, for [`RunReader::row`].
    pub(crate) fn read(&mut self, z: usize) {
        let start = z * self.height * self.width;
        let bits = Bits { foreground: self.foreground, boundary: Some(self.boundary), soles: None };
        self.mask.bits(self.instructions, start, self.width, self.kind == RunKind::Label, bits);
    }

    /// The runs of row `y` of the current slice, from left to right.
    pub(crate) fn row(&self, y: usize) -> impl Iterator<Item = Run> {
        let words = words(self.width);
        let foreground = &self.foreground[y * words..(y + 1) * words];
        let boundary = &self.boundary[y * words..(y + 1) * words];
        let width = self.width as u32;
        let wanted = self.kind != RunKind::Background;
        let ends = boundary
            .iter()
            .enumerate()
            .flat_map(|(at, bits)| Places { first: (at * WORD) as u32, bits: *bits });
        let mut start = 0;
        ends.chain(std::iter::once(width)).filter_map(move |end| {
            let run = Run { start, end };
            start = end;
            let at = run.start as usize;
            let inside = foreground[at / WORD] >> (at % WORD) & 1 == 1;
            (inside == wanted).then_some(run)
        })
    }

    /// Height and width of a slice.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.height, self.width)
    }

    /// Returns `true` if the voxels with these numbers belong to the same component if they touch.
    pub(crate) fn same(&self, a: usize, b: usize) -> bool {
        self.kind != RunKind::Label || self.mask.number(a) == self.mask.number(b)
    }
}

/// The positions of the set bits of a word.
struct Places {
    first: u32,
    bits: u64,
}

impl Iterator for Places {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.bits == 0 {
            return None;
        }
        let place = self.first + self.bits.trailing_zeros();
        self.bits &= self.bits - 1;
        Some(place)
    }
}

/// Calls `meet` for each pair of runs of two rows that overlap or, if `diagonal`, lie diagonally next to each other.
pub(crate) fn touching(a: &[Run], b: &[Run], diagonal: bool, mut meet: impl FnMut(Run, Run)) {
    let reach = u32::from(diagonal);
    let touch = |left: &Run, right: &Run| left.start < right.end + reach && right.start < left.end + reach;
    let (mut i, mut j) = (0, 0);
    while let (Some(left), Some(right)) = (a.get(i), b.get(j)) {
        if touch(left, right) {
            meet(*left, *right);
        }
        if left.end < right.end {
            i += 1;
            continue;
        }
        // Runs of different labels may be adjacent; then each may touch the other's successor.
        if left.end == right.end
            && let Some(next) = a.get(i + 1)
            && touch(next, right)
        {
            meet(*next, *right);
        }
        j += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(a: &[(u32, u32)], b: &[(u32, u32)], diagonal: bool) -> Vec<(u32, u32)> {
        let runs = |from: &[(u32, u32)]| -> Vec<Run> {
            from.iter().map(|&(start, end)| Run { start, end }).collect()
        };
        let mut met = Vec::new();
        touching(&runs(a), &runs(b), diagonal, |a, b| met.push((a.start, b.start)));
        met
    }

    #[test]
    fn runs_meet_where_they_overlap_and_diagonally_where_they_may() {
        let (a, b) = ([(0, 3), (5, 6), (8, 12)], [(3, 5), (6, 9), (11, 20)]);
        assert_eq!(pairs(&a, &b, false), [(8, 6), (8, 11)]);
        assert_eq!(pairs(&a, &b, true), [(0, 3), (5, 3), (5, 6), (8, 6), (8, 11)]);
    }

    #[test]
    fn runs_that_end_together_meet_their_diagonal_neighbours() {
        assert_eq!(pairs(&[(0, 4), (5, 6)], &[(2, 4), (4, 5)], true), [(0, 2), (0, 4), (5, 4)]);
        assert_eq!(pairs(&[(2, 4), (4, 5)], &[(0, 4), (5, 6)], true), [(2, 0), (4, 0), (4, 5)]);
    }
}
