//! The output of decided slices: as they come, where that is the order of stored planes, or by way of spools.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::VoxelBox;

use crate::error::InferError;
use crate::labels::label_output::LabelOutput;
use crate::labels::npz::ProbabilityWriter;
use crate::labels::spool::{Record, Spool};

/// The output of the slices of a case.
pub(crate) struct SliceOutput<'scope> {
    pub(crate) labels: LabelOutput<'scope>,
    pub(crate) probabilities: Option<ProbabilityWriter>,
    /// The spools of a case whose slices are decided in another order than they are written in.
    pub(crate) waiting: Option<Waiting>,
}

impl SliceOutput<'_> {
    /// Takes the next slice of a part: its labels, and its probabilities if they are wanted.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub(crate) fn write(
        &mut self,
        part: &VoxelBox,
        labels: &[u8],
        probabilities: &[f32],
    ) -> Result<(), InferError> {
        match &mut self.waiting {
            Some(waiting) => waiting.write(part, labels, probabilities),
            None => {
                self.labels.write_plane(labels)?;
                self.probabilities.as_mut().map_or(Ok(()), |writer| writer.write_plane(probabilities))
            }
        }
    }

    /// Writes the slices that waited, in the order of stored planes, within `room` bytes. `going` is called before each plane.
    ///
    /// # Errors
    /// Returns an error if slices are missing, the budget has no room, the disk fails, or `going` returns one.
    pub(crate) fn write_waiting(
        &mut self,
        budget: &Budget,
        room: Bytes,
        going: &dyn Fn() -> Result<(), InferError>,
    ) -> Result<(), InferError> {
        let Some(Waiting { labels, probabilities }) = self.waiting.take() else { return Ok(()) };
        labels.read(budget, room, |plane| going().and_then(|()| self.labels.write_plane(plane)))?;
        match (probabilities, &mut self.probabilities) {
            (Some(spool), Some(writer)) => spool.read(budget, room, |plane| {
                going().and_then(|()| writer.write_plane(bytemuck::cast_slice(plane)))
            }),
            _ => Ok(()),
        }
    }

    /// Waits until all files are complete and have their names.
    ///
    /// # Errors
    /// Returns an error if the disk fails, or planes are missing.
    pub(crate) fn finish(self) -> Result<(), InferError> {
        self.probabilities.map_or(Ok(()), ProbabilityWriter::finish)?;
        self.labels.finish()
    }

    /// Returns the cause of `error`: the error of the thread that writes labels, if it has one.
    pub(crate) fn cause_of(self, error: InferError) -> InferError {
        self.labels.cause_of(error)
    }
}

/// Slices that wait until they can be put in order.
pub(crate) struct Waiting {
    labels: Spool,
    probabilities: Option<Spool>,
}

impl Waiting {
    /// Opens the spools of labels and probabilities. Labels wait beside the file `labels`, or in memory without one; probabilities
    /// always wait beside their file, if they are wanted.
    ///
    /// # Errors
    /// Returns an error if the disk or the budget has no room.
    pub(crate) fn open(
        [of_labels, of_probabilities]: [Record; 2],
        labels: Option<&Path>,
        probabilities: Option<&Path>,
        budget: &Budget,
    ) -> Result<Waiting, InferError> {
        let labels = match labels {
            Some(path) => Spool::beside(of_labels, true, path)?,
            None => Spool::in_memory(of_labels, budget)?,
        };
        let probabilities =
            probabilities.map(|path| Spool::beside(of_probabilities, false, path)).transpose()?;
        Ok(Waiting { labels, probabilities })
    }

    fn write(&mut self, part: &VoxelBox, labels: &[u8], probabilities: &[f32]) -> Result<(), InferError> {
        self.labels.write(part, labels)?;
        match &mut self.probabilities {
            Some(spool) => spool.write(part, bytemuck::cast_slice(probabilities)),
            None => Ok(()),
        }
    }
}
