//! A series as an image like any other: what reads images reads series of DICOM once [`register`] was called.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_volume::{
    Beginning, Content, ElementType, Format, Opened, VolumeError, VoxelSource, add_format,
};

use crate::error::added;
use crate::label_map::{self, Labels};
use crate::location::FileLocation;
use crate::pixels::{Decoder, decoding_bytes};
use crate::start::Start;
use crate::write::rescale;
use crate::{DicomError, Series, has_dicom};

/// Room for what is known of files and slices before there is a budget: some 80,000 slices.
const HEADERS: Bytes = Bytes::mib(64);

/// Files, folders and archives of DICOM. Labels of them are written as NIfTI: `segment` writes DICOM SEG, which refers to slices.
static FORMAT: Format = Format { endings: &[".dcm"], is_told_by, open, labels: Some(".nii.gz") };

/// Lets everything that reads images read series of DICOM: a folder, a ZIP archive, or a file with many slices.
pub fn register() {
    add_format(&FORMAT);
}

fn is_told_by(beginning: &Beginning) -> bool {
    let head = beginning.head();
    let may_have = beginning.is_folder() || head.starts_with(b"PK\x03\x04");
    let begins = Start::detect(head).is_some();
    // What cannot be read is told when it is opened.
    begins || may_have && has_dicom(beginning.path()).unwrap_or(true)
}

fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let headers = Budget::new(HEADERS);
    let place = FileLocation::File(path.into());
    if path.is_file()
        && let Some(labels) = Labels::in_file(&place, &headers)
    {
        return open_labels(path, place, labels, content, &headers);
    }
    let series = match Series::find(path, &headers) {
        Ok(series) => series,
        Err(error @ DicomError::Nothing { .. }) => {
            // Labels may be in a folder or an archive of their own.
            let Some((place, labels)) = Labels::find(path, &headers).map_err(added)? else {
                return Err(added(error));
            };
            return open_labels(path, place, labels, content, &headers);
        }
        Err(error) => return Err(added(error)),
    };
    if content.is_labels()
        && let Some(why) = series.loss()
    {
        return Err(VolumeError::NotForLabels { path: path.into(), why });
    }
    let (geometry, element) = (*series.geometry(), series.element_type());
    let [_, rows, columns] = geometry.shape();
    let source =
        SeriesVoxels { series, element, pixels: rows * columns, kept: headers.used(), prepared: None };
    Opened::new(path, geometry, element, Box::new(source))
}

/// Opens what has labels, and no slices of an image.
fn open_labels(
    path: &Path,
    place: FileLocation,
    labels: Labels,
    content: Content,
    headers: &Budget,
) -> Result<Opened, VolumeError> {
    match (labels, content.is_labels()) {
        (Labels::Segmentation, true) => label_map::open(path, place, content, headers),
        (Labels::Structures, true) => {
            let why = format!("it is {}, which is written but cannot be read", labels.name());
            Err(VolumeError::NotForLabels { path: path.into(), why })
        }
        (_, false) => Err(added(DicomError::NotAnImage { path: place.path().into(), what: labels.name() })),
    }
}

/// The voxels of a series, of which one slice is decoded at a time.
struct SeriesVoxels {
    series: Series,
    element: ElementType,
    /// The number of pixels of a slice.
    pixels: usize,
    /// The memory for the description of files and slices.
    kept: Bytes,
    prepared: Option<Prepared>,
}

/// Room for a slice.
struct Prepared {
    decoder: Decoder,
    plane: Mapped<u8>,
    /// The number of the slice that is decoded.
    number: Option<usize>,
    _kept: Reservation,
}

impl VoxelSource for SeriesVoxels {
    fn read(&mut self, _channel: usize, first: usize, mut bytes: &mut [u8]) -> Result<(), VolumeError> {
        let SeriesVoxels { series, element, prepared, .. } = self;
        let Some(prepared) = prepared else {
            return Err(VolumeError::NotDecoded { path: series.folder.clone() });
        };
        let plane_bytes = prepared.plane.len();
        let mut first = first * element.size();
        while !bytes.is_empty() {
            let (number, at) = (first / plane_bytes, first % plane_bytes);
            if prepared.number != Some(number) {
                prepared.number = None;
                // The voxels were checked to be in the volume.
                let nothing = || added(DicomError::Nothing { folder: series.folder.clone() });
                let slice = series.slices.get(number).ok_or_else(nothing)?;
                let stored = prepared.decoder.decode(slice).map_err(added)?;
                rescale(slice, stored, *element, &mut prepared.plane);
                prepared.number = Some(number);
            }
            let count = (plane_bytes - at).min(bytes.len());
            let (to, rest) = std::mem::take(&mut bytes).split_at_mut(count);
            to.copy_from_slice(&prepared.plane[at..at + count]);
            (bytes, first) = (rest, first + count);
        }
        Ok(())
    }

    fn decoding_bytes(&self) -> Bytes {
        let plane = Mapped::<u8>::bytes(self.pixels * self.element.size()).unwrap_or(Bytes(u64::MAX));
        let of_slice =
            self.series.slices.iter().map(|slice| decoding_bytes(&slice.header, slice.frame)).max();
        self.kept + plane + of_slice.unwrap_or(Bytes::ZERO)
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        if self.prepared.is_none() {
            let _kept = budget.reserve("slices of DICOM", self.kept).map_err(|error| added(error.into()))?;
            let plane = Mapped::zeroed(budget, "a slice", self.pixels * self.element.size());
            let plane = plane.map_err(|error| added(error.into()))?;
            let decoder = Decoder::new(self.pixels, budget).map_err(added)?;
            self.prepared = Some(Prepared { decoder, plane, number: None, _kept });
        }
        Ok(())
    }

    fn is_random_access(&self) -> bool {
        self.prepared.is_some()
    }

    fn frame_of_reference(&self) -> Option<&str> {
        self.series.slices.first()?.header.frame_of_reference.as_deref()
    }

    fn warnings(&self) -> Vec<String> {
        self.series.warnings()
    }
}
