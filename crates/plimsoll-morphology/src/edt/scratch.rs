//! Dividing the caller's scratch.

use super::envelope::{Apexes, Axis};
use super::job::{Distance, Job};
use crate::carve::{Carver, LINE, bytes_of, sum};
use crate::rows::words;
use crate::simd::LANES;

/// The buffers of one thread. `n` is the larger of depth and height.
pub(super) struct Worker<'a> {
    /// The rows of a slice: see [`crate::rows::Bits`].
    pub(super) foreground: &'a mut [u64],
    pub(super) boundary: &'a mut [u64],
    /// See [`super::row::Row`].
    pub(super) next: &'a mut [u64],
    /// Rows of the width, cut into tiles of `LANES` columns, tile after tile.
    pub(super) plane: &'a mut [[f32; LANES]],
    /// The maximum of each row of a tile.
    pub(super) greatest: &'a mut [f32],
    /// The nearest voxels, laid out like `plane`; empty if not requested.
    pub(super) plane_features: &'a mut [[u32; LANES]],
    /// The only label of each row of a tile, see [`crate::rows::Bits`]; empty if there are only two.
    pub(super) soles: &'a mut [u32],
    /// The same of the rows of a slice, row after row.
    pub(super) row_soles: &'a mut [u32],
    /// The labels of `n` rows; empty if there are only two.
    pub(super) labels: &'a mut [[u32; LANES]],
    /// A part of `n` rows, and the maximum of each row; empty if there is only one part.
    pub(super) part: &'a mut [[f32; LANES]],
    pub(super) part_greatest: &'a mut [f32],
    /// See [`super::envelope::EnvelopeScratch`].
    pub(super) apexes: &'a mut [Apexes],
    pub(super) rows: &'a mut [u32],
    pub(super) rank: &'a mut [u32],
}

/// Shared by all threads.
pub(super) struct SharedScratch<'a> {
    /// The depth and the height.
    pub(super) axes: [Axis<'a>; 2],
    /// The states of each row: see [`Job::states`] and [`super::states`].
    pub(super) states: &'a mut [u8],
}

/// The length of each buffer of a worker.
struct Lengths {
    words: usize,
    bits: usize,
    plane: usize,
    features: usize,
    soles: usize,
    row_soles: usize,
    labels: usize,
    part: usize,
    n: usize,
}

impl Lengths {
    fn new(job: &Job) -> Lengths {
        let [depth, height, width] = job.shape;
        let n = depth.max(height);
        let plane = job.tiles().saturating_mul(height).max(job.tiles_at_once.saturating_mul(depth));
        let only_if = |wanted: bool, len: usize| if wanted { len } else { 0 };
        Lengths {
            words: words(width),
            bits: words(width).saturating_mul(height),
            plane,
            features: only_if(job.features, plane),
            soles: only_if(job.distance == Distance::ToOtherLabel, plane),
            row_soles: only_if(job.distance == Distance::ToOtherLabel, job.tiles().saturating_mul(height)),
            labels: only_if(job.distance == Distance::ToOtherLabel, n),
            part: only_if(job.distance != Distance::ToBackground, n),
            n,
        }
    }

    fn bytes(&self) -> usize {
        sum([
            bytes_of::<u64>(self.bits),
            bytes_of::<u64>(self.bits),
            bytes_of::<u64>(self.words),
            bytes_of::<[f32; LANES]>(self.plane),
            bytes_of::<f32>(self.plane),
            bytes_of::<[u32; LANES]>(self.features),
            bytes_of::<u32>(self.soles),
            bytes_of::<u32>(self.row_soles),
            bytes_of::<[u32; LANES]>(self.labels),
            bytes_of::<[f32; LANES]>(self.part),
            bytes_of::<f32>(self.part),
            bytes_of::<Apexes>(self.n),
            bytes_of::<u32>(self.n),
            bytes_of::<u32>(self.n + 1),
        ])
    }
}

/// The bytes of the states of all rows.
fn states(job: &Job) -> usize {
    job.shape[0].saturating_mul(job.shape[1]).saturating_mul(job.states())
}

/// The bytes that `job` needs, wherever the buffer starts.
pub(super) fn bytes(job: &Job) -> usize {
    let [depth, height, _] = job.shape;
    sum([
        LINE - 1,
        bytes_of::<f32>(Axis::costs_len(depth)),
        bytes_of::<f32>(Axis::costs_len(height)),
        bytes_of::<u8>(states(job)),
        Lengths::new(job).bytes().saturating_mul(job.threads),
    ])
}

/// Initialises the shared buffers at the start of `scratch`, which has at least [`bytes`] bytes; the rest is for the
/// threads.
pub(super) fn shared<'a>(job: &Job, scratch: &'a mut [u8]) -> (SharedScratch<'a>, &'a mut [u8]) {
    let mut carver = Carver::new(scratch);
    let [depth, height, _] = job.shape;
    let mut axis = |n: usize, weight: f32| Axis::new(weight, carver.take(Axis::costs_len(n)));
    let axes = [axis(depth, job.weights[0]), axis(height, job.weights[1])];
    let states = carver.take(states(job));
    (SharedScratch { axes, states }, carver.rest())
}

/// Divides the rest of [`shared`] among the threads.
pub(super) fn workers<'a>(job: &Job, scratch: &'a mut [u8]) -> impl Iterator<Item = Worker<'a>> + use<'a> {
    let lengths = Lengths::new(job);
    scratch.chunks_exact_mut(lengths.bytes()).take(job.threads).map(move |rest| {
        let mut carver = Carver::new(rest);
        Worker {
            foreground: carver.take(lengths.bits),
            boundary: carver.take(lengths.bits),
            next: carver.take(lengths.words),
            plane: carver.take(lengths.plane),
            greatest: carver.take(lengths.plane),
            plane_features: carver.take(lengths.features),
            soles: carver.take(lengths.soles),
            row_soles: carver.take(lengths.row_soles),
            labels: carver.take(lengths.labels),
            part: carver.take(lengths.part),
            part_greatest: carver.take(lengths.part),
            apexes: carver.take(lengths.n),
            rows: carver.take(lengths.n),
            rank: carver.take(lengths.n + 1),
        }
    })
}
