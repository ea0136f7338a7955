//! Sums of the logits or features ([`Summands`](crate::summing::summands::Summands)) of windows, for only as many planes as
//! windows still touch.
//!
//! Windows are taken in the order of their place along one axis. When all that begin at one place are done, the planes before
//! the next place will not change any more; they are handed on, and their memory is used again. So what is held is
//! channels × (a window and a plane), not channels × the volume. Each number is added as its share of the mean
//! ([`Shares`](crate::summing::shares::Shares)), so that what is held when the last window has been added is the mean.

use std::ops::Range;

use plimsoll_memory::{Budget, MapError, Mapped};
use plimsoll_plan::HostView;

use crate::summing::lines::Planes;
use crate::summing::places::Place;
use crate::summing::ring_shape::RingShape;
use crate::summing::shares::WindowShares;
use crate::summing::summands::Summands;
use crate::summing::sums::Sum;
use crate::summing::workers::Workers;

/// Sums of shares.
pub(crate) struct Ring<S> {
    shape: RingShape,
    channels: usize,
    /// Numbers from here on are refused.
    limit: f32,
    /// Planes that are held.
    planes: usize,
    /// `[plane][channel][voxel of the plane]`
    sums: Mapped<S>,
}

impl<S: Sum> Ring<S> {
    /// An empty ring of so many planes, reserved from a budget.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for it.
    pub(crate) fn new(
        shape: RingShape,
        summands: &Summands,
        planes: usize,
        budget: &Budget,
    ) -> Result<Ring<S>, MapError> {
        let sums = Mapped::zeroed(budget, "sums of windows", shape.count(summands, planes))?;
        Ok(Ring { shape, channels: summands.channels(), limit: summands.limit::<S>(), planes, sums })
    }

    /// Numbers from here on are refused.
    pub(crate) fn limit(&self) -> f32 {
        self.limit
    }

    /// Numbers of a plane.
    fn slot_length(&self) -> usize {
        self.shape.plane() * self.channels
    }

    fn slot(&self, plane: usize) -> usize {
        plane % self.planes * self.slot_length()
    }

    /// The memory of the planes from one to another (in the order of passing), which are no more than the ring holds, with their numbers;
    /// in the order in which they lie.
    fn slots(&mut self, from: usize, to: usize) -> impl Iterator<Item = (usize, &mut [S])> + Send {
        let (planes, length) = (self.planes, self.slot_length());
        // Of no voxels there is no plane.
        let slots = self.sums.chunks_exact_mut(length.max(1)).enumerate();
        slots.filter_map(move |(slot, sums)| {
            // The first plane from `from` on that lies here.
            let plane = from + (slot + planes - from % planes) % planes;
            (plane < to).then_some((plane, sums))
        })
    }

    /// Adds what a window says to the planes that it has. Returns whether all can be summed; if not, some may be missing.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub(crate) fn add<E: Send>(
        &mut self,
        window: &WindowLogits<'_, E>,
        workers: Workers<'_, Room<E>>,
    ) -> Result<bool, E> {
        let Workers { pool, buffers: rooms } = workers;
        let shape = self.shape;
        let of_ring = RingLayout { shape: &shape, channels: self.channels, limit: self.limit };
        let first = window.start[shape.axis];
        let turns = shape.turns_of(window.start);
        // Along the last axis a row of logits has a number for each plane, so that several are filled at a time.
        let together = if shape.axis == 2 { PLANES_TOGETHER } else { 1 };
        let mut slots = self.slots(turns.start, turns.end).map(|(turn, sums)| {
            // Turning twice is nothing.
            WindowPlane { place: shape.turn(turn) - first, sums }
        });
        let groups = std::iter::from_fn(move || {
            let group: Vec<WindowPlane<'_, S>> = slots.by_ref().take(together).collect();
            (!group.is_empty()).then_some(group)
        });
        rooms.iter_mut().for_each(|room| room.outcome = Ok(true));
        pool.share(groups, rooms, |mut planes, room| {
            if let Ok(true) = room.outcome {
                room.outcome = window.add_to(of_ring, &mut planes, room);
            }
        });
        let mut all = true;
        for room in rooms {
            all &= std::mem::replace(&mut room.outcome, Ok(true))?;
        }
        Ok(all)
    }

    /// Makes of the means of planes of logits, from one to another in the order of passing, what is interpolated.
    pub(crate) fn finish<B: Send>(&mut self, from: usize, to: usize, workers: Workers<'_, B>) {
        let (activation, voxels) = (self.shape.activation, self.shape.plane());
        if let Some(activation) = activation {
            workers.pool.share(self.slots(from, to.max(from)), workers.buffers, |(_, means), _| {
                activation.apply(means, voxels)
            });
        }
    }

    /// The finished means `[channel][voxel of the plane]` of one of the last planes.
    pub(crate) fn plane(&self, plane: usize) -> &[S] {
        let slot = self.slot(plane);
        &self.sums[slot..slot + self.slot_length()]
    }

    /// The finished planes on both sides of a slice, where means are logits.
    pub(crate) fn around(&self, slice: Place) -> Planes<'_, S> {
        Planes {
            shape: &self.shape,
            before: self.plane(slice.lower),
            after: self.plane(slice.upper),
            share: slice.share,
            of_output: self.shape.plane(),
            of_line: self.shape.tile.extent[1],
        }
    }

    /// The memory of a plane, in the place of an earlier one, for finished means.
    pub(crate) fn plane_mut(&mut self, plane: usize) -> &mut [S] {
        let (slot, length) = (self.slot(plane), self.slot_length());
        &mut self.sums[slot..slot + length]
    }

    /// Gives the memory of planes back to the ring, except the memory of the last finished one, which neighbours are interpolated
    /// with: those up to `before` will be asked for no more.
    pub(crate) fn clear_before<B: Send>(&mut self, from: usize, before: usize, workers: Workers<'_, B>) {
        let cleared = self.slots(from, before.max(from));
        workers.pool.share(cleared, workers.buffers, |(_, sums), _| sums.fill(S::zeroed()));
    }
}

/// Planes that are filled at a time where each has one number of a row of logits.
const PLANES_TOGETHER: usize = 16;

/// The buffers of a thread that sums logits.
pub(crate) struct Room<E> {
    /// Shares of the mean of the voxels of a plane of a window, or of a row of each of several planes.
    shares: Mapped<f32>,
    /// Rows of one channel and depth of a window, where they are copied, and a row of it behind them.
    rows: Mapped<f32>,
    outcome: Result<bool, E>,
}

impl<E> Room<E> {
    /// Reserves the room of a thread for windows of an extent.
    pub(crate) fn new([depth, height, width]: [usize; 3], budget: &Budget) -> Result<Room<E>, MapError> {
        let room = |count| Mapped::zeroed(budget, "logits of the windows being summed", count);
        let shares = (height * width).max(depth * width).max(height * PLANES_TOGETHER);
        let rows = height * width + height.max(width);
        Ok(Room { shares: room(shares)?, rows: room(rows)?, outcome: Ok(true) })
    }
}

/// Copies as many numbers of a window as there is room for, from one on.
pub(crate) type ReadLogits<'a, E> = &'a (dyn Fn(usize, &mut [f32]) -> Result<(), E> + Sync);

/// The network's output for a window, logits or features, `[channel][d][h][w]`.
pub(crate) enum LogitsOf<'a, E> {
    /// A view of them.
    Here(HostView<'a>),
    /// A function that copies them.
    Read(ReadLogits<'a, E>),
}

/// The network's output for a window, its place, and its shares of the mean.
pub(crate) struct WindowLogits<'a, E> {
    pub(crate) start: [usize; 3],
    /// Along which axes the window was mirrored.
    pub(crate) mirrored: [bool; 3],
    /// The share of each voxel.
    pub(crate) shares: WindowShares<'a>,
    pub(crate) logits: LogitsOf<'a, E>,
}

/// The layout of the ring to which a window is added.
#[derive(Clone, Copy)]
struct RingLayout<'a> {
    shape: &'a RingShape,
    channels: usize,
    /// Numbers from here on are refused.
    limit: f32,
}

/// A plane of a window, with the sums to which it is added.
struct WindowPlane<'a, S> {
    /// The place of the plane in the window.
    place: usize,
    sums: &'a mut [S],
}

/// Rows of numbers of one channel and depth, as the network said them.
#[derive(Clone, Copy)]
enum Slab<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
}

fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

impl Slab<'_> {
    /// Copies every `step`-th logit, from one on.
    fn strided(self, from: usize, step: usize, to: &mut [f32]) {
        match self {
            Slab::F32(logits) => {
                to.iter_mut().zip(logits[from..].iter().step_by(step)).for_each(|(to, logit)| *to = *logit);
            }
            Slab::Bf16(logits) => {
                let logits = logits[from..].iter().step_by(step);
                to.iter_mut().zip(logits).for_each(|(to, logit)| *to = from_bf16(*logit));
            }
        }
    }

    /// Some logits that lie together: where they are, or copied to `to`, mirrored if they are to be.
    fn row<'a>(&'a self, of: Range<usize>, is_mirrored: bool, to: &'a mut [f32]) -> &'a [f32] {
        let to = &mut to[..of.len()];
        match self {
            Slab::F32(logits) => {
                let logits = &logits[of];
                if !is_mirrored {
                    return logits;
                }
                to.iter_mut().zip(logits.iter().rev()).for_each(|(to, logit)| *to = *logit);
            }
            Slab::Bf16(logits) => {
                let logits = &logits[of];
                to.iter_mut().zip(logits).for_each(|(to, logit)| *to = from_bf16(*logit));
                if is_mirrored {
                    to.reverse();
                }
            }
        }
        to
    }
}

impl<E> WindowLogits<'_, E> {
    /// Adds some planes of the window, one at least. Returns `true` if all numbers can be summed.
    fn add_to<S: Sum>(
        &self,
        of_ring: RingLayout<'_>,
        planes: &mut [WindowPlane<'_, S>],
        room: &mut Room<E>,
    ) -> Result<bool, E> {
        let Room { shares, rows, .. } = room;
        let shape = of_ring.shape;
        let held = [0, 1, 2].map(|axis| shape.held_of(axis, self.start[axis]));
        if held.iter().any(|held| held.is_empty()) {
            return Ok(true);
        }
        match (shape.axis, &mut *planes) {
            (0 | 1, [plane]) => self.add_rows(of_ring, held, plane, shares, rows),
            _ => self.add_columns(of_ring, held, planes, shares, rows),
        }
    }

    /// Adds to a plane what has rows of its own, along the width.
    fn add_rows<S: Sum>(
        &self,
        RingLayout { shape, channels, limit }: RingLayout<'_>,
        [depths, heights, widths]: [Range<usize>; 3],
        plane: &mut WindowPlane<'_, S>,
        shares: &mut [f32],
        rows: &mut [f32],
    ) -> Result<bool, E> {
        let place = plane.place;
        let depths = if shape.axis == 0 { place..place + 1 } else { depths };
        let heights = if shape.axis == 1 { place..place + 1 } else { heights };
        let (count, width) = (widths.len(), shape.window[2]);
        let (copied, row) = rows.split_at_mut(shape.window[1] * width);
        let mut of_rows = shares.chunks_exact_mut(count);
        for d in depths.clone() {
            for (h, shares) in heights.clone().zip(&mut of_rows) {
                self.shares.fill(self.start, [d, h, widths.start], 2, shares);
            }
        }
        // In a row that is mirrored, the logits of these widths.
        let of_row = match self.mirrored[2] {
            true => width - widths.end..width - widths.start,
            false => widths.clone(),
        };
        let mut all = true;
        for channel in 0..channels {
            let mut shares = shares.chunks_exact(count);
            for d in depths.clone() {
                let slab = self.slab(shape.window, channel, d, &heights, copied)?;
                for (h, shares) in heights.clone().zip(&mut shares) {
                    let from = mirrored(h - heights.start, heights.len(), self.mirrored[1]) * width;
                    let logits = slab.row(from + of_row.start..from + of_row.end, self.mirrored[2], row);
                    let at = [self.start[0] + d, self.start[1] + h, self.start[2] + widths.start];
                    let to = channel * shape.plane() + shape.in_plane(at);
                    all &= S::add_shares(&mut plane.sums[to..to + count], logits, shares, limit);
                }
            }
        }
        Ok(all)
    }

    /// Adds to several planes of a ring along the last axis, in which rows run along the height.
    fn add_columns<S: Sum>(
        &self,
        RingLayout { shape, channels, limit }: RingLayout<'_>,
        [depths, heights, _]: [Range<usize>; 3],
        planes: &mut [WindowPlane<'_, S>],
        shares: &mut [f32],
        rows: &mut [f32],
    ) -> Result<bool, E> {
        let (count, width) = (heights.len(), shape.window[2]);
        let (copied, column) = rows.split_at_mut(shape.window[1] * width);
        let column = &mut column[..count];
        let mut all = true;
        for d in depths {
            for (plane, shares) in planes.iter().zip(shares.chunks_exact_mut(count)) {
                self.shares.fill(self.start, [d, heights.start, plane.place], 1, shares);
            }
            for channel in 0..channels {
                let slab = self.slab(shape.window, channel, d, &heights, copied)?;
                for (plane, shares) in planes.iter_mut().zip(shares.chunks_exact(count)) {
                    let w = plane.place;
                    slab.strided(mirrored(w, width, self.mirrored[2]), width, column);
                    if self.mirrored[1] {
                        column.reverse();
                    }
                    let at = [self.start[0] + d, self.start[1] + heights.start, self.start[2] + w];
                    let to = channel * shape.plane() + shape.in_plane(at);
                    all &= S::add_shares(&mut plane.sums[to..to + count], column, shares, limit);
                }
            }
        }
        Ok(all)
    }

    /// The numbers of a channel at a depth and some heights of the window, as the network said them; copied to `room` where they have to be.
    fn slab<'a>(
        &'a self,
        [depth, height, width]: [usize; 3],
        channel: usize,
        d: usize,
        heights: &Range<usize>,
        room: &'a mut [f32],
    ) -> Result<Slab<'a>, E> {
        let from = mirrored(d, depth, self.mirrored[0]);
        let rows_from = match self.mirrored[1] {
            true => height - heights.end,
            false => heights.start,
        };
        let first = ((channel * depth + from) * height + rows_from) * width;
        let count = heights.len() * width;
        Ok(match &self.logits {
            LogitsOf::Here(HostView::F32(logits)) => Slab::F32(&logits[first..first + count]),
            LogitsOf::Here(HostView::Bf16(logits)) => Slab::Bf16(&logits[first..first + count]),
            LogitsOf::Read(read) => {
                let room = &mut room[..count];
                read(first, room)?;
                Slab::F32(room)
            }
        })
    }
}

/// A place along an axis, from its other end if that is mirrored.
fn mirrored(place: usize, extent: usize, is_mirrored: bool) -> usize {
    if is_mirrored { extent - 1 - place } else { place }
}
