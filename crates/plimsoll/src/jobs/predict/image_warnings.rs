//! Warnings about the images of a prediction.

use std::path::PathBuf;

use plimsoll_data::Case;
use plimsoll_postprocess::is_sheared;
use plimsoll_volume::VolumeFile;
use serde::Serialize;

use crate::context::Context;

/// The warning about an image whose axes are not at right angles.
pub(in crate::jobs) const SHEARED: &str = "its axes are not at right angles, and its labels are on the same grid, which SimpleITK does not open: \
     ‹job postprocess +input=LABELS +output=OUT +orthogonal› writes them on an orthogonal grid";

/// A warning about an image that is predicted.
#[derive(Clone, Debug, Serialize)]
pub struct ImageWarning {
    /// The name of the case.
    pub case: String,
    /// The file that was written.
    pub file: PathBuf,
    /// The warning.
    pub warning: String,
}

impl ImageWarning {
    /// Reports the warnings in the headers of images. A file that cannot be opened is reported when it is predicted.
    pub(super) fn collect<'a>(
        cases: impl IntoIterator<Item = &'a Case>,
        context: &Context,
    ) -> Vec<ImageWarning> {
        let mut found = Vec::new();
        for case in cases {
            for path in case.image_files() {
                let Ok(file) = VolumeFile::open(path) else { continue };
                let sheared = is_sheared(file.geometry()).then(|| SHEARED.to_string());
                for warning in file.warnings().into_iter().chain(sheared) {
                    context.warn(format_args!("{}: {}: {warning}", case.id, path.display()));
                    found.push(ImageWarning { case: case.id.clone(), file: path.into(), warning });
                }
            }
        }
        found
    }
}
