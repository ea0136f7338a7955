//! The header of a segmentation before its frames: patient and study, references, segments, the storage of its pixels.

use dicom_core::VR;
use dicom_dictionary_std::tags;
use dicom_object::{InMemDicomObject, Tag};

use super::elements::{Element, object, pointer, sequence, text, unknown, whole};
use super::references::References;
use super::segments::Segments;
use super::unique::Unique;
use super::{Pixels, SegmentationRequest, SegmentationType};
use crate::DicomError;

/// The number of the series: any suffices, and scanners use lower ones.
const SERIES_NUMBER: &str = "300";

/// The maker of the file (Enhanced General Equipment). A program has no serial number, but the attribute is required.
const MAKER: &str = "Plimsoll";
const SERIAL_NUMBER: &str = "0";

/// All elements before the functional groups but identifiers, which follow from these.
pub(super) fn header(
    references: &References,
    [rows, columns]: [usize; 2],
    request: &SegmentationRequest<'_>,
    segments: &Segments,
    frames: usize,
    pixels: &Pixels,
) -> Result<InMemDicomObject, DicomError> {
    let size = |length: usize, what: &'static str| {
        let why = || format!("is {length}, but a segmentation has at most {}", u16::MAX);
        u16::try_from(length).map_err(|_| DicomError::Attribute {
            path: references.path.clone(),
            attribute: what,
            why: why(),
        })
    };
    let (rows, columns) = (size(rows, "Rows")?, size(columns, "Columns")?);
    let bits = pixels.bits();
    let mut all = object(references.elements.iter().cloned());
    all.extend([
        // Text is decoded when it is read, and all of it is written as UTF-8.
        text(tags::SPECIFIC_CHARACTER_SET, VR::CS, "ISO_IR 192"),
        text(tags::SOP_CLASS_UID, VR::UI, request.kind.class()),
        text(tags::IMAGE_TYPE, VR::CS, "DERIVED\\PRIMARY"),
        text(tags::MODALITY, VR::CS, "SEG"),
        text(tags::SERIES_NUMBER, VR::IS, SERIES_NUMBER),
        text(tags::SERIES_DESCRIPTION, VR::LO, request.description),
        text(tags::INSTANCE_NUMBER, VR::IS, "1"),
        text(tags::MANUFACTURER, VR::LO, MAKER),
        text(tags::MANUFACTURER_MODEL_NAME, VR::LO, MAKER),
        text(tags::DEVICE_SERIAL_NUMBER, VR::LO, SERIAL_NUMBER),
        text(tags::SOFTWARE_VERSIONS, VR::LO, env!("CARGO_PKG_VERSION")),
        text(tags::CONTENT_LABEL, VR::CS, "SEGMENTATION"),
        text(tags::CONTENT_DESCRIPTION, VR::LO, request.description),
        unknown(tags::CONTENT_CREATOR_NAME, VR::PN),
        text(tags::BURNED_IN_ANNOTATION, VR::CS, "NO"),
    ]);
    all.extend([
        whole(tags::SAMPLES_PER_PIXEL, &[1]),
        text(tags::PHOTOMETRIC_INTERPRETATION, VR::CS, "MONOCHROME2"),
        text(tags::NUMBER_OF_FRAMES, VR::IS, &frames.to_string()),
        whole(tags::ROWS, &[rows]),
        whole(tags::COLUMNS, &[columns]),
        whole(tags::BITS_ALLOCATED, &[bits]),
        whole(tags::BITS_STORED, &[bits]),
        whole(tags::HIGH_BIT, &[bits - 1]),
        whole(tags::PIXEL_REPRESENTATION, &[0]),
        text(tags::SEGMENTATION_TYPE, VR::CS, request.kind.name()),
        text(tags::SEGMENTS_OVERLAP, VR::CS, "NO"),
        sequence(tags::SEGMENT_SEQUENCE, segments.items()),
        sequence(tags::REFERENCED_SERIES_SEQUENCE, vec![referenced(references)]),
    ]);
    if request.kind == SegmentationType::LabelMap {
        // What no segment has.
        all.put(whole(tags::PIXEL_PADDING_VALUE, &[0]));
    }
    all.put(sequence(
        tags::DIMENSION_INDEX_SEQUENCE,
        dimensions(request.kind).map(|[index, group]| object([index, group])).collect(),
    ));
    Ok(all)
}

/// Puts in the identifiers of a file, its series and its dimensions.
pub(super) fn identify(header: &mut InMemDicomObject, unique: &Unique) {
    let dimensions_uid = || text(tags::DIMENSION_ORGANIZATION_UID, VR::UI, &unique.dimensions());
    header.put(text(tags::SOP_INSTANCE_UID, VR::UI, &unique.instance()));
    header.put(text(tags::SERIES_INSTANCE_UID, VR::UI, &unique.series()));
    header.put(sequence(tags::DIMENSION_ORGANIZATION_SEQUENCE, vec![object([dimensions_uid()])]));
    header.update_value(tags::DIMENSION_INDEX_SEQUENCE, |value| {
        for item in value.items_mut().into_iter().flatten() {
            item.put(dimensions_uid());
        }
    });
}

/// The dimensions that frames are counted along, the first first: with masks segments, and slices.
fn dimensions(kind: SegmentationType) -> impl Iterator<Item = [Element; 2]> {
    let along = |index: Tag, group: Tag| {
        [pointer(tags::DIMENSION_INDEX_POINTER, index), pointer(tags::FUNCTIONAL_GROUP_POINTER, group)]
    };
    let segments = (kind == SegmentationType::Binary)
        .then(|| along(tags::REFERENCED_SEGMENT_NUMBER, tags::SEGMENT_IDENTIFICATION_SEQUENCE));
    segments.into_iter().chain([along(tags::IMAGE_POSITION_PATIENT, tags::PLANE_POSITION_SEQUENCE)])
}

/// The series that frames refer to, with all its slices.
fn referenced(references: &References) -> InMemDicomObject {
    // A file of many slices has one that is the first.
    let files = references.slices.iter().filter(|slice| slice.frame.is_none_or(|frame| frame == 1));
    let instances = files.map(|slice| {
        object([
            text(tags::REFERENCED_SOP_CLASS_UID, VR::UI, &slice.class),
            text(tags::REFERENCED_SOP_INSTANCE_UID, VR::UI, &slice.instance),
        ])
    });
    object([
        text(tags::SERIES_INSTANCE_UID, VR::UI, &references.series),
        sequence(tags::REFERENCED_INSTANCE_SEQUENCE, instances.collect()),
    ])
}
