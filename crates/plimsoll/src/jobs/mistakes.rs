//! The images with the largest classification errors and the regions that explain them: a sheet of pictures, as SVG.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_data::pictures::ImageDataset;
use plimsoll_image::Extent;
use plimsoll_infer::{ImageExplainer, Question};
use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_report::picture::write_png;
use plimsoll_report::svg::{Anchor, Drawing, Point, text, write_picture};
use plimsoll_run::{ClassificationTask, ImageTarget, LABEL_THRESHOLD};
use serde::Serialize;

use crate::context::Context;
use crate::error::Outcome;
use crate::files::write;

/// The height of a picture on the sheet, in pixels.
const HEIGHT: f64 = 224.0;
const GAP: f64 = 16.0;
/// Above a row, for the name of the image; below, for what the pictures show; above all rows, for the title.
const NAME: f64 = 26.0;
const CAPTION: f64 = 24.0;
const TITLE: f64 = 64.0;
/// Tables and windows of the compressor of pictures.
const COMPRESSOR: Bytes = Bytes(1 << 20);
/// The opacity of a map at its largest value.
const MOST_COVERED: f32 = 0.65;
/// The colour of a map where it is least, and where it is largest.
const HEAT: [[f32; 3]; 2] = [[255.0, 225.0, 60.0], [225.0, 20.0, 20.0]];

/// The misclassified images of a prediction.
#[derive(Serialize)]
pub struct Mistakes {
    /// The number of misclassified images.
    pub found: usize,
    /// The file of the drawing; `None` if no image is wrong.
    pub file: Option<PathBuf>,
}

/// An image that a classifier is wrong about.
#[derive(Debug, PartialEq)]
pub struct Mistake {
    /// Its place among all.
    image: usize,
    /// The difference between the probability and its target.
    error: f64,
    /// The indices of the classes that are shown, each with its caption.
    shown: Vec<(usize, String)>,
}

/// The memory of a mistake, its captions included.
const BYTES: usize = 512;

/// The images that a classifier is most wrong about.
pub struct Worst {
    /// The number of misclassified images.
    pub found: usize,
    /// The worst, the worst of all first.
    pub mistakes: Vec<Mistake>,
    _memory: Reservation,
}

impl Worst {
    /// Those that are given another class or other labels than they have, `most` at most; those at places that are `left_out`, in
    /// rising order, are not looked at. Probabilities are `[image][class]`.
    pub fn find(
        images: &ImageDataset,
        task: &ClassificationTask,
        probabilities: &[f64],
        left_out: &[usize],
        most: usize,
        budget: &Budget,
    ) -> Outcome<Worst> {
        let bytes = most.min(images.cases.len()).saturating_mul(BYTES);
        let memory = budget.reserve("pictures", Bytes::from_len(bytes))?;
        let classes: Vec<&str> = task.classes().collect();
        let (mut found, mut mistakes) = (0, Vec::new());
        let rows = images.cases.iter().zip(probabilities.chunks_exact(classes.len()));
        for (image, (case, row)) in
            rows.enumerate().filter(|(image, _)| left_out.binary_search(image).is_err())
        {
            let names = case.labels.iter().filter_map(|label| images.classes.get(*label as usize));
            let labels: Vec<usize> =
                names.filter_map(|name| classes.iter().position(|class| class == name)).collect();
            let wrong = match task.target {
                ImageTarget::AnyOf => label_error(&classes, &labels, row),
                ImageTarget::OneOf | ImageTarget::Ordinal => class_error(&classes, &labels, row, task),
            };
            let Some((error, shown)) = wrong else { continue };
            found += 1;
            // Behind those that are as wrong.
            let at = mistakes.partition_point(|known: &Mistake| known.error >= error);
            if at < most {
                mistakes.insert(at, Mistake { image, error, shown });
                mistakes.truncate(most);
            }
        }
        Ok(Worst { found, mistakes, _memory: memory })
    }
}

/// The error of an image of one class, with the predicted and the true class. `None` if it is right, or the network does not know its
/// class.
fn class_error(
    classes: &[&str],
    labels: &[usize],
    row: &[f64],
    task: &ClassificationTask,
) -> Option<(f64, Vec<(usize, String)>)> {
    let (label, given) = (*labels.first()?, task.given(row).next()?);
    let said = |place: usize, what: &str| (place, format!("{what} {}: {:.3}", classes[place], row[place]));
    (label != given).then(|| (1.0 - row[label], vec![said(given, "given"), said(label, "is")]))
}

/// The largest error of an image of several labels. `None` if all labels are right.
fn label_error(classes: &[&str], labels: &[usize], row: &[f64]) -> Option<(f64, Vec<(usize, String)>)> {
    let errors = row.iter().enumerate().filter_map(|(place, probability)| {
        let has = labels.contains(&place);
        let what = if has { "not given" } else { "given" };
        let error = if has { 1.0 - probability } else { *probability };
        let is_wrong = has != (*probability >= LABEL_THRESHOLD);
        is_wrong.then(|| (error, vec![(place, format!("{what} {}: {probability:.3}", classes[place]))]))
    });
    errors.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The worst mistakes, ready to be drawn.
pub struct Sheet<'a> {
    explainer: ImageExplainer,
    mistakes: &'a [Mistake],
    images: &'a ImageDataset,
    /// `[mistake, shown class][row][column]`
    maps: Mapped<f32>,
    /// A picture in red, green and blue.
    picture: Mapped<u8>,
    /// The memory of the compressed picture.
    _compressed: Reservation,
}

impl<'a> Sheet<'a> {
    /// Asks the network about each class that is shown.
    pub fn new(
        mut explainer: ImageExplainer,
        mistakes: &'a [Mistake],
        images: &'a ImageDataset,
        context: &Context,
        budget: &Budget,
    ) -> Outcome<Sheet<'a>> {
        let of_mistake = |mistake: &'a Mistake| {
            let case = &images.cases[mistake.image];
            let question = move |shown: &(usize, String)| Question {
                name: &case.name,
                path: &case.path,
                class: shown.0,
            };
            mistake.shown.iter().map(question)
        };
        let questions: Vec<Question<'_>> = mistakes.iter().flat_map(of_mistake).collect();
        let count = questions.len() * explainer.map_extent().pixels();
        let mut maps = Mapped::zeroed(budget, "pictures", count)?;
        let samples = 3 * explainer.image_extent().pixels();
        let picture = Mapped::zeroed(budget, "pictures", samples)?;
        let compressed = budget.reserve("pictures", Bytes::from_len(samples) + COMPRESSOR)?;
        let progress = context.work("explaining", questions.len() as u64);
        let done =
            &mut |done: usize, of: usize| progress.set((done * questions.len() / of) as u64, String::new());
        let made = explainer.maps(&questions, &mut maps, context.stop.flag(), done);
        drop(progress);
        made?;
        Ok(Sheet { explainer, mistakes, images, maps, picture, _compressed: compressed })
    }

    /// Writes a row for each mistake: the image as the network takes it, and the same with each map over it.
    pub fn write(mut self, title: &str, path: &Path) -> Outcome {
        let extent = self.explainer.image_extent();
        let width = HEIGHT * extent.width as f64 / extent.height as f64;
        let row_height = NAME + HEIGHT + CAPTION + GAP;
        let most = 1 + self.mistakes.iter().map(|mistake| mistake.shown.len()).max().unwrap_or(0);
        let all_width = GAP + most as f64 * (width + GAP);
        let all_height = TITLE + row_height * self.mistakes.len() as f64;
        let mut drawing = Drawing::scalable([all_width.round(), all_height])
            .set("font-family", "sans-serif")
            .set("font-size", 12.0);
        drawing = drawing.on_white();
        let heading = text([GAP, 26.0], Anchor::Start, title).set("font-size", 15.0);
        drawing.push(heading.set("font-weight", "bold"));
        let legend = text([GAP, 46.0], Anchor::Start, "red: evidence for the class (Grad-CAM)");
        drawing.push(legend.set("fill", "#555"));
        write(path, |to| {
            drawing.stream(to, &mut |to| {
                let mut map = 0;
                for (place, mistake) in self.mistakes.iter().enumerate() {
                    let y = TITLE + row_height * place as f64;
                    let case = &self.images.cases[mistake.image];
                    let name = text([GAP, y + 16.0], Anchor::Start, &case.name);
                    writeln!(to, "{}", name.set("font-weight", "bold"))?;
                    let at = |column: usize| PictureFrame {
                        corner: [GAP + column as f64 * (width + GAP), y + NAME],
                        size: [width, HEIGHT],
                    };
                    self.write_picture(&case.path, None, &at(0), "the image", to)?;
                    for (column, (_, caption)) in mistake.shown.iter().enumerate() {
                        self.write_picture(&case.path, Some(map), &at(column + 1), caption, to)?;
                        map += 1;
                    }
                }
                Ok(())
            })
        })
    }

    /// Writes an image, with a map over it.
    fn write_picture(
        &mut self,
        path: &Path,
        map: Option<usize>,
        at: &PictureFrame,
        caption: &str,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let (extent, channels) = (self.explainer.image_extent(), self.explainer.image_channels());
        let map_extent = self.explainer.map_extent();
        let image = self.explainer.image(path).map_err(io::Error::other)?;
        let map = map.map(|place| &self.maps[place * map_extent.pixels()..][..map_extent.pixels()]);
        let largest = map.map_or(0.0, |map| map.iter().copied().fold(0.0, f32::max));
        for (pixel, (to, from)) in
            self.picture.chunks_exact_mut(3).zip(image.chunks_exact(channels)).enumerate()
        {
            let at = [pixel / extent.width, pixel % extent.width];
            let heat = map
                .filter(|_| largest > 0.0)
                .map_or(0.0, |map| between(map, map_extent, at, extent) / largest);
            for (channel, to) in to.iter_mut().enumerate() {
                // A grey image has one channel for all three.
                let sample = f32::from(from[channel % channels]);
                let colour = HEAT[0][channel] + heat * (HEAT[1][channel] - HEAT[0][channel]);
                let covered = MOST_COVERED * heat;
                *to = (sample + covered * (colour - sample)).round() as u8;
            }
        }
        let PictureFrame { corner, size } = *at;
        write_picture(to, corner, size, |to| write_png(to, [extent.height, extent.width], &self.picture))?;
        let nothing = if map.is_some() && largest <= 0.0 { " (no evidence)" } else { "" };
        let below = [corner[0], corner[1] + HEIGHT + 16.0];
        writeln!(to, "{}", text(below, Anchor::Start, &format!("{caption}{nothing}")))
    }
}

/// The position and the size of a picture on the sheet.
struct PictureFrame {
    corner: Point,
    size: [f64; 2],
}

/// The value of a map `[row][column]` at a pixel of an image that it covers: linear between the middles of its own pixels.
fn between(map: &[f32], of: Extent, [row, column]: [usize; 2], image: Extent) -> f32 {
    let along = |at: usize, from: usize, to: usize| {
        let middle = ((at as f32 + 0.5) * to as f32 / from as f32 - 0.5).clamp(0.0, to as f32 - 1.0);
        let first = middle as usize;
        (first, (first + 1).min(to - 1), middle - first as f32)
    };
    let (top, bottom, down) = along(row, image.height, of.height);
    let (left, right, across) = along(column, image.width, of.width);
    let line = |row: usize| {
        let [a, b] = [left, right].map(|column| map[row * of.width + column]);
        a + across * (b - a)
    };
    line(top) + down * (line(bottom) - line(top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_linear_between_its_pixels_and_constant_beyond_them() {
        let (map, of, image) = ([0.0, 4.0], Extent { height: 1, width: 2 }, Extent { height: 1, width: 4 });
        let found: Vec<f32> = (0..4).map(|column| between(&map, of, [0, column], image)).collect();
        assert_eq!(found, [0.0, 1.0, 3.0, 4.0]);
    }

    #[test]
    fn the_worst_of_several_labels_is_shown() {
        let classes = ["blur", "spots"];
        assert_eq!(label_error(&classes, &[1], &[0.4, 0.6]), None);
        let (error, shown) = label_error(&classes, &[1], &[0.7, 0.2]).unwrap();
        assert_eq!((error, shown), (0.8, vec![(1, "not given spots: 0.200".to_string())]));
    }
}
