//! Lines of logits: what lies next to each other in planes of the ring, brought to where stored voxels are, and decided.

use std::ops::Range;

use bytemuck::cast_slice_mut;
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_models::Answers;
use plimsoll_parallel::{Loop, widest};

use crate::summing::places::Place;
use crate::summing::ring_shape::RingShape;
use crate::summing::sums::Sum;

/// The places of the covered voxels of a line in a line of logits.
pub(crate) enum AlongLine {
    /// On some that follow each other.
    Same(Range<usize>),
    Between(Vec<Place>),
}

impl AlongLine {
    pub(crate) fn new(places: Vec<Place>) -> AlongLine {
        let first = places.first().map_or(0, |place| place.lower);
        let is_same = |(number, place): (usize, &Place)| place.share == 0.0 && place.lower == first + number;
        match places.iter().enumerate().all(is_same) {
            true => AlongLine::Same(first..first + places.len()),
            false => AlongLine::Between(places),
        }
    }

    /// Covered voxels.
    pub(crate) fn count(&self) -> usize {
        match self {
            AlongLine::Same(range) => range.len(),
            AlongLine::Between(places) => places.len(),
        }
    }

    /// Returns the place of one of them.
    fn place(&self, number: usize) -> Place {
        match self {
            AlongLine::Same(range) => {
                let at = range.start + number;
                Place { lower: at, upper: at, share: 0.0 }
            }
            AlongLine::Between(places) => places[number],
        }
    }

    /// The logits of the covered voxels: where they are in the line, or in `room`.
    fn resampled<'a>(&self, line: &'a [f32], room: &'a mut [f32]) -> &'a [f32] {
        match self {
            AlongLine::Same(range) => &line[range.clone()],
            AlongLine::Between(places) => {
                let room = &mut room[..places.len()];
                for (logit, place) in room.iter_mut().zip(places) {
                    *logit = interpolated(line[place.lower], line[place.upper], place.share);
                }
                room
            }
        }
    }
}

/// Interpolates between two numbers.
fn interpolated(lower: f32, upper: f32, share: f32) -> f32 {
    lower + share * (upper - lower)
}

/// Interpolates between two lines into `room`, or returns the lower line itself if only it counts. `wide` has room for
/// a line as well.
fn between_lines<'a, S: Sum>(
    lower: &'a [S],
    upper: &'a [S],
    share: f32,
    wide: &mut [f32],
    room: &'a mut [f32],
) -> &'a [f32] {
    if share == 0.0 {
        return S::widened(lower, room);
    }
    S::widen(lower, room);
    let upper = S::widened(upper, wide);
    room.iter_mut().zip(upper).for_each(|(logit, upper)| *logit = interpolated(*logit, *upper, share));
    room
}

/// Planes of logits of lines of voxels on both sides of a slice, and what the later one counts.
pub(crate) struct Planes<'a, S> {
    pub(crate) shape: &'a RingShape,
    pub(crate) before: &'a [S],
    pub(crate) after: &'a [S],
    pub(crate) share: f32,
    /// Numbers of a plane from an output to the next.
    pub(crate) of_output: usize,
    /// And from a line to the next.
    pub(crate) of_line: usize,
}

impl<S: Sum> Planes<'_, S> {
    /// The logits of an output along a line between the logits of the planes. Where a voxel lies on a plane or a line of logits, what is beside
    /// it counts nothing and is not read. The three rooms have room for a line each.
    fn line<'a>(&'a self, output: usize, line: Place, [wide, one, other]: [&'a mut [f32]; 3]) -> &'a [f32] {
        let length = self.shape.tile.extent[1];
        let first = output * self.of_output;
        let of = |plane: &'a [S], line: usize| &plane[first + line * self.of_line..][..length];
        let between = |plane: &'a [S], wide: &mut [f32], room: &'a mut [f32]| {
            between_lines(of(plane, line.lower), of(plane, line.upper), line.share, wide, room)
        };
        let before = between(self.before, wide, one);
        if self.share == 0.0 {
            return before;
        }
        let after = between(self.after, wide, other);
        for ((logit, before), after) in wide.iter_mut().zip(before).zip(after) {
            *logit = interpolated(*before, *after, self.share);
        }
        wide
    }

    /// The logit of an output at one place of a line.
    pub(crate) fn logit(&self, output: usize, line: Place, along: Place) -> f32 {
        let of_line = |at: usize| {
            let of_plane = |plane: &[S]| {
                let logit = |line: usize| plane[output * self.of_output + line * self.of_line + at].wide();
                match line.share == 0.0 {
                    true => logit(line.lower),
                    false => interpolated(logit(line.lower), logit(line.upper), line.share),
                }
            };
            match self.share == 0.0 {
                true => of_plane(self.before),
                false => interpolated(of_plane(self.before), of_plane(self.after), self.share),
            }
        };
        match along.share == 0.0 {
            true => of_line(along.lower),
            false => interpolated(of_line(along.lower), of_line(along.upper), along.share),
        }
    }
}

/// The probabilities of a row of a slice.
pub(crate) struct ProbabilityRow<'a> {
    /// `[output][column]`
    pub(crate) values: &'a mut [f32],
    /// The number of columns.
    pub(crate) width: usize,
    /// The columns that the windows' grid covers.
    pub(crate) covered: Range<usize>,
}

/// The buffers of a thread that decides lines.
pub(crate) struct LineRoom {
    numbers: Mapped<f32>,
    /// Logits of a line of the ring, and covered voxels of a line at most.
    length: usize,
    voxels: usize,
}

/// The parts of a [`LineRoom`].
struct Parts<'a> {
    /// Three lines of the ring.
    lines: [&'a mut [f32]; 3],
    /// The largest logit so far of each covered voxel of a line; its class is in `labels`.
    largest: &'a mut [f32],
    labels: &'a mut [u32],
    /// Its logit of one output.
    logits: &'a mut [f32],
}

impl LineRoom {
    /// Numbers for lines of `length` logits and at most so many covered voxels.
    fn count(length: usize, voxels: usize) -> usize {
        length.saturating_mul(3).saturating_add(voxels.saturating_mul(3))
    }

    /// Bytes that one reserves.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn bytes(length: usize, voxels: usize) -> Result<Bytes, MapError> {
        Mapped::<f32>::bytes(LineRoom::count(length, voxels))
    }

    /// For lines of `length` logits and at most so many covered voxels.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for it.
    pub(crate) fn new(length: usize, voxels: usize, budget: &Budget) -> Result<LineRoom, MapError> {
        let numbers = Mapped::zeroed(budget, "labels", LineRoom::count(length, voxels))?;
        Ok(LineRoom { numbers, length, voxels })
    }

    /// Its parts, for lines of so many covered voxels.
    fn parts(&mut self, count: usize) -> Parts<'_> {
        let (one, rest) = self.numbers.split_at_mut(self.length);
        let (two, rest) = rest.split_at_mut(self.length);
        let (three, rest) = rest.split_at_mut(self.length);
        let (largest, rest) = rest.split_at_mut(self.voxels);
        let (labels, logits) = rest.split_at_mut(self.voxels);
        Parts {
            lines: [one, two, three],
            largest: &mut largest[..count],
            labels: &mut cast_slice_mut(labels)[..count],
            logits,
        }
    }

    /// Decides the covered voxels of a line, output by output, so that what is next to each other is read one after the other.
    pub(crate) fn labels<S: Sum>(
        &mut self,
        planes: &Planes<'_, S>,
        line: Place,
        along: &AlongLine,
        answers: &Answers,
    ) -> &[u32] {
        let Parts { lines: [one, two, three], largest, labels, logits } = self.parts(along.count());
        labels.fill(0);
        let mut each = |output: usize, take: &mut dyn FnMut(&[f32])| {
            let line = planes.line(output, line, [&mut *one, &mut *two, &mut *three]);
            take(along.resampled(line, logits));
        };
        match answers {
            Answers::Classes(classes) => {
                largest.fill(f32::NEG_INFINITY);
                for class in 0..*classes {
                    each(class, &mut |logits| raise(class as u32, logits, largest, labels));
                }
            }
            Answers::Regions(values) => {
                // As likely as not: that is enough for MONAI, whose activations are done before, and not for the others.
                let is_taken = |logit: f32| match planes.shape.activation {
                    Some(_) => logit >= 0.5,
                    None => logit > 0.0,
                };
                for (region, value) in values.iter().enumerate() {
                    each(region, &mut |logits| {
                        for (label, logit) in labels.iter_mut().zip(logits) {
                            *label = if is_taken(*logit) { u32::from(*value) } else { *label };
                        }
                    });
                }
            }
        }
        labels
    }

    /// Makes the probabilities of a row of a slice: the softmax of classes, or the sigmoid of each region, unless the numbers that
    /// `logits` writes are final. It writes the numbers of an output, with room for three lines.
    pub(crate) fn probabilities(
        &mut self,
        ProbabilityRow { values: row, width, covered }: ProbabilityRow<'_>,
        answers: &Answers,
        is_final: bool,
        mut logits: impl FnMut(usize, [&mut [f32]; 3], &mut [f32]),
    ) {
        let Parts { lines: [one, two, three], largest, labels, .. } = self.parts(covered.len());
        for (output, row) in row.chunks_exact_mut(width).enumerate() {
            logits(output, [&mut *one, &mut *two, &mut *three], &mut row[covered.clone()]);
        }
        let mut outputs = row.chunks_exact_mut(width).map(|row| &mut row[covered.clone()]);
        match answers {
            _ if is_final => {}
            Answers::Regions(_) => outputs.for_each(|logits| {
                logits.iter_mut().for_each(|logit| *logit = 1.0 / (1.0 + (-*logit).exp()));
            }),
            Answers::Classes(_) => {
                largest.fill(f32::NEG_INFINITY);
                for logits in outputs.by_ref() {
                    let of_output = largest.iter_mut().zip(&*logits);
                    of_output.for_each(|(largest, logit)| *largest = largest.max(*logit));
                }
                let sums: &mut [f32] = cast_slice_mut(labels);
                sums.fill(0.0);
                for logits in row.chunks_exact_mut(width).map(|row| &mut row[covered.clone()]) {
                    for ((logit, largest), sum) in logits.iter_mut().zip(&*largest).zip(&mut *sums) {
                        *logit = (*logit - largest).exp();
                        *sum += *logit;
                    }
                }
                for logits in row.chunks_exact_mut(width).map(|row| &mut row[covered.clone()]) {
                    logits.iter_mut().zip(&*sums).for_each(|(power, sum)| *power /= sum);
                }
            }
        }
    }
}

/// Gives voxels a class whose logits are larger than their largest so far. Without a branch, so that the compiler does several at once.
fn raise(class: u32, logits: &[f32], largest: &mut [f32], labels: &mut [u32]) {
    widest(Raise { class, logits, largest, labels });
}

struct Raise<'a> {
    class: u32,
    logits: &'a [f32],
    largest: &'a mut [f32],
    labels: &'a mut [u32],
}

impl Loop for Raise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const LANES: usize>(self) {
        let Raise { class, logits, largest, labels } = self;
        for ((label, largest), logit) in labels.iter_mut().zip(largest).zip(logits) {
            let is_larger = *logit > *largest;
            *label = if is_larger { class } else { *label };
            *largest = if is_larger { *logit } else { *largest };
        }
    }
}

impl AlongLine {
    /// The logits of an output along a line of planes, written to one number for each covered voxel.
    pub(crate) fn write<S: Sum>(
        &self,
        planes: &Planes<'_, S>,
        output: usize,
        line: Place,
        rooms: [&mut [f32]; 3],
        to: &mut [f32],
    ) {
        let logits = planes.line(output, line, rooms);
        match self {
            AlongLine::Same(range) => to.copy_from_slice(&logits[range.clone()]),
            AlongLine::Between(_) => {
                self.resampled(logits, to);
            }
        }
    }

    /// The same across lines: of the voxels that lie at one place of each of some lines.
    pub(crate) fn write_across<S: Sum>(
        &self,
        planes: &Planes<'_, S>,
        output: usize,
        lines: &[Place],
        number: usize,
        to: &mut [f32],
    ) {
        let along = self.place(number);
        to.iter_mut().zip(lines).for_each(|(to, line)| *to = planes.logit(output, *line, along));
    }
}
