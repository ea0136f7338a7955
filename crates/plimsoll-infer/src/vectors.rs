//! Loops over rows of numbers, compiled for each width of vectors that processors have.
//!
//! The compiler makes vectors of a loop as wide as what a program may expect of any processor: four numbers. What is run here is compiled for
//! eight and sixteen as well, with the same operations on each number in the same order, so that results have the same bits.

use pulp::Arch;

/// Runs a loop as it is compiled for the widest vectors of this processor. What it calls is part of it where that is inlined.
#[inline(always)]
pub(crate) fn widest<R>(work: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(work)
}
