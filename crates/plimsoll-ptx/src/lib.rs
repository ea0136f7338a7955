//! An interpreter of PTX, so that GPU kernels can be checked on machines without a GPU. For tests only.
//!
//! It runs the PTX that NVRTC makes of CUDA C++, warp by warp, and is stricter than any card: what a card lets pass, or
//! punishes only now and then, is a [`Fault`] that names the line, the block and the thread. It also counts what decides
//! how fast a kernel can be: instructions, sectors of global memory, bank conflicts.
//!
//! ```
//! use plimsoll_ptx::{Launch, Memory, Module, Order};
//!
//! let module = Module::parse(
//!     ".version 7.0
//!     .target sm_70
//!     .address_size 64
//!     .visible .entry answer(.param .u64 answer_param_0)
//!     {
//!         .reg .b32 %r<2>;
//!         .reg .b64 %rd<2>;
//!         ld.param.u64 %rd1, [answer_param_0];
//!         mov.u32 %r1, 42;
//!         st.global.u32 [%rd1], %r1;
//!         ret;
//!     }",
//! )?;
//! let mut memory = Memory::new(256);
//! let place = memory.base()..memory.base() + 4;
//! let launch = Launch {
//!     kernel: "answer",
//!     grid: [1, 1, 1],
//!     block: [1, 1, 1],
//!     shared_bytes: 0,
//!     parameters: &place.start.to_le_bytes(),
//!     reads: &[],
//!     writes: &[place],
//! };
//! module.launch(&mut memory, &launch, Order::Ascending)?;
//! let mut answer = [0; 4];
//! memory.read(0, &mut answer);
//! assert_eq!(u32::from_le_bytes(answer), 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What counts as a fault
//! - **Global memory**: an access outside of the ranges that the launch declares; a read of bytes that nobody ever wrote. Two
//!   accesses to a byte by different threads of a launch, one of them a write, are a race ([`What::GlobalRace`]) unless a
//!   barrier orders them, which only threads of one block can pass together. Atomic operations do not race with each
//!   other; a floating-point sum of more than one thread depends on their order and is a fault of its own
//!   ([`What::OrderDependent`]). Loads and stores that are `.volatile`, `.relaxed`, `.acquire` or `.release` count as plain ones,
//!   so blocks cannot wait for each other. Module variables (`.const`, `.global`) are read-only.
//! - **Shared memory**: its bytes are unwritten when a block starts. Races are defined by the memory model: `bar.sync` orders the
//!   accesses of all threads that take part in it, `bar.warp.sync` the accesses of the lanes in its mask. Nothing else orders lanes:
//!   neither that they run one instruction together, nor `shfl.sync`, `vote.sync` or `mma.sync`, which the CUDA
//!   programming guide documents as no memory barriers. So two lanes may not write one byte in one instruction, even if
//!   they write the same value.
//! - **`cp.async`**: a copy arrives when its lane waits for it. Until then an access to its bytes by anyone is a fault; after
//!   it, others still need a barrier.
//! - **Products of warp groups** (`wgmma`): until the wait for them an access to their registers is a fault
//!   ([`What::Multiplying`]), and so is a write to the shared memory that they read ([`What::Multiplied`]). What they
//!   read there has to be published by the thread that wrote it, with `fence.proxy.async` before the barrier behind
//!   which they begin ([`What::Unpublished`]). Registers that something else has accessed need a `wgmma.fence` before
//!   the product, and so does the first product ([`What::Unfenced`]). All four warps of a group have to reach the same
//!   instructions of it with the same operands ([`What::GroupDivergence`]).
//! - **Registers** that were never assigned, when something other than a move or a selection reads them.
//! - **Barriers** without a number of threads need all threads of the block, as the PTX manual has it, also those that have
//!   returned (cards let these go), at the same instruction. Instructions that are `.aligned` need the whole warp.
//! - Addresses that are not multiples of what is accessed, a wait that never ends, `trap`.
//!
//! # Numbers
//! Arithmetic is what the PTX manual defines, to the bit, except for what the manual leaves open: approximations (`ex2.approx`, …)
//! are computed in f64 and rounded, and `mma.sync` and `wgmma` add their exact products in ascending order with a rounding to f32 after
//! each. A card may differ in the last bits of both.
//!
//! `activemask` gives the lanes that run together here; a card may split them otherwise, and a right kernel does not mind.
//!
//! # What is not there
//! Function calls (everything has to be inlined), textures, clusters, `mbarrier`, bulk copies, clocks; of `wgmma` sparse matrices and types other than
//! bf16 and f16 with sums of f32. Each is an error of [`Module::parse`] that names the line. Descriptors with a swizzle are one when they are used.
#![forbid(unsafe_code)]

mod counts;
mod fault;
mod function;
mod instruction;
mod lanes;
mod launch;
mod machine;
mod memory;
mod module;
mod parse;
mod types;

pub use counts::{Count, Counts};
pub use fault::{Fault, What};
pub use launch::{Launch, Order};
pub use memory::Memory;
pub use module::Module;
pub use parse::ParseError;
