//! From a file to a normalised tensor, within memory that is reserved before the first image is read.
//!
//! An image is *prepared* by [`Step`]s that are the same each time, which end in one size: that may be kept in a
//! [`PreparedCache`](super::PreparedCache). A [`Recipe`] says how it is then augmented, and depends on seed, step and sample
//! alone. The result is a function of file, settings and recipe, whatever thread makes it.

mod recipe;
mod scratch;
mod settings;

use std::path::Path;

use plimsoll_memory::Bytes;

pub use recipe::{Augmentation, Blurring, Erasing, Recipe};
pub use scratch::{Largest, Scratch};
pub use settings::{PipelineSettings, Scale, Step};

use crate::pictures::PreparedCache;
use crate::pictures::SettingError;
use plimsoll_image::ImageError;
use plimsoll_image::ImageFile;
use plimsoll_image::process::affine::Interpolation;
use plimsoll_image::process::crop::CropBox;
use plimsoll_image::process::resize::Weights;
use plimsoll_image::process::tensor::ChannelScale;
use plimsoll_image::process::{affine, clahe::Clahe, crop, flip, gaussian, lab, resize, tensor};
use plimsoll_image::{Extent, Raster};
use scratch::Needs;

/// A pipeline for images up to a given size.
#[derive(Clone, Debug)]
pub struct Pipeline {
    settings: PipelineSettings,
    /// Rows and columns of each image in the end.
    extent: Extent,
    scales: Vec<ChannelScale>,
    /// For each step, the weights of its blur; empty for those without.
    kernels: Vec<Vec<u32>>,
    needs: Needs,
}

impl Pipeline {
    /// A pipeline for images up to `largest`.
    ///
    /// # Errors
    /// If a setting is out of range, or the steps do not end in one size.
    pub fn new(settings: PipelineSettings, largest: Largest) -> Result<Pipeline, SettingError> {
        let extent = settings.check()?;
        let kernels = settings.steps.iter().map(|step| match step {
            Step::BenGraham { sigma } => gaussian::opencv_kernel(*sigma),
            _ => Vec::new(),
        });
        Ok(Pipeline {
            extent,
            scales: settings.scales(),
            kernels: kernels.collect(),
            needs: Needs::new(&settings, extent, largest),
            settings,
        })
    }

    /// Rows and columns of each image in the end.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// 1 or 3.
    pub fn channels(&self) -> usize {
        self.settings.channels
    }

    /// The settings.
    pub fn settings(&self) -> &PipelineSettings {
        &self.settings
    }

    /// Elements of an output: channels × height × width.
    pub fn output_length(&self) -> usize {
        self.extent.pixels() * self.channels()
    }

    /// Bytes that a [`Scratch`] reserves, decoding included: what one thread takes.
    ///
    /// # Errors
    /// If they do not fit the address space.
    pub fn scratch_bytes(&self) -> Result<Bytes, SettingError> {
        Ok(self.needs.bytes()?)
    }

    pub(crate) fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Reads an image into `out`, `[channel][row][column]`. Mixing with another sample is left to the caller, who has the other:
    /// [`tensor::mix`].
    ///
    /// # Errors
    /// If the image cannot be read, is larger than those the pipeline was made for, or `out` has another length.
    pub fn load(
        &self,
        path: &Path,
        recipe: &Recipe,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), ImageError> {
        self.check_length(path, out.len())?;
        self.prepare(path, scratch)?;
        self.finish(recipe, scratch, out);
        Ok(())
    }

    /// Loads an image as [`load`](Self::load) does, with the prepared image of `case` from the cache; a new one
    /// is added to the cache if there is room.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_cached(
        &self,
        case: usize,
        path: &Path,
        cache: &PreparedCache,
        recipe: &Recipe,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), ImageError> {
        self.check_length(path, out.len())?;
        match cache.get(case) {
            Some(prepared) => {
                scratch.front[..self.output_length()].copy_from_slice(prepared);
            }
            None => {
                let prepared = self.prepare(path, scratch)?;
                cache.insert(case, prepared);
            }
        }
        self.finish(recipe, scratch, out);
        Ok(())
    }

    /// Decodes an image and runs the steps. Returns `[row][column][channel]` in the size of the pipeline.
    ///
    /// # Errors
    /// If the image cannot be read, or is larger than those the pipeline was made for.
    pub fn prepare<'a>(&self, path: &Path, scratch: &'a mut Scratch) -> Result<&'a [u8], ImageError> {
        let extent = self.decode(path, self.channels(), scratch)?.extent();
        (scratch.decoded, scratch.source) = (extent, CropBox { start: [0; 2], extent });
        let mut now = extent;
        for (step, kernel) in self.settings.steps.iter().zip(&self.kernels) {
            now = self.run(step, kernel, now, scratch);
        }
        Ok(&scratch.front[..self.output_length()])
    }

    /// Reads the mask of the image that was loaded last with this scratch: labels of a grey file with 8 bits. They are cropped,
    /// resized, moved and mirrored as the image was, each taking the label of the nearest; outside of the image they are 0.
    ///
    /// It is for masks of images that are brought to one size. Segmentation does not go through here: its patches, at any place of
    /// images of any size, are pulled from image and labels alike through one map, by `plimsoll-data`.
    ///
    /// # Errors
    /// If the mask cannot be read, is of another size than the image, has colours, or `labels` is not height × width.
    pub fn load_mask(
        &self,
        path: &Path,
        recipe: &Recipe,
        scratch: &mut Scratch,
        labels: &mut [u8],
    ) -> Result<(), ImageError> {
        let expected = self.extent.pixels();
        if labels.len() != expected {
            return Err(ImageError::Length { path: path.into(), found: labels.len(), expected });
        }
        let CropBox { start, extent: left } = scratch.source;
        let image = scratch.decoded;
        let file = self.decode(path, 1, scratch)?;
        let (found, header) = (file.extent(), file.header());
        if (header.channels, header.bits) != (1, 8) {
            let (channels, bits) = (header.channels, header.bits);
            return Err(ImageError::LabelSamples { path: path.into(), channels, bits });
        }
        if found != image {
            let (found_height, found_width) = (found.height, found.width);
            let (height, width) = (image.height, image.width);
            return Err(ImageError::MaskExtent {
                path: path.into(),
                found_height,
                found_width,
                height,
                width,
            });
        }
        let Scratch { front, back, .. } = scratch;
        fn grey(extent: Extent, samples: &[u8]) -> Raster<'_> {
            Raster { extent, channels: 1, samples }
        }
        let whole = &front[..found.pixels()];
        crop::crop(grey(found, whole), CropBox { start, extent: left }, back);
        let cropped = &back[..left.pixels()];
        resize::resize_nearest(grey(left, cropped), self.extent, front);
        let resized = &front[..expected];
        match &recipe.affine {
            Some(change) => {
                affine::pull(grey(self.extent, resized), change, Interpolation::Nearest, &[0], labels)
            }
            None => labels.copy_from_slice(resized),
        }
        if recipe.mirrored_columns {
            flip::horizontally(self.extent, 1, labels);
        }
        if recipe.mirrored_rows {
            flip::vertically(self.extent, 1, labels);
        }
        Ok(())
    }

    /// Decodes a file into the front buffer, with 1 or 3 channels.
    fn decode(&self, path: &Path, channels: usize, scratch: &mut Scratch) -> Result<ImageFile, ImageError> {
        let file = ImageFile::open(path, &self.settings.decode)?;
        let extent = file.extent();
        let largest = self.needs.largest;
        let memory = |source| ImageError::Memory {
            path: path.into(),
            height: extent.height,
            width: extent.width,
            source,
        };
        let decoding = file.decoding_bytes().map_err(memory)?;
        if extent.pixels() > largest.pixels
            || extent.longest() > largest.longest
            || decoding > largest.decoding
        {
            return Err(ImageError::LargerThanPlanned {
                path: path.into(),
                height: extent.height,
                width: extent.width,
                most: largest.pixels,
                longest: largest.longest,
            });
        }
        let decoded = file.decode(&scratch.decoding)?;
        let length = extent.pixels() * channels;
        decoded.write(&file, channels, &mut scratch.front[..length])?;
        drop(decoded);
        Ok(file)
    }

    /// Runs a step on the front buffer, whose extent before and after is given and returned.
    fn run(&self, step: &Step, kernel: &[u32], extent: Extent, scratch: &mut Scratch) -> Extent {
        let channels = self.channels();
        let length = extent.pixels() * channels;
        let Scratch { front, back, weights, spans, row, tables, source, .. } = scratch;
        let samples = &mut front[..length];
        match step {
            Step::CircleCrop { tolerance } => {
                let from = Raster { extent, channels, samples };
                let part = crop::exposed(from, *tolerance);
                crop::crop(from, part, back);
                std::mem::swap(front, back);
                let start = [source.start[0] + part.start[0], source.start[1] + part.start[1]];
                *source = CropBox { start, extent: part.extent };
                part.extent
            }
            Step::MaskDisc { share, fill } => {
                crop::mask_disc(extent, channels, *share, *fill, samples);
                extent
            }
            Step::Clahe { clip, tiles } => {
                let clahe = Clahe { clip: *clip, tiles: *tiles };
                let tables = &mut tables[..clahe.table_length()];
                if channels == 3 {
                    lab::from_rgb(samples);
                }
                clahe.apply(extent, channels, samples, tables);
                if channels == 3 {
                    lab::to_rgb(samples);
                }
                extent
            }
            Step::Resize { height, width, filter } => {
                let to = Extent { height: *height, width: *width };
                let from = Raster { extent, channels, samples };
                // The output takes the place of the input, which is not needed once the first axis is done.
                let mut weights = Weights::within(weights, spans);
                let narrowed = resize::columns(from, to.width, *filter, &mut weights, back);
                resize::rows(narrowed, to.height, *filter, &mut weights, front);
                to
            }
            Step::BenGraham { .. } => {
                let from = Raster { extent, channels, samples };
                let row = &mut row[..extent.width * channels];
                gaussian::ben_graham(from, kernel, row, back);
                std::mem::swap(front, back);
                extent
            }
        }
    }

    /// Augments and normalises the prepared image in the front buffer.
    fn finish(&self, recipe: &Recipe, scratch: &mut Scratch, out: &mut [f32]) {
        let (extent, channels) = (self.extent, self.channels());
        let length = self.output_length();
        let Scratch { front, back, row, kernel, .. } = scratch;
        if let Some(change) = &recipe.affine {
            let samples = &front[..length];
            let from = Raster { extent, channels, samples };
            affine::pull(from, change, self.settings.interpolation, &self.settings.fill, back);
            std::mem::swap(front, back);
        }
        let samples = &mut front[..length];
        if recipe.mirrored_columns {
            flip::horizontally(extent, channels, samples);
        }
        if recipe.mirrored_rows {
            flip::vertically(extent, channels, samples);
        }
        for change in recipe.colours.iter().flatten() {
            change.apply(channels, samples);
        }
        if let Some(sigma) = recipe.blur {
            let row = bytemuck::cast_slice_mut(&mut row[..extent.width * channels]);
            gaussian::torchvision_blur(Raster { extent, channels, samples }, sigma, kernel, row, back);
            std::mem::swap(front, back);
        }
        let samples = &front[..length];
        tensor::normalise(Raster { extent, channels, samples }, &self.scales, out);
        if let Some(erasure) = &recipe.erasure {
            tensor::erase(erasure, extent, out);
        }
    }

    fn check_length(&self, path: &Path, found: usize) -> Result<(), ImageError> {
        let expected = self.output_length();
        if found == expected {
            return Ok(());
        }
        Err(ImageError::Length { path: path.into(), found, expected })
    }
}
