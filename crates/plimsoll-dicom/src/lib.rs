//! Series of DICOM slices as volumes, and their labels as segmentations.
//!
//! [`Series::find`] reads the headers of the files in a folder or a ZIP archive, and makes one volume of them or says why it is none: several
//! series, slices that are missing, doubled, turned or of other sizes. A file is one slice, or many (enhanced CT, MR and PET).
//! [`Series::write`] decodes slice by slice, whichever way they are compressed, and writes a NIfTI image.
//! With [`register`], everything that reads images reads series as well, slice by slice, and segmentations (DICOM SEG) as label maps.
//! [`Series::write_segmentation`] writes labels of it as DICOM SEG, a label map or masks; [`Series::write_structures`] writes their outlines as
//! RTSTRUCT.
//!
//! Files are read by `elements`, which keeps the requested attributes and skips all others, so that the memory for a file does not depend on
//! the lengths in it.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod archive;
mod attributes;
mod elements;
mod error;
mod fragments;
mod header;
mod label_map;
mod letters;
mod location;
mod pixels;
mod reader;
mod reserved_list;
mod segmentation;
mod series;
mod stack;
mod start;
mod syntax;
mod volume;
mod write;

pub use error::{DicomError, Extra, Missing, SegmentationFault};
pub use segmentation::{SegmentationRequest, SegmentationType, StructuresRequest, is_dicom_name};
pub use series::{Series, has_dicom};
pub use volume::register;
