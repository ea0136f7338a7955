//! How convolutions choose the positions that a task gathers at a time.
#![forbid(unsafe_code)]

/// The planes and rows of a chunk of positions: the largest that `fits`, of 4 × 16 and what comes of halving that, or 1 ×
/// 1.
///
/// How work is divided decides the order of sums, so this depends on shapes alone.
pub(super) fn largest_chunk([depth, height, _]: [usize; 3], fits: impl Fn([usize; 2]) -> bool) -> [usize; 2] {
    let mut chunk = [depth.clamp(1, 4), height.clamp(1, 16)];
    while chunk != [1, 1] && !fits(chunk) {
        // Depth first: a plane more costs a whole plane of border.
        let axis = if chunk[0] > 1 && (chunk[0] * 4 > chunk[1] || chunk[1] == 1) { 0 } else { 1 };
        chunk[axis] = chunk[axis].div_ceil(2);
    }
    chunk
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
}
