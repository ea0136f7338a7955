//! The input of the network: the image and the channels of prompts, in a patch as it is or zoomed out.

use plimsoll_models::nnunet::PromptChannels;

use crate::interactive::bits::BitMask;
use crate::interactive::image::NormalisedImage;
use crate::interactive::planes::{HalfSum, Planes, ZoomedChannel, clear_outside};
use crate::interactive::profile::Profile;
use crate::interactive::prompts::Prompts;
use crate::interactive::zoom::{Tap, dilation, nearest, trilinear, window};

/// A segmentation on a grid that begins at a voxel of the image.
#[derive(Clone, Copy)]
pub(crate) struct Previous<'a> {
    pub(crate) mask: &'a BitMask,
    pub(crate) origin: [i64; 3],
}

impl Previous<'_> {
    fn get(&self, at: [i64; 3]) -> bool {
        self.mask.get_anywhere(std::array::from_fn(|axis| at[axis] - self.origin[axis]))
    }
}

/// All that the network sees.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub(crate) image: &'a NormalisedImage,
    pub(crate) prompts: &'a Prompts,
    pub(crate) profile: &'a Profile,
    pub(crate) channels: &'a PromptChannels,
    pub(crate) previous: Previous<'a>,
    /// Depth, height, width of the network's patch.
    pub(crate) patch: [usize; 3],
}

/// A patch that is zoomed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zoomed {
    /// The first voxel in the image.
    pub(crate) start: [i64; 3],
    /// The extents in voxels of the image.
    pub(crate) scaled: [usize; 3],
    pub(crate) zoom: f64,
}

impl Sight<'_> {
    /// Writes the input `[channel][depth][height][width]` of a patch as it is.
    pub(crate) fn patch_at(&self, start: [i64; 3], input: &mut [f32]) {
        let voxels: usize = self.patch.iter().product();
        let (image, channels) = input.split_at_mut(voxels);
        self.each_row(start, image, |at, row| self.image.row(at, row));
        for (channel, values) in channels.chunks_exact_mut(voxels).enumerate() {
            if channel == self.channels.previous {
                self.each_row(start, values, |at, row| {
                    for (offset, value) in row.iter_mut().enumerate() {
                        let is_set = self.previous.get([at[0], at[1], at[2] + offset as i64]);
                        *value = f32::from(u8::from(is_set));
                    }
                });
                continue;
            }
            if self.prompts.depths(channel, self.profile).is_none() {
                values.fill(0.0);
                continue;
            }
            let shape = self.image.shape();
            self.each_row(start, values, |at, row| {
                if !(0..2).all(|axis| usize::try_from(at[axis]).is_ok_and(|at| at < shape[axis])) {
                    row.fill(0.0);
                    return;
                }
                self.prompts.draw(channel, self.profile, at, row);
                clear_outside(row, at[2], shape[2]);
                row.iter_mut().for_each(|value| *value = self.prompts.normalised(*value));
            });
        }
    }

    /// Calls a function with the first voxel of each row of a patch, and the row.
    fn each_row(&self, start: [i64; 3], values: &mut [f32], mut call: impl FnMut([i64; 3], &mut [f32])) {
        let [_, height, width] = self.patch;
        for (number, row) in values.chunks_exact_mut(width).enumerate() {
            let (depth, height) = ((number / height) as i64, (number % height) as i64);
            call([start[0] + depth, start[1] + height, start[2]], row);
        }
    }

    /// Writes the input of a patch that is zoomed out.
    pub(crate) fn zoomed(&self, at: Zoomed, planes: &mut Planes, input: &mut [f32]) {
        let Zoomed { start, scaled, zoom } = at;
        let voxels: usize = self.patch.iter().product();
        let (image, channels) = input.split_at_mut(voxels);
        self.zoomed_image(at, image);
        for (channel, values) in channels.chunks_exact_mut(voxels).enumerate() {
            if channel == self.channels.previous {
                self.zoomed_previous(at, values);
                continue;
            }
            let radius = if self.channels.is_thin(channel) { dilation(zoom) / 2 } else { 0 };
            let (prompts, profile, image) = (self.prompts, self.profile, self.image.shape());
            let channel = ZoomedChannel { prompts, profile, channel, start, scaled, image, radius };
            planes.average(&channel, self.patch, values);
            values.iter_mut().for_each(|value| *value = self.prompts.normalised(*value));
        }
    }

    fn zoomed_image(&self, Zoomed { start, scaled, .. }: Zoomed, values: &mut [f32]) {
        let taps: [Vec<Tap>; 3] = std::array::from_fn(|axis| Tap::all(scaled[axis], self.patch[axis]));
        let voxel = |[d, h, w]: [usize; 3]| {
            self.image.get([start[0] + d as i64, start[1] + h as i64, start[2] + w as i64])
        };
        for (number, row) in values.chunks_exact_mut(self.patch[2]).enumerate() {
            let (depth, height) = (taps[0][number / self.patch[1]], taps[1][number % self.patch[1]]);
            for (value, width) in row.iter_mut().zip(&taps[2]) {
                *value = trilinear([depth, height, *width], voxel);
            }
        }
    }

    fn zoomed_previous(&self, Zoomed { start, scaled, .. }: Zoomed, values: &mut [f32]) {
        let [_, height, width] = self.patch;
        for (number, row) in values.chunks_exact_mut(width).enumerate() {
            let depths = window(scaled[0], self.patch[0], number / height);
            let heights = window(scaled[1], height, number % height);
            for (column, value) in row.iter_mut().enumerate() {
                let widths = window(scaled[2], width, column);
                let mut count = 0;
                for d in depths[0]..depths[1] {
                    for h in heights[0]..heights[1] {
                        for w in widths[0]..widths[1] {
                            let at = [start[0] + d as i64, start[1] + h as i64, start[2] + w as i64];
                            count += u32::from(self.previous.get(at));
                        }
                    }
                }
                let extents = [depths, heights, widths].map(|[from, past]| past - from);
                *value = HalfSum::of_ones(count).mean(extents);
            }
        }
    }

    /// The previous segmentation at a voxel of the network's patch, by the nearest neighbour.
    pub(crate) fn previous_at(&self, Zoomed { start, scaled, .. }: &Zoomed, place: [usize; 3]) -> bool {
        let at = |axis: usize| start[axis] + nearest(scaled[axis], self.patch[axis], place[axis]) as i64;
        self.previous.get([at(0), at(1), at(2)])
    }
}
