//! `ldmatrix` and `mma.sync`.
//!
//! The layouts of fragments follow the PTX manual, section "Warp-level matrix instructions".

use super::Machine;
use super::access::resolve;
use super::traffic::bank_conflicts;
use super::warp::Warp;
use crate::fault::{Trouble, What};
use crate::function::rounding::{F16, Mode, f32_bits, f32_of, from_bf16, from_f16, narrow};
use crate::instruction::{Address, Mma, MmaShape, MmaType, Space};
use crate::lanes::{ALL, Lanes, Slot, WARP, low};

/// Bytes of a row of eight elements of 16 bits.
const ROW: usize = 16;

impl Machine<'_> {
    /// Lanes 8i to 8i+7 give the rows of matrix i. Lane l receives elements 2(l mod 4) and the next of row l/4, or, if it
    /// is transposed, of column l/4.
    pub(super) fn load_matrix(
        &mut self,
        warp: &mut Warp,
        to: &[Slot],
        address: Address,
        transposed: bool,
        space: Space,
    ) -> Result<(), Trouble> {
        let givers = low(8 * to.len() as u32) as u32;
        let addresses = self.addresses(warp, address, givers)?;
        let mut offsets = [0; WARP];
        for (matrix, &slot) in to.iter().enumerate() {
            let mut elements = [[0_u16; 8]; 8];
            for (row, elements) in elements.iter_mut().enumerate() {
                let lane = 8 * matrix + row;
                let trouble = |what| Trouble::new(lane, what);
                let (found, offset) = resolve(space, addresses[lane]);
                if found != Space::Shared {
                    let (address, bytes) = (addresses[lane], ROW);
                    return Err(trouble(What::Outside { address, bytes, write: false, nearest: None }));
                }
                if !offset.is_multiple_of(ROW as u64) {
                    return Err(trouble(What::Misaligned { address: offset, bytes: ROW }));
                }
                offsets[lane] = offset;
                for (word, pair) in elements.chunks_exact_mut(2).enumerate() {
                    // The lane that receives the word, or its first half.
                    let receiver = if transposed { 8 * word + row / 2 } else { 4 * row + word };
                    let me = self.stamp(warp, receiver);
                    let bytes =
                        self.shared.load(offset + 4 * word as u64, 4, me, &self.timeline).map_err(trouble)?;
                    for (element, bytes) in pair.iter_mut().zip(bytes.chunks_exact(2)) {
                        *element = super::access::value(bytes) as u16;
                    }
                }
            }
            let values: Lanes = std::array::from_fn(|lane| {
                let (line, first) = (lane / 4, lane % 4 * 2);
                let element = |index: usize| {
                    u64::from(if transposed { elements[index][line] } else { elements[line][index] })
                };
                element(first) | element(first + 1) << 16
            });
            warp.write(slot, ALL, &values);
        }
        self.counts.bank_conflicts += bank_conflicts(&offsets, givers, ROW);
        self.counts.shared_bytes_loaded += u64::from(givers.count_ones()) * ROW as u64;
        Ok(())
    }

    /// D = A·B + C. Each product is exact; they are added to C in ascending order of k, rounded to f32 each time.
    pub(super) fn multiply(&mut self, warp: &mut Warp, mma: &Mma) -> Result<(), Trouble> {
        self.counts.mma += 1;
        if mma.shape == MmaShape::M8N8K4 {
            return self.multiply_quads(warp, mma);
        }
        let depth = match mma.shape {
            MmaShape::M16N8K16 => 16,
            MmaShape::M16N8K8 => 8,
            _ => 4,
        };
        let mut a = [[0.0_f32; 16]; 16];
        self.gather(warp, &mma.a, mma.operands, |lane, element, value| {
            let (group, place) = (lane / 4, lane % 4);
            let (row, column) = if mma.operands == MmaType::Tf32 {
                (group + 8 * (element % 2), place + 4 * (element / 2))
            } else {
                (group + 8 * (element / 2 % 2), 2 * place + element % 2 + 8 * (element / 4))
            };
            a[row][column] = value;
        })?;
        let mut b = [[0.0_f32; 8]; 16];
        self.gather(warp, &mma.b, mma.operands, |lane, element, value| {
            let (group, place) = (lane / 4, lane % 4);
            let row = if mma.operands == MmaType::Tf32 {
                place + 4 * element
            } else {
                2 * place + element % 2 + 8 * (element / 2)
            };
            b[row][group] = value;
        })?;
        let mut sums = [[0.0_f32; 8]; 16];
        let at = |lane: usize, element: usize| (lane / 4 + 8 * (element / 2), lane % 4 * 2 + element % 2);
        self.gather(warp, &mma.c, sum_type(mma.sums_f32.0), |lane, element, value| {
            let (row, column) = at(lane, element);
            sums[row][column] = value;
        })?;
        for (sums, a) in sums.iter_mut().zip(&a) {
            for (a, b) in a.iter().zip(&b).take(depth) {
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
        scatter(warp, mma, |lane, element| {
            let (row, column) = at(lane, element);
            sums[row][column]
        });
        Ok(())
    }

    /// Four products of 8×4 by 4×8, each by the lanes 4q to 4q+3 and 4q+16 to 4q+19.
    fn multiply_quads(&mut self, warp: &mut Warp, mma: &Mma) -> Result<(), Trouble> {
        let quad = |lane: usize| lane % 16 / 4;
        let half = |lane: usize| 4 * (lane / 16);
        let mut a = [[[0.0_f32; 4]; 8]; 4];
        self.gather(warp, &mma.a, MmaType::Half, |lane, element, value| {
            let (row, column) = if mma.transposed.0 {
                (element + half(lane), lane % 4)
            } else {
                (lane % 4 + half(lane), element)
            };
            a[quad(lane)][row][column] = value;
        })?;
        let mut b = [[[0.0_f32; 8]; 4]; 4];
        self.gather(warp, &mma.b, MmaType::Half, |lane, element, value| {
            let (row, column) = if mma.transposed.1 {
                (lane % 4, element + half(lane))
            } else {
                (element, lane % 4 + half(lane))
            };
            b[quad(lane)][row][column] = value;
        })?;
        let at = |f32: bool, lane: usize, element: usize| {
            if f32 {
                ((lane & 1) + (element & 2) + half(lane), (element & 4) + (lane & 2) + (element & 1))
            } else {
                (lane % 4 + half(lane), element)
            }
        };
        let mut sums = [[[0.0_f32; 8]; 8]; 4];
        self.gather(warp, &mma.c, sum_type(mma.sums_f32.0), |lane, element, value| {
            let (row, column) = at(mma.sums_f32.0, lane, element);
            sums[quad(lane)][row][column] = value;
        })?;
        for ((sums, a), b) in sums.iter_mut().zip(&a).zip(&b) {
            for (sums, a) in sums.iter_mut().zip(a) {
                for (a, b) in a.iter().zip(b) {
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum += a * b;
                    }
                }
            }
        }
        scatter(warp, mma, |lane, element| {
            let (row, column) = at(mma.sums_f32.1, lane, element);
            sums[quad(lane)][row][column]
        });
        Ok(())
    }

    /// Hands each element of a fragment to `take`, with its lane and its index in the lane.
    fn gather(
        &self,
        warp: &Warp,
        slots: &[Slot],
        kind: MmaType,
        mut take: impl FnMut(usize, usize, f32),
    ) -> Result<(), Trouble> {
        for (index, &slot) in slots.iter().enumerate() {
            elements(warp.read(slot, ALL, self.kernel)?, index, kind, &mut take);
        }
        Ok(())
    }
}

/// Hands the elements in a register of a fragment, which is its `index`-th, to `take`, with their lane and their index in the lane.
pub(super) fn elements(values: &Lanes, index: usize, kind: MmaType, mut take: impl FnMut(usize, usize, f32)) {
    for (lane, &bits) in values.iter().enumerate() {
        match kind {
            // Cards ignore the bits that a tf32 does not have.
            MmaType::Tf32 => take(lane, index, f32_of(bits & 0xffff_e000)),
            MmaType::Half => {
                take(lane, 2 * index, from_f16(bits & 0xffff));
                take(lane, 2 * index + 1, from_f16(bits >> 16 & 0xffff));
            }
            MmaType::Bfloat => {
                take(lane, 2 * index, from_bf16(bits & 0xffff));
                take(lane, 2 * index + 1, from_bf16(bits >> 16 & 0xffff));
            }
            MmaType::Whole => take(lane, index, f32_of(bits)),
        }
    }
}

fn sum_type(f32: bool) -> MmaType {
    if f32 { MmaType::Whole } else { MmaType::Half }
}

/// Writes D.
fn scatter(warp: &mut Warp, mma: &Mma, element: impl Fn(usize, usize) -> f32) {
    for (index, &slot) in mma.d.iter().enumerate() {
        let half = |lane, index| narrow(f64::from(element(lane, index)), F16, Mode::NearestEven);
        let values: Lanes = std::array::from_fn(|lane| {
            if mma.sums_f32.1 {
                f32_bits(element(lane, index))
            } else {
                half(lane, 2 * index) | half(lane, 2 * index + 1) << 16
            }
        });
        warp.write(slot, ALL, &values);
    }
}
