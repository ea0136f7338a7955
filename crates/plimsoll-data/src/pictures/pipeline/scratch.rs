//! The memory that one thread needs, computed from settings and the largest image before anything is read.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use serde::{Deserialize, Serialize};

use super::Pipeline;
use super::settings::{PipelineSettings, Step};
use crate::pictures::SettingError;
use plimsoll_image::Extent;
use plimsoll_image::ImageFile;
use plimsoll_image::process::crop::CropBox;
use plimsoll_image::process::{clahe::Clahe, resize};

/// The largest images of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Largest {
    /// The most pixels.
    pub pixels: usize,
    /// The longest side.
    pub longest: usize,
    /// The most bytes that decoding takes.
    pub decoding: Bytes,
}

impl Largest {
    /// Includes an image, or a mask, whose header alone was read.
    ///
    /// # Errors
    /// If decoding it does not fit the address space.
    pub fn include(&mut self, file: &ImageFile) -> Result<(), MapError> {
        self.pixels = self.pixels.max(file.extent().pixels());
        self.longest = self.longest.max(file.extent().longest());
        self.decoding = self.decoding.max(file.decoding_bytes()?);
        Ok(())
    }
}

/// Elements of each buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) largest: Largest,
    canvas: usize,
    weights: usize,
    spans: usize,
    row: usize,
    tables: usize,
    kernel: usize,
}

impl Needs {
    pub(crate) fn new(settings: &PipelineSettings, end: Extent, largest: Largest) -> Needs {
        let channels = settings.channels;
        let mut needs = Needs {
            largest,
            canvas: largest.pixels.max(end.pixels()).saturating_mul(channels),
            weights: 0,
            spans: 0,
            row: end.width.saturating_mul(channels),
            tables: 0,
            kernel: settings.blur_size,
        };
        let mut widest = largest.longest;
        for step in &settings.steps {
            match step {
                Step::CircleCrop { .. } | Step::MaskDisc { .. } => {}
                Step::Clahe { clip, tiles } => {
                    needs.tables = needs.tables.max(Clahe { clip: *clip, tiles: *tiles }.table_length());
                }
                Step::Resize { height, width, filter } => {
                    // Between the axes the image is as high as before and as wide as after.
                    let between = largest.longest.saturating_mul(*width).saturating_mul(channels);
                    needs.canvas = needs.canvas.max(between);
                    for side in [*height, *width] {
                        let (weights, spans) = resize::lengths(largest.longest, side, *filter);
                        needs.weights = needs.weights.max(weights);
                        needs.spans = needs.spans.max(spans);
                    }
                    widest = *width;
                }
                Step::BenGraham { .. } => needs.row = needs.row.max(widest.saturating_mul(channels)),
            }
        }
        needs
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> Result<Bytes, MapError> {
        let canvas = Mapped::<u8>::bytes(self.canvas)?;
        Ok(canvas
            + canvas
            + Mapped::<i32>::bytes(self.weights)?
            + Mapped::<[u32; 2]>::bytes(self.spans)?
            + Mapped::<u32>::bytes(self.row)?
            + Mapped::<u8>::bytes(self.tables)?
            + Mapped::<f32>::bytes(self.kernel)?
            + self.largest.decoding)
    }
}

/// The buffers of one thread.
#[derive(Debug)]
pub struct Scratch {
    /// The image, and where the next step writes it; they are exchanged.
    pub(crate) front: Mapped<u8>,
    pub(crate) back: Mapped<u8>,
    pub(crate) weights: Mapped<i32>,
    pub(crate) spans: Mapped<[u32; 2]>,
    pub(crate) row: Mapped<u32>,
    pub(crate) tables: Mapped<u8>,
    pub(crate) kernel: Mapped<f32>,
    /// The extent of the image that was prepared last, as decoded.
    pub(crate) decoded: Extent,
    /// The part of it that crops left.
    pub(crate) source: CropBox,
    /// The budget for decoding files.
    pub(crate) decoding: Budget,
}

impl Scratch {
    /// Reserves [`Pipeline::scratch_bytes`].
    ///
    /// # Errors
    /// If the budget has no room.
    pub fn new(pipeline: &Pipeline, budget: &Budget) -> Result<Scratch, SettingError> {
        const HOLDER: &str = "image pipeline";
        let needs = pipeline.needs();
        Ok(Scratch {
            front: Mapped::zeroed(budget, HOLDER, needs.canvas)?,
            back: Mapped::zeroed(budget, HOLDER, needs.canvas)?,
            weights: Mapped::zeroed(budget, HOLDER, needs.weights)?,
            spans: Mapped::zeroed(budget, HOLDER, needs.spans)?,
            row: Mapped::zeroed(budget, HOLDER, needs.row)?,
            tables: Mapped::zeroed(budget, HOLDER, needs.tables)?,
            kernel: Mapped::zeroed(budget, HOLDER, needs.kernel)?,
            decoded: Extent { height: 0, width: 0 },
            source: CropBox { start: [0; 2], extent: Extent { height: 0, width: 0 } },
            decoding: budget.part("decoding of images", needs.largest.decoding)?,
        })
    }
}
