//! Convolutions whose products are of bf16: values are rounded to bf16 when they are gathered, weights when they are packed, and sums
//! are f32.
//!
//! A dot product takes two inputs at once, so weights are packed in pairs of inputs: `[…][8][16 outputs][2]` for the
//! sixteen inputs of a block, or as the instance of [`Dot`] reads them. A pair of inputs of a voxel is then adjacent in
//! features, and only weights are rearranged.
//!
//! - [`direct`] takes any window. It reaches most of the processor's peak.
//! - [`winograd`] is for kernels three wide and high with stride 1: with F(2, 3) along both, 16 products replace 36.
//! - [`direct_grad`] and [`winograd_grad`] are their gradients by the weights, where pairs are of neighbouring positions or tiles.

pub(crate) mod direct;
pub(crate) mod direct_grad;
mod grad_run;
mod head;
mod pack;
mod tile;
pub(crate) mod winograd;
mod winograd_gather;
pub(crate) mod winograd_grad;
mod winograd_pack;

pub(crate) use head::{DotHead, PackHeadWeights};
pub(crate) use pack::PackWeights;
pub(crate) use winograd_pack::PackWinogradWeights;

use super::patch::Blocks;
use super::tap_conv::Destination;
use crate::kernel::Ptr;
use crate::simd::dot::{Dot, PAIR, PAIRS};
use crate::simd::{Element, LANES, Simd};

/// Packed weights of sixteen inputs and sixteen outputs.
pub(crate) const SQUARE: usize = PAIRS * LANES * PAIR;
/// Packed weights of one pair of inputs and sixteen outputs.
const ROW: usize = LANES * PAIR;

/// The operands of a convolution.
pub(crate) struct DotOperands {
    pub(crate) source: Blocks,
    /// The weights as packed by [`PackWeights`] or [`PackWinogradWeights`].
    pub(crate) packed: Ptr<u16>,
    /// `[output block][16]`
    pub(crate) bias: Option<Ptr<f32>>,
    pub(crate) result: Destination,
    /// Scratch, per thread: the bytes that the tiling of the kernel says.
    pub(crate) scratch: Ptr<u8>,
}

impl DotOperands {
    /// The bias of a block of outputs.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`; `block` is one of the output blocks.
    #[inline(always)]
    unsafe fn bias<D: Dot>(&self, block: usize) -> <D::S as Simd>::V {
        // SAFETY: the bias has sixteen lanes for each output block, and `block` is one of them.
        unsafe {
            match self.bias {
                Some(bias) => D::S::load(bias.0.add(block * LANES)),
                None => D::S::zero(),
            }
        }
    }

    /// Stores sixteen results, added to what they are to be added to.
    ///
    /// # Safety
    /// The machine has the instruction set of `D`; `place` points to sixteen elements of the result, which the task may write.
    #[inline(always)]
    unsafe fn store<D: Dot>(&self, place: usize, value: <D::S as Simd>::V) {
        // SAFETY: the place is one of the result, and of what is added, which is as large.
        unsafe {
            match self.result {
                Destination::F32(result, added_to) => {
                    let value = match added_to {
                        Some(added_to) => D::S::add(f32::load::<D::S>(added_to.0.add(place)), value),
                        None => value,
                    };
                    D::S::store(result.0.add(place), value);
                }
                Destination::Bf16(result, added_to) => {
                    let value = match added_to {
                        Some(added_to) => D::S::add(Element::load::<D::S>(added_to.0.add(place)), value),
                        None => value,
                    };
                    D::store_operand(result.0.add(place).cast(), value);
                }
            }
        }
    }
}
