//! A series as an image like any other: what reads images reads series of DICOM once [`register`] was called.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_volume::{
    Beginning, Content, ElementType, Format, Opened, VolumeError, VoxelSource, add_format,
};

use crate::elements::{Pixels, Start, read_start};
use crate::header::READING;
use crate::pixels::Decoder;
use crate::place::Place;
use crate::syntax::Coding;
use crate::write::rescale;
use crate::{DicomError, Series, has_dicom};

/// Room for what is known of files and slices before there is a budget: some 80,000 slices.
const HEADERS: Bytes = Bytes::mib(64);

/// What decoders of whole images take for each pixel and for each byte of what is compressed, and beside these. Codestreams in layers and
/// small blocks may need more: then decoding them is refused.
const FOR_EACH_PIXEL: u64 = 48;
const FOR_EACH_BYTE: u64 = 16;
const BESIDE: u64 = 8 << 20;

/// Files, folders and archives of DICOM. Labels of them are written as NIfTI: `segment` writes DICOM SEG, which refers to slices.
static FORMAT: Format = Format { endings: &[".dcm"], is_told_by, open, labels: Some(".nii.gz") };

/// Lets everything that reads images read series of DICOM: a folder, a ZIP archive, or a file with many slices.
pub fn register() {
    add_format(&FORMAT);
}

fn is_told_by(beginning: &Beginning) -> bool {
    let head = beginning.head();
    let may_have = beginning.is_folder() || head.starts_with(b"PK\x03\x04");
    let begins = Start::of(head).is_some();
    // What cannot be read is told when it is opened.
    begins || may_have && has_dicom(beginning.path()).unwrap_or(true)
}

fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let headers = Budget::new(HEADERS);
    let series = Series::find(path, &headers).map_err(|error| match (&error, content.is_labels()) {
        (DicomError::Nothing { .. }, true) => match segments_in(path) {
            Some(what) => {
                let why = format!("it is {what}, which is written and not read");
                VolumeError::NotForLabels { path: path.into(), why }
            }
            None => added(error),
        },
        _ => added(error),
    })?;
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

/// What a file is that names segments, and has no slices of an image.
fn segments_in(path: &Path) -> Option<&'static str> {
    if !path.is_file() {
        return None;
    }
    let place = Place::File(path.into());
    let (meta, _) = read_start(&place).ok()?;
    match meta.class?.as_str() {
        "1.2.840.10008.5.1.4.1.1.66.4" | "1.2.840.10008.5.1.4.1.1.66.7" => {
            Some("a segmentation of DICOM (SEG)")
        }
        "1.2.840.10008.5.1.4.1.1.481.3" => Some("a set of structures of DICOM (RTSTRUCT)"),
        _ => None,
    }
}

fn added(error: DicomError) -> VolumeError {
    match error {
        DicomError::Volume(error) => error,
        error => VolumeError::Added { hint: error.hint(), error: error.into() },
    }
}

/// The voxels of a series, of which one slice is decoded at a time.
struct SeriesVoxels {
    series: Series,
    element: ElementType,
    /// Of a slice.
    pixels: usize,
    /// What is known of its files and slices takes.
    kept: Bytes,
    prepared: Option<Prepared>,
}

/// Room for a slice.
struct Prepared {
    decoder: Decoder,
    plane: Mapped<u8>,
    /// Which slice it is.
    number: Option<usize>,
    _kept: Reservation,
}

impl SeriesVoxels {
    /// What decoding one slice takes beside what comes out: it as it is stored, and what its decoder has.
    fn of_slice(&self) -> Bytes {
        let pixels = self.pixels as u64;
        let stored = |slice: &crate::header::Slice| {
            let header = &slice.header;
            let is_forward = !header.place.can_seek() || header.syntax.is_deflated;
            let bytes = match &header.pixels {
                // Where bytes cannot be sought, those of all frames are held.
                Pixels::Plain { length, .. } if is_forward => u64::from(*length),
                Pixels::Plain { .. } => header.frame_bytes(),
                Pixels::Fragments(all) if is_forward && header.frames > 1 => {
                    all.fragments.last().map_or(0, |last| last.end - all.start)
                }
                Pixels::Fragments(all) => {
                    all.frame(slice.frame, header.frames).map_or(0, |frame| frame.most_bytes())
                }
            };
            match header.syntax.coding {
                Coding::Plain(_) => bytes * 2,
                _ => bytes * FOR_EACH_BYTE + pixels * FOR_EACH_PIXEL + BESIDE,
            }
        };
        let most = self.series.slices.iter().map(stored).max();
        Bytes(most.unwrap_or(0)) + READING
    }
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
        let mapped = |bytes: usize| Mapped::<u8>::bytes(bytes).unwrap_or(Bytes(u64::MAX));
        let planes = mapped(self.pixels * size_of::<u16>()) + mapped(self.pixels * self.element.size());
        // What is stored is mapped in whole pages, too.
        const PAGES: Bytes = Bytes(8 << 10);
        self.kept + planes + self.of_slice() + PAGES
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

    fn warnings(&self) -> Vec<String> {
        self.series.warnings()
    }
}
