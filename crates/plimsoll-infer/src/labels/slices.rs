//! The axes of slices of labels.

/// The stored axes along which slices, their rows and their columns follow each other.
pub(crate) fn slice_axes(slices: usize) -> [usize; 3] {
    match slices {
        0 => [0, 1, 2],
        1 => [1, 0, 2],
        _ => [2, 0, 1],
    }
}
