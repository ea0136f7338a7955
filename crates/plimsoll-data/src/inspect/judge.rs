//! The problems of a data set, and their messages to the user.

use std::error::Error;
use std::path::Path;

use plimsoll_volume::{Geometry, GeometryDifference, LabelValues, SEGMENT_HINT, VolumeError, VolumeFile};

use crate::dataset::{Case, Channel};
use crate::fingerprint::CaseFingerprint;
use crate::inspect::image_scan::ImageScan;
use crate::inspect::label_scan::LabelScan;
use crate::inspect::problem::{Problems, Severity};
use crate::{Labels, Normalisation};

/// The tolerance in millimetres between the positions of a voxel in two files of a case: both may have been rounded to
/// f32.
const SAME_PLACE: f64 = 1e-3;

/// The tolerance as a share of the smallest spacing, for images with voxels far smaller than a millimetre.
const SAME_PLACE_IN_VOXELS: f64 = 0.01;

/// A file that cannot be read.
pub(crate) fn unreadable(problems: &mut Problems, path: &Path, problem: &VolumeError) {
    let mut text = problem.to_string();
    let mut cause = problem.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    problems.add(Severity::Error, path, text, problem.remedy());
}

/// Reports how the grid of a file differs from the grid of the image it belongs to.
pub(crate) fn grids(
    problems: &mut Problems,
    path: &Path,
    geometry: &Geometry,
    reference: &Geometry,
    what: &str,
) {
    let smallest = reference.spacing().0.into_iter().fold(f64::INFINITY, f64::min);
    let tolerance = SAME_PLACE.min(SAME_PLACE_IN_VOXELS * smallest);
    match geometry.difference(reference, tolerance) {
        None => {}
        Some(GeometryDifference::Shape { first, second }) => problems.error(
            path,
            format!("it has shape {first:?}, but {what} has {second:?} (depth, height, width)"),
            "resample it to the image's grid, or replace it by the file that belongs to the image",
        ),
        Some(GeometryDifference::Affine { displacement }) => {
            let distance = if displacement < 0.1 {
                format!("{:.3} µm", displacement * 1000.0)
            } else {
                format!("{displacement:.3} mm")
            };
            let text = format!(
                "its affine places the same voxel up to {distance} from where the affine of {what} places it"
            );
            // Below half a voxel, resampling one to the other would move no voxel.
            if displacement < 0.5 * smallest {
                problems.warning(path, text, "voxels are matched by their index");
            } else {
                problems.error(
                    path,
                    text,
                    "if voxels of the same index belong together, copy the image's affine into the file; otherwise \
                     resample it to the image's grid",
                );
            }
        }
    }
}

/// Reports a file whose positions are in another frame of reference than the image it belongs to.
pub(crate) fn frames_of_reference(problems: &mut Problems, file: &VolumeFile, image: &VolumeFile) {
    if let (Some(found), Some(expected)) = (file.frame_of_reference(), image.frame_of_reference())
        && found != expected
    {
        let image = image.path().display();
        problems.error(
            file.path(),
            format!("its frame of reference is {found}, but the frame of {image} is {expected}: their positions cannot be compared"),
            "replace it by the label map of this image, or register it to the image first",
        );
    }
}

/// The remedy for a value that is not a label of the data set.
const LABEL_HINT: &str =
    "correct the label map, or add the label to dataset.json; if this is an image, it is in the wrong folder";

/// The remedy for a certain value: labels are whole numbers from 0 to 255, so that no others can be added.
fn label_hint(value: f64) -> String {
    let is_whole = value >= 0.0 && value.fract() == 0.0;
    match (is_whole, value <= 255.0) {
        (true, true) => LABEL_HINT.into(),
        (true, false) => format!(
            "renumber {value} as a number from 1 to 255 in the label map (with NumPy: labels[labels == {value}] = …, saved as 8 bits), and \
             add that to dataset.json; if this is an image, it is in the wrong folder"
        ),
        (false, _) => "correct the label map: labels are whole numbers from 0 to 255; if this is an image, it is in the wrong folder".into(),
    }
}

/// Values of a label map that are not labels; a label map without foreground.
pub(crate) fn label_values(
    problems: &mut Problems,
    path: &Path,
    scan: &LabelScan,
    labels: &Labels,
    values: Option<&LabelValues>,
) {
    let by_name = values.filter(|values| values.are_by_name());
    let hint = if by_name.is_some() { SEGMENT_HINT } else { LABEL_HINT };
    let shown = |value: f64| match by_name {
        // Only bytes were looked up by their names.
        Some(values) if (0.0..=255.0).contains(&value) && value.fract() == 0.0 => values.shown(value as u8),
        _ => value.to_string(),
    };
    for wrong in &scan.wrong {
        problems.error(
            path,
            format!(
                "{} voxels are {}, which is not a label of the data set; the first is at {:?} (depth, height, width)",
                wrong.voxels,
                shown(wrong.value),
                wrong.first
            ),
            &match by_name {
                None => label_hint(wrong.value),
                Some(_) => hint.into(),
            },
        );
    }
    if scan.more_wrong > 0 {
        let more = scan.more_wrong;
        problems.error(path, format!("{more} more voxels have other values that are not labels"), hint);
    }
    let foreground = &scan.counts[1..labels.classes()];
    if foreground.iter().all(|voxels| *voxels == 0) && scan.wrong.is_empty() {
        problems.warning(
            path,
            "the label map has no foreground".into(),
            "check whether that is right; patches of this case will have only background",
        );
    }
}

/// Non-finite values of an image.
pub(crate) fn finite(problems: &mut Problems, path: &Path, channel: &str, scan: &ImageScan) {
    if let Some((value, at)) = scan.first_not_finite {
        problems.error(
            path,
            format!(
                "channel {channel} has {} voxels that are not finite; the first is {value} at {at:?} (depth, height, \
                 width)",
                scan.not_finite
            ),
            "replace them, or leave the case out: a single one invalidates every statistic and every gradient",
        );
    }
}

/// Channels that are constant, or outside of the range of their normalisation.
pub(crate) fn ranges(
    problems: &mut Problems,
    case: &Case,
    channels: &[Channel],
    fingerprint: &CaseFingerprint,
) {
    for ((file, channel), found) in case.images.iter().zip(channels).zip(&fingerprint.channels) {
        if found.min == found.max {
            problems.warning(
                &file.path,
                format!("channel {} is {} everywhere", channel.name, found.min),
                "check whether the image was exported correctly",
            );
        }
        if channel.normalisation == Normalisation::RgbTo01 && (found.min < 0.0 || found.max > 255.0) {
            problems.error(
                &file.path,
                format!(
                    "channel {} has values from {} to {}, but its normalisation is for 0 to 255",
                    channel.name, found.min, found.max
                ),
                "name the channel in dataset.json so that another normalisation is used (`zscore`)",
            );
        }
    }
}
