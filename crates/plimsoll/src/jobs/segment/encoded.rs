//! Labels in one file that is made of a label map: a segmentation of 3D Slicer's, or of DICOM's.

use std::path::Path;

use plimsoll_dicom::{
    DicomError, SegmentationRequest, SegmentationType, Series, StructuresRequest, is_dicom_name,
};
use plimsoll_infer::{InferError, write_segmentation};
use plimsoll_volume::is_segmentation;

use super::input::InputKind;
use super::{Job, SegmentRequest};
use crate::error::{Error, Outcome};

/// The form of labels in a DICOM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DicomForm {
    /// A segmentation, which keeps them so.
    Segmentation(SegmentationType),
    /// Outlines in each slice.
    Structures,
}

/// Returns `true` if a file of this name is encoded from a label map rather than being one.
pub(super) fn is_encoded(output: &Path) -> bool {
    is_segmentation(output) || is_dicom_name(output)
}

impl Job<'_> {
    /// Refuses a segmentation of DICOM where the input is no series that it could refer to, before anything is computed.
    pub(super) fn expect_series(&self, kind: &InputKind) -> Outcome {
        let (input, output) = (&self.request.input, &self.output);
        match kind {
            InputKind::Image | InputKind::Folder if is_dicom_name(output) => Err(no_series(input, output)),
            _ => Ok(()),
        }
    }

    /// Refuses to write labels over a slice of the series, or the archive that it is in, under whatever name it is reached.
    pub(super) fn expect_no_slice(&self, series: &Series) -> Outcome {
        let (SegmentRequest { input, one_file, .. }, output) = (self.request, &self.output);
        let real = |path: &Path| path.canonicalize().ok();
        // A path without a file is no slice.
        let (Some(to), true) = (real(output), *one_file) else { return Ok(()) };
        // The slices of one file follow each other.
        let mut before = None;
        let mut files = std::iter::once(input.as_path()).chain(series.files());
        match files.find(|file| before.replace(*file) != Some(*file) && real(file).as_ref() == Some(&to)) {
            None => Ok(()),
            Some(file) => {
                let case = input.display().to_string();
                Err(InferError::ReplacesImage { case, image: file.into() }.into())
            }
        }
    }

    /// Refuses a series that a segmentation of DICOM cannot refer to, before anything is computed.
    pub(super) fn expect_referable(&self, series: &Series) -> Outcome {
        if !is_dicom_name(&self.output) {
            return Ok(());
        }
        series.expect_referable(&self.budget).map_err(|error| match error {
            DicomError::Attribute { .. } => Error::new(
                error,
                "let the output end in .nii.gz or .seg.nrrd, with ‹one_file›: these formats need no slices",
            ),
            other => other.into(),
        })
    }

    /// Writes labels as the name of the file says it.
    pub(super) fn encode(&self, series: Option<&Series>, labels: &Path, output: &Path) -> Outcome {
        let names = self.names();
        if !is_dicom_name(output) {
            return Ok(write_segmentation(labels, output, &names, &self.budget, self.context.stop.flag())?);
        }
        let Some(series) = series else { return Err(no_series(&self.request.input, output)) };
        let (names, description) = (&names, self.name);
        let algorithm = &format!("TotalSegmentator {description}");
        match self.request.dicom {
            DicomForm::Segmentation(kind) => {
                let request = SegmentationRequest { kind, names, description, algorithm };
                Ok(series.write_segmentation(
                    labels,
                    output,
                    &request,
                    &self.budget,
                    self.context.stop.flag(),
                )?)
            }
            DicomForm::Structures => {
                let request = StructuresRequest { names, description, algorithm };
                Ok(series.write_structures(
                    labels,
                    output,
                    &request,
                    &self.budget,
                    self.context.stop.flag(),
                )?)
            }
        }
    }
}

fn no_series(input: &Path, output: &Path) -> Error {
    let (input, output) = (input.display(), output.display());
    Error::new(
        format!("{output} must refer to the slices of a DICOM series, but {input} is not one"),
        "name the folder of the series with -i, a ZIP archive of it or a file of many slices, or let the output end in .nii.gz, or \
         .seg.nrrd for 3D Slicer",
    )
}
