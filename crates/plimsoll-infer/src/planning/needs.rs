//! The needs of a case beside the arena of its engine.

use plimsoll_memory::Bytes;

use crate::options::{RingStorage, Summed};
use crate::summing::rows::Strips;

/// The needs of a case beside the arena.
#[derive(Clone, Debug)]
pub(crate) struct CaseNeeds {
    /// Its name.
    pub(crate) case: String,
    /// The stored axis along which it is passed through.
    pub(crate) slab_axis: usize,
    /// Logits being summed, of whole planes.
    pub(crate) logits: LogitsNeeds,
    /// The needs of sums in strips, the preferred ones first.
    pub(crate) strips: Vec<StripNeeds>,
    /// Labels that wait, where they do not come in the order of stored planes.
    pub(crate) spool: SpoolNeeds,
    /// The summed quantity.
    pub(crate) summed: Summed,
    /// The required type of sums; `None` for single precision if the memory limit has room for it.
    pub(crate) ring: Option<RingStorage>,
    /// The bytes that inspecting its images needs, before the arena and everything else of the case exist.
    pub(crate) inspection: Bytes,
    pub(crate) preparation: Bytes,
    pub(crate) decoding: Bytes,
    /// Decoded images, and earlier labels.
    pub(crate) decoded: Bytes,
    /// Those of them that are compressed, and would be decompressed beside the output; 0 where there is no output beside which they could.
    pub(crate) compressed: Bytes,
    /// Planes of labels that may wait for being written, and the fewest that are of use.
    pub(crate) queue: Bytes,
    pub(crate) least_queue: Bytes,
    /// The bytes in which the next case is inspected and decoded; 0 without one.
    pub(crate) ahead: Bytes,
    pub(crate) windows: usize,
    pub(crate) looks: usize,
    /// Runs of the network over all windows of whole planes, each fold counted.
    pub(crate) runs: usize,
    pub(crate) window_batch: usize,
}

impl CaseNeeds {
    /// Returns the possible types of sums, the preferred one first.
    pub(crate) fn rings(&self) -> impl Iterator<Item = RingStorage> + use<> {
        let ring = self.ring;
        RingStorage::ALL.into_iter().filter(move |storage| ring.is_none_or(|ring| ring == *storage))
    }
}

/// Logits being summed, and all that goes with them, by how sums are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogitsBytes {
    pub(crate) in_f32: Bytes,
    pub(crate) in_f16: Bytes,
}

impl LogitsBytes {
    pub(crate) fn stored_as(&self, ring: RingStorage) -> Bytes {
        match ring {
            RingStorage::F32 => self.in_f32,
            RingStorage::F16 => self.in_f16,
        }
    }
}

/// The needs of a traversal of a case in strips.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripNeeds {
    pub(crate) strips: Strips,
    pub(crate) count: usize,
    /// Windows of all strips, each fold counted.
    pub(crate) windows: usize,
    /// The needs of the largest strip.
    pub(crate) logits: LogitsNeeds,
}

/// Logits being summed, by who sums them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogitsNeeds {
    /// The bytes of this process if it sums.
    pub(crate) by_host: LogitsBytes,
    /// The same with one window at a time: of a device, what it says of fewer windows is copied at once.
    pub(crate) by_host_of_one: LogitsBytes,
    /// The bytes of this process and of a device if the device sums; `None` if no device can.
    pub(crate) by_device: Option<DeviceLogits>,
}

/// Logits that a device sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceLogits {
    /// The bytes of this process.
    pub(crate) here: LogitsBytes,
    /// The bytes of the device.
    pub(crate) there: LogitsBytes,
}

impl LogitsNeeds {
    /// Returns the bytes of this process, and of the device if it sums, or `None` if `on_device` is requested and no device can.
    pub(crate) fn stored_as(&self, ring: RingStorage, on_device: bool) -> Option<(Bytes, Option<Bytes>)> {
        match (on_device, self.by_device) {
            (false, _) => Some((self.by_host.stored_as(ring), None)),
            (true, by_device) => {
                by_device.map(|logits| (logits.here.stored_as(ring), Some(logits.there.stored_as(ring))))
            }
        }
    }

    /// The least that this process holds: where it sums, what `by_host` says; or where a device does which has so much left beside its arena.
    pub(crate) fn least(&self, by_host: LogitsBytes, ring: RingStorage, left_there: Bytes) -> Bytes {
        match self.by_device {
            Some(DeviceLogits { here, there }) if there.stored_as(ring) <= left_there => {
                here.stored_as(ring).min(by_host.stored_as(ring))
            }
            _ => by_host.stored_as(ring),
        }
    }
}

/// The records of a case that does not decide labels in the order of stored planes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpoolNeeds {
    /// Its labels.
    pub(crate) labels: Bytes,
    /// `true` if they have to be in memory.
    pub(crate) is_in_memory: bool,
    /// Its probabilities, which are always on the disk.
    pub(crate) probabilities: Bytes,
}
