//! The memory of a process beside its reservations: code, heap, stacks, messages.
//!
//! | part     | what it is                                            | allowed                               |
//! |----------|-------------------------------------------------------|---------------------------------------|
//! | `code`   | the program and its libraries, as mapped              | what is mapped                        |
//! | `heap`   | programs, plans, settings, file buffers, a picture    | [`HEAP`], [`HEAP_FOR_PICTURE`], [`HEAP_PER_CASE`], [`HEAP_PER_NODE`] |
//! | `stacks` | of the main thread and of those that run kernels      | [`STACKS`] and [`STACK_PER_THREAD`]   |
//! | `messages` | buffers of MPI, which its library shares with others on the node | [`MPICH`] or [`OPEN_MPI`] |
//!
//! Code and stacks are counted as they are mapped, not as they are resident, so that the sum holds for limits on address space
//! too; pages that a kernel maps larger than 4 KiB, or reads ahead, are then counted already. The heap's allowance is what
//! runs were seen to take, with a margin. Tests of the command line compare heap and cache with what a run has from both sides, and code
//! from above: how many of its pages are resident is the system's choice.

use serde::{Deserialize, Serialize};

use crate::mappings::maps_file;
use crate::{Bytes, mapped_files};

/// The heap of any job: 1 to 3 MiB in use, and a margin for what the allocator cannot give back.
const HEAP: Bytes = Bytes(3584 << 10);
/// The additional heap of training: the picture of an epoch while it is drawn.
const HEAP_FOR_PICTURE: Bytes = Bytes::mib(4);
/// The additional heap of training for each case of a data set: its fingerprint, its names and files.
const HEAP_PER_CASE: Bytes = Bytes(6 << 10);
/// The additional heap for each node of a run's programs beyond the nodes of small networks: the programs, their
/// lowered nodes, kernels, and plans; 2 KiB of it are for cached plans.
const HEAP_PER_NODE: Bytes = Bytes(12 << 10);
/// Nodes that the heap of any job has room for.
const FEW_NODES: usize = 600;
/// The main thread's stack and the one that waits for signals, with thread-local data.
const STACKS: Bytes = Bytes(512 << 10);
/// The stack of a thread of kernels, with its guard page and thread-local data.
const STACK_PER_THREAD: Bytes = Bytes((512 + 16) << 10);
/// The buffers of an MPI library.
struct MessageBuffers {
    /// The buffers of each of several ranks.
    process: Bytes,
    /// For each rank of a node, the process itself included.
    per_near_rank: Bytes,
    /// For each rank of other nodes, which share no memory with this one.
    per_far_rank: Bytes,
}

/// Ranks of MPICH 5.0 hold 6 MiB and 0.9 MiB for each rank of their node after they have exchanged messages with all, most of it shared; of MPICH 4.0
/// 5 and 0.4 MiB. Libraries that are not known are planned like it.
const MPICH: MessageBuffers =
    MessageBuffers { process: Bytes::mib(6), per_near_rank: Bytes::mib(1), per_far_rank: Bytes(128 << 10) };
/// Ranks of Open MPI 5.0 hold 2 MiB.
const OPEN_MPI: MessageBuffers = MessageBuffers {
    process: Bytes::mib(3),
    per_near_rank: Bytes(512 << 10),
    per_far_rank: Bytes(128 << 10),
};
/// The beginning of the name of Open MPI's library.
const OPEN_MPI_FILE: &str = "libmpi.so.40";
/// The most ranks of a node.
const RANKS_OF_NODE: usize = 64;
/// The allowance for code on systems that do not report what is mapped.
const UNKNOWN_CODE: Bytes = Bytes::mib(16);

/// The memory of a process beside its reservations, by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overhead {
    /// The program and its libraries, as mapped.
    pub code: Bytes,
    /// Allocations that do not depend on the size of images.
    pub heap: Bytes,
    /// The stacks of the main thread and of kernel threads; threads that make batches reserve theirs.
    pub stacks: Bytes,
    /// The buffers of messages between ranks; none in a process alone.
    #[serde(default, skip_serializing_if = "is_none")]
    pub messages: Bytes,
}

fn is_none(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

impl Overhead {
    /// Returns the overhead of a process with `threads` kernel threads. It depends only on this number and on
    /// the libraries of this program, so that a limit found by one process also suffices for the next.
    pub fn new(threads: usize) -> Overhead {
        let code = mapped_files().map_or(UNKNOWN_CODE, |files| files.mapped);
        let stacks = STACKS + Bytes(STACK_PER_THREAD.0 * threads as u64);
        Overhead { code, heap: HEAP, stacks, messages: Bytes::ZERO }
    }

    /// Returns the overhead of a process that trains on a data set of `cases` cases.
    pub fn for_training(threads: usize, cases: usize) -> Overhead {
        let any = Overhead::new(threads);
        Overhead { heap: any.heap + HEAP_FOR_PICTURE + Bytes(HEAP_PER_CASE.0 * cases as u64), ..any }
    }

    /// Adds the overhead of programs with `nodes` nodes.
    pub fn with_nodes(self, nodes: usize) -> Overhead {
        Overhead { heap: self.heap + Bytes(HEAP_PER_NODE.0 * nodes.saturating_sub(FEW_NODES) as u64), ..self }
    }

    /// Adds the buffers of messages of one of `ranks` ranks. The code of the MPI library is mapped by then.
    pub fn with_ranks(self, ranks: usize) -> Overhead {
        Overhead { messages: messages(ranks), ..self }
    }

    /// All of it.
    pub fn total(&self) -> Bytes {
        self.code + self.heap + self.stacks + self.messages
    }
}

/// The buffers of messages of one of `ranks` ranks, by the MPI library that is mapped.
pub fn messages(ranks: usize) -> Bytes {
    if ranks < 2 {
        return Bytes::ZERO;
    }
    if maps_file(OPEN_MPI_FILE) { OPEN_MPI.of(ranks) } else { MPICH.of(ranks) }
}

impl MessageBuffers {
    /// The buffers of one of `ranks` ranks.
    fn of(&self, ranks: usize) -> Bytes {
        let near = ranks.min(RANKS_OF_NODE) as u64;
        let far = ranks as u64 - near;
        self.process + Bytes(self.per_near_rank.0 * near + self.per_far_rank.0 * far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "/proc describes the interpreter")]
    fn two_plans_of_a_process_allow_the_same_whatever_it_holds_by_then() {
        let first = Overhead::for_training(2, 10);
        let held = vec![1u8; 8 << 20];
        assert_eq!(Overhead::for_training(2, 10), first);
        std::hint::black_box(held);
    }

    #[test]
    #[cfg_attr(miri, ignore = "/proc describes the interpreter")]
    fn each_thread_and_each_case_adds_its_own() {
        let (few, many) = (Overhead::for_training(1, 1), Overhead::for_training(65, 1001));
        assert_eq!(many.code, few.code);
        assert_eq!(many.stacks - few.stacks, Bytes(64 * (528 << 10)));
        assert_eq!(many.heap - few.heap, Bytes(1000 * (6 << 10)));
        assert_eq!(few.total(), few.code + few.heap + few.stacks);
        assert_eq!(few.with_ranks(1), few);
        assert_eq!(few.with_ranks(4).total() - few.total(), Bytes::mib(10));
        assert_eq!(messages(66) - messages(64), Bytes(256 << 10));
        assert_eq!(OPEN_MPI.of(4), Bytes::mib(5));
        assert_eq!(few.with_nodes(600), few);
        assert_eq!(few.with_nodes(1600).heap - few.heap, Bytes(1000 * (12 << 10)));
    }
}
