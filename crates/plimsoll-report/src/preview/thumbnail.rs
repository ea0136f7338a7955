//! A small picture of a case: the axial slice with the most labelled voxels.

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::VolumeFile;

use super::foreground::Foreground;
use super::layout::{Plane, Window};
use super::slice::{Greys, Slice};
use super::source::Source;
use super::{BEHIND, Colours, Files};
use crate::error::{Outcome, ReportError};
use crate::progress_picture::canvas::Canvas;

/// Draws a case as a PNG whose longer side has `side` pixels.
pub fn thumbnail(files: &Files<'_>, side: usize, budget: &Budget) -> Outcome<Vec<u8>> {
    let mut labels = Source::labels(files.labels, files.image, budget)?;
    let geometry = *labels.geometry();
    let is_picture = VolumeFile::open(files.image)?.is_picture();
    let found = Foreground::find(&mut labels, budget)?;
    let plane = Plane::shown_for(&geometry, is_picture).first().copied().unwrap_or(Plane::across(0));
    let window = Window::around(plane, found.slice(plane.axis()), &geometry, &found, is_picture);
    let [down, right] = window.extent();
    let size = [down, right].map(|length| ((length / down.max(right) * side as f64).round() as usize).max(1));
    // The picture, what it is written from, and the labels of its pixels.
    let _held = budget.reserve("a picture", Bytes::from_len(size[0] * size[1] * 10))?;
    let slices = Slice::read_all(files.image, labels, &[(&window, size)], budget)?;
    let mut canvas = Canvas::new(size[1], size[0]);
    canvas.fill([0.0, 0.0], [size[1] as f64, size[0] as f64], BEHIND, 1.0);
    let greys = Greys::new(&slices.iter().map(|slice| &slice.values[..]).collect::<Vec<_>>(), budget)?;
    let colours = Colours::new(files.names);
    slices.iter().for_each(|slice| slice.draw(&mut canvas, [0, 0], greys, &colours));
    canvas.png().map_err(ReportError::Pixels)
}
