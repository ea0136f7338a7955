//! Data that a segmentation takes from its slices: patient and study, positions and identifiers. Nothing else here reads them.

use std::path::PathBuf;
use std::sync::Arc;

use dicom_core::{Tag, VR};
use dicom_dictionary_std::tags;
use dicom_object::InMemDicomObject;
use plimsoll_memory::{Budget, Bytes, Reservation};

use super::elements::{Element, text, unknown};
use crate::attributes::MOST_VALUE;
use crate::header::Slice;
use crate::letters::{Letters, trimmed};
use crate::{DicomError, Series};

/// Attributes of the patient, the study and the clinical trial that are copied if the first slice has them.
const COPIED: [Tag; 32] = [
    tags::STUDY_DESCRIPTION,
    tags::ISSUER_OF_PATIENT_ID,
    tags::PATIENT_BIRTH_TIME,
    tags::PATIENT_COMMENTS,
    tags::PATIENT_SPECIES_DESCRIPTION,
    tags::PATIENT_BREED_DESCRIPTION,
    tags::RESPONSIBLE_PERSON,
    tags::RESPONSIBLE_PERSON_ROLE,
    tags::RESPONSIBLE_ORGANIZATION,
    tags::PATIENT_IDENTITY_REMOVED,
    tags::DEIDENTIFICATION_METHOD,
    tags::LONGITUDINAL_TEMPORAL_INFORMATION_MODIFIED,
    tags::PATIENT_AGE,
    tags::PATIENT_SIZE,
    tags::PATIENT_WEIGHT,
    tags::PATIENT_SEX_NEUTERED,
    tags::ADMISSION_ID,
    tags::OCCUPATION,
    tags::ADDITIONAL_PATIENT_HISTORY,
    tags::CLINICAL_TRIAL_SPONSOR_NAME,
    tags::CLINICAL_TRIAL_PROTOCOL_ID,
    tags::CLINICAL_TRIAL_PROTOCOL_NAME,
    tags::CLINICAL_TRIAL_SITE_ID,
    tags::CLINICAL_TRIAL_SITE_NAME,
    tags::CLINICAL_TRIAL_SUBJECT_ID,
    tags::CLINICAL_TRIAL_SUBJECT_READING_ID,
    tags::CLINICAL_TRIAL_TIME_POINT_ID,
    tags::CLINICAL_TRIAL_TIME_POINT_DESCRIPTION,
    tags::CLINICAL_TRIAL_PROTOCOL_ETHICS_COMMITTEE_NAME,
    tags::CLINICAL_TRIAL_PROTOCOL_ETHICS_COMMITTEE_APPROVAL_NUMBER,
    tags::BODY_PART_EXAMINED,
    tags::TIMEZONE_OFFSET_FROM_UTC,
];

/// Attributes of a lossy compression that are copied in the same way: its ratio and its method.
const OF_LOSS: [Tag; 2] = [tags::LOSSY_IMAGE_COMPRESSION_RATIO, tags::LOSSY_IMAGE_COMPRESSION_METHOD];

/// Attributes that every file has, with or without a value (type 2).
const KNOWN_OR_NOT: [(Tag, VR); 10] = [
    (tags::PATIENT_NAME, VR::PN),
    (tags::PATIENT_ID, VR::LO),
    (tags::PATIENT_BIRTH_DATE, VR::DA),
    (tags::PATIENT_SEX, VR::CS),
    (tags::STUDY_DATE, VR::DA),
    (tags::STUDY_TIME, VR::TM),
    (tags::REFERRING_PHYSICIAN_NAME, VR::PN),
    (tags::STUDY_ID, VR::SH),
    (tags::ACCESSION_NUMBER, VR::SH),
    (tags::POSITION_REFERENCE_INDICATOR, VR::LO),
];

/// Dates of the scan with their times, the nearest to its content first.
const DATES: [(Tag, Tag); 4] = [
    (tags::CONTENT_DATE, tags::CONTENT_TIME),
    (tags::ACQUISITION_DATE, tags::ACQUISITION_TIME),
    (tags::SERIES_DATE, tags::SERIES_TIME),
    (tags::STUDY_DATE, tags::STUDY_TIME),
];

/// The date and the time that replace removed ones where a value is required.
const NO_DATE: (&str, &str) = ("19000101", "000000");

/// The most letters of a unique identifier.
const MOST_LETTERS: usize = 64;

/// Lossy Image Compression, where no slice was ever compressed with loss, and where one was.
const LOSSY: [&str; 2] = ["00", "01"];

/// The identifiers of each file, and those that all files of a series share.
const IDENTIFIERS: [(Tag, &str); 5] = [
    (tags::SOP_CLASS_UID, "SOPClassUID"),
    (tags::SOP_INSTANCE_UID, "SOPInstanceUID"),
    (tags::STUDY_INSTANCE_UID, "StudyInstanceUID"),
    (tags::SERIES_INSTANCE_UID, "SeriesInstanceUID"),
    (tags::FRAME_OF_REFERENCE_UID, "FrameOfReferenceUID"),
];

/// A slice, as others refer to it.
pub(super) struct Reference {
    /// Its SOP class and its SOP instance.
    pub(super) class: String,
    pub(super) instance: String,
    /// The number of the frame in a file of several, from 1 on; `None` if a file is one slice.
    pub(super) frame: Option<u32>,
    /// The centre of its first pixel, in LPS millimetres.
    pub(super) position: [f64; 3],
}

/// The description of a series without its shape.
pub(super) struct References {
    /// The file of its first slice, for errors.
    pub(super) path: PathBuf,
    /// Its unique identifier.
    pub(super) series: String,
    /// Directions of rows (along which columns count) and of columns, of length 1.
    pub(super) directions: [[f64; 3]; 2],
    /// Millimetres between rows, and between columns.
    pub(super) spacing: [f64; 2],
    /// The thickness of slices in mm, if they state it.
    pub(super) thickness: Option<f64>,
    /// In the order of slices.
    pub(super) slices: Vec<Reference>,
    /// Elements that are the same in a segmentation of it.
    pub(super) elements: Vec<Element>,
    /// The reservation for the elements.
    _held: Reservation,
}

impl References {
    /// Reads what the files of all slices say.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, has no valid identifier, or is of another study than the first; if
    /// the texts of the first are in an unsupported character set; or if the budget has no room.
    pub(super) fn read(series: &Series, budget: &Budget) -> Result<References, DicomError> {
        let Some(first) = series.slices.first() else {
            return Err(DicomError::Nothing { folder: series.folder.clone() });
        };
        let of_slices = series.slices.len() * (size_of::<Reference>() + 2 * MOST_LETTERS);
        // As they are in the file, put together to be decoded, and decoded.
        let of_elements = 4 * taken().count() * MOST_VALUE;
        let held = budget.reserve("a header of DICOM", Bytes::from_len(of_slices + of_elements))?;
        let expected = Identity::read(series, 0, budget)?;
        let mut slices: Vec<Reference> = Vec::with_capacity(series.slices.len());
        let mut identity = None;
        for (number, slice) in series.slices.iter().enumerate() {
            // Of a file of many slices, which follow one another, it is read once.
            let same = number.checked_sub(1).and_then(|before| series.slices.get(before));
            if !same.is_some_and(|before| Arc::ptr_eq(&before.header, &slice.header)) {
                identity = None;
            }
            let of_slice = match identity.take() {
                Some(read) => read,
                None => Identity::read(series, number, budget)?,
            };
            of_slice.expect_like(&expected, slice, first)?;
            slices.push(Reference {
                class: of_slice.class.clone(),
                instance: of_slice.instance.clone(),
                frame: (slice.header.frames > 1).then_some(slice.frame + 1),
                position: slice.plane.position,
            });
            identity = Some(of_slice);
        }
        Ok(References {
            path: first.header.place.path().into(),
            series: expected.series.clone(),
            directions: first.plane.directions,
            spacing: first.plane.spacing,
            thickness: first.plane.thickness.filter(|thickness| *thickness > 0.0),
            slices,
            elements: elements(
                &texts(series, budget)?,
                &expected,
                series.slices.iter().any(|slice| slice.header.lossy.is_some()),
            ),
            _held: held,
        })
    }
}

/// The identifiers of a file, and those that it shares with the others of its series.
struct Identity {
    class: String,
    instance: String,
    study: String,
    series: String,
    frame_of_reference: String,
}

impl Identity {
    fn read(series: &Series, slice: usize, budget: &Budget) -> Result<Identity, DicomError> {
        let values =
            series.values(slice, &IDENTIFIERS.map(|(tag, _)| (tag.group(), tag.element())), budget)?;
        let path =
            series.slices.get(slice).map_or(series.folder.as_path(), |slice| slice.header.place.path());
        let mut found = values.into_iter().zip(IDENTIFIERS).map(|(value, (_, attribute))| {
            let wrong = |why: &str| DicomError::Attribute { path: path.into(), attribute, why: why.into() };
            let value = value.ok_or_else(|| wrong("is missing, but a segmentation refers to it"))?;
            let value = String::from_utf8(value).map_err(|_| wrong("is not a text"))?;
            let value = trimmed(&value);
            let is_one = (1..=MOST_LETTERS).contains(&value.len())
                && value.bytes().all(|letter| letter.is_ascii_digit() || letter == b'.');
            match is_one {
                true => Ok(value.to_string()),
                false => Err(wrong("is not a unique identifier: up to 64 digits and dots")),
            }
        });
        let mut next = || match found.next() {
            Some(found) => found,
            None => Err(DicomError::Nothing { folder: series.folder.clone() }),
        };
        Ok(Identity {
            class: next()?,
            instance: next()?,
            study: next()?,
            series: next()?,
            frame_of_reference: next()?,
        })
    }

    /// Refuses a slice of another study. Slices of a [`Series`] have one series and one frame of reference.
    fn expect_like(&self, expected: &Identity, slice: &Slice, first: &Slice) -> Result<(), DicomError> {
        if self.study == expected.study {
            return Ok(());
        }
        Err(DicomError::Differs {
            slice: slice.to_string(),
            what: "the study",
            found: self.study.clone(),
            other: first.to_string(),
            expected: expected.study.clone(),
        })
    }
}

/// All that is taken from the first slice, with how its letters are coded.
fn taken() -> impl Iterator<Item = Tag> {
    let dates = DATES.into_iter().flat_map(|(date, time)| [date, time]);
    let known = KNOWN_OR_NOT.into_iter().map(|(tag, _)| tag);
    std::iter::once(tags::SPECIFIC_CHARACTER_SET).chain(COPIED).chain(OF_LOSS).chain(known).chain(dates)
}

/// The texts of the first slice, decoded. What is longer than 512 bytes is left out.
fn texts(series: &Series, budget: &Budget) -> Result<InMemDicomObject, DicomError> {
    let mut tags: Vec<Tag> = taken().collect();
    // A date may be copied and also be the date of the content.
    tags.sort_unstable();
    tags.dedup();
    let asked: Vec<(u16, u16)> = tags.iter().map(|tag| (tag.group(), tag.element())).collect();
    let values = series.values(0, &asked, budget)?;
    let found =
        || tags.iter().copied().zip(&values).filter_map(|(tag, value)| Some((tag, value.as_deref()?)));
    let set = found().find(|(tag, _)| *tag == tags::SPECIFIC_CHARACTER_SET);
    let letters = Letters {
        path: series.slices.first().map_or(series.folder.as_path(), |slice| slice.header.place.path()),
        set: set.map(|(_, set)| String::from_utf8_lossy(set)),
        texts: "texts of the patient and the study",
    };
    letters.decode(found())
}

/// Elements of a segmentation that are copied from a slice, of a series some of which were compressed with loss, or none.
fn elements(object: &InMemDicomObject, shared: &Identity, is_lossy: bool) -> Vec<Element> {
    let copied = |tag: Tag| object.get(tag).cloned();
    let of_loss = OF_LOSS.into_iter().filter(|_| is_lossy);
    let mut elements: Vec<Element> = COPIED.into_iter().chain(of_loss).filter_map(copied).collect();
    elements.extend(KNOWN_OR_NOT.map(|(tag, kind)| copied(tag).unwrap_or_else(|| unknown(tag, kind))));
    elements.push(text(tags::STUDY_INSTANCE_UID, VR::UI, &shared.study));
    elements.push(text(tags::FRAME_OF_REFERENCE_UID, VR::UI, &shared.frame_of_reference));
    let value = |tag: Tag| {
        let text = object.get(tag)?.to_str().ok()?;
        let text = trimmed(&text);
        (!text.is_empty()).then(|| text.to_string())
    };
    let [never, once] = LOSSY;
    elements.push(text(tags::LOSSY_IMAGE_COMPRESSION, VR::CS, if is_lossy { once } else { never }));
    // Not when it was segmented: the same scan gives the same file.
    let dated = DATES.into_iter().find_map(|(date, time)| Some((value(date)?, value(time))));
    let (date, time) = match dated {
        Some((date, time)) => (date, time.unwrap_or_else(|| NO_DATE.1.into())),
        None => (NO_DATE.0.into(), NO_DATE.1.into()),
    };
    elements.push(text(tags::CONTENT_DATE, VR::DA, &date));
    elements.push(text(tags::CONTENT_TIME, VR::TM, &time));
    elements
}
