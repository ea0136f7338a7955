//! A picture of a label map over its image: three slices through the labels, in true proportions, with the labels filled and outlined in
//! colours, and their names below.

mod comparison;
mod foreground;
mod layout;
mod legend;
mod shrunk;
mod slice;
mod source;
mod thumbnail;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Geometry, LabelTable, VolumeFile, label_colour};

use self::foreground::Foreground;
use self::layout::{Plane, Window, arrange};
use self::slice::{Greys, Slice};
use self::source::Source;
use crate::error::{Outcome, Pair, ReportError};
use crate::progress_picture::canvas::{Canvas, Colour};

pub use comparison::{Comparison, comparison};
pub use layout::Frame;
pub use shrunk::{Small, shrunk_image, shrunk_labels};
pub use thumbnail::thumbnail;

/// The share of a label's colour in what it fills, and at its outline.
const FILLED: f64 = 0.38;
const OUTLINED: f64 = 0.95;

/// The background colour.
const BEHIND: Colour = [16, 18, 22];

/// The endings of label maps, which are removed from the name of a preview.
const ENDINGS: [&str; 9] = [".nii.gz", ".nii", ".seg.nrrd", ".nrrd", ".mha", ".dcm", ".png", ".tif", ".tiff"];

/// The ending of previews.
pub const PREVIEW: &str = ".preview.png";

/// Returns the path of the preview of a label map: beside it, `CASE.preview.png`.
pub fn preview_of(labels: &Path) -> PathBuf {
    beside(labels, PREVIEW)
}

/// Returns the path of another file of a label map: beside it, with its name and another ending.
pub fn beside(labels: &Path, other_ending: &str) -> PathBuf {
    let name = labels.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let lower = name.to_ascii_lowercase();
    let ending = ENDINGS.iter().find(|ending| lower.ends_with(*ending)).map_or(0, |ending| ending.len());
    let stem = name.get(..name.len() - ending).unwrap_or(&name);
    labels.with_file_name(format!("{stem}{other_ending}"))
}

/// A label map, its image and the names of its labels.
pub struct Files<'a> {
    /// The image.
    pub image: &'a Path,
    /// The label map.
    pub labels: &'a Path,
    /// The names of its labels.
    pub names: &'a LabelTable,
}

/// Colours of labels by their values.
struct Colours<'a> {
    names: BTreeMap<u16, (usize, &'a str)>,
}

impl<'a> Colours<'a> {
    fn new(names: &'a LabelTable) -> Colours<'a> {
        let numbered = (0..).zip(&names.labels);
        Colours { names: numbered.map(|(place, (label, name))| (*label, (place, name.as_str()))).collect() }
    }

    /// The colour of a label: by its place among those that have names, as in the headers of label maps, or else by its value.
    fn colour(&self, label: u16) -> Colour {
        let place = self.names.get(&label).map_or(usize::from(label), |(place, _)| *place);
        label_colour(place).map(|part| (part * 255.0).round() as u8)
    }

    fn name(&self, label: u16) -> String {
        self.names.get(&label).map_or_else(|| format!("label {label}"), |(_, name)| (*name).to_string())
    }
}

/// Checks that an image has the shape of its labels, and returns `true` if it is a picture.
fn check_same_shape(labels: &Path, geometry: &Geometry, image: &Path) -> Outcome<bool> {
    let file = VolumeFile::open(image)?;
    let [expected, found] = [geometry, file.geometry()].map(Geometry::shape);
    if found != expected {
        return Err(ReportError::Shapes {
            file: labels.into(),
            shape: expected,
            other: image.into(),
            other_shape: found,
            of: Pair::LabelsAndImage,
        });
    }
    Ok(file.is_picture())
}

/// Draws a case, and writes a PNG. Of a volume the axial, the coronal and the sagittal slice with the most labelled voxels are shown, anterior
/// or the head up and the patient's right on the left; of an image of one slice that slice. Where labels are in a small part, that part is
/// shown with what is around it.
pub fn draw(files: &Files<'_>, path: &Path, budget: &Budget) -> Outcome {
    let mut labels = Source::labels(files.labels, files.image, budget)?;
    let geometry = *labels.geometry();
    let is_picture = check_same_shape(files.labels, &geometry, files.image)?;
    let found = Foreground::find(&mut labels, budget)?;
    let around =
        |plane: Plane| Window::around(plane, found.slice(plane.axis()), &geometry, &found, is_picture);
    let windows: Vec<Window> = Plane::shown_for(&geometry, is_picture).into_iter().map(around).collect();
    let layout = arrange(&windows, Frame::LARGE);
    let colours = Colours::new(files.names);
    let pixels: usize = layout.panels.iter().map(|panel| panel.size[0] * panel.size[1]).sum();
    let _labels = budget.reserve("a picture", Bytes::from_len(pixels * size_of::<u16>()))?;
    let sized: Vec<(&Window, [usize; 2])> =
        windows.iter().zip(&layout.panels).map(|(window, panel)| (window, panel.size)).collect();
    let slices = Slice::read_all(files.image, labels, &sized, budget)?;
    let shown: BTreeSet<u16> =
        slices.iter().flat_map(|slice| slice.labels.iter().copied()).filter(|label| *label != 0).collect();
    let legend = legend::Legend::new(&shown, found.labels(), layout.size[1]);
    let [height, width] = [layout.size[0] + legend.height(), layout.size[1]];
    let _canvas = budget.reserve("a picture", Bytes::from_len(2 * 3 * height * width))?;
    let mut canvas = Canvas::new(width, height);
    canvas.fill([0.0, 0.0], [width as f64, height as f64], BEHIND, 1.0);
    let greys = Greys::new(&slices.iter().map(|slice| &slice.values[..]).collect::<Vec<_>>(), budget)?;
    for (slice, panel) in slices.iter().zip(&layout.panels) {
        slice.draw(&mut canvas, panel.at, greys, &colours);
    }
    legend.draw(&mut canvas, layout.size[0], &colours);
    let png = canvas.png().map_err(ReportError::Pixels)?;
    atomic::write(path, |file: &mut dyn Write| file.write_all(&png))
        .map_err(|error| ReportError::at_path(path, error))
}
