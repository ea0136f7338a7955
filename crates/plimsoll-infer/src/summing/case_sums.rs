//! Summing the windows of a case: row by row, and of each row fold by fold.

use std::sync::atomic::AtomicBool;

use plimsoll_graph::DType;
use plimsoll_memory::Mapped;
use plimsoll_volume::VoxelBox;

use crate::error::{InferError, check_going, internal};
use crate::progress::Progress;
use crate::summing::device_sums::{device_bytes, plane_sums};
use crate::summing::forward::planned;
use crate::summing::ring_shape::RingShape;
use crate::summing::settings::Summing;
use crate::summing::sliding_window::SlidingWindow;
use crate::summing::stream::Stream;
use crate::summing::work::{Refused, Work, sums_planes};

/// Takes a slice of labels of a part, and its probabilities if they are wanted.
type WriteSlice<'a> = dyn FnMut(&VoxelBox, &[u8], &[f32]) -> Result<(), InferError> + 'a;

impl SlidingWindow {
    /// Sums all windows of one part after the other, and passes the slices of labels that this decides to `write`, with their
    /// probabilities if they are wanted.
    pub(crate) fn sum(
        &mut self,
        work: &mut Work<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
        write: &mut WriteSlice<'_>,
    ) -> Result<(), InferError> {
        let summing = work.summing.clone();
        // Of a case that has failed, sums may be left.
        self.close_sums()?;
        // All that is summed of a window, where it is copied from a device: reading it row by row would take a copy for each.
        let copied = if summing.on_device { 0 } else { self.copied_numbers() };
        let mut copied = Mapped::zeroed(&self.budget, "sums of windows", copied)?;
        for rows in std::mem::take(&mut work.parts) {
            let (weights, summing) = (&self.weights, &summing);
            let mut stream = Stream::new(&work.grid, &rows, work.wanted, weights, summing, &self.budget)?;
            if summing.on_device {
                self.open_sums(&rows.shape, summing)?;
            }
            for row in 0..rows.count() {
                for fold in 0..self.model.weights.len() {
                    self.load_fold(fold)?;
                    work.clock.lap(|times| &mut times.forward_seconds);
                    let mut refused = None;
                    for start in rows.row(row) {
                        check_going(work.case, stop)?;
                        refused = self.window(start, &rows, &mut stream, work, &mut copied)?;
                        if refused.is_some() {
                            break;
                        }
                        observe(work.progress);
                    }
                    // The next row's windows are added when this row's planes are finished, and the next fold has other weights.
                    if refused.is_none() && !work.passes.is_empty() {
                        refused = self.pass(&rows, &mut stream, work, &mut copied)?;
                        observe(work.progress);
                    }
                    if let Some(Refused(start)) = refused {
                        let (case, weights) = (work.case.id.clone(), self.model.weights[fold].path.clone());
                        let ring = stream.storage();
                        let in_f32 = (self.precision() != DType::F32).then_some("‹precision=f32›");
                        return Err(InferError::NotFinite { case, weights, start, ring, in_f32 });
                    }
                }
                let device = match summing.on_device {
                    true => Some(sums_planes(&mut planned(&mut self.running)?.engine)?),
                    false => None,
                };
                stream.finish_row(&rows, row, device, |labels, of_slice| {
                    work.clock.lap(|times| &mut times.export_seconds);
                    let written = write(&rows.part, labels, of_slice);
                    work.clock.lap(|times| &mut times.write_seconds);
                    written
                })?;
                work.clock.lap(|times| &mut times.export_seconds);
            }
            self.close_sums()?;
        }
        check_going(work.case, stop)
    }

    /// Allocates sums of a ring on the device, which its limit has room for.
    fn open_sums(&mut self, shape: &RingShape, summing: &Summing) -> Result<(), InferError> {
        let lost = || internal("windows are summed by a device that does not");
        let memory = self.backend.device_memory().ok_or_else(lost)?;
        let bytes =
            device_bytes(&*self.backend, shape, &summing.summands, summing.storage).ok_or_else(lost)?;
        let memory = memory.reserve("sums of windows", bytes)?;
        let engine = &mut planned(&mut self.running)?.engine;
        Ok(sums_planes(engine)?.open_sums(plane_sums(shape, &summing.summands, summing.storage), memory)?)
    }

    /// Frees sums on the device, where there are any.
    fn close_sums(&mut self) -> Result<(), InferError> {
        match planned(&mut self.running)?.engine.sums_planes() {
            Some(device) => Ok(device.close_sums()?),
            None => Ok(()),
        }
    }
}
