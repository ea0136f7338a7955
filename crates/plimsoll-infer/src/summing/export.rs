//! From finished planes of logits to labels on the image's own grid.
//!
//! The windows' grid and the stored grid differ by a permutation and mirroring of axes and by a scale along each, so a stored
//! voxel's place in the windows' grid is found axis by axis. Logits are interpolated linearly, or along an axis that keeps whole
//! slices taken from the nearest, and decided where they have come. What the windows' grid does not cover is background.

use std::ops::Range;

use bytemuck::Pod;
use plimsoll_data::TargetGrid;
use plimsoll_memory::{Budget, Bytes, MapError, OverBudget, Reservation};
use plimsoll_models::Answers;
use plimsoll_volume::VoxelBox;

use crate::labels::slices::slice_axes;
use crate::labels::wanted::{Scores, Wanted};
use crate::summing::lines::{AlongLine, LineRoom, Planes, ProbabilityRow};
use crate::summing::places::{AxisPlaces, Place};
use crate::summing::ring_shape::RingShape;
use crate::summing::sums::Sum;
use crate::summing::workers::Workers;

/// Bytes as labels of 16 bits. No bytes at all, where labels lie together as they are written, lie nowhere that is even.
fn wide_labels(bytes: &mut [u8]) -> &mut [u16] {
    if bytes.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(bytes) }
}

/// A number that labels are written as.
trait Label: Pod + Send {
    fn from_class(value: u16) -> Self;
}

impl Label for u8 {
    fn from_class(value: u16) -> u8 {
        value as u8
    }
}

impl Label for u16 {
    fn from_class(value: u16) -> u16 {
        value
    }
}

/// The way from the windows' grid to the slices of a part of the stored one.
///
/// A slice has the stored voxels of one place along the axis along which planes of logits are finished. Its rows follow each other along the
/// first of the other two stored axes, and its columns along the second. *Lines* are what lies along the second axis of a plane of
/// the ring, where logits lie together: rows of a slice, or its columns.
pub(crate) struct Export {
    shape: RingShape,
    answers: Answers,
    scores: Scores,
    /// The places of the covered slices, in the order in which planes of logits are finished.
    slices: Vec<Place>,
    /// The places of the covered lines in the tile of a plane of the ring.
    lines: Vec<Place>,
    along: AlongLine,
    /// `true` if lines are rows of a slice.
    lines_are_rows: bool,
    /// Slices, rows and columns of the part.
    extent: [usize; 3],
    /// The slices, rows and columns before those that the windows' grid covers.
    before: [usize; 3],
    /// The reservation of the places.
    _reservation: Reservation,
}

/// The labels of a slice, of [`Wanted::label_bytes`](crate::labels::wanted::Wanted::label_bytes) each.
pub(crate) struct SliceLabels<'a, L> {
    pub(crate) labels: &'a mut [L],
    /// Room for the labels `[column][row]` if lines are columns, else empty.
    pub(crate) turned: &'a mut [L],
}

impl Export {
    /// Bytes that the way out of a ring reserves: a place for each index along the axes of the stored grid.
    pub(crate) fn bytes(grid: &TargetGrid) -> Bytes {
        let places = grid.stored_shape().into_iter().fold(0, usize::saturating_add);
        Bytes::from_len(places.saturating_mul(size_of::<Place>()))
    }

    /// From a ring of this shape to a part of the stored grid, whose slices lie along a stored axis.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for the places of voxels.
    pub(crate) fn new(
        grid: &TargetGrid,
        shape: RingShape,
        part: &VoxelBox,
        slices: usize,
        Wanted { answers, scores }: Wanted<'_>,
        budget: &Budget,
    ) -> Result<Export, OverBudget> {
        let reservation = budget.reserve("places of voxels", Export::bytes(grid))?;
        let axes = slice_axes(slices);
        let plane_axes = shape.plane_axes();
        let along = |which: usize| -> (usize, Vec<Place>) {
            let stored_axis = axes[which];
            let places = AxisPlaces::new(grid, &shape, stored_axis);
            let (axis, _) = grid.axis_of(stored_axis);
            let held_from = match plane_axes.iter().position(|of_plane| *of_plane == axis) {
                Some(of_plane) => shape.tile.start[of_plane],
                None => 0,
            };
            let (start, end) = (part.start[stored_axis], part.start[stored_axis] + part.shape[stored_axis]);
            let covered = places.covered();
            let covered = covered.start.clamp(start, end)..covered.end.clamp(start, end);
            let in_tile = |place: Place| Place {
                lower: place.lower - held_from,
                upper: place.upper - held_from,
                share: place.share,
            };
            (covered.start - start, covered.filter_map(|index| places.at(index)).map(in_tile).collect())
        };
        let (of_slices, of_rows, of_columns) = (along(0), along(1), along(2));
        let lines_are_rows = lines_are_rows(grid, &shape, slices);
        let (lines, along) = match lines_are_rows {
            true => (of_rows.1, of_columns.1),
            false => (of_columns.1, of_rows.1),
        };
        Ok(Export {
            before: [of_slices.0, of_rows.0, of_columns.0],
            slices: of_slices.1,
            lines,
            along: AlongLine::new(along),
            lines_are_rows,
            answers: answers.clone(),
            scores,
            extent: axes.map(|axis| part.shape[axis]),
            shape,
            _reservation: reservation,
        })
    }

    /// Voxels of a slice.
    pub(crate) fn slice_voxels(&self) -> usize {
        self.extent[1] * self.extent[2]
    }

    /// Slices.
    pub(crate) fn slices(&self) -> usize {
        self.extent[0]
    }

    /// The place of a slice; `None` if the windows' grid does not cover it.
    pub(crate) fn place(&self, slice: usize) -> Option<&Place> {
        self.slices.get(slice.checked_sub(self.before[0])?)
    }

    /// The first plane of logits that a slice and those after it still need.
    pub(crate) fn first_needed(&self, slice: usize) -> usize {
        let slice = slice.max(self.before[0]);
        self.place(slice).map_or(self.shape.grid[self.shape.axis], |place| place.lower)
    }

    /// The planes of logits that a slice is made of, none or up to two.
    pub(crate) fn planes_of(&self, slice: usize) -> Range<usize> {
        self.place(slice).map_or(0..0, |place| match place.share == 0.0 {
            true => place.lower..place.lower + 1,
            false => place.lower..place.upper + 1,
        })
    }

    /// Returns `true` if a slice can be made when the planes of logits before `finished` are.
    pub(crate) fn is_ready(&self, slice: usize, finished: usize) -> bool {
        self.place(slice).is_none_or(|place| place.upper < finished)
    }

    /// Returns the buffers of a thread that decides lines.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for it.
    pub(crate) fn room(&self, budget: &Budget) -> Result<LineRoom, MapError> {
        let [_, rows, columns] = self.extent;
        LineRoom::new(self.shape.tile.extent[1], rows.max(columns), budget)
    }

    /// Bytes that it reserves, for slices of so many rows and columns.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn room_bytes(shape: &RingShape, [rows, columns]: [usize; 2]) -> Result<Bytes, MapError> {
        LineRoom::bytes(shape.tile.extent[1], rows.max(columns))
    }

    /// Makes the labels of a slice, and its probabilities if there is room for any, from the planes of logits around it; of a slice that
    /// the windows' grid does not cover, there are none.
    pub(crate) fn decide<S: Sum>(
        &self,
        planes: Option<&Planes<'_, S>>,
        labels: SliceLabels<'_, u8>,
        probabilities: &mut [f32],
        workers: Workers<'_, LineRoom>,
    ) {
        let Workers { pool, buffers } = workers;
        self.labels(planes, labels, Workers { pool, buffers: &mut *buffers });
        if !probabilities.is_empty() {
            self.probabilities(planes, probabilities, Workers { pool, buffers });
        }
    }

    /// Makes the labels of a slice.
    fn labels<S: Sum>(
        &self,
        planes: Option<&Planes<'_, S>>,
        slice: SliceLabels<'_, u8>,
        workers: Workers<'_, LineRoom>,
    ) {
        match slice.labels.len() == self.slice_voxels() {
            true => self.plane_of_labels::<u8, S>(planes, slice, workers),
            false => {
                let SliceLabels { labels, turned } = slice;
                let wide = SliceLabels { labels: wide_labels(labels), turned: wide_labels(turned) };
                self.plane_of_labels::<u16, S>(planes, wide, workers);
            }
        }
    }

    fn plane_of_labels<L: Label, S: Sum>(
        &self,
        planes: Option<&Planes<'_, S>>,
        SliceLabels { labels, turned }: SliceLabels<'_, L>,
        Workers { pool, buffers: rooms }: Workers<'_, LineRoom>,
    ) {
        labels.fill(L::from_class(0));
        let Some(planes) = planes else { return };
        let ([_, rows, columns], [_, first_row, first_column]) = (self.extent, self.before);
        let decide = |(place, line): (Place, &mut [L]), room: &mut LineRoom| {
            let decided = room.labels(planes, place, &self.along, &self.answers);
            line.iter_mut().zip(decided).for_each(|(label, decided)| *label = L::from_class(*decided as u16));
        };
        if self.lines_are_rows {
            let lines = labels.chunks_exact_mut(columns).skip(first_row);
            let lines = lines.map(|line| &mut line[first_column..]);
            pool.share(self.lines.iter().copied().zip(lines), rooms, decide);
            return;
        }
        pool.share(self.lines.iter().copied().zip(turned.chunks_exact_mut(rows)), rooms, decide);
        let lines = labels.chunks_exact_mut(columns).skip(first_row).take(self.along.count());
        for (row, line) in lines.enumerate() {
            let of_row = turned[row..].iter().step_by(rows).take(self.lines.len());
            line[first_column..].iter_mut().zip(of_row).for_each(|(label, decided)| *label = *decided);
        }
    }

    /// Makes the probabilities of a slice, `[row][output][column]`: the softmax of classes, or the sigmoid of each region; or its logits. What
    /// is not covered is background: of classes the first has all of it, of regions none has any.
    fn probabilities<S: Sum>(
        &self,
        planes: Option<&Planes<'_, S>>,
        probabilities: &mut [f32],
        Workers { pool, buffers: rooms }: Workers<'_, LineRoom>,
    ) {
        let (outputs, [_, _, width]) = (self.answers.outputs(), self.extent);
        probabilities.fill(0.0);
        if let Answers::Classes(_) = self.answers {
            probabilities.chunks_exact_mut(outputs * width).for_each(|row| row[..width].fill(1.0));
        }
        let Some(planes) = planes else { return };
        let [_, first_row, first_column] = self.before;
        let (rows, columns) = match self.lines_are_rows {
            true => (self.lines.len(), self.along.count()),
            false => (self.along.count(), self.lines.len()),
        };
        let lines = probabilities.chunks_exact_mut(outputs * width).skip(first_row).take(rows);
        pool.share(lines.enumerate(), rooms, |(row, of_row), room| {
            let covered = first_column..first_column + columns;
            let of_row = ProbabilityRow { values: of_row, width, covered };
            let is_final = self.shape.activation.is_some() || self.scores == Scores::Logits;
            room.probabilities(of_row, &self.answers, is_final, |output, rooms, to| {
                match self.lines_are_rows {
                    true => self.along.write(planes, output, self.lines[row], rooms, to),
                    false => self.along.write_across(planes, output, &self.lines, row, to),
                }
            });
        });
    }
}

/// Returns `true` if what lies next to each other in planes of a ring are rows of stored slices; else they are columns.
pub(crate) fn lines_are_rows(grid: &TargetGrid, shape: &RingShape, slices: usize) -> bool {
    let [_, rows, _] = slice_axes(slices);
    grid.axis_of(rows).0 == shape.plane_axes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summing::workers;
    use std::path::Path;
    use std::sync::Arc;

    use plimsoll_data::{
        Interpolation, LabelTies, NnUnetSteps, Planes, PreparedGrid, Resizing, StepOrder, TargetSpacing,
    };
    use plimsoll_volume::{Affine, Geometry, Spacing};
    use serde_json::Value;

    use crate::labels::npz::ProbabilityWriter;
    use crate::labels::wanted::Wanted;
    use crate::options::RingStorage;
    use crate::summing::ring::{LogitsOf, Room};
    use crate::summing::rows::Rows;
    use crate::summing::settings::Summing;
    use crate::summing::stream::Stream;
    use crate::summing::summands::Summands;
    use crate::summing::windows::{Weights, gaussian};

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    }

    fn three(value: &Value) -> [usize; 3] {
        numbers(value).into_iter().map(|number| number as usize).collect::<Vec<_>>().try_into().unwrap()
    }

    fn examples() -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet_voxels.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// The grid of an example.
    fn place(example: &Value) -> (Geometry, PreparedGrid) {
        let (spacing, flipped) = (numbers(&example["spacing"]), numbers(&example["flipped"]));
        let mut rows = [[0.0; 4]; 3];
        for (stored, canonical) in three(&example["order"]).into_iter().enumerate() {
            rows[2 - canonical][stored] =
                if flipped[stored] == 1.0 { -spacing[stored] } else { spacing[stored] };
        }
        let geometry = Geometry::new(three(&example["shape"]), Affine(rows)).unwrap();
        let resizing = |order| Resizing { order, order_across: Interpolation::Nearest, slices: None };
        let steps = NnUnetSteps {
            order: StepOrder::NnUnet,
            transposed: three(&example["transposed"]),
            reorients: example["reorients"].as_bool().unwrap(),
            planes: Planes::Any,
            spacing: TargetSpacing::try_from(numbers(&example["target"])).unwrap(),
            channels: Vec::new(),
            images: resizing(Interpolation::Cubic),
            logits: resizing(Interpolation::Linear),
            labels: resizing(Interpolation::Linear),
            ties: LabelTies::Nearest,
        };
        let ends = |axis: usize| {
            let ends = example["boxes"].as_array().unwrap().iter().map(move |bounds| numbers(&bounds[axis]));
            let ends: Vec<Vec<f64>> = ends.collect();
            let first = ends.iter().map(|end| end[0] as usize).min().unwrap();
            (first, ends.iter().map(|end| end[1] as usize).max().unwrap())
        };
        let ends = [ends(0), ends(1), ends(2)];
        let nonzero = VoxelBox::between(ends.map(|(first, _)| first), ends.map(|(_, end)| end));
        let stated = Spacing(spacing.try_into().unwrap());
        let place = PreparedGrid::new(&geometry, stated, nonzero, &steps).unwrap();
        (geometry, place)
    }

    fn hash(index: u64) -> f32 {
        ((((index + 1) * 2_654_435_761) as u32) >> 12) as f32
    }

    /// All planes of an example, whose logits are the hashes of their places less `shift`, through windows of a shape.
    fn exported(
        example: &Value,
        window: [usize; 3],
        answers: &Answers,
        shift: f32,
        threads: usize,
        mut visit: impl FnMut(&[u8], &[f32]),
    ) {
        let (_, place) = place(example);
        let (grid, budget) = (*place.grid(), Budget::new(Bytes::mib(64)));
        let wanted = Wanted::new(answers, true);
        let rows = Rows::new(&grid, window, 0.5, 0);
        let weights = Weights { along: gaussian(window), least: 0.0, margin: 0 };
        let summands = Summands::Logits(3);
        let summing = Summing {
            storage: RingStorage::F32,
            looks: 1,
            pool: Arc::new(workers::start(threads)),
            summands,
            on_device: false,
        };
        let mut stream = Stream::new(&grid, &rows, wanted, &weights, &summing, &budget).unwrap();
        assert_eq!(budget.used(), Stream::bytes(&grid, &rows, wanted, &weights, &summing).unwrap());
        let mut rooms: Vec<Room<()>> = (0..threads).map(|_| Room::new(window, &budget).unwrap()).collect();
        let shape = grid.shape();
        for row in 0..rows.count() {
            for start in rows.row(row) {
                let logit = |number: usize| {
                    let voxels: usize = window.iter().product();
                    let (class, at) = (number / voxels, number % voxels);
                    let at = [at / (window[1] * window[2]), at / window[2] % window[1], at % window[2]];
                    let place = [0, 1, 2].map(|axis| (start[axis] + at[axis]).wrapping_sub(rows.lead[axis]));
                    match (0..3).all(|axis| place[axis] < shape[axis]) {
                        true => {
                            let voxel = (place[0] * shape[1] + place[1]) * shape[2] + place[2];
                            hash((class * shape.iter().product::<usize>() + voxel) as u64) / 1e5 - shift
                        }
                        // Around an image that is smaller than a window: nothing of it may come out.
                        false => 1e6,
                    }
                };
                let read = |from: usize, to: &mut [f32]| {
                    to.iter_mut().enumerate().for_each(|(number, to)| *to = logit(from + number));
                    Ok(())
                };
                let logits = LogitsOf::Read(&read);
                assert_eq!(stream.add(start, [false; 3], &mut rooms, logits), Ok(true));
            }
            let visited = stream.finish_row(&rows, row, None, |labels, probabilities| {
                visit(labels, probabilities);
                Ok::<(), plimsoll_plan::EngineError>(())
            });
            visited.unwrap();
        }
    }

    #[test]
    fn labels_are_decided_where_nnunet_resizes_logits_to() {
        let (classes, regions) = (Answers::Classes(3), Answers::Regions(vec![7, 2, 5]));
        for example in examples().as_array().unwrap() {
            let name = &example["name"];
            for (answers, shift, key) in [(&classes, 0.0, "decided"), (&regions, 5.0, "regions")] {
                let expected = example[key].as_str().unwrap();
                assert!(
                    expected.chars().filter(|label| *label == '.').count() * 50 < expected.len(),
                    "{name}"
                );
                for (window, threads) in [([4, 5, 6], 1), ([30, 3, 7], 2), ([30; 3], 3)] {
                    let mut labels = String::new();
                    exported(example, window, answers, shift, threads, |plane, _| {
                        labels.extend(plane.iter().map(|label| char::from(b'0' + label)));
                    });
                    assert_eq!(labels.len(), expected.len(), "{name}");
                    let wrong = labels
                        .chars()
                        .zip(expected.chars())
                        .filter(|(found, expected)| *expected != '.' && found != expected);
                    assert_eq!(wrong.count(), 0, "{name}, {key}: {labels}\n{expected}");
                }
            }
        }
    }

    #[test]
    fn probabilities_are_those_of_nnunet_and_can_be_read_back() {
        let (classes, regions) = (Answers::Classes(3), Answers::Regions(vec![7, 2, 5]));
        let mut compared = 0;
        for example in examples().as_array().unwrap() {
            for (answers, shift, key) in [(&classes, 0.0, "probabilities"), (&regions, 5.0, "sigmoids")] {
                let expected: Vec<f64> = example[key].as_array().unwrap().iter().flat_map(numbers).collect();
                if expected.is_empty() {
                    continue;
                }
                let (geometry, _) = place(example);
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("a.npz");
                let mut writer = ProbabilityWriter::create(&path, 3, geometry.shape()).unwrap();
                exported(example, [4, 5, 6], answers, shift, 2, |_, plane| {
                    writer.write_plane(plane).unwrap()
                });
                writer.finish().unwrap();
                let bytes = std::fs::read(&path).unwrap();
                // The array is as long as its shape says, and is followed by the directory, which names it.
                let array = expected.len() * size_of::<f32>();
                let header = bytes.windows(6).position(|six| six == b"\x93NUMPY").unwrap();
                let text = usize::from(u16::from_le_bytes([bytes[header + 8], bytes[header + 9]]));
                let first = header + 10 + text;
                assert_eq!(first - header, 128);
                let shape = geometry.shape();
                let said = format!("'shape': (3, {}, {}, {})", shape[0], shape[1], shape[2]);
                assert!(String::from_utf8_lossy(&bytes[header..first]).contains(&said));
                let mut sum = crc32fast::Hasher::new();
                sum.update(&bytes[header..first + array]);
                assert_eq!(bytes[14..18], sum.finalize().to_le_bytes());
                assert_eq!(bytes[first + array..][..4], *b"PK\x01\x02");
                for (found, expected) in bytes[first..][..array].as_chunks::<4>().0.iter().zip(expected) {
                    let found = f64::from(f32::from_le_bytes(*found));
                    assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 1000, "{compared}");
    }
}
