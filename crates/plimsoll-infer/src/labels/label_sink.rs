//! The destination of the labels of a case: a file, or the caller's own code.

use std::path::Path;

use plimsoll_volume::{ElementType, Geometry, NiftiHeader, VolumeError, VolumeWriter};

use crate::error::InferError;

/// Takes the labels of a case, plane by plane in the order of the stored grid.
pub trait LabelSink {
    /// Called once, before any plane: the stored grid, how a label is stored, and the header of the first image, which pictures do not
    /// have.
    ///
    /// # Errors
    /// Returns an error if labels of this grid cannot be taken.
    fn begin(
        &mut self,
        geometry: &Geometry,
        element: ElementType,
        header: Option<&NiftiHeader>,
    ) -> Result<(), InferError>;

    /// The file beside which labels may wait on a disk, if they are decided in another order than stored planes. Without one they
    /// wait in memory.
    fn waits_beside(&self) -> Option<&Path> {
        None
    }

    /// Takes the next planes, one or several, as stored and in this machine's byte order.
    ///
    /// # Errors
    /// Returns an error if they cannot be kept.
    fn write_planes(&mut self, planes: &[u8]) -> Result<(), InferError>;

    /// Called once all planes were taken; if it is not, the labels are not whole.
    ///
    /// # Errors
    /// Returns an error if they cannot be kept.
    fn finish(&mut self) -> Result<(), InferError>;
}

/// A file that appears under its name when all labels are in it.
pub(crate) struct LabelFile<'a> {
    path: &'a Path,
    /// From the beginning to the end.
    writer: Option<VolumeWriter>,
}

impl<'a> LabelFile<'a> {
    /// One of this name, which is not created yet.
    pub(crate) fn new(path: &'a Path) -> LabelFile<'a> {
        LabelFile { path, writer: None }
    }

    fn abandoned(&self) -> InferError {
        InferError::Write(VolumeError::Abandoned { path: self.path.into() })
    }
}

impl LabelSink for LabelFile<'_> {
    fn waits_beside(&self) -> Option<&Path> {
        Some(self.path)
    }

    fn begin(
        &mut self,
        geometry: &Geometry,
        element: ElementType,
        header: Option<&NiftiHeader>,
    ) -> Result<(), InferError> {
        let writer = VolumeWriter::create(self.path, geometry, 1, element, header);
        self.writer = Some(writer.map_err(InferError::Write)?);
        Ok(())
    }

    fn write_planes(&mut self, planes: &[u8]) -> Result<(), InferError> {
        match &mut self.writer {
            Some(writer) => writer.write_planes(planes).map_err(InferError::Write),
            None => Err(self.abandoned()),
        }
    }

    fn finish(&mut self) -> Result<(), InferError> {
        match self.writer.take() {
            Some(writer) => writer.finish().map_err(InferError::Write),
            None => Err(self.abandoned()),
        }
    }
}
