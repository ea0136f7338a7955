//! A slice of an image and of its labels, pixel by pixel.

use std::path::Path;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{Content, Outside, SourceBlock, VoxelBox, pull_linear, pull_nearest};

use super::layout::Window;
use super::source::Source;
use super::{Colours, FILLED, OUTLINED};
use crate::error::{Outcome, ReportError};
use crate::progress_picture::canvas::Canvas;

/// The brightest grey, below which colours stand out.
const BRIGHTEST: f32 = 205.0;

/// The intensities that are drawn as black and as bright, the same for all slices of a picture.
#[derive(Clone, Copy)]
pub struct Greys {
    low: f32,
    scale: f32,
}

impl Greys {
    /// From the 1st to the 99th percentile of all that is shown and finite; all is black where there is nothing between them.
    pub fn new(slices: &[&[f32]], budget: &Budget) -> Outcome<Greys> {
        let finite = || slices.iter().flat_map(|slice| slice.iter()).filter(|value| value.is_finite());
        // Of none at least the one 0 is there, and all is black.
        let mut sorted = Mapped::<f32>::zeroed(budget, "a picture", finite().count().max(1))?;
        sorted.iter_mut().zip(finite()).for_each(|(to, value)| *to = *value);
        sorted.sort_unstable_by(f32::total_cmp);
        let at = |percent: usize| sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied();
        Ok(match at(1).zip(at(99)) {
            Some((low, high)) if high > low => Greys { low, scale: BRIGHTEST / (high - low) },
            _ => Greys { low: 0.0, scale: 0.0 },
        })
    }

    /// Returns the grey value of an intensity.
    pub fn grey(self, value: f32) -> u8 {
        ((value - self.low) * self.scale).clamp(0.0, BRIGHTEST) as u8
    }
}

/// A slice that is drawn.
pub struct Slice {
    size: [usize; 2],
    /// Intensities.
    pub values: Mapped<f32>,
    /// The label of each pixel.
    pub labels: Vec<u16>,
}

impl Slice {
    /// Reads what windows show of the image in a file and of its labels, with so many rows and columns. The image is opened once the labels
    /// are closed, so that what holds them whole is never there together.
    pub fn read_all(
        image: &Path,
        mut labels: Source,
        windows: &[(&Window, [usize; 2])],
        budget: &Budget,
    ) -> Outcome<Vec<Slice>> {
        let of_labels = pull(&mut labels, Content::Labels, windows, budget)?;
        drop(labels);
        let values = pull(&mut Source::image(image, budget)?, Content::Intensities, windows, budget)?;
        let sizes = windows.iter().map(|(_, size)| *size);
        let slices = values.into_iter().zip(of_labels).zip(sizes).map(|((values, labels), size)| {
            // Labels are whole numbers of 16 bits.
            let labels = labels.iter().map(|value| *value as u16).collect();
            Slice { size, values, labels }
        });
        Ok(slices.collect())
    }

    /// Draws it with its upper left pixel at a place.
    pub fn draw(&self, canvas: &mut Canvas, at: [usize; 2], greys: Greys, colours: &Colours<'_>) {
        let width = self.size[1];
        for (place, (value, label)) in self.values.iter().zip(&self.labels).enumerate() {
            let (row, column) = (place / width, place % width);
            let [top, left] = [(at[0] + row) as f64, (at[1] + column) as f64];
            let end = [left + 1.0, top + 1.0];
            canvas.fill([left, top], end, [greys.grey(*value); 3], 1.0);
            if *label != 0 {
                let share = if self.is_outline(row, column, *label) { OUTLINED } else { FILLED };
                canvas.fill([left, top], end, colours.colour(*label), share);
            }
        }
    }

    /// Returns `true` if a pixel touches one of another label.
    fn is_outline(&self, row: usize, column: usize, label: u16) -> bool {
        let [height, width] = self.size;
        let differs = |row: usize, column: usize| {
            self.labels
                .get(row.min(height - 1) * width + column.min(width - 1))
                .is_some_and(|other| *other != label)
        };
        differs(row.saturating_sub(1), column)
            || differs(row + 1, column)
            || differs(row, column.saturating_sub(1))
            || differs(row, column + 1)
    }
}

/// Samples of windows: linear of intensities, the nearest of labels.
pub fn pull(
    source: &mut Source,
    content: Content,
    windows: &[(&Window, [usize; 2])],
    budget: &Budget,
) -> Outcome<Vec<Mapped<f32>>> {
    let path = source.path().to_path_buf();
    let wrong =
        |error: &dyn std::fmt::Display| ReportError::Slice { file: path.clone(), reason: error.to_string() };
    let shape = source.geometry().shape();
    let region = |(window, size): &(&Window, [usize; 2])| {
        let region = window.map(*size).clamped_source_box([1, size[0], size[1]], shape, 1);
        region.unwrap_or(VoxelBox::whole(shape))
    };
    let regions: Vec<VoxelBox> = windows.iter().map(region).collect();
    let read = source.regions(&regions, budget)?;
    let mut pulled = Vec::with_capacity(windows.len());
    for (((window, size), region), voxels) in windows.iter().zip(regions).zip(read) {
        let block = SourceBlock::new(&voxels[..], region, shape).map_err(|error| wrong(&error))?;
        let (out_shape, map) = ([1, size[0], size[1]], window.map(*size));
        let mut values = Mapped::<f32>::zeroed(budget, "a slice", size[0] * size[1])?;
        match content {
            Content::Intensities => pull_linear(&block, &map, out_shape, Outside::Clamp, &mut values),
            Content::Labels | Content::Segments { .. } => {
                pull_nearest(&block, &map, out_shape, Outside::Clamp, &mut values)
            }
        }
        .map_err(|error| wrong(&error))?;
        pulled.push(values);
    }
    Ok(pulled)
}
