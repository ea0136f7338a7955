//! Functions of arrays for loops that are compiled for an instruction set.
//!
//! Generic functions of the standard library that are not marked for inlining may be compiled as functions of their own. These lack the
//! instruction set of the loop, and arrays that they are given stay in memory, where the loop would have them in registers.
#![forbid(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    reason = "adaptors of iterators may be compiled as functions of their own"
)]

/// The results of a function for all elements of an array, in place of `array::map`.
#[inline(always)]
pub fn each<A: Copy, B: Copy, const N: usize>(from: [A; N], mut call: impl FnMut(A) -> B) -> [B; N] {
    const { assert!(N > 0, "an array without elements") };
    let mut all = [call(from[0]); N];
    for i in 1..N {
        all[i] = call(from[i]);
    }
    all
}

/// The results of a function for all indices of an array, in place of `array::from_fn`.
#[inline(always)]
pub fn each_index<B: Copy, const N: usize>(mut call: impl FnMut(usize) -> B) -> [B; N] {
    const { assert!(N > 0, "an array without elements") };
    let mut all = [call(0); N];
    for i in 1..N {
        all[i] = call(i);
    }
    all
}

/// The elements of two iterators side by side, as long as both have some, in place of `Iterator::zip`. For arrays: over long slices, `zip`
/// is faster.
#[inline(always)]
pub fn pairs<A: IntoIterator, B: IntoIterator>(a: A, b: B) -> Pairs<A::IntoIter, B::IntoIter> {
    Pairs { a: a.into_iter(), b: b.into_iter() }
}

/// The iterator of [`pairs`].
#[derive(Clone, Debug)]
pub struct Pairs<A, B> {
    a: A,
    b: B,
}

impl<A: Iterator, B: Iterator> Iterator for Pairs<A, B> {
    type Item = (A::Item, B::Item);

    #[inline(always)]
    fn next(&mut self) -> Option<(A::Item, B::Item)> {
        Some((self.a.next()?, self.b.next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_elements_are_mapped_in_order() {
        let mut seen = Vec::new();
        let twice = each([1, 2, 3], |x| {
            seen.push(x);
            2 * x
        });
        assert_eq!((twice, seen), ([2, 4, 6], vec![1, 2, 3]));
        assert_eq!(each_index(|i| i * i), [0, 1, 4, 9]);
        assert_eq!(pairs([1, 2, 3], 5..7).collect::<Vec<_>>(), [(1, 5), (2, 6)]);
    }
}
