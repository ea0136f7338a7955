//! Labels as structures of DICOM's (RTSTRUCT), of the slices of a series: of each label its outlines in each slice, in millimetres.
//!
//! PS3.3: A.19 (the object), C.8.8.5 (structure sets), C.8.8.6 (contours), C.8.8.8 (observations). The labels are read once, plane by plane,
//! and the outlines of all of a plane's labels are found together; since the file has them label by label, they wait encoded in a file without
//! a name beside it.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use dicom_core::VR;
use dicom_dictionary_std::tags;
use dicom_object::{InMemDicomObject, Tag};
use plimsoll_disk::ScratchFile;
use plimsoll_memory::{Budget, Bytes, Digester};
use plimsoll_volume::label_colour;

use super::contours::{Contours, Corner};
use super::elements::{Element, IMPLICIT, decimal, encode, object, sequence, text, unknown};
use super::labels::LabelPlanes;
use super::output::Output;
use super::references::{Reference, References};
use super::segments::Segments;
use super::unique::Unique;
use super::{OF_SEGMENT, OF_SLICE, SegmentationRequest, SegmentationType, StructuresRequest, go_on};
use crate::reserved_list::ReservedList;
use crate::{DicomError, Series};

/// RT Structure Set Storage, and the class by which studies are referred to: study management, which is otherwise retired.
const CLASS: &str = "1.2.840.10008.5.1.4.1.1.481.3";
const STUDY_CLASS: &str = "1.2.840.10008.3.1.2.3.1";

/// The number of the series, and what made it, as segmentations have them.
const SERIES_NUMBER: &str = "301";
const MAKER: &str = "Plimsoll";

/// The memory of a point as text of three numbers, in its element, and in the item.
const OF_POINT: u64 = 192;
/// The bytes that are copied at a time.
const CHUNK: usize = 64 << 10;

/// Encoded outlines of a label in a slice, in the file where they wait.
#[derive(Clone, Copy)]
struct Waiting {
    number: u16,
    slice: u32,
    offset: u64,
    bytes: u64,
}

impl Series {
    /// Writes the outlines of the series' labels, a label map on the grid of [`Series::geometry`] of 8 bits or of unsigned numbers of 16, as a
    /// structure set: along the edges of pixels, so that they have just the pixels whose centres are inside. Labels that no voxel has are left
    /// out, unless that is all of them. Patient, study and frame of reference are the series'; unique identifiers follow from what is
    /// written.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written, the label map has another shape, slices lack the
    /// attributes that structures refer to, DICOM cannot store a name, the budget has no room, or `stop` is set.
    /// Nothing is written then.
    pub fn write_structures(
        &self,
        labels: &Path,
        to: &Path,
        request: &StructuresRequest<'_>,
        budget: &Budget,
        stop: &AtomicBool,
    ) -> Result<(), DicomError> {
        let StructuresRequest { names, description, algorithm } = *request;
        // Numbers from 1 on, as structures have them, too.
        let kind = SegmentationType::Binary;
        let segments = Segments::new(&SegmentationRequest { kind, names, description, algorithm }, to)?;
        let count = segments.all().len() as u64;
        let held = Bytes(self.geometry().shape()[0] as u64 * OF_SLICE + count * OF_SEGMENT);
        let _elements = budget.reserve("elements of structures", held)?;
        let references = References::read(self, budget)?;
        let mut digest = Digester::default();
        let mut waiting = Outlines::beside(to, budget)?;
        waiting.find(self, labels, &segments, &references, &mut digest, stop)?;
        let found: Vec<bool> = segments
            .all()
            .iter()
            .map(|segment| waiting.all.iter().any(|outlines| outlines.number == segment.number))
            .collect();
        // A structure set has one structure at least.
        let is_empty = !found.contains(&true);
        let is_written = |place: usize| is_empty || found.get(place).copied().unwrap_or(false);
        let numbers: Vec<(usize, u16, &str)> = segments
            .all()
            .iter()
            .enumerate()
            .filter(|(place, _)| is_written(*place))
            .map(|(place, segment)| (place, segment.number, segment.name.as_str()))
            .collect();
        let mut header = header(&references, request, &numbers)?;
        digest.update(&encode(&header)?);
        let unique = Unique::new(&digest);
        header.put(text(tags::SOP_INSTANCE_UID, VR::UI, &unique.instance()));
        header.put(text(tags::SERIES_INSTANCE_UID, VR::UI, &unique.series()));

        let mut output = Output::create(to, budget)?;
        output.start(CLASS, &unique.instance(), IMPLICIT)?;
        output.object(&header)?;
        output.begin_sequence(tags::ROI_CONTOUR_SEQUENCE)?;
        for (place, number, _) in &numbers {
            go_on(to, stop)?;
            let colour = label_colour(*place).map(|part| ((part * 255.0).round() as u8).to_string());
            output.begin_item()?;
            output.object(&object([text(tags::ROI_DISPLAY_COLOR, VR::IS, &colour.join("\\"))]))?;
            waiting.copy(*number, &mut output, to)?;
            output.object(&object([text(tags::REFERENCED_ROI_NUMBER, VR::IS, &number.to_string())]))?;
            output.end_of_item()?;
        }
        output.end_of_sequence()?;
        output.object(&observations(&numbers))?;
        output.commit()
    }
}

/// Outlines that wait for being put in the order of labels.
struct Outlines<'a> {
    file: ScratchFile,
    path: &'a Path,
    length: u64,
    all: ReservedList<Waiting>,
    budget: &'a Budget,
}

impl<'a> Outlines<'a> {
    fn beside(path: &'a Path, budget: &'a Budget) -> Result<Outlines<'a>, DicomError> {
        let file = ScratchFile::beside(path, 0).map_err(|source| io_error(path, source))?;
        Ok(Outlines { file, path, length: 0, all: ReservedList::new(budget, "outlines of labels"), budget })
    }

    /// Finds the outlines of all planes.
    fn find(
        &mut self,
        series: &Series,
        labels: &Path,
        segments: &Segments,
        references: &References,
        digest: &mut Digester,
        stop: &AtomicBool,
    ) -> Result<(), DicomError> {
        let shape = series.geometry().shape();
        let mut planes = LabelPlanes::open(labels, shape, segments, self.budget)?;
        let size = |extent: usize, attribute| {
            let why = || format!("is {extent}, but slices may have at most {}", u16::MAX);
            let path = || references.path.clone();
            u16::try_from(extent).map(u32::from).map_err(|_| DicomError::Attribute {
                path: path(),
                attribute,
                why: why(),
            })
        };
        let size = [size(shape[1], "Rows")?, size(shape[2], "Columns")?];
        let mut contours = Contours::new(size, self.budget)?;
        for (number, slice) in (0..).zip(&references.slices) {
            go_on(self.path, stop)?;
            let plane = planes.plane(number as usize)?;
            digest.update(bytemuck::cast_slice(plane));
            digest.update(bytemuck::cast_slice(&slice.position));
            contours.each(plane, &mut |label, corners| {
                let room = self.budget.reserve("an outline", Bytes(corners.len() as u64 * OF_POINT))?;
                let bytes = item(references, slice, corners);
                let offset = self.length;
                self.file.write_all_at(offset, &bytes).map_err(|source| io_error(self.path, source))?;
                drop(room);
                self.length += bytes.len() as u64;
                let (number, slice) = (label, number);
                self.all.push(Waiting { number, slice, offset, bytes: bytes.len() as u64 })?;
                Ok::<(), DicomError>(())
            })?;
        }
        digest.update(bytemuck::cast_slice(references.directions.as_flattened()));
        digest.update(bytemuck::cast_slice(&references.spacing));
        // Those of a plane are label after label, as they were found.
        self.all.as_mut_slice().sort_unstable_by_key(|found| (found.number, found.slice, found.offset));
        Ok(())
    }

    /// Writes the sequence of a label's outlines; none where it has none.
    fn copy(&mut self, number: u16, output: &mut Output<'_>, to: &Path) -> Result<(), DicomError> {
        let first = self.all.partition_point(|found| found.number < number);
        let end = self.all.partition_point(|found| found.number <= number);
        if first == end {
            return Ok(());
        }
        let _room = self.budget.reserve("outlines of labels", Bytes::from_len(CHUNK))?;
        let mut buffer = vec![0; CHUNK];
        output.begin_sequence(tags::CONTOUR_SEQUENCE)?;
        for at in first..end {
            let Waiting { offset, bytes, .. } = self.all[at];
            let mut done = 0;
            while done < bytes {
                // At most a chunk.
                let part = &mut buffer[..(bytes - done).min(CHUNK as u64) as usize];
                self.file.read_exact_at(offset + done, part).map_err(|source| io_error(to, source))?;
                output.bytes(part)?;
                done += part.len() as u64;
            }
        }
        output.end_of_sequence()
    }
}

fn io_error(path: &Path, source: io::Error) -> DicomError {
    DicomError::Io { path: path.into(), source }
}

/// An item of a sequence of contours, encoded in implicit VR: the slice that it is in, and its points.
fn item(references: &References, slice: &Reference, corners: &[Corner]) -> Vec<u8> {
    let mut of_slice = Vec::new();
    put(&mut of_slice, tags::REFERENCED_SOP_CLASS_UID, slice.class.as_bytes(), 0);
    put(&mut of_slice, tags::REFERENCED_SOP_INSTANCE_UID, slice.instance.as_bytes(), 0);
    if let Some(frame) = slice.frame {
        put(&mut of_slice, tags::REFERENCED_FRAME_NUMBER, frame.to_string().as_bytes(), b' ');
    }
    let mut elements = Vec::new();
    let nested = [&ITEM, &length_of(&of_slice)[..], &of_slice].concat();
    put(&mut elements, tags::CONTOUR_IMAGE_SEQUENCE, &nested, 0);
    put(&mut elements, tags::CONTOUR_GEOMETRIC_TYPE, b"CLOSED_PLANAR", b' ');
    put(&mut elements, tags::NUMBER_OF_CONTOUR_POINTS, corners.len().to_string().as_bytes(), b' ');
    let mut points = Vec::new();
    for corner in corners {
        for value in point(references, slice, *corner) {
            if !points.is_empty() {
                points.push(b'\\');
            }
            // A Vec takes all that is written.
            let _ = points.write_all(millimetres(value).as_bytes());
        }
    }
    put(&mut elements, tags::CONTOUR_DATA, &points, b' ');
    [&ITEM, &length_of(&elements)[..], &elements].concat()
}

/// The tag of an item.
const ITEM: [u8; 4] = [0xFE, 0xFF, 0x00, 0xE0];

/// Lengths of contours are far below 2³²: slices have at most 2³² pixels, and an outline of all their edges is not one of a label map.
fn length_of(bytes: &[u8]) -> [u8; 4] {
    (bytes.len() as u32).to_le_bytes()
}

/// Appends an element in implicit VR, little-endian, padded to an even length.
fn put(to: &mut Vec<u8>, tag: Tag, value: &[u8], padding: u8) {
    let is_odd = !value.len().is_multiple_of(2);
    to.extend(tag.group().to_le_bytes());
    to.extend(tag.element().to_le_bytes());
    to.extend((value.len() as u32 + u32::from(is_odd)).to_le_bytes());
    to.extend(value);
    to.extend(is_odd.then_some(padding));
}

/// The place of a corner of pixels in LPS millimetres: half a pixel before the centre of the pixel to its lower right.
fn point(references: &References, slice: &Reference, [x, y]: Corner) -> [f64; 3] {
    let [of_row, of_column] = references.directions;
    let [between_rows, between_columns] = references.spacing;
    let along = [(f64::from(x) - 0.5) * between_columns, (f64::from(y) - 0.5) * between_rows];
    [0, 1, 2].map(|axis| slice.position[axis] + along[0] * of_row[axis] + along[1] * of_column[axis])
}

/// A length to a ten-thousandth of a millimetre, in at most 16 letters.
fn millimetres(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    // Not −0.
    decimal(if rounded == 0.0 { 0.0 } else { rounded })
}

/// All elements before the contours but identifiers, which follow from these.
fn header(
    references: &References,
    request: &StructuresRequest<'_>,
    numbers: &[(usize, u16, &str)],
) -> Result<InMemDicomObject, DicomError> {
    // What segmentations have of images: how they were taken and compressed.
    let is_of_image = |element: &&Element| matches!(element.header().tag.group(), 0x0018 | 0x0028);
    let mut all = object(references.elements.iter().filter(|element| !is_of_image(element)).cloned());
    let value = |tag: Tag| {
        let found = references.elements.iter().find(|element| element.header().tag == tag);
        found.and_then(|element| element.to_str().ok()).map(|text| text.into_owned())
    };
    let missing = |attribute| DicomError::Attribute {
        path: references.path.clone(),
        attribute,
        why: "is missing, but structures refer to it".into(),
    };
    let frame = value(tags::FRAME_OF_REFERENCE_UID).ok_or_else(|| missing("FrameOfReferenceUID"))?;
    let study = value(tags::STUDY_INSTANCE_UID).ok_or_else(|| missing("StudyInstanceUID"))?;
    let [date, time] = [tags::CONTENT_DATE, tags::CONTENT_TIME].map(|tag| all.take(tag));
    let dated = |element: Option<Element>, tag: Tag, kind: VR| {
        let said = element.and_then(|element| element.to_str().ok().map(|text| text.into_owned()));
        said.map_or_else(|| unknown(tag, kind), |said| text(tag, kind, &said))
    };
    let slices = references.slices.iter().map(|slice| {
        let mut item = object([
            text(tags::REFERENCED_SOP_CLASS_UID, VR::UI, &slice.class),
            text(tags::REFERENCED_SOP_INSTANCE_UID, VR::UI, &slice.instance),
        ]);
        if let Some(frame) = slice.frame {
            item.put(text(tags::REFERENCED_FRAME_NUMBER, VR::IS, &frame.to_string()));
        }
        item
    });
    let series = object([
        text(tags::SERIES_INSTANCE_UID, VR::UI, &references.series),
        sequence(tags::CONTOUR_IMAGE_SEQUENCE, slices.collect()),
    ]);
    let of_study = object([
        text(tags::REFERENCED_SOP_CLASS_UID, VR::UI, STUDY_CLASS),
        text(tags::REFERENCED_SOP_INSTANCE_UID, VR::UI, &study),
        sequence(tags::RT_REFERENCED_SERIES_SEQUENCE, vec![series]),
    ]);
    let of_frame = object([
        text(tags::FRAME_OF_REFERENCE_UID, VR::UI, &frame),
        sequence(tags::RT_REFERENCED_STUDY_SEQUENCE, vec![of_study]),
    ]);
    let structures = numbers.iter().map(|(_, number, name)| {
        object([
            text(tags::ROI_NUMBER, VR::IS, &number.to_string()),
            text(tags::REFERENCED_FRAME_OF_REFERENCE_UID, VR::UI, &frame),
            text(tags::ROI_NAME, VR::LO, name),
            text(tags::ROI_GENERATION_ALGORITHM, VR::CS, "AUTOMATIC"),
            text(tags::ROI_GENERATION_DESCRIPTION, VR::LO, request.algorithm),
        ])
    });
    all.extend([
        text(tags::SPECIFIC_CHARACTER_SET, VR::CS, "ISO_IR 192"),
        text(tags::SOP_CLASS_UID, VR::UI, CLASS),
        text(tags::MODALITY, VR::CS, "RTSTRUCT"),
        text(tags::SERIES_NUMBER, VR::IS, SERIES_NUMBER),
        text(tags::SERIES_DESCRIPTION, VR::LO, request.description),
        text(tags::INSTANCE_NUMBER, VR::IS, "1"),
        text(tags::MANUFACTURER, VR::LO, MAKER),
        text(tags::MANUFACTURER_MODEL_NAME, VR::LO, MAKER),
        text(tags::SOFTWARE_VERSIONS, VR::LO, env!("CARGO_PKG_VERSION")),
        unknown(tags::OPERATORS_NAME, VR::PN),
        text(tags::STRUCTURE_SET_LABEL, VR::SH, "SEGMENTATION"),
        text(tags::STRUCTURE_SET_NAME, VR::LO, request.description),
        dated(date, tags::STRUCTURE_SET_DATE, VR::DA),
        dated(time, tags::STRUCTURE_SET_TIME, VR::TM),
        sequence(tags::REFERENCED_FRAME_OF_REFERENCE_SEQUENCE, vec![of_frame]),
        sequence(tags::STRUCTURE_SET_ROI_SEQUENCE, structures.collect()),
    ]);
    Ok(all)
}

/// The elements behind the contours: the meaning of each structure, and the state that nobody has approved it.
fn observations(numbers: &[(usize, u16, &str)]) -> InMemDicomObject {
    let items = numbers.iter().map(|(_, number, _)| {
        object([
            text(tags::OBSERVATION_NUMBER, VR::IS, &number.to_string()),
            text(tags::REFERENCED_ROI_NUMBER, VR::IS, &number.to_string()),
            unknown(tags::RTROI_INTERPRETED_TYPE, VR::CS),
            unknown(tags::ROI_INTERPRETER, VR::PN),
        ])
    });
    object([
        sequence(tags::RTROI_OBSERVATIONS_SEQUENCE, items.collect()),
        text(tags::APPROVAL_STATUS, VR::CS, "UNAPPROVED"),
    ])
}
