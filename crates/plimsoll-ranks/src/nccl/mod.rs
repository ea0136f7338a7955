//! Messages between the NVIDIA GPUs of ranks: NCCL, loaded at run time, beside another communicator.
//!
//! NCCL knows no tags: it matches what two ranks send and receive in the order in which they issue it. So the other communicator carries notices.
//! A sender offers a segment, and the receiver accepts it once it expects one of that tag. The order of acceptances is the order of the messages
//! at both ends. Every pair of ranks has two communicators of NCCL, one in each direction, with a stream each, so that no message waits for one of
//! another pair or of the other direction.
//!
//! Short segments and collective operations use the other communicator. NCCL's reductions are not used: their order depends on the number of
//! ranks.
#![allow(unsafe_code, reason = "calls of the C interface of NCCL")]

mod agreement;
mod channel;
mod functions;
mod lanes;
mod notice;
mod rank;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::agreement::agree_on_nccl;
pub use self::functions::{NcclLibrary, NcclVersion};
pub use self::lanes::{LaneError, LaneSizes, Lanes};
use self::rank::NcclRank;
use crate::background::in_background;
use crate::communicator::Communicator;
use crate::error::{NoNccl, RanksError};

/// The most queues of work that a card has.
const MOST_QUEUES: usize = 32;

/// The shortest segment that goes through cards: shorter ones arrive earlier without notices and copies.
const LEAST: usize = 16 << 10;

/// The options of communication by NCCL.
#[derive(Clone, Copy, Debug)]
pub struct NcclOptions {
    /// The longest time that a rank waits without progress.
    pub patience: Duration,
    /// The fewest bytes of a segment that goes through cards. All ranks have the same.
    pub least: usize,
}

impl NcclOptions {
    /// The usual options.
    pub fn new(patience: Duration) -> NcclOptions {
        NcclOptions { patience, least: LEAST }
    }
}

/// Checks that a card has a queue of work for each stream of a rank: one to each other rank, one from each, and one of the kernels. CUDA has
/// `queues` of them, 8 unless `CUDA_DEVICE_MAX_CONNECTIONS` is set, and streams that share one wait for each other.
///
/// # Errors
/// Returns an error if there are too few.
pub fn check_queues(ranks: usize, queues: usize) -> Result<(), NoNccl> {
    let most = most_ranks(queues);
    if ranks > most { Err(NoNccl::TooManyRanks { ranks, most, queues }) } else { Ok(()) }
}

/// The most ranks for which a card has queues.
fn most_ranks(queues: usize) -> usize {
    1 + queues.min(MOST_QUEUES).saturating_sub(1) / 2
}

/// Communication by NCCL that could not be opened.
pub struct NcclFailure {
    /// The error.
    pub error: RanksError,
    /// The communicator that was to be used beside it, to abort the job with.
    pub control: Box<dyn Communicator + Send>,
}

/// Opens channels between the cards of all ranks, which call this with the same options after they have [agreed](agree_on_nccl). A message went
/// through each when this returns, so that all memory is allocated. Messages move on while the caller computes. When the communicator is dropped,
/// it waits for the other ranks; if communication has failed or segments are in flight, it aborts the job.
///
/// # Errors
/// Returns an error if a channel cannot be opened within the patience. The other ranks may wait: report it, and abort.
pub fn open_nccl(
    control: Box<dyn Communicator + Send>,
    library: NcclLibrary,
    lanes: Box<dyn Lanes>,
    options: NcclOptions,
) -> Result<Box<dyn Communicator + Send>, NcclFailure> {
    let place = Arc::new(Mutex::new(Some(control)));
    let taken = || place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let held = Arc::clone(&place);
    let open = move || {
        let mut place = held.lock().unwrap_or_else(PoisonError::into_inner);
        NcclRank::open(&mut place, library, lanes, options).map(|rank| Box::new(rank) as _)
    };
    in_background(options.patience, None, open).map_err(|error| match taken() {
        Some(control) => NcclFailure { error, control },
        // The thread has ended with the communicator.
        None => NcclFailure { error, control: Box::new(crate::alone()) },
    })
}
