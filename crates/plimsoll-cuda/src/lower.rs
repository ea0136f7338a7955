//! From a node to launches: everything that is decided about a node, decided in one place.
//!
//! [`Lower::lower`] is called when a program is planned, without addresses, and for every launch of the plan, with addresses in the arena.
//! It depends on shapes, types and the architecture alone, so scratch, cost and launches cannot disagree.

use std::ops::Range;

use bytemuck::Pod;
use plimsoll_graph::{DType, TensorInfo};
use plimsoll_plan::Unsupported;

use crate::device::{Effort, LOOPS, WARP};
use crate::layout;
use crate::{Architecture, Launch};

/// Offsets in the arena are multiples of it, as `cudaMalloc`'s addresses are.
pub(crate) const ALIGNMENT: usize = 256;

/// Bytes that a thread loads and stores at once.
pub(crate) const PACK_BYTES: usize = 16;

/// Threads of a block, `BLOCK` of the kernels.
pub(crate) const BLOCK: usize = 128;

/// Terms of a run of a sum, `RUN` of the kernels.
pub(crate) const RUN: usize = 256;

/// Indices in kernels have 32 bits, of which sums of a few must not overflow.
const MOST_ELEMENTS: usize = 1 << 31;

/// Blocks along the second axis of a grid.
const MOST_ROWS: usize = 65_535;

/// The lowering of an op.
pub(crate) trait Lower {
    /// Chooses the kernels.
    ///
    /// # Errors
    /// Returns an error if there are no kernels for these operands.
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported>;
}

/// A tensor of a node, or a piece of its scratch, in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) address: u64,
    bytes: usize,
}

impl Stretch {
    pub(crate) fn new(address: u64, bytes: usize) -> Stretch {
        Stretch { address, bytes }
    }

    /// Returns the rest of the stretch behind its first `elements` elements, which it must have.
    pub(crate) fn after<T>(self, elements: usize) -> Stretch {
        let before = elements * size_of::<T>();
        Stretch { address: self.address + before as u64, bytes: self.bytes - before }
    }

    pub(crate) fn range(self) -> Range<u64> {
        self.address..self.address + self.bytes as u64
    }
}

/// A tensor of a node.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) info: &'a TensorInfo,
    pub(crate) at: Stretch,
}

impl<'a> Operand<'a> {
    pub(crate) fn new(info: &'a TensorInfo, address: u64) -> Operand<'a> {
        Operand { info, at: Stretch::new(address, layout::bytes(info)) }
    }

    pub(crate) fn address(&self) -> u64 {
        self.at.address
    }

    /// Elements of it that a thread loads and stores at once, `Pack` of the kernels: 16 bytes.
    pub(crate) fn pack(&self) -> usize {
        PACK_BYTES / self.info.dtype.bytes()
    }

    /// Returns the storage type, as it appears in the names of kernels.
    fn storage(&self) -> Option<&'static str> {
        match self.info.dtype {
            DType::F32 => Some("f32"),
            DType::Bf16 => Some("bf16"),
            DType::F16 => Some("f16"),
            DType::F64 | DType::U8 => None,
        }
    }
}

/// The address of a tensor that need not be there; null if it is not.
pub(crate) fn address_or_null(operand: Option<&Operand<'_>>) -> u64 {
    operand.map_or(NULL, Operand::address)
}

/// The address of a stretch of memory that need not be there; null if it is not.
pub(crate) fn start_or_null(stretch: Option<Stretch>) -> u64 {
    stretch.map_or(NULL, |stretch| stretch.address)
}

/// The address of an operand that a kernel is to do without.
const NULL: u64 = 0;

/// There are no kernels for an op.
pub(crate) fn unsupported(op: &'static str, why: impl Into<String>) -> Unsupported {
    Unsupported { backend: "CUDA".into(), op, why: why.into() }
}

/// A node with its operands and results.
pub(crate) struct Context<'a> {
    /// The op's name.
    pub(crate) name: &'static str,
    /// The architecture that the kernels run on.
    pub(crate) architecture: Architecture,
    pub(crate) inputs: Vec<Operand<'a>>,
    pub(crate) outputs: Vec<Operand<'a>>,
    /// The address of its scratch.
    pub(crate) scratch: u64,
}

impl<'a> Context<'a> {
    pub(crate) fn input(&self, operand: usize) -> &Operand<'a> {
        &self.inputs[operand]
    }

    pub(crate) fn output(&self, result: usize) -> &Operand<'a> {
        &self.outputs[result]
    }

    pub(crate) fn unsupported(&self, why: impl Into<String>) -> Unsupported {
        unsupported(self.name, why)
    }

    /// A product of extents as kernels take it.
    ///
    /// # Errors
    /// Returns an error if the number is too large for an index.
    pub(crate) fn count(&self, extents: &[usize]) -> Result<u32, Unsupported> {
        let product = extents.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
        match product.filter(|product| *product < MOST_ELEMENTS).map(u32::try_from) {
            Some(Ok(count)) => Ok(count),
            _ => Err(self.unsupported(format!("{extents:?} elements are more than kernels can index"))),
        }
    }

    /// The elements of a tensor.
    ///
    /// # Errors
    /// Returns an error if the number is too large for an index.
    pub(crate) fn elements(&self, operand: &Operand<'_>) -> Result<u32, Unsupported> {
        self.count(&[operand.info.shape.count()])
    }

    /// An attribute along three axes as kernels take it.
    ///
    /// # Errors
    /// Returns an error if a number is too large for an index.
    pub(crate) fn axes(&self, extents: [usize; 3]) -> Result<[u32; 3], Unsupported> {
        Ok([self.count(&extents[..1])?, self.count(&extents[1..2])?, self.count(&extents[2..])?])
    }

    /// The name of a kernel that is compiled for each way in which some operands may be stored.
    ///
    /// # Errors
    /// Returns an error if an operand has another storage type, or some are bf16 and others f16.
    pub(crate) fn kernel(&self, name: &str, operands: &[&Operand<'_>]) -> Result<String, Unsupported> {
        let has = |dtype: DType| operands.iter().any(|operand| operand.info.dtype == dtype);
        if has(DType::Bf16) && has(DType::F16) {
            return Err(self.unsupported("elements of bf16 and of f16 at once"));
        }
        operands.iter().try_fold(name.to_string(), |name, operand| match operand.storage() {
            Some(storage) => Ok(format!("{name}_{storage}")),
            None => Err(self.unsupported(format!("elements of {}", operand.info.dtype))),
        })
    }
}

/// The launches of a node.
pub(crate) struct Work {
    op: &'static str,
    pub(crate) launches: Vec<Launch>,
    /// Bytes.
    pub(crate) scratch: usize,
    /// Pairs (result, operand) that may share one place, see [`plimsoll_plan::LoweredNode::in_place`].
    pub(crate) in_place: Vec<(usize, usize)>,
    base: u64,
}

/// More bytes of scratch than any card has.
const MOST_SCRATCH: usize = 1 << 44;

impl Work {
    pub(crate) fn new(cx: &Context<'_>) -> Work {
        Work { op: cx.name, launches: Vec::new(), scratch: 0, in_place: Vec::new(), base: cx.scratch }
    }

    /// Takes this number of bytes of scratch.
    ///
    /// # Errors
    /// Returns an error if there are more than any card has.
    pub(crate) fn take<T>(&mut self, count: usize) -> Result<Stretch, Unsupported> {
        let bytes = count.saturating_mul(size_of::<T>());
        let end = self.scratch.saturating_add(bytes);
        if end > MOST_SCRATCH {
            return Err(unsupported(self.op, format!("{end} bytes of scratch are more than any card has")));
        }
        let piece = Stretch::new(self.base + self.scratch as u64, bytes);
        self.scratch = end.next_multiple_of(ALIGNMENT);
        Ok(piece)
    }

    /// Launches a kernel with a thread for each of some elements.
    pub(crate) fn each<P: Pod>(
        &mut self,
        kernel: impl Into<String>,
        elements: u32,
        parameters: &P,
        reads: &[Stretch],
        writes: &[Stretch],
    ) {
        self.push(kernel, [elements.div_ceil(BLOCK as u32), 1], parameters, reads, writes);
        // Threads behind the last element end at once.
        if let Some(launch) = self.launches.last_mut() {
            launch.effort.warps = elements.div_ceil(WARP).into();
        }
    }

    /// Launches a kernel with a thread for each pack of the `elements` elements of an operand.
    pub(crate) fn packs<P: Pod>(
        &mut self,
        kernel: impl Into<String>,
        of: &Operand<'_>,
        elements: u32,
        parameters: &P,
        reads: &[Stretch],
        writes: &[Stretch],
    ) {
        self.each(kernel, elements.div_ceil(of.pack() as u32), parameters, reads, writes);
    }

    /// Launches a kernel with this number of blocks, in rows.
    ///
    /// # Errors
    /// Returns an error if there are more rows than a grid can have.
    pub(crate) fn blocks<P: Pod>(
        &mut self,
        kernel: impl Into<String>,
        [blocks, rows]: [u32; 2],
        parameters: &P,
        reads: &[Stretch],
        writes: &[Stretch],
    ) -> Result<(), Unsupported> {
        if rows as usize > MOST_ROWS {
            return Err(unsupported(self.op, format!("{rows} rows are more than a grid can have")));
        }
        self.push(kernel, [blocks, rows], parameters, reads, writes);
        Ok(())
    }

    fn push<P: Pod>(
        &mut self,
        kernel: impl Into<String>,
        [blocks, rows]: [u32; 2],
        parameters: &P,
        reads: &[Stretch],
        writes: &[Stretch],
    ) {
        let ranges = |stretches: &[Stretch]| stretches.iter().map(|stretch| stretch.range()).collect();
        self.launches.push(Launch {
            kernel: kernel.into(),
            grid: [blocks, rows, 1],
            block: [BLOCK as u32, 1, 1],
            parameters: bytemuck::bytes_of(parameters).to_vec(),
            first_thread: None,
            reads: ranges(reads),
            writes: ranges(writes),
            effort: Effort {
                warps: u64::from(blocks) * u64::from(rows) * (BLOCK / WARP as usize) as u64,
                ..Effort::default()
            },
        });
    }

    /// The last launch.
    ///
    /// # Errors
    /// Returns an error if there is none: its effort would be lost, and its predicted time be wrong.
    fn last(&mut self) -> Result<&mut Launch, Unsupported> {
        let op = self.op;
        self.launches.last_mut().ok_or_else(|| unsupported(op, "an effort belongs to no launch"))
    }

    /// Notes the effort of the last launch, but for its warps.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub(crate) fn effort(&mut self, effort: Effort) -> Result<(), Unsupported> {
        let launch = self.last()?;
        launch.effort = Effort { warps: launch.effort.warps, ..effort };
        Ok(())
    }

    /// Notes that the last launch, which has a thread for each element, can be divided: its kernel adds a number to that of each thread, which lies at an
    /// offset among its parameters.
    ///
    /// # Errors
    /// Returns an error if there is no launch.
    pub(crate) fn divisible(&mut self, first_thread: usize) -> Result<(), Unsupported> {
        self.last()?.first_thread = Some(first_thread);
        Ok(())
    }

    /// Returns the number of warps of the last launch that have work.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub(crate) fn warps(&self) -> Result<u64, Unsupported> {
        let last = self.launches.last();
        last.map(|launch| launch.effort.warps).ok_or_else(|| unsupported(self.op, "there is no launch yet"))
    }

    /// Notes how often warps of the last launch turn in its loops.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub(crate) fn loops<const N: usize>(&mut self, turns: [u64; N]) -> Result<(), Unsupported> {
        let mut loops = [0; LOOPS];
        loops.iter_mut().zip(turns).for_each(|(of, turns)| *of = turns);
        self.effort(Effort { loops, ..Effort::default() })
    }

    /// Notes a loop of the last launch that each of its warps goes through the same number of times.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub(crate) fn each_turns(&mut self, turns: usize) -> Result<(), Unsupported> {
        let all = self.warps()?.saturating_mul(turns as u64);
        self.loops([all])
    }

    /// Returns `true` if a launch multiplies on tensor cores.
    pub(crate) fn is_on_tensor_cores(&self) -> bool {
        self.launches.iter().any(|launch| launch.effort.tensor_flops > 0 || launch.effort.group_flops > 0)
    }

    pub(crate) fn in_place(mut self, pairs: &[(usize, usize)]) -> Work {
        self.in_place = pairs.to_vec();
        self
    }
}

/// The product of some factors, or the largest number where that is larger.
pub(crate) fn product(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor as u64))
}

/// Returns the stretches of operands.
pub(crate) fn stretches(operands: &[Operand<'_>]) -> Vec<Stretch> {
    operands.iter().map(|operand| operand.at).collect()
}

/// Returns the number of terms in each part of a sum, and the number of parts: at most `most`, none shorter than a run.
pub(crate) fn parts(terms: usize, most: usize) -> (usize, usize) {
    let length = terms.div_ceil(most.max(1)).max(RUN).next_multiple_of(RUN);
    (length, terms.div_ceil(length))
}
