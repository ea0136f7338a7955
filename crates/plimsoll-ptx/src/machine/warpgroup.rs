//! Products of matrices by warp groups: `wgmma`.
//!
//! A warp group is four consecutive warps. Together they multiply 64×16 by 16×N elements, of which each warp has 16
//! rows; here each warp multiplies its own when it reaches the instruction, and a log checks that all four reach the
//! same one.
//!
//! Products continue behind the instruction, and the manual leaves open when they read and write: until a wait for them
//! no instruction may access their sums, or write their operands. They access shared memory through another proxy than
//! loads and stores, so a fence has to publish what is written there. The layouts of fragments and matrices are in the
//! manual's section "Asynchronous warpgroup level matrix instructions".

use std::cell::Cell;

use super::Machine;
use super::tensor::elements;
use super::warp::Warp;
use crate::fault::{Trouble, What};
use crate::function::rounding::{f32_bits, f32_of, from_bf16, from_f16};
use crate::instruction::{MmaType, RowsOfA, Warpgroup, WarpgroupMma};
use crate::lanes::{ALL, Lanes, Slot, WARP};
use crate::module::Kernel;

/// Warps of a group.
const GROUP: usize = 4;

/// Rows of a warp.
const ROWS: usize = 16;

/// The depth of a product, over which it sums.
const DEPTH: usize = 16;

/// Bytes of eight elements, which lie in succession.
const PIECE: usize = 16;

/// The use of a register by products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// No product of the kernel has it as an operand.
    None,
    /// Not accessed since the last fence.
    Free,
    /// Accessed since then, by other instructions than products.
    Accessed,
    /// A pending product of this number of columns adds to it.
    Sum(usize),
    /// One that is under way reads it.
    Factor,
}

/// A product that is under way.
struct Product {
    /// The number of its group; for a group that is not committed yet, the number of committed groups.
    group: u64,
    /// Registers, and how it uses them.
    registers: Vec<(Slot, Use)>,
    /// The pieces of shared memory that it reads.
    pieces: Vec<u64>,
}

/// The state of a warp that concerns the products of its group.
#[derive(Default)]
pub(crate) struct Products {
    /// The use of each register; empty if the kernel has no products.
    uses: Vec<Cell<Use>>,
    /// A register that an instruction has accessed while a product is under way.
    early: Cell<Option<Slot>>,
    is_fenced: bool,
    pending: Vec<Product>,
    /// Groups.
    committed: u64,
    /// Instructions of the warp group so far.
    ran: usize,
}

impl Products {
    /// At the start of a block.
    pub fn new(kernel: &Kernel) -> Products {
        let mut uses = Vec::new();
        if !kernel.multiplied.is_empty() {
            uses.resize(kernel.register_names.len(), Cell::new(Use::None));
            kernel.multiplied.iter().for_each(|slot| uses[*slot].set(Use::Free));
        }
        Products { uses, ..Products::default() }
    }

    /// An instruction that is no product accesses a register.
    #[inline]
    pub fn note(&self, slot: Slot) {
        let Some(found) = self.uses.get(slot) else { return };
        match found.get() {
            Use::Free => found.set(Use::Accessed),
            Use::Sum(_) | Use::Factor => self.early.set(Some(slot)),
            Use::None | Use::Accessed => {}
        }
    }

    /// The register that was accessed too early.
    #[inline]
    pub fn take_early(&self) -> Option<Slot> {
        if self.uses.is_empty() { None } else { self.early.take() }
    }

    fn fence(&mut self) {
        self.is_fenced = true;
        self.uses.iter().filter(|found| found.get() == Use::Accessed).for_each(|found| found.set(Use::Free));
    }

    /// Lets a product have a register.
    fn take(&self, slot: Slot, wanted: Use, kernel: &Kernel) -> Result<(), What> {
        let register = || kernel.register_names[slot].clone();
        match self.uses[slot].get() {
            Use::Accessed => return Err(What::Unfenced { register: Some(register()) }),
            // Sums of products of one shape follow each other, and what is only read may be read again.
            found @ (Use::Sum(_) | Use::Factor) if found != wanted => {
                return Err(What::Multiplying { register: register() });
            }
            _ => {}
        }
        self.uses[slot].set(wanted);
        Ok(())
    }

    /// Takes out the products that are over once at most `keep` groups are under way. Their registers are free.
    fn finish(&mut self, keep: usize) -> Vec<Product> {
        let committed = self.committed;
        let is_over = |product: &mut Product| product.group.saturating_add(keep as u64) < committed;
        let over: Vec<Product> = self.pending.extract_if(.., is_over).collect();
        over.iter()
            .flat_map(|product| &product.registers)
            .for_each(|(slot, _)| self.uses[*slot].set(Use::Free));
        for (slot, used) in self.pending.iter().flat_map(|product| &product.registers) {
            self.uses[*slot].set(*used);
        }
        over
    }
}

/// The instructions that the first warp of a warp group has reached, with their operands.
pub(super) type Log = Vec<(usize, [u64; 3])>;

/// A matrix in shared memory without swizzling, in bytes.
#[derive(Clone, Copy)]
struct Matrix {
    start: u64,
    /// From the first eight of the sixteen elements that are summed over to the second.
    leading: u64,
    /// From eight rows of A, or columns of B, to the next.
    stride: u64,
    /// `true` if eight rows or columns in succession lie side by side, not eight elements of one.
    transposed: bool,
}

impl Matrix {
    fn new(descriptor: u64, transposed: bool) -> Result<Matrix, What> {
        let field = |first: u32| (descriptor >> first & 0x3fff) << 4;
        let known = [0, 16, 32].iter().fold(0, |known, first| known | 0x3fff << first);
        if descriptor & !known != 0 {
            let what = format!(
                "the descriptor {descriptor:#x} has a swizzle or a base offset, which the interpreter does not know"
            );
            return Err(What::Operand(what));
        }
        Ok(Matrix { start: field(0), leading: field(16), stride: field(32), transposed })
    }

    /// Returns the address of eight elements: the elements of a row or column from `8 * half` on, or, transposed, number `8 *
    /// half + within` of each of eight rows or columns.
    fn piece(self, eight: usize, half: usize, within: usize) -> u64 {
        self.start + eight as u64 * self.stride + half as u64 * self.leading + (within * PIECE) as u64
    }
}

impl Machine<'_> {
    /// An instruction of a warp group, whose warp is whole.
    pub(super) fn warpgroup(&mut self, warp: &mut Warp, operation: &Warpgroup) -> Result<(), Trouble> {
        let operands = match operation {
            Warpgroup::Multiply(multiply) => self.operands(warp, multiply)?,
            _ => [0; 3],
        };
        let first = |what| Trouble::new(0, what);
        let whole = (warp.number / GROUP + 1) * GROUP * WARP;
        if (self.launch.block.iter().product::<u32>() as usize) < whole {
            return Err(first(What::GroupDivergence));
        }
        let log = &mut self.groups[warp.number / GROUP];
        let entry = (warp.at, operands);
        match log.get(warp.products.ran) {
            None => log.push(entry),
            Some(known) if *known == entry => {}
            Some(_) => return Err(first(What::GroupDivergence)),
        }
        warp.products.ran += 1;
        match operation {
            Warpgroup::Fence => warp.products.fence(),
            Warpgroup::Multiply(multiply) => self.multiply_rows(warp, multiply, operands).map_err(first)?,
            Warpgroup::Commit => warp.products.committed += 1,
            Warpgroup::Wait(keep) => {
                let me = self.stamp(warp, 0);
                for piece in warp.products.finish(*keep).into_iter().flat_map(|product| product.pieces) {
                    self.shared.multiplied(piece, me, &self.timeline).map_err(first)?;
                }
            }
        }
        Ok(())
    }

    /// The block has ended: no warp of a group may have left out what another one did.
    pub(super) fn check_groups(&self, warps: &[Warp]) -> Result<(), (usize, Trouble)> {
        let missing = warps.iter().find(|warp| warp.products.ran != self.groups[warp.number / GROUP].len());
        missing.map_or(Ok(()), |warp| Err((warp.number, Trouble::new(0, What::GroupDivergence))))
    }

    /// The descriptors of A and B, and whether the product is added: the same in all lanes.
    fn operands(&self, warp: &Warp, multiply: &WarpgroupMma) -> Result<[u64; 3], Trouble> {
        let same = |slot: Slot| {
            let values = warp.read(slot, ALL, self.kernel)?;
            match values.iter().position(|value| *value != values[0]) {
                None => Ok(values[0]),
                Some(lane) => {
                    let what =
                        format!("the descriptor is {:#x}, and {:#x} in lane 0", values[lane], values[0]);
                    Err(Trouble::new(lane, What::Operand(what)))
                }
            }
        };
        let a = match multiply.a {
            RowsOfA::Shared(slot) => same(slot)?,
            RowsOfA::Registers(_) => 0,
        };
        let add = warp.test(multiply.add, ALL, self.kernel)?;
        if add != 0 && add != ALL {
            let what = "lanes differ in whether the product is added".to_owned();
            return Err(Trouble::new(add.trailing_ones() as usize % WARP, What::Operand(what)));
        }
        Ok([a, same(multiply.b)?, u64::from(add != 0)])
    }

    /// The 16 rows of this warp. Each product is exact; they are added in ascending order of k, rounded to f32 each time.
    fn multiply_rows(
        &mut self,
        warp: &mut Warp,
        multiply: &WarpgroupMma,
        [a_descriptor, b_descriptor, add]: [u64; 3],
    ) -> Result<(), What> {
        let &WarpgroupMma { columns, factors, transposed, .. } = multiply;
        if !warp.products.is_fenced {
            return Err(What::Unfenced { register: None });
        }
        let uses = multiply.sums.iter().map(|slot| (*slot, Use::Sum(columns)));
        let read = multiply.rows_in_registers().iter().map(|slot| (*slot, Use::Factor));
        let registers: Vec<(Slot, Use)> = uses.chain(read).collect();
        for (slot, wanted) in &registers {
            warp.products.take(*slot, *wanted, self.kernel)?;
        }
        let unassigned = |slot: Slot| What::Unassigned { register: self.kernel.register_names[slot].clone() };
        let values = |slot: Slot| match warp.operand(slot) {
            (values, ALL) => Ok(values),
            _ => Err(unassigned(slot)),
        };
        let mut sums = vec![[0.0_f32; ROWS]; columns];
        let at = |lane: usize, index: usize| {
            (lane / 4 + 8 * (index / 2 % 2), 8 * (index / 4) + 2 * (lane % 4) + index % 2)
        };
        if add != 0 {
            for (index, &slot) in multiply.sums.iter().enumerate() {
                for (lane, bits) in values(slot)?.iter().enumerate() {
                    let (row, column) = at(lane, index);
                    sums[column][row] = f32_of(*bits);
                }
            }
        }
        let mut a = [[0.0_f32; ROWS]; DEPTH];
        for (index, &slot) in multiply.rows_in_registers().iter().enumerate() {
            elements(values(slot)?, index, factors, |lane, element, value| {
                let row = lane / 4 + 8 * (element / 2 % 2);
                a[2 * (lane % 4) + element % 2 + 8 * (element / 4)][row] = value;
            });
        }
        let mut pieces = Vec::new();
        if let RowsOfA::Shared(_) = multiply.a {
            let matrix = Matrix::new(a_descriptor, transposed[0])?;
            let first = warp.number % GROUP * ROWS;
            self.read_matrix(warp, matrix, first..first + ROWS, factors, &mut pieces, |row, k, value| {
                a[k][row - first] = value;
            })?;
        }
        let mut b = vec![[0.0_f32; DEPTH]; columns];
        let matrix = Matrix::new(b_descriptor, transposed[1])?;
        self.read_matrix(warp, matrix, 0..columns, factors, &mut pieces, |column, k, value| {
            b[column][k] = value
        })?;
        let sign = if multiply.negative { -1.0 } else { 1.0 };
        for (sums, b) in sums.iter_mut().zip(&b) {
            for (a, b) in a.iter().zip(b) {
                let b = sign * b;
                for (sum, a) in sums.iter_mut().zip(a) {
                    *sum += a * b;
                }
            }
        }
        for (index, &slot) in multiply.sums.iter().enumerate() {
            let values: Lanes = std::array::from_fn(|lane| {
                let (row, column) = at(lane, index);
                f32_bits(sums[column][row])
            });
            warp.put(slot, ALL, &values);
        }
        self.counts.warpgroup_mma += 1;
        // A core matrix is 128 bytes in succession: they are in different banks. B is read once for the four warps.
        self.counts.shared_bytes_loaded +=
            (pieces.len() * PIECE - columns * DEPTH * 2 * (GROUP - 1) / GROUP) as u64;
        let group = warp.products.committed;
        warp.products.pending.push(Product { group, registers, pieces });
        Ok(())
    }

    /// Hands elements of a matrix to `take`, by their row or column and what is summed over. The pieces are read from now on.
    fn read_matrix(
        &mut self,
        warp: &Warp,
        matrix: Matrix,
        lines: std::ops::Range<usize>,
        factors: MmaType,
        pieces: &mut Vec<u64>,
        mut take: impl FnMut(usize, usize, f32),
    ) -> Result<(), What> {
        let me = self.stamp(warp, 0);
        let value = |bytes: &[u8]| match factors {
            MmaType::Bfloat => from_bf16(super::access::value(bytes)),
            _ => from_f16(super::access::value(bytes)),
        };
        for eight in lines.start / 8..lines.end / 8 {
            for half in 0..2 {
                for within in 0..8 {
                    let offset = matrix.piece(eight, half, within);
                    let bytes = self.shared.multiply(offset, me, &self.timeline)?;
                    pieces.push(offset);
                    for (index, bytes) in bytes.chunks_exact(2).enumerate() {
                        let (line, k) = if matrix.transposed { (index, within) } else { (within, index) };
                        take(8 * eight + line, 8 * half + k, value(bytes));
                    }
                }
            }
        }
        Ok(())
    }
}
