//! Prompts, and the values that they have in the channels of a network.
//!
//! nnInteractive draws prompts into volumes in half precision. Here a prompt stays what it is, a point, a box or a mask, and the rows of a patch are
//! drawn when the network looks at it: prompts take no memory that grows with the image. A volume would have the same values, since a newer prompt is
//! never weaker than an older one: each voxel has the maximum over the prompts that touch it.

use half::f16;
use plimsoll_volume::VoxelBox;

use crate::interactive::bits::BitMask;
use crate::interactive::profile::Profile;

/// The largest number of half precision.
const LARGEST: f64 = 65504.0;
/// The intensity to which prompts are rescaled when they would exceed it.
const RESCALED: f64 = LARGEST / 10.0;
/// The most prompts of an object. A prompt takes about 100 bytes beside its mask.
pub(crate) const MOST_PROMPTS: usize = 4096;

/// The voxels of a prompt.
pub(crate) enum Drawn {
    /// A ball around a voxel.
    Point([i64; 3]),
    /// All voxels of a box.
    Box(VoxelBox),
    /// The voxels of a mask that begins at a voxel.
    Mask {
        /// The first voxel.
        start: [usize; 3],
        /// The mask.
        mask: BitMask,
    },
}

/// A prompt in its channel.
struct Prompt {
    channel: usize,
    drawn: Drawn,
    intensity: f64,
    /// The number of times that prompts had been rescaled when it was added.
    rescaled: usize,
}

/// The prompts of an object, the oldest first.
///
/// Instead of weakening all older prompts by `decay`, each new one is stronger than the one before by 1 / `decay`; the channels are divided
/// by the newest intensity before the network sees them.
pub(crate) struct Prompts {
    list: Vec<Prompt>,
    intensity: f64,
    /// The factors by which all prompts were multiplied to stay within half precision.
    rescales: Vec<f32>,
}

/// The state of prompts before the last one.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    prompts: usize,
    intensity: f64,
    rescales: usize,
}

impl Prompts {
    /// No prompts.
    pub(crate) fn new() -> Prompts {
        Prompts { list: Vec::new(), intensity: 1.0, rescales: Vec::new() }
    }

    /// The number of prompts.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The present state.
    pub(crate) fn mark(&self) -> Mark {
        Mark { prompts: self.list.len(), intensity: self.intensity, rescales: self.rescales.len() }
    }

    /// Removes the prompts that were added after a state.
    pub(crate) fn return_to(&mut self, mark: Mark) {
        self.list.truncate(mark.prompts);
        self.rescales.truncate(mark.rescales);
        self.intensity = mark.intensity;
    }

    /// Adds a prompt, after which older ones keep a share `decay` of their intensity.
    pub(crate) fn add(&mut self, channel: usize, drawn: Drawn, decay: f64) {
        if decay < 1.0 {
            self.intensity *= 1.0 / decay;
            if self.intensity > LARGEST {
                self.rescales.push((RESCALED / self.intensity) as f32);
                self.intensity = RESCALED;
            }
        }
        let (intensity, rescaled) = (self.intensity, self.rescales.len());
        self.list.push(Prompt { channel, drawn, intensity, rescaled });
    }

    /// A value of a channel as the network sees it: a share of the newest intensity, rounded to half precision.
    pub(crate) fn normalised(&self, value: f32) -> f32 {
        if self.intensity == 1.0 { value } else { rounded(value / self.intensity as f32) }
    }

    /// The depths of the voxels that prompts of a channel touch: the first one, and the one past the last.
    pub(crate) fn depths(&self, channel: usize, profile: &Profile) -> Option<[i64; 2]> {
        let radius = profile.radius() as i64;
        let of = |prompt: &Prompt| match &prompt.drawn {
            Drawn::Point([depth, ..]) => [depth - radius, depth + radius + 1],
            Drawn::Box(within) => [within.start[0] as i64, (within.start[0] + within.shape[0]) as i64],
            Drawn::Mask { start, mask } => [start[0] as i64, (start[0] + mask.shape()[0]) as i64],
        };
        let own = self.list.iter().filter(|prompt| prompt.channel == channel).map(of);
        own.reduce(|[first, end], [other, other_end]| [first.min(other), end.max(other_end)])
    }

    /// Draws the prompts of a channel into a row of the image that begins with the voxel `at`. Values are not normalised.
    pub(crate) fn draw(&self, channel: usize, profile: &Profile, at: [i64; 3], row: &mut [f32]) {
        row.fill(0.0);
        for prompt in self.list.iter().filter(|prompt| prompt.channel == channel) {
            match &prompt.drawn {
                Drawn::Point([depth, height, width]) => {
                    let Some(values) = profile.row(at[0] - depth, at[1] - height) else { continue };
                    let first = width - profile.radius() as i64 - at[2];
                    for (to, value) in overlap(row, first, values.len()) {
                        *to = to.max(self.stored(prompt, as_stored(values[value] * prompt.intensity)));
                    }
                }
                Drawn::Box(within) => {
                    if !spans(within.start[0], within.shape[0], at[0])
                        || !spans(within.start[1], within.shape[1], at[1])
                    {
                        continue;
                    }
                    let value = self.stored(prompt, as_stored(prompt.intensity));
                    let first = within.start[2] as i64 - at[2];
                    overlap(row, first, within.shape[2]).for_each(|(to, _)| *to = to.max(value));
                }
                Drawn::Mask { start, mask } => {
                    let inside = [0, 1]
                        .map(|axis| usize::try_from(at[axis] - start[axis] as i64).unwrap_or(usize::MAX));
                    let [depth, height, width] = mask.shape();
                    if inside[0] >= depth || inside[1] >= height {
                        continue;
                    }
                    let value = self.stored(prompt, f16::from_f64(prompt.intensity).to_f32());
                    for (to, place) in overlap(row, start[2] as i64 - at[2], width) {
                        if mask.get([inside[0], inside[1], place]) {
                            *to = to.max(value);
                        }
                    }
                }
            }
        }
    }

    /// A value of a prompt after all that prompts were rescaled by since.
    fn stored(&self, prompt: &Prompt, value: f32) -> f32 {
        let since = self.rescales.iter().skip(prompt.rescaled);
        since.fold(value, |value, factor| rounded(value * factor))
    }
}

/// A number rounded to half precision.
pub(crate) fn rounded(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

/// A number as PyTorch stores it in half precision: rounded to single precision first.
fn as_stored(value: f64) -> f32 {
    rounded(value as f32)
}

fn spans(start: usize, length: usize, at: i64) -> bool {
    usize::try_from(at).is_ok_and(|at| at >= start && at - start < length)
}

/// The elements of a row that `length` values from `first` on cover, with the place of each value.
fn overlap(row: &mut [f32], first: i64, length: usize) -> impl Iterator<Item = (&mut f32, usize)> {
    let skipped = usize::try_from(-first).unwrap_or(0);
    let from = usize::try_from(first).unwrap_or(0);
    row.iter_mut().skip(from).zip(skipped..length)
}
