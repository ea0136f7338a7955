//! The way of messages between ranks: MPI alone, or NCCL between their GPUs beside it.

use std::time::Duration;

use plimsoll_ranks::{
    Communicator, NcclLibrary, NcclOptions, NoNccl, RanksError, agree_on_nccl, check_queues, open_nccl,
};

use crate::backend::{DeviceName, LinkMemory, RankCard};
use crate::context::Context;
use crate::error::{Error, Outcome};

/// A way of long messages between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// MPI, through the memory of the processes.
    Mpi,
    /// NCCL, between GPUs.
    Nccl,
}

/// The options of messages between ranks.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// The device that this rank trains on.
    pub device: DeviceName,
    /// The way of long messages; `None` for NCCL if it can be used, else MPI.
    pub transport: Option<Transport>,
    /// The number of queues of work that CUDA makes for a GPU: 8 unless the environment of the process states another.
    pub queues: usize,
    /// The longest wait for another rank.
    pub patience: Duration,
}

/// Ranks that are ready to train.
pub struct LinkedRanks {
    /// The communication with the other ranks.
    pub communicator: Box<dyn Communicator + Send>,
    /// The memory that it takes.
    pub memory: LinkMemory,
    /// The way of messages, for the journal of the run, if ranks train on GPUs and no way was requested.
    pub note: Option<String>,
}

/// Ranks that could not be linked.
pub struct LinkFailure {
    /// The error.
    pub error: Error,
    /// The communication with the other ranks, which may wait: report the error, and abort.
    pub communicator: Box<dyn Communicator + Send>,
}

/// Chooses the way of messages between ranks. All ranks call this. They use NCCL if each trains on a GPU of its own and can load NCCL. Otherwise
/// they use MPI, and a note states why.
///
/// # Errors
/// Returns an error if NCCL was requested and cannot be used, fails to connect the ranks, or communication fails.
pub fn link_ranks(
    mut communicator: Box<dyn Communicator + Send>,
    options: &LinkOptions,
    context: &Context,
) -> Result<LinkedRanks, LinkFailure> {
    let by_mpi = |communicator, note| Ok(LinkedRanks { communicator, memory: LinkMemory::default(), note });
    if communicator.size() == 1 {
        return by_mpi(communicator, None);
    }
    let chosen = choose(communicator.as_mut(), options);
    let Ends { library, card } = match chosen {
        Ok(Ok(ends)) => ends,
        Ok(Err(reason)) => {
            let is_choice = options.transport.is_none() && matches!(options.device, DeviceName::Cuda(_));
            let note =
                is_choice.then(|| format!("ranks send through MPI, since they cannot use NCCL: {reason}"));
            note.iter().for_each(|note| context.warn(note));
            return by_mpi(communicator, note);
        }
        Err(error) => return Err(LinkFailure { error, communicator }),
    };
    let version = library.version();
    let linked = card.link(communicator, |communicator, lanes| {
        open_nccl(communicator, library, lanes, NcclOptions::new(options.patience))
    });
    let (communicator, memory) = linked?;
    let note = format!("ranks send through NCCL {version}, which takes {} of each GPU", memory.device);
    context.note(&note);
    Ok(LinkedRanks { communicator, memory, note: Some(note).filter(|_| options.transport.is_none()) })
}

/// The library and the card of a rank.
struct Ends {
    library: NcclLibrary,
    card: RankCard,
}

/// Finds the library and the card of one of some ranks.
fn find(ranks: usize, options: &LinkOptions) -> Result<Ends, NoNccl> {
    if options.transport == Some(Transport::Mpi) {
        return Err(NoNccl::Declined("MPI was requested".into()));
    }
    let DeviceName::Cuda(ordinal) = options.device else {
        return Err(NoNccl::Declined(format!("it trains on the device {}", options.device)));
    };
    check_queues(ranks, options.queues)?;
    let library = NcclLibrary::load(&[])?;
    let card = RankCard::find(ordinal).map_err(|error| NoNccl::Declined(error.to_string()))?;
    Ok(Ends { library, card })
}

/// Agrees with the other ranks, or returns the reason why they do not use NCCL.
fn choose(communicator: &mut dyn Communicator, options: &LinkOptions) -> Outcome<Result<Ends, NoNccl>> {
    let ends = find(communicator.size(), options);
    let host = plimsoll_memory::host::name();
    let name = ends.as_ref().map(|ends| format!("{} of {host}", ends.card.place()));
    let agreed = agree_on_nccl(communicator, name.as_deref().map_err(|reason| *reason))?;
    match (ends, agreed) {
        (Ok(ends), Ok(())) => Ok(Ok(ends)),
        // Its own reason has a remedy of its own.
        (Err(reason), _) | (Ok(_), Err(reason)) => match options.transport {
            Some(Transport::Nccl) => Err(RanksError::NoNccl(reason).into()),
            Some(Transport::Mpi) | None => Ok(Err(reason)),
        },
    }
}
