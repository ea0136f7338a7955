//! The sums of a case in single or half precision, and the head that makes logits of their means.

use half::f16;
use plimsoll_memory::{Budget, MapError};
use plimsoll_plan::{EngineError, SumsPlanes};

use crate::options::RingStorage;
use crate::summing::export::{Export, SliceLabels};
use crate::summing::head_planes::HeadPlanes;
use crate::summing::lines::LineRoom;
use crate::summing::ring::{Ring, Room, WindowLogits};
use crate::summing::ring_shape::RingShape;
use crate::summing::settings::Summing;
use crate::summing::sums::Sum;
use crate::summing::workers::Workers;

/// A ring of sums, in the type in which they are stored.
pub(crate) enum Sums {
    F32(Means<f32>),
    F16(Means<f16>),
}

impl Sums {
    /// Reserves an empty ring.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for it.
    pub(crate) fn new(shape: RingShape, summing: &Summing, budget: &Budget) -> Result<Sums, MapError> {
        Ok(match summing.storage {
            RingStorage::F32 => Sums::F32(Means::new(shape, summing, budget)?),
            RingStorage::F16 => Sums::F16(Means::new(shape, summing, budget)?),
        })
    }

    /// The type in which sums are stored.
    pub(crate) fn storage(&self) -> RingStorage {
        match self {
            Sums::F32(_) => RingStorage::F32,
            Sums::F16(_) => RingStorage::F16,
        }
    }

    /// Numbers from here on are refused.
    pub(crate) fn limit(&self) -> f32 {
        match self {
            Sums::F32(means) => means.ring.limit(),
            Sums::F16(means) => means.ring.limit(),
        }
    }

    /// Adds the network's output for a window. Returns `true` if all numbers can be summed; if not, some are missing.
    ///
    /// # Errors
    /// Returns an error if the output cannot be read.
    pub(crate) fn add<E: Send>(
        &mut self,
        window: &WindowLogits<'_, E>,
        workers: Workers<'_, Room<E>>,
    ) -> Result<bool, E> {
        match self {
            Sums::F32(means) => means.ring.add(window, workers),
            Sums::F16(means) => means.ring.add(window, workers),
        }
    }

    /// Copies a plane from a slot of the device that has summed it, and finishes it.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub(crate) fn fetch<B: Send>(
        &mut self,
        plane: usize,
        slot: usize,
        device: &mut dyn SumsPlanes,
        workers: Workers<'_, B>,
    ) -> Result<(), EngineError> {
        match self {
            Sums::F32(means) => {
                device.read_plane(slot, bytemuck::cast_slice_mut(means.ring.plane_mut(plane)))?;
            }
            Sums::F16(means) => {
                device.read_plane(slot, bytemuck::cast_slice_mut(means.ring.plane_mut(plane)))?;
            }
        }
        self.finish(plane, plane + 1, workers);
        Ok(())
    }

    /// Finishes planes, from one to another in the order of passing.
    pub(crate) fn finish<B: Send>(&mut self, from: usize, to: usize, workers: Workers<'_, B>) {
        match self {
            Sums::F32(means) => means.finish(from, to, workers),
            Sums::F16(means) => means.finish(from, to, workers),
        }
    }

    /// Frees planes, from one to another in the order of passing.
    pub(crate) fn clear_before<B: Send>(&mut self, from: usize, before: usize, workers: Workers<'_, B>) {
        match self {
            Sums::F32(means) => means.ring.clear_before(from, before, workers),
            Sums::F16(means) => means.ring.clear_before(from, before, workers),
        }
    }

    /// Makes the labels of a slice, and its probabilities if there is room for any.
    pub(crate) fn decide(
        &mut self,
        export: &Export,
        slice: usize,
        labels: SliceLabels<'_, u8>,
        probabilities: &mut [f32],
        workers: Workers<'_, LineRoom>,
    ) {
        match self {
            Sums::F32(means) => means.decide(export, slice, labels, probabilities, workers),
            Sums::F16(means) => means.decide(export, slice, labels, probabilities, workers),
        }
    }
}

/// A ring whose finished planes are means, and what makes logits of them if they are not.
pub(crate) struct Means<S> {
    ring: Ring<S>,
    head: Option<HeadPlanes>,
}

impl<S: Sum> Means<S> {
    fn new(shape: RingShape, summing: &Summing, budget: &Budget) -> Result<Means<S>, MapError> {
        let Summing { summands, pool, on_device, .. } = summing;
        let head = summands.head().map(|head| HeadPlanes::new(shape, head, pool, budget));
        let ring = Ring::new(shape, summands, shape.host_planes(*on_device), budget)?;
        Ok(Means { ring, head: head.transpose()? })
    }

    /// Finishes planes, from one to another in the order of passing.
    fn finish<B: Send>(&mut self, from: usize, to: usize, workers: Workers<'_, B>) {
        // What is interpolated are logits, or what becomes of them: of features they are made later.
        if self.head.is_none() {
            self.ring.finish(from, to, workers);
        }
    }

    /// Makes the labels of a slice, and its probabilities if there is room for any.
    fn decide(
        &mut self,
        export: &Export,
        slice: usize,
        labels: SliceLabels<'_, u8>,
        probabilities: &mut [f32],
        workers: Workers<'_, LineRoom>,
    ) {
        let place = export.place(slice).copied();
        match &mut self.head {
            None => {
                let planes = place.map(|place| self.ring.around(place));
                export.decide(planes.as_ref(), labels, probabilities, workers);
            }
            Some(head) => {
                let planes = place.map(|place| head.around(&self.ring, place));
                export.decide(planes.as_ref(), labels, probabilities, workers);
            }
        }
    }
}
