//! The reservation for the names of files.

use std::sync::Arc;

use plimsoll_memory::{Bytes, Reservation};

/// Reserved memory for the names of a data set's files. It does not take part in comparisons of data sets.
#[derive(Clone, Debug, Default)]
pub struct FilesMemory {
    held: Option<Arc<Reservation>>,
    /// The most bytes that were reserved until the data set was open.
    most: Bytes,
}

impl FilesMemory {
    /// The reserved bytes.
    pub fn bytes(&self) -> Bytes {
        self.held.as_ref().map_or(Bytes::ZERO, |held| held.bytes())
    }

    /// The most bytes that were reserved until the data set was open.
    pub fn most_bytes(&self) -> Bytes {
        self.most
    }

    /// Counts what a step took beside these bytes before the data set was open.
    pub fn count_step(&mut self, bytes: Bytes) {
        self.most = self.most.max(self.bytes() + bytes);
    }

    /// Frees all but `kept` bytes of a reservation.
    pub(crate) fn shrunk(mut held: Reservation, kept: Bytes) -> FilesMemory {
        let most = held.bytes();
        held.shrink_to(kept.min(most));
        FilesMemory { held: Some(Arc::new(held)), most }
    }
}

impl PartialEq for FilesMemory {
    fn eq(&self, _: &FilesMemory) -> bool {
        true
    }
}

impl Eq for FilesMemory {}

impl From<Reservation> for FilesMemory {
    fn from(held: Reservation) -> FilesMemory {
        let most = held.bytes();
        FilesMemory { held: Some(Arc::new(held)), most }
    }
}
