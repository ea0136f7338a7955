//! One volume of the slices in a folder or an archive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_memory::{Budget, Reservation};
use plimsoll_volume::Geometry;

use crate::DicomError;
use crate::header::{Header, Slice, read, values};
use crate::location::{FileLocation, any_place, each_place};
use crate::reserved_list::ReservedList;
use crate::stack::{Order, Tilt, geometry, order};

/// The most series that a message names.
const MOST_NAMED: usize = 6;

/// The slices of a volume, from one end to the other.
#[derive(Debug)]
pub struct Series {
    pub(crate) folder: PathBuf,
    pub(crate) slices: ReservedList<Slice>,
    geometry: Geometry,
    tilt: Option<Tilt>,
    /// Millimetres from one slice to the next, along their normal.
    pub(crate) apart: f64,
    _headers: ReservedList<Reservation>,
}

/// Returns `true` if a folder, a folder in it or a ZIP archive has a file of DICOM, or if the path is one itself.
///
/// # Errors
/// Returns an error if it cannot be read.
pub fn has_dicom(path: &Path) -> Result<bool, DicomError> {
    any_place(path, &mut FileLocation::is_dicom)
}

impl Series {
    /// Finds the volume of a folder, of a ZIP archive, or of one file with many slices. Files that are no DICOM, and those that have no
    /// pixels or with pixels of other objects (segmentations, doses), are skipped. What is kept of each file and
    /// slice, and what reading a file takes, is reserved.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, there are no slices or several series, slices form no volume, or the
    /// budget has no room for their description.
    pub fn find(folder: &Path, budget: &Budget) -> Result<Series, DicomError> {
        let mut slices: ReservedList<Slice> = ReservedList::new(budget, "slices of DICOM");
        let mut headers = ReservedList::new(budget, "files of DICOM");
        each_place(folder, budget, &mut |place| {
            if place.is_dicom()?
                && let Some((header, planes)) = read(place, budget)?
            {
                headers.push(budget.reserve("files of DICOM", header.kept_bytes())?)?;
                let header = Arc::new(header);
                for (frame, plane) in (0..header.frames).zip(&*planes) {
                    slices.push(Slice { header: Arc::clone(&header), frame, plane: *plane })?;
                }
            }
            Ok(())
        })?;
        expect_one(folder, &slices)?;
        let Order { step, apart, tilt } = order(folder, slices.as_mut_slice())?;
        let geometry = geometry(folder, &slices, step)?;
        Ok(Series { folder: folder.into(), slices, geometry, tilt, apart, _headers: headers })
    }

    /// The grid: depth along the stack, height down the rows, width along the columns.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The files of its slices, from one end to the other.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.slices.iter().map(|slice| slice.header.place.path())
    }

    /// Modality and description, as its first slice has them.
    pub fn what(&self) -> &str {
        self.slices.first().map_or("", |slice| slice.header.what.as_str())
    }

    /// Reads values of attributes, by group and element, from the file of a slice, as they are in it, padding included; `None` for an
    /// attribute that the file does not have, or whose value is longer than 512 bytes. Slices count from 0, in the order of the volume; a
    /// slice that does not exist has no values.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or the budget has no room for reading it.
    pub fn values(
        &self,
        slice: usize,
        tags: &[(u16, u16)],
        budget: &Budget,
    ) -> Result<Vec<Option<Vec<u8>>>, DicomError> {
        match self.slices.get(slice) {
            Some(slice) => values(&slice.header.place, tags, budget),
            None => Ok(vec![None; tags.len()]),
        }
    }

    /// Warnings for the user: a lossy compression of the pixels, and a stack of slices that is tilted against them.
    pub fn warnings(&self) -> Vec<String> {
        let loss =
            self.loss().map(|loss| format!("{loss}: labels may differ from labels of the original pixels"));
        let tilt = self.slices.first().zip(self.tilt).map(|(first, tilt)| {
            format!("{first} and the slices above it are {tilt}: the image is sheared in the same way, and nothing is resampled")
        });
        loss.into_iter().chain(tilt).collect()
    }

    /// Describes the slices that were compressed with loss; `None` if there is none.
    pub(crate) fn loss(&self) -> Option<String> {
        let lossy = || self.slices.iter().filter(|slice| slice.header.lossy.is_some());
        let first = lossy().next()?;
        let how = first.header.lossy.as_ref()?;
        let (count, all) = (lossy().count(), self.slices.len());
        Some(format!("{count} of {all} slices were compressed with loss ({how}), the first {first}"))
    }
}

/// Refuses slices of several series.
fn expect_one(folder: &Path, slices: &[Slice]) -> Result<(), DicomError> {
    let Some(first) = slices.first() else { return Err(DicomError::Nothing { folder: folder.into() }) };
    if slices.iter().all(|slice| slice.header.series == first.header.series) {
        return Ok(());
    }
    let mut all: BTreeMap<&str, (&Header, usize)> = BTreeMap::new();
    let mut more = false;
    for Slice { header, .. } in slices {
        more |= all.len() == MOST_NAMED && !all.contains_key(header.series.as_str());
        if !more || all.contains_key(header.series.as_str()) {
            all.entry(&header.series).or_insert((header, 0)).1 += 1;
        }
    }
    let told = |(header, count): &(&Header, usize)| {
        format!("{} ({count} slices, {})", header.what, header.place.path().display())
    };
    Err(DicomError::Several { folder: folder.into(), series: all.values().map(told).collect(), more })
}
