//! A picture of a prediction beside its reference: slices through the largest error, with the outlines of both.

use std::path::Path;

use embedded_graphics::mono_font::iso_8859_1::FONT_7X13;
use embedded_graphics::text::Alignment;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Content, LabelValues};

use super::foreground::{Classes, Compared};
use super::layout::{Frame, Panel, Plane, Window, arrange};
use super::slice::{Greys, pull};
use super::source::Source;
use super::{BEHIND, check_same_shape};
use crate::error::{Outcome, Pair, ReportError};
use crate::progress_picture::canvas::{Canvas, Colour};

/// Colours of outlines with what they stand for; of pixels that are at both outlines the last.
const OUTLINES: [(Colour, &str); 3] =
    [([60, 220, 90], "reference"), ([255, 90, 30], "prediction"), ([255, 230, 60], "both")];
const INK: Colour = [225, 228, 232];

/// Pixels of the legend: a line down, and an entry across.
const LINE: usize = 20;
const ENTRY: usize = 108;
const SQUARE: f64 = 11.0;

/// The files of a case.
pub struct Comparison<'a> {
    /// The image.
    pub image: &'a Path,
    /// The label map that is right.
    pub reference: &'a Path,
    /// The class that each value of the reference denotes, or `None` if values are the numbers of classes.
    pub reference_values: Option<&'a LabelValues>,
    /// The label map that is compared with it.
    pub prediction: &'a Path,
    /// The class of the reference whose voxels are neither right nor wrong, and not outlined.
    pub ignore: Option<u8>,
    /// The same of the prediction.
    pub prediction_values: Option<&'a LabelValues>,
}

/// Draws the axial, the coronal and the sagittal slice that have the most voxels that are wrong, or if none is, the most labels, as a PNG.
/// Slices are in true proportions, anterior or the head up and the patient's right on the left; a plain image is drawn as it is stored.
pub fn comparison(files: &Comparison<'_>, frame: Frame, budget: &Budget) -> Outcome<Vec<u8>> {
    let mut reference = Classes {
        source: Source::labels(files.reference, files.image, budget)?,
        values: files.reference_values,
    };
    let mut prediction = Classes {
        source: Source::labels(files.prediction, files.image, budget)?,
        values: files.prediction_values,
    };
    let geometry = *reference.source.geometry();
    let [expected, found] = [geometry.shape(), prediction.source.geometry().shape()];
    if found != expected {
        return Err(ReportError::Shapes {
            file: files.prediction.into(),
            shape: found,
            other: files.reference.into(),
            other_shape: expected,
            of: Pair::PredictionAndReference,
        });
    }
    let is_picture = check_same_shape(files.reference, &geometry, files.image)?;
    let found = Compared::find([&mut reference, &mut prediction], files.ignore, budget)?;
    let around = |plane: Plane| {
        Window::around(plane, found.slice(plane.axis()), &geometry, &found.labelled, is_picture)
    };
    let windows: Vec<Window> = Plane::shown_for(&geometry, is_picture).into_iter().map(around).collect();
    let layout = arrange(&windows, frame);
    let sized: Vec<(&Window, [usize; 2])> =
        windows.iter().zip(&layout.panels).map(|(window, panel)| (window, panel.size)).collect();
    let pixels: usize = layout.panels.iter().map(|panel| panel.size[0] * panel.size[1]).sum();
    let _classes = budget.reserve("a picture", Bytes::from_len(2 * pixels * size_of::<u16>()))?;
    let labels = |mut of: Classes<'_>| -> Outcome<Vec<Vec<u16>>> {
        let pulled = pull(&mut of.source, Content::Labels, &sized, budget)?;
        Ok(pulled.iter().map(|slice| slice.iter().map(|value| of.class(*value)).collect()).collect())
    };
    // One after the other: what holds a file whole is not there together with the next.
    let (mut reference, mut prediction) = (labels(reference)?, labels(prediction)?);
    if let Some(ignore) = files.ignore.map(u16::from) {
        for (reference, prediction) in reference.iter_mut().flatten().zip(prediction.iter_mut().flatten()) {
            if *reference == ignore {
                (*reference, *prediction) = (0, 0);
            }
        }
    }
    let values = pull(&mut Source::image(files.image, budget)?, Content::Intensities, &sized, budget)?;
    let per_line = (layout.size[1] / ENTRY).clamp(1, OUTLINES.len());
    let lines = OUTLINES.len().div_ceil(per_line);
    let [height, width] = [layout.size[0] + lines * LINE + LINE / 2, layout.size[1].max(ENTRY)];
    let _canvas = budget.reserve("a picture", Bytes::from_len(2 * 3 * height * width))?;
    let mut canvas = Canvas::new(width, height);
    canvas.fill([0.0, 0.0], [width as f64, height as f64], BEHIND, 1.0);
    let greys = Greys::new(&values.iter().map(|slice| &slice[..]).collect::<Vec<_>>(), budget)?;
    for (place, panel) in layout.panels.iter().enumerate() {
        let shown =
            Shown { values: &values[place], outlined: [&reference[place], &prediction[place]], greys };
        shown.draw(panel, &mut canvas);
    }
    for (place, (colour, what)) in OUTLINES.into_iter().enumerate() {
        let left = (8 + place % per_line * ENTRY) as f64;
        let top = (layout.size[0] + LINE / 2 + place / per_line * LINE) as f64;
        canvas.fill([left, top], [left + SQUARE, top + SQUARE], colour, 1.0);
        canvas.text(what, [left + SQUARE + 6.0, top + SQUARE - 1.0], &FONT_7X13, INK, Alignment::Left);
    }
    canvas.png().map_err(ReportError::Pixels)
}

/// A slice that is drawn.
struct Shown<'a> {
    values: &'a [f32],
    /// The classes of the reference and of the prediction.
    outlined: [&'a [u16]; 2],
    greys: Greys,
}

impl Shown<'_> {
    fn draw(&self, panel: &Panel, canvas: &mut Canvas) {
        for (place, value) in self.values.iter().enumerate() {
            let (row, column) = (place / panel.size[1], place % panel.size[1]);
            let outlines = self.outlined.map(|classes| is_outline(classes, panel.size, [row, column]));
            let colour = match outlines {
                [true, true] => OUTLINES[2].0,
                [true, false] => OUTLINES[0].0,
                [false, true] => OUTLINES[1].0,
                [false, false] => [self.greys.grey(*value); 3],
            };
            let [top, left] = [(panel.at[0] + row) as f64, (panel.at[1] + column) as f64];
            canvas.fill([left, top], [left + 1.0, top + 1.0], colour, 1.0);
        }
    }
}

/// Returns `true` if a pixel is at the rim of its class: where one beside it is of another.
fn is_outline(classes: &[u16], [height, width]: [usize; 2], [row, column]: [usize; 2]) -> bool {
    let class = classes[row * width + column];
    let rows = row.saturating_sub(1)..=(row + 1).min(height - 1);
    class != 0
        && rows
            .flat_map(|r| {
                let columns = column.saturating_sub(1)..=(column + 1).min(width - 1);
                columns.map(move |c| classes[r * width + c])
            })
            .any(|other| other != class)
}
