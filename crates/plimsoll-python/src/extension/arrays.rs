//! Arrays as the kernels read them.

use numpy::ndarray::{ArrayView3, s};
use numpy::{Element, PyReadonlyArray3};
use plimsoll_morphology::Voxels;
use pyo3::prelude::*;

/// A mask in one of the types that kernels read.
#[derive(FromPyObject)]
pub(super) enum Mask<'py> {
    Bytes(PyReadonlyArray3<'py, u8>),
    Shorts(PyReadonlyArray3<'py, u16>),
    Words(PyReadonlyArray3<'py, u32>),
}

/// Runs a generic call on the slice of a mask, whose shape it is given.
macro_rules! on_mask {
    ($mask:expr, |$slice:ident, $shape:ident| $call:expr) => {
        match &$mask {
            Mask::Bytes(array) => {
                let ($slice, $shape) = slice(array)?;
                $call
            }
            Mask::Shorts(array) => {
                let ($slice, $shape) = slice(array)?;
                $call
            }
            Mask::Words(array) => {
                let ($slice, $shape) = slice(array)?;
                $call
            }
        }
    };
}
pub(super) use on_mask;

/// The elements of an array in C order, and its shape.
pub(super) fn slice<'a, T: Element>(array: &'a PyReadonlyArray3<'_, T>) -> PyResult<(&'a [T], [usize; 3])> {
    let shape = array.as_array().dim().into();
    Ok((array.as_slice()?, shape))
}

/// A mask of any layout and of any size of integers.
#[derive(FromPyObject)]
pub(super) enum AnyMask<'py> {
    Bytes(PyReadonlyArray3<'py, u8>),
    Shorts(PyReadonlyArray3<'py, u16>),
    Words(PyReadonlyArray3<'py, u32>),
    Longs(PyReadonlyArray3<'py, u64>),
}

/// An integer of a label map.
pub(super) trait Integer: Element + Copy + Sync {
    /// The label as the kernels read it.
    fn label(self) -> u32;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Integer for $integer {
            #[inline(always)]
            fn label(self) -> u32 {
                u32::from(self)
            }
        }
    )*};
}
integers!(u8, u16, u32);

impl Integer for u64 {
    /// The package refuses label maps with larger labels; of masks, it matters only that this is not 0.
    #[inline(always)]
    fn label(self) -> u32 {
        u32::try_from(self).unwrap_or(u32::MAX)
    }
}

/// A view of an array, with any strides.
pub(super) struct View<'a, T>(pub(super) ArrayView3<'a, T>);

impl<T: Integer> Voxels for View<'_, T> {
    fn shape(&self) -> [usize; 3] {
        self.0.dim().into()
    }

    fn read(&self, [z, y, x]: [usize; 3], labels: &mut [u32]) {
        let row = self.0.slice(s![z, y, x..x + labels.len()]);
        labels.iter_mut().zip(row).for_each(|(label, integer)| *label = integer.label());
    }
}
