//! The division of convolutions into tasks: the positions that a task gathers at a time, and the blocks of its results.
//!
//! The division of work decides the order of sums, so all of this depends on shapes alone.
#![forbid(unsafe_code)]

use std::ops::Range;

/// The least number of tasks that a kernel is cut into where its shape allows it, for threads to share the work evenly.
pub(super) const TASKS: usize = 64;

/// The planes and rows of a chunk of positions: the largest that `fits`, of 4 × 16 and what comes of halving that, or 1 ×
/// 1.
pub(super) fn largest_chunk([depth, height, _]: [usize; 3], fits: impl Fn([usize; 2]) -> bool) -> [usize; 2] {
    let mut chunk = [depth.clamp(1, 4), height.clamp(1, 16)];
    while chunk != [1, 1] && !fits(chunk) {
        // Depth first: a plane more costs a whole plane of border.
        let axis = if chunk[0] > 1 && (chunk[0] * 4 > chunk[1] || chunk[1] == 1) { 0 } else { 1 };
        chunk[axis] = chunk[axis].div_ceil(2);
    }
    chunk
}

/// A run of output blocks in `parts` parts, or fewer: each has whole pairs of blocks, which tiles sum at once, but for the last
/// block of an odd run.
pub(super) fn pairs_of_blocks(run: Range<usize>, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let pairs = run.len().div_ceil(2);
    let parts = parts.min(pairs).max(1);
    let at = move |part: usize| (run.start + 2 * (pairs * part / parts)).min(run.end);
    (0..parts).map(move |part| at(part)..at(part + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn chunks_are_halved_depth_first_until_they_fit() {
        let tried = RefCell::new(Vec::new());
        let chunk = largest_chunk([9, 99, 7], |chunk| {
            tried.borrow_mut().push(chunk);
            false
        });
        assert_eq!(chunk, [1, 1]);
        let expected = [[4, 16], [4, 8], [2, 8], [2, 4], [1, 4], [1, 2]];
        assert_eq!(tried.into_inner(), expected);
        assert_eq!(largest_chunk([3, 5, 1], |_| true), [3, 5]);
        assert_eq!(largest_chunk([2, 1, 1], |chunk| chunk[0] < 2), [1, 1]);
    }

    #[test]
    fn parts_are_whole_pairs_of_blocks() {
        let parts = |run: Range<usize>, parts| pairs_of_blocks(run, parts).collect::<Vec<_>>();
        // Of parts of 3, 3 and 4 blocks, two would each end with a single one.
        assert_eq!(parts(0..10, 3), [0..2, 2..6, 6..10]);
        assert_eq!(parts(3..8, 2), [3..5, 5..8]);
        assert_eq!(parts(3..8, 64), [3..5, 5..7, 7..8]);
        assert_eq!(pairs_of_blocks(4..5, 64).count(), 1);
    }
}
