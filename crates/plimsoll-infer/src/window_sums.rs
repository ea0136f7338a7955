//! The mean of a function over the windows of an image, plane by plane.
//!
//! [`Predictor`](crate::Predictor) runs the networks of this program. [`WindowSums`] takes the output of a function that its caller runs,
//! such as a PyTorch module, and sums it in the same ring of planes. The labels of a plane are decided when the last window that touches it
//! has been added, and its memory is then used again, so that the logits of the whole image never exist. Windows, their weights and the
//! padding of small images follow MONAI's `sliding_window_inference`.

use std::convert::Infallible;
use std::sync::Arc;

use plimsoll_data::TargetGrid;
use plimsoll_memory::{Budget, Bytes, MapError, OverBudget, Reservation};
use plimsoll_models::Answers;
use plimsoll_plan::{EngineError, HostView};
use plimsoll_volume::{Affine, Geometry, GeometryError, Spacing, VoxelBox};

use crate::labels::slices::slice_axes;
use crate::labels::wanted::{Scores, Wanted};
use crate::options::RingStorage;
use crate::summing::ring::{LogitsOf, Room};
use crate::summing::rows::{Rows, Strips, slices_of};
use crate::summing::settings::Summing;
use crate::summing::stream::Stream;
use crate::summing::summands::Summands;
use crate::summing::windows::Weights;
use crate::summing::workers;

/// The spacing of images whose windows are cut where their voxels lie.
const UNIT: Spacing = Spacing([1.0; 3]);

/// The windows of an image, and the result of their sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRequest {
    /// Depth, height, width of the image.
    pub image: [usize; 3],
    /// Depth, height, width of a window. Along an axis on which the image is shorter, the image is in the middle of its windows.
    pub window: [usize; 3],
    /// The share of a window that the next one covers too, along each axis, from 0 to less than 1.
    pub overlap: [f64; 3],
    /// The σ of a Gaussian around the middle of a window, as a share of its extent; a voxel counts a thousandth at least. `None` if all
    /// voxels count alike.
    pub sigma_scale: Option<[f64; 3]>,
    /// The number of channels of the function's output.
    pub outputs: usize,
    /// Returns the mean logits beside the labels.
    pub logits: bool,
    /// The type in which sums are stored.
    pub storage: RingStorage,
    /// The number of threads that sum, at least 1.
    pub threads: usize,
}

/// The reason why windows cannot be summed.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// An extent of the image is 0, or its voxels do not fit the address space.
    #[error("the image: {0}")]
    Image(#[from] GeometryError),
    /// An extent of a window is 0.
    #[error("a window of {window:?} voxels has none along an axis")]
    Window {
        /// Depth, height, width.
        window: [usize; 3],
    },
    /// An overlap is out of bounds.
    #[error("an overlap of {overlap} is not at least 0 and less than 1")]
    Overlap {
        /// The share.
        overlap: f64,
    },
    /// A width of the Gaussian is out of bounds.
    #[error("a sigma scale of {scale} is not positive and finite")]
    SigmaScale {
        /// The share of a window.
        scale: f64,
    },
    /// The number of channels of the output is out of bounds.
    #[error("the function has {outputs} output channels, but from 1 to {} are supported", u16::MAX)]
    Outputs {
        /// The number.
        outputs: usize,
    },
    /// The output of a window has another length than its windows.
    #[error("the output of the window at {start:?} has {found} numbers, but must have {expected}")]
    Length {
        /// The first voxel of the window.
        start: [i64; 3],
        /// The expected numbers: channels times voxels of a window.
        expected: usize,
        /// The numbers of the output.
        found: usize,
    },
    /// The output of a window cannot be summed.
    #[error(
        "the output of the window at {start:?} has a number that is not finite, or too large for sums in {storage}"
    )]
    NotFinite {
        /// The first voxel of the window.
        start: [i64; 3],
        /// The type in which sums are stored.
        storage: RingStorage,
    },
    /// All windows have been added.
    #[error("all {windows} windows of the image have been added")]
    Finished {
        /// The number of windows.
        windows: usize,
    },
    /// The budget has no room.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// Memory is refused.
    #[error("{0}")]
    Memory(#[from] MapError),
    /// A fault of this crate.
    #[error("{0}")]
    Internal(#[from] EngineError),
}

impl WindowRequest {
    fn check(&self) -> Result<(), WindowError> {
        let WindowRequest { window, overlap, sigma_scale, outputs, .. } = *self;
        if window.contains(&0) {
            return Err(WindowError::Window { window });
        }
        if let Some(overlap) = overlap.into_iter().find(|overlap| !(0.0..1.0).contains(overlap)) {
            return Err(WindowError::Overlap { overlap });
        }
        let scales = sigma_scale.into_iter().flatten();
        if let Some(scale) = scales.into_iter().find(|scale| !(scale.is_finite() && *scale > 0.0)) {
            return Err(WindowError::SigmaScale { scale });
        }
        match outputs {
            1..=0xffff => Ok(()),
            _ => Err(WindowError::Outputs { outputs }),
        }
    }
}

/// The decided voxels of one place along an axis of the image: a plane of it, or a strip of a plane.
#[derive(Clone, Copy, Debug)]
pub struct DecidedSlice<'a> {
    /// The axis along which slices follow each other.
    pub axis: usize,
    /// The voxels of the image, one along `axis`.
    pub part: VoxelBox,
    /// Labels of [`WindowSums::label_bytes`] each, in the order of voxels.
    pub labels: &'a [u8],
    /// Mean logits `[row][output][column]` along the other two axes, in their order; empty if none are wanted.
    pub logits: &'a [f32],
}

impl DecidedSlice<'_> {
    /// Copies the labels to their places among the labels of an image of this shape. Returns `false` if an array has another length.
    pub fn write_labels(&self, image: [usize; 3], to: &mut [u8]) -> bool {
        let [depth, height, width] = self.part.shape;
        let voxels = depth * height * width;
        let size = self.labels.len().checked_div(voxels).unwrap_or(0);
        if size == 0 || to.len() != image.iter().product::<usize>() * size {
            return false;
        }
        let mut rows = self.labels.chunks_exact(width * size);
        for d in 0..depth {
            for h in 0..height {
                let first = index(image, self.part.start, [d, h, 0]) * size;
                let (Some(to), Some(row)) = (to.get_mut(first..first + width * size), rows.next()) else {
                    return false;
                };
                to.copy_from_slice(row);
            }
        }
        true
    }

    /// Copies the mean logits to their places among those `[output][depth][height][width]` of an image of this shape. Returns `false` if an
    /// array has another length.
    pub fn write_logits(&self, image: [usize; 3], to: &mut [f32]) -> bool {
        let [_, row_axis, column_axis] = slice_axes(self.axis);
        let (rows, columns) = (self.part.shape[row_axis], self.part.shape[column_axis]);
        let voxels: usize = image.iter().product();
        let outputs = self.logits.len().checked_div(rows * columns).unwrap_or(0);
        if outputs == 0 || to.len() != outputs * voxels {
            return false;
        }
        let step = if column_axis == 2 { 1 } else { image[2] };
        for (number, line) in self.logits.chunks_exact(columns).enumerate() {
            let (row, output) = (number / outputs, number % outputs);
            let mut voxel = [0; 3];
            voxel[row_axis] = row;
            let first = output * voxels + index(image, self.part.start, voxel);
            let places = to[first..].iter_mut().step_by(step);
            places.zip(line).for_each(|(to, logit)| *to = *logit);
        }
        true
    }
}

/// The index of a voxel of a box in an image.
fn index([_, height, width]: [usize; 3], start: [usize; 3], voxel: [usize; 3]) -> usize {
    let [d, h, w] = [0, 1, 2].map(|axis| start[axis] + voxel[axis]);
    (d * height + h) * width + w
}

/// A window by its part, its row and its number in the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    part: usize,
    row: usize,
    number: usize,
}

impl Cursor {
    /// The start of the window in the grid of windows; `None` behind the last.
    fn start(&self, parts: &[Rows]) -> Option<[usize; 3]> {
        parts.get(self.part)?.window(self.row, self.number)
    }

    /// The next window.
    fn next(self, rows: &Rows) -> Cursor {
        let Cursor { part, row, number } = self;
        if number + 1 < rows.windows_of_row() {
            Cursor { part, row, number: number + 1 }
        } else if row + 1 < rows.count() {
            Cursor { part, row: row + 1, number: 0 }
        } else {
            Cursor { part: part + 1, row: 0, number: 0 }
        }
    }
}

/// The sums of the output of a function over the windows of an image.
///
/// The function is run on the windows in the order of [`starts`](Self::starts), and each output is passed to [`add`](Self::add). All memory is
/// reserved when this is created.
pub struct WindowSums {
    image: [usize; 3],
    grid: TargetGrid,
    weights: Weights,
    summing: Summing,
    answers: Answers,
    scores: Scores,
    parts: Vec<Rows>,
    /// The next window to be added.
    next: Cursor,
    /// The slices of the present part that are decided.
    decided: usize,
    stream: Option<Stream>,
    rooms: Vec<Room<Infallible>>,
    /// The memory of a stream.
    memory: Budget,
    _stacks: Reservation,
}

impl WindowSums {
    /// Places windows over an image and reserves all memory. If the budget has no room for sums of whole planes, the image is passed through
    /// in strips, of which some windows are computed for both neighbours.
    ///
    /// # Errors
    /// Returns an error if a number of the request is out of bounds, or the budget has no room for the narrowest strips.
    pub fn new(request: &WindowRequest, budget: &Budget) -> Result<WindowSums, WindowError> {
        request.check()?;
        let WindowRequest { image, window, overlap, sigma_scale, outputs, logits, storage, threads } =
            *request;
        let grid = TargetGrid::new(&Geometry::new(image, Affine::from_spacing(UNIT))?, UNIT);
        let weights = match sigma_scale {
            None => Weights::constant(window),
            Some(scales) => Weights::symmetric(window, scales),
        };
        let stacks = budget.reserve("windows", workers::stacks(threads))?;
        let pool = Arc::new(workers::start(threads.max(1)));
        let rooms = (0..pool.threads()).map(|_| Room::new(window, budget)).collect::<Result<_, _>>()?;
        let summing =
            Summing { summands: Summands::Logits(outputs), storage, looks: 1, pool, on_device: false };
        let answers = Answers::Classes(outputs);
        let scores = if logits { Scores::Logits } else { Scores::None };
        let whole = Rows::fixed(&grid, window, overlap, slices_of(&grid, window));
        let bytes_of = |rows: &Rows| {
            Stream::bytes(&grid, rows, Wanted { answers: &answers, scores }, &weights, &summing)
        };
        let (strips, bytes) = strips_within(budget.free(), &whole, &grid, bytes_of)?;
        let memory = budget.part("sums of windows", bytes)?;
        let parts = whole.parts(&grid, strips).collect();
        Ok(WindowSums {
            image,
            grid,
            weights,
            summing,
            answers,
            scores,
            parts,
            next: Cursor::default(),
            decided: 0,
            stream: None,
            rooms,
            memory,
            _stacks: stacks,
        })
    }

    /// Depth, height, width of the image.
    pub fn image(&self) -> [usize; 3] {
        self.image
    }

    /// The number of windows, those that several strips need counted for each.
    pub fn windows(&self) -> usize {
        self.parts.iter().map(Rows::windows).sum()
    }

    /// The number of strips in which the image is passed through: 1 if the budget has room for sums of whole planes.
    pub fn strips(&self) -> usize {
        self.parts.len()
    }

    /// The bytes that are reserved for sums and the results of a slice.
    pub fn bytes(&self) -> Bytes {
        self.memory.limit()
    }

    /// The bytes of a label: 1, or 2 for more than 255 classes.
    pub fn label_bytes(&self) -> usize {
        self.wanted().label_bytes()
    }

    /// The numbers that the output of a window has: channels times voxels.
    pub fn numbers_of_window(&self) -> usize {
        let window = self.parts.first().map_or([0; 3], |rows| rows.shape.window);
        window.into_iter().fold(self.answers.outputs(), usize::saturating_mul)
    }

    /// The first voxels of at most `count` windows from the next one on, in the order in which they are added. They are below 0 where a window
    /// reaches beyond a small image.
    pub fn starts(&self, count: usize) -> impl Iterator<Item = [i64; 3]> {
        let mut next = self.next;
        let starts = std::iter::from_fn(move || {
            let rows = self.parts.get(next.part)?;
            let start = self.start_in_image(next)?;
            next = next.next(rows);
            Some(start)
        });
        starts.take(count)
    }

    fn start_in_image(&self, cursor: Cursor) -> Option<[i64; 3]> {
        let lead = self.parts.get(cursor.part)?.lead;
        let start = cursor.start(&self.parts)?;
        Some([0, 1, 2].map(|axis| start[axis] as i64 - lead[axis] as i64))
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { answers: &self.answers, scores: self.scores }
    }

    /// Adds the output `[output][depth][height][width]` of the function for the next window, and passes slices that this decides to `write`.
    ///
    /// # Errors
    /// Returns an error if the output has another length or a number that is not finite, or there is no next window. The sums cannot be used any
    /// more then.
    pub fn add(
        &mut self,
        logits: &[f32],
        write: &mut dyn FnMut(DecidedSlice<'_>),
    ) -> Result<(), WindowError> {
        let (expected, cursor) = (self.numbers_of_window(), self.next);
        let place = self.start_in_image(cursor).zip(cursor.start(&self.parts));
        let (Some(rows), Some((in_image, start))) = (self.parts.get(cursor.part), place) else {
            return Err(WindowError::Finished { windows: self.windows() });
        };
        if logits.len() != expected {
            return Err(WindowError::Length { start: in_image, expected, found: logits.len() });
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let wanted = Wanted { answers: &self.answers, scores: self.scores };
                let (grid, weights, summing) = (&self.grid, &self.weights, &self.summing);
                none.insert(Stream::new(grid, rows, wanted, weights, summing, &self.memory)?)
            }
        };
        let output = LogitsOf::Here(HostView::F32(logits));
        let Ok(is_summed) = stream.add(start, [false; 3], &mut self.rooms, output);
        if !is_summed {
            return Err(WindowError::NotFinite { start: in_image, storage: self.summing.storage });
        }
        self.next = cursor.next(rows);
        if self.next.row == cursor.row && self.next.part == cursor.part {
            return Ok(());
        }
        let decided = &mut self.decided;
        stream.finish_row(rows, cursor.row, None, |labels, logits| {
            let mut part = rows.part;
            part.start[rows.slices] += *decided;
            part.shape[rows.slices] = 1;
            *decided += 1;
            write(DecidedSlice { axis: rows.slices, part, labels, logits });
            Ok::<(), EngineError>(())
        })?;
        if self.next.part != cursor.part {
            // Before the next strip takes its memory.
            self.stream = None;
            self.decided = 0;
        }
        Ok(())
    }
}

/// Returns the strips with the fewest windows whose sums fit, none if whole planes do, and their bytes; the smallest if none fit.
fn strips_within(
    free: Bytes,
    whole: &Rows,
    grid: &TargetGrid,
    bytes_of: impl Fn(&Rows) -> Result<Bytes, MapError>,
) -> Result<(Option<Strips>, Bytes), MapError> {
    let all = bytes_of(whole)?;
    if all <= free {
        return Ok((None, all));
    }
    let mut smallest = (None, all);
    let mut best: Option<(usize, Strips, Bytes)> = None;
    for strips in whole.possible_strips(grid) {
        let choice = whole.choice(grid, strips);
        let bytes = bytes_of(&whole.widest(&choice, 0))?;
        if bytes < smallest.1 {
            smallest = (Some(strips), bytes);
        }
        if bytes <= free && best.is_none_or(|(windows, ..)| choice.windows < windows) {
            best = Some((choice.windows, strips, bytes));
        }
    }
    Ok(best.map_or(smallest, |(_, strips, bytes)| (Some(strips), bytes)))
}

#[cfg(test)]
#[path = "../tests/unit/window_sums.rs"]
mod tests;
