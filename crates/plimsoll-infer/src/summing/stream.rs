//! The stream of the network's output, from windows to planes of labels.
//!
//! Windows are taken in rows. After each row, the planes of means that no later row touches are finished, the stored slices
//! that lie between finished ones are written, and what no slice needs any more makes room in the ring.

use std::sync::Arc;

use plimsoll_data::TargetGrid;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_parallel::Pool;
use plimsoll_plan::{EngineError, SampleLogits, SumsPlanes};

use crate::labels::wanted::Wanted;
use crate::options::RingStorage;
use crate::summing::device_sums::summed_window;
use crate::summing::export::{Export, SliceLabels, lines_are_rows};
use crate::summing::head_planes::HeadPlanes;
use crate::summing::lines::LineRoom;
use crate::summing::means::Sums;
use crate::summing::ring::{LogitsOf, Room, WindowLogits};
use crate::summing::ring_shape::RingShape;
use crate::summing::rows::Rows;
use crate::summing::settings::Summing;
use crate::summing::shares::Shares;
use crate::summing::windows::Weights;
use crate::summing::workers::Workers;

/// The ring, and the way out of it.
pub(crate) struct Stream {
    pool: Arc<Pool>,
    sums: Sums,
    shares: Shares,
    export: Export,
    labels: Mapped<u8>,
    /// The same `[column][row]`, where logits lie together so; else nothing.
    turned: Mapped<u8>,
    /// Probabilities or logits `[row][output][column]` of a slice; nothing if none are wanted.
    probabilities: Mapped<f32>,
    /// The buffers of each thread.
    rooms: Vec<LineRoom>,
    /// The planes before this one have been copied from the device that sums them, or will not be.
    fetched: usize,
    finished: usize,
    written: usize,
    cleared: usize,
}

impl Stream {
    /// Bytes that the stream of a part of a case reserves.
    pub(crate) fn bytes(
        grid: &TargetGrid,
        rows: &Rows,
        wanted: Wanted<'_>,
        weights: &Weights,
        summing: &Summing,
    ) -> Result<Bytes, MapError> {
        let [_, height, width] = rows.part_extent();
        let rooms = Export::room_bytes(&rows.shape, [height, width])?;
        let rooms = Bytes(rooms.0.saturating_mul(summing.pool.threads() as u64));
        let [labels, turned, probabilities] = Stream::slice_bytes(grid, rows, wanted);
        let labels = Mapped::<u8>::bytes(labels)? + Mapped::<u8>::bytes(turned)?;
        let slices = labels + Mapped::<f32>::bytes(probabilities)?;
        let Summing { summands, storage, pool, on_device, .. } = summing;
        let head = summands.head().map(|head| HeadPlanes::bytes(&rows.shape, head, pool.threads()));
        let ring = rows.shape.bytes(summands, *storage, rows.shape.host_planes(*on_device))?;
        let ring = ring + head.transpose()?.unwrap_or(Bytes::ZERO) + Shares::bytes(&rows.shape, weights)?;
        Ok(ring + slices + Export::bytes(grid) + rooms)
    }

    /// Bytes of the labels of a slice, as they are written and as they lie in planes of the ring, and its probabilities.
    fn slice_bytes(grid: &TargetGrid, rows: &Rows, wanted: Wanted<'_>) -> [usize; 3] {
        let [_, height, width] = rows.part_extent();
        let label = wanted.label_bytes();
        let turned = if lines_are_rows(grid, &rows.shape, rows.slices) { 0 } else { label };
        [label, turned, wanted.probabilities()]
            .map(|of_voxel| height.saturating_mul(width).saturating_mul(of_voxel))
    }

    /// Reserves what a part of a case needs, whose windows are weighted by `weights`.
    pub(crate) fn new(
        grid: &TargetGrid,
        rows: &Rows,
        wanted: Wanted<'_>,
        weights: &Weights,
        summing: &Summing,
        budget: &Budget,
    ) -> Result<Stream, MapError> {
        let Summing { looks, ref pool, .. } = *summing;
        let export = Export::new(grid, rows.shape, &rows.part, rows.slices, wanted, budget)?;
        let [labels, turned, probabilities] = Stream::slice_bytes(grid, rows, wanted);
        Ok(Stream {
            sums: Sums::new(rows.shape, summing, budget)?,
            shares: Shares::new(rows.shape, rows.starts(), weights, looks, budget)?,
            labels: Mapped::zeroed(budget, "labels", labels)?,
            turned: Mapped::zeroed(budget, "labels", turned)?,
            probabilities: Mapped::zeroed(budget, "probabilities", probabilities)?,
            rooms: (0..pool.threads()).map(|_| export.room(budget)).collect::<Result<_, _>>()?,
            pool: Arc::clone(pool),
            export,
            fetched: 0,
            finished: 0,
            written: 0,
            cleared: 0,
        })
    }

    /// The type in which sums are stored.
    pub(crate) fn storage(&self) -> RingStorage {
        self.sums.storage()
    }

    /// Adds what the network says of the window at `start`, mirrored along some axes. Returns whether all can be summed; if not, some is
    /// missing.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub(crate) fn add<E: Send>(
        &mut self,
        start: [usize; 3],
        mirrored: [bool; 3],
        rooms: &mut [Room<E>],
        logits: LogitsOf<'_, E>,
    ) -> Result<bool, E> {
        let window = WindowLogits { start, mirrored, shares: self.shares.at(start), logits };
        self.sums.add(&window, Workers { pool: &self.pool, buffers: rooms })
    }

    /// The same where a device adds what the last run of a program on it made of one of the windows that it was run on.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub(crate) fn add_on(
        &mut self,
        device: &mut dyn SumsPlanes,
        logits: SampleLogits,
        start: [usize; 3],
        mirrored: [bool; 3],
        shape: &RingShape,
    ) -> Result<bool, EngineError> {
        let limit = self.sums.limit();
        let shares = self.shares.at(start);
        device.add_window(logits, &summed_window(shape, start, mirrored, &shares, limit)?)
    }

    /// Copies the planes that a slice is made of from the device that has summed them, as far as they are not here.
    fn fetch(
        &mut self,
        device: &mut dyn SumsPlanes,
        shape: &RingShape,
        slice: usize,
    ) -> Result<(), EngineError> {
        let needed = self.export.planes_of(slice);
        for plane in self.fetched.max(needed.start)..needed.end {
            let workers = Workers { pool: &self.pool, buffers: &mut self.rooms };
            self.sums.fetch(plane, shape.slot(plane), device, workers)?;
        }
        self.fetched = self.fetched.max(needed.end);
        Ok(())
    }

    /// Says that all windows of a row have been added, by the `device` where there is one; passes the slices of labels that this decides to a
    /// function, in their order, with the slice's probabilities `[row][output][column]` if they are wanted.
    pub(crate) fn finish_row<E: From<EngineError>>(
        &mut self,
        rows: &Rows,
        row: usize,
        mut device: Option<&mut dyn SumsPlanes>,
        mut write: impl FnMut(&[u8], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let finished = rows.finished_after(row);
        if device.is_none() {
            let workers = Workers { pool: &self.pool, buffers: &mut self.rooms };
            self.sums.finish(self.finished, finished, workers);
        }
        self.finished = self.finished.max(finished);
        while self.written < self.export.slices() && self.export.is_ready(self.written, finished) {
            if let Some(device) = &mut device {
                self.fetch(&mut **device, &rows.shape, self.written)?;
            }
            self.decide(self.written);
            write(&self.labels, &self.probabilities)?;
            self.written += 1;
        }
        if self.written == self.export.slices() {
            // No window comes any more.
            return Ok(());
        }
        let needed = self.export.first_needed(self.written).min(finished);
        match device {
            Some(device) => {
                (self.cleared..needed).try_for_each(|plane| device.clear_plane(rows.shape.slot(plane)))?;
            }
            None => {
                let workers = Workers { pool: &self.pool, buffers: &mut self.rooms };
                self.sums.clear_before(self.cleared, needed, workers);
            }
        }
        self.cleared = self.cleared.max(needed);
        Ok(())
    }

    /// Makes the labels of a slice, and its probabilities if they are wanted.
    fn decide(&mut self, slice: usize) {
        let Stream { pool, sums, export, labels, turned, probabilities, rooms, .. } = self;
        let labels = SliceLabels { labels, turned };
        sums.decide(export, slice, labels, probabilities, Workers { pool, buffers: rooms });
    }
}

#[cfg(test)]
mod tests;
