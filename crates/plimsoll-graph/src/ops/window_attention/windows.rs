//! The tokens that attend to each other: a grid cut into shifted windows.

/// Shifted windows of a grid of tokens (Liu et al. 2021, arXiv:2103.14030).
///
/// The grid is padded at the far end of each axis to a multiple of the window, then rolled by the shift towards the
/// origin, then cut. Rolling brings tokens into one window that are not neighbours; *regions* distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionWindows {
    extent: [usize; 3],
    window: [usize; 3],
    shift: [usize; 3],
}

/// A token of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowToken {
    /// The place of its voxel in the grid; none for one of the padding.
    pub voxel: Option<usize>,
    /// Tokens of one window and different regions are no neighbours in the grid.
    pub region: u8,
}

impl AttentionWindows {
    /// The windows of a grid of some extent. Windows have at least one token, and shifts are below them.
    pub fn new(extent: [usize; 3], window: [usize; 3], shift: [usize; 3]) -> AttentionWindows {
        AttentionWindows { extent, window, shift }
    }

    /// The number of windows along each axis.
    fn counts(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.extent[axis].div_ceil(self.window[axis]))
    }

    /// The number of windows.
    pub fn count(&self) -> usize {
        self.counts().iter().product()
    }

    /// The number of tokens of a window.
    pub fn tokens(&self) -> usize {
        self.window.iter().product()
    }

    /// The tokens of a window, in the order of their places within it.
    pub fn tokens_in(&self, window: usize) -> impl Iterator<Item = WindowToken> + '_ {
        let [_, heights, widths] = self.counts();
        let at = [window / (heights * widths), window / widths % heights, window % widths];
        (0..self.tokens()).map(move |token| {
            let [_, height, width] = self.window;
            let within = [token / (height * width), token / width % height, token % width];
            let (mut voxel, mut region) = (Some(0), 0);
            for axis in 0..3 {
                let rolled = at[axis] * self.window[axis] + within[axis];
                let (place, part) = self.along(axis, rolled);
                region = 3 * region + part;
                let inside = place < self.extent[axis];
                voxel = voxel.filter(|_| inside).map(|voxel: usize| voxel * self.extent[axis] + place);
            }
            WindowToken { voxel, region }
        })
    }

    /// The number of voxels of the grid.
    pub fn voxels(&self) -> usize {
        self.extent.iter().product()
    }

    /// The place of a voxel among the tokens of all windows, window after window: where [`tokens_in`](AttentionWindows::tokens_in) has it.
    pub fn place(&self, voxel: usize) -> usize {
        let [_, height, width] = self.extent;
        let at = [voxel / (height * width), voxel / width % height, voxel % width];
        let counts = self.counts();
        let (mut of_window, mut within) = (0, 0);
        for axis in 0..3 {
            let window = self.window[axis];
            let padded = self.extent[axis].next_multiple_of(window);
            let rolled = (at[axis] + padded - self.shift[axis]) % padded;
            of_window = of_window * counts[axis] + rolled / window;
            within = within * window + rolled % window;
        }
        of_window * self.tokens() + within
    }

    /// The place along an axis that a place of the rolled grid comes from, and the part of the axis that it is in: the windows
    /// before the last, and of the last what was its neighbour all along and what came from the other end.
    fn along(&self, axis: usize, rolled: usize) -> (usize, u8) {
        let (window, shift) = (self.window[axis], self.shift[axis]);
        let padded = self.extent[axis].next_multiple_of(window);
        let part = match padded - rolled {
            _ if shift == 0 => 0,
            left if left > window => 0,
            left if left > shift => 1,
            _ => 2,
        };
        ((rolled + shift) % padded, part)
    }
}

/// The relative positions of tokens, as they index a table of biases with (2d − 1)(2h − 1)(2w − 1) rows for a window d × h × w.
///
/// Token t has the coordinates (t / hw, t / w mod h, t mod w) of that window even where windows are clipped to a smaller grid: so
/// do the models that are trained with MONAI, whose tables are indexed by the first rows and columns of the full window's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativePositions {
    window: [usize; 3],
}

impl RelativePositions {
    /// The positions of a table for full windows.
    pub fn new(window: [usize; 3]) -> RelativePositions {
        RelativePositions { window }
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.window.iter().fold(1, |rows: usize, extent| rows.saturating_mul(2 * extent - 1))
    }

    /// The row of a query and a key is `code(query) + centre − code(key)`.
    pub fn code(&self, token: usize) -> usize {
        let [_, height, width] = self.window;
        let (d, h, w) = (token / (height * width), token / width % height, token % width);
        (d * (2 * height - 1) + h) * (2 * width - 1) + w
    }

    /// See [`code`](RelativePositions::code).
    pub fn centre(&self) -> usize {
        let [depth, height, width] = self.window.map(|extent| extent - 1);
        (depth * (2 * self.window[1] - 1) + height) * (2 * self.window[2] - 1) + width
    }

    /// The row of a query and a key.
    pub fn row(&self, query: usize, key: usize) -> usize {
        self.code(query) + self.centre() - self.code(key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_voxel_is_in_one_window_and_the_rest_is_padding() {
        for (extent, window, shift) in
            [([5, 4, 9], [3, 4, 4], [1, 0, 2]), ([1, 7, 7], [1, 7, 7], [0; 3]), ([8, 8, 8], [7; 3], [3; 3])]
        {
            let windows = AttentionWindows::new(extent, window, shift);
            let all: Vec<WindowToken> = (0..windows.count()).flat_map(|at| windows.tokens_in(at)).collect();
            let voxels: HashSet<usize> = all.iter().filter_map(|token| token.voxel).collect();
            assert_eq!(voxels.len(), extent.iter().product::<usize>());
            assert_eq!(voxels.len(), all.iter().filter(|token| token.voxel.is_some()).count());
            assert_eq!(windows.voxels(), voxels.len());
            for voxel in 0..windows.voxels() {
                assert_eq!(all[windows.place(voxel)].voxel, Some(voxel));
            }
        }
    }

    /// One axis of eight places in windows of four, shifted by one: places 5, 6, 7 and 0 are one window.
    #[test]
    fn what_is_rolled_into_a_window_from_the_other_end_is_of_another_region() {
        let windows = AttentionWindows::new([1, 1, 8], [1, 1, 4], [0, 0, 1]);
        let of = |at: usize| -> Vec<(usize, u8)> {
            windows.tokens_in(at).map(|token| (token.voxel.unwrap(), token.region)).collect()
        };
        assert_eq!(of(0), [(1, 0), (2, 0), (3, 0), (4, 0)]);
        assert_eq!(of(1), [(5, 1), (6, 1), (7, 1), (0, 2)]);
        let whole = AttentionWindows::new([1, 1, 8], [1, 1, 4], [0; 3]);
        assert!((0..2).flat_map(|at| whole.tokens_in(at)).all(|token| token.region == 0));
    }

    #[test]
    fn rows_of_the_table_are_those_of_differences_of_coordinates() {
        let positions = RelativePositions::new([7; 3]);
        assert_eq!(positions.rows(), 13 * 13 * 13);
        assert_eq!(positions.row(0, 0), (6 * 13 + 6) * 13 + 6);
        assert_eq!(positions.row(342, 0), 13 * 13 * 13 - 1);
        assert_eq!(positions.row(0, 342), 0);
        // Token 8 is (0, 1, 1), token 50 is (1, 0, 1).
        assert_eq!(positions.row(8, 50), (5 * 13 + 7) * 13 + 6);
        assert_eq!(RelativePositions::new([1, 7, 7]).rows(), 169);
    }
}
