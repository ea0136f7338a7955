//! Passes over the planes of a label map and of its image.

use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::VolumeFile;

use super::Measured;
use super::runs::{Places, Run, for_each_run};
use crate::error::InferError;
use crate::labels::label_maps::{go_on, plane_of};

/// The most distance in mm between corners of the two grids, as scores have it.
const TOLERANCE: f64 = 1e-3;

/// The label map and the image, with room for a plane of each.
pub(super) struct Files {
    labels: VolumeFile,
    image: VolumeFile,
    places: Places,
    plane: Mapped<u8>,
    values: Mapped<f32>,
}

/// A pass over the files.
pub(super) struct Pass<'a> {
    pub(super) files: &'a mut Files,
    pub(super) stop: &'a AtomicBool,
}

/// The bytes of a plane of labels and one of the image.
pub(super) fn bytes([_, height, width]: [usize; 3]) -> u64 {
    const PAGES: u64 = 2 * 4096;
    (height as u64).saturating_mul(width as u64).saturating_mul(5).saturating_add(PAGES)
}

impl Files {
    /// Opens both files and compares their grids.
    pub(super) fn open(of: &Measured<'_>, budget: &Budget) -> Result<Files, InferError> {
        let (mut labels, mut image) = (VolumeFile::open_labels(of.labels)?, VolumeFile::open(of.image)?);
        if image.channels() != 1 {
            return Err(InferError::SeveralChannels { path: of.image.into(), channels: image.channels() });
        }
        if let Some(difference) = labels.geometry().difference(image.geometry(), TOLERANCE) {
            return Err(InferError::OtherGrid { path: of.labels.into(), image: of.image.into(), difference });
        }
        labels.decode(budget)?;
        image.decode(budget)?;
        let [_, height, width] = image.geometry().shape();
        let mut places: Places = [None; 256];
        for (place, (label, _)) in of.names.labels.iter().enumerate() {
            // A label map of 8 bits has no voxels of larger values.
            if let Some(of_label) = places.get_mut(usize::from(*label)) {
                *of_label = Some(place);
            }
        }
        Ok(Files {
            labels,
            image,
            places,
            plane: Mapped::zeroed(budget, "a plane of labels", height * width)?,
            values: Mapped::zeroed(budget, "a plane of an image", height * width)?,
        })
    }

    /// Depth, height, width.
    pub(super) fn shape(&self) -> [usize; 3] {
        self.image.geometry().shape()
    }

    /// Millimetres between voxels along depth, height and width.
    pub(super) fn spacing(&self) -> [f64; 3] {
        self.image.stated_spacing().0
    }

    /// The structure of each label.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }
}

impl Pass<'_> {
    /// Returns an error if the work is to stop.
    pub(super) fn go_on(&self) -> Result<(), InferError> {
        go_on(self.files.labels.path(), self.stop)
    }

    /// Calls `visit` with each plane of labels, in order.
    pub(super) fn over_labels(&mut self, mut visit: impl FnMut(usize, &[u8])) -> Result<(), InferError> {
        let [depth, height, width] = self.files.shape();
        let Files { labels, plane, .. } = self.files;
        for d in 0..depth {
            go_on(labels.path(), self.stop)?;
            labels.region_labels(0, plane_of(d, [height, width]), plane)?;
            visit(d, plane);
        }
        Ok(())
    }

    /// Calls `visit` with each run of a structure and the intensities of its voxels, plane by plane and row by row.
    pub(super) fn over_values(
        &mut self,
        mut visit: impl FnMut(usize, Run, &[f32]),
    ) -> Result<(), InferError> {
        let [depth, height, width] = self.files.shape();
        let Files { labels, image, places, plane, values } = self.files;
        for d in 0..depth {
            go_on(labels.path(), self.stop)?;
            let region = plane_of(d, [height, width]);
            labels.region_labels(0, region, plane)?;
            image.region_f32(0, region, values)?;
            for_each_run(plane, width, places, |run| {
                let row = run.row * width;
                visit(d, run, &values[row + run.start..row + run.end]);
            });
        }
        Ok(())
    }
}
