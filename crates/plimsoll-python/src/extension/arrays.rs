//! Arrays as the kernels read them.

use numpy::PyReadonlyArray3;
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
pub(super) fn slice<'a, T: numpy::Element>(
    array: &'a PyReadonlyArray3<'_, T>,
) -> PyResult<(&'a [T], [usize; 3])> {
    let shape = array.as_array().dim().into();
    Ok((array.as_slice()?, shape))
}
