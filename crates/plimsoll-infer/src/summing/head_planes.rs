//! Planes of logits, made of the means of features that a ring holds: as many as a slice is interpolated between.

use std::sync::Arc;

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_parallel::Pool;

use crate::summing::lines::Planes;
use crate::summing::places::Place;
use crate::summing::ring::Ring;
use crate::summing::ring_shape::RingShape;
use crate::summing::summands::PointHead;
use crate::summing::sums::Sum;

/// The planes on both sides of a slice.
const PLANES: usize = 2;

/// Logits of the planes around a slice. Slices are asked for in order, so that each plane is made once.
pub(crate) struct HeadPlanes {
    head: Arc<PointHead>,
    pool: Arc<Pool>,
    shape: RingShape,
    /// `[place][line][output][voxel of the line]`, so that a line is one thread's.
    logits: Mapped<f32>,
    /// The plane in each place.
    planes: [Option<usize>; PLANES],
    /// The buffers of a head, for each thread.
    rooms: Vec<Mapped<f32>>,
}

impl HeadPlanes {
    fn count(shape: &RingShape, head: &PointHead) -> usize {
        shape.plane().saturating_mul(head.outputs()).saturating_mul(PLANES)
    }

    /// Bytes that the planes of a ring reserve.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn bytes(shape: &RingShape, head: &PointHead, threads: usize) -> Result<Bytes, MapError> {
        let room = Mapped::<f32>::bytes(head.room())?;
        let rooms = Bytes(room.0.saturating_mul(threads as u64));
        Ok(Mapped::<f32>::bytes(HeadPlanes::count(shape, head))? + rooms)
    }

    /// Those of a ring's shape.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for them.
    pub(crate) fn new(
        shape: RingShape,
        head: &Arc<PointHead>,
        pool: &Arc<Pool>,
        budget: &Budget,
    ) -> Result<HeadPlanes, MapError> {
        let room = |_| Mapped::zeroed(budget, "logits of planes", head.room());
        Ok(HeadPlanes {
            logits: Mapped::zeroed(budget, "logits of planes", HeadPlanes::count(&shape, head))?,
            planes: [None; PLANES],
            rooms: (0..pool.threads()).map(room).collect::<Result<_, _>>()?,
            head: Arc::clone(head),
            pool: Arc::clone(pool),
            shape,
        })
    }

    /// The logits of the planes around a slice, of which those are made that were not needed before.
    pub(crate) fn around<S: Sum>(&mut self, ring: &Ring<S>, slice: Place) -> Planes<'_, f32> {
        self.make(ring, slice.lower);
        self.make(ring, slice.upper);
        let (length, plane) =
            (self.shape.tile.extent[1], HeadPlanes::count(&self.shape, &self.head) / PLANES);
        let of = |turn: usize| &self.logits[turn % PLANES * plane..][..plane];
        Planes {
            shape: &self.shape,
            before: of(slice.lower),
            after: of(slice.upper),
            share: slice.share,
            of_output: length,
            of_line: length.saturating_mul(self.head.outputs()),
        }
    }

    /// Makes the logits of a plane, unless they are there.
    fn make<S: Sum>(&mut self, ring: &Ring<S>, turn: usize) {
        let place = turn % PLANES;
        if self.planes[place] == Some(turn) {
            return;
        }
        let (head, shape, means) = (&*self.head, &self.shape, ring.plane(turn));
        let [_, length] = shape.tile.extent;
        let plane = HeadPlanes::count(shape, head) / PLANES;
        let lines = self.logits[place * plane..][..plane].chunks_exact_mut((length * head.outputs()).max(1));
        self.pool.share(lines.enumerate(), &mut self.rooms, |(line, logits), room| {
            head.line(means, shape.plane(), line * length, logits, room);
            if let Some(activation) = shape.activation {
                activation.apply(logits, length);
            }
        });
        self.planes[place] = Some(turn);
    }
}
