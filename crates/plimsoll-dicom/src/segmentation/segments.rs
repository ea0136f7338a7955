//! The segments of a segmentation: which labels they are, and how each is described.

use std::path::Path;

use dicom_core::VR;
use dicom_dictionary_std::tags;
use dicom_object::InMemDicomObject;
use plimsoll_volume::label_colour;

use super::anatomy::{Concept, concept};
use super::elements::{Code, object, sequence, text, whole};
use super::{SegmentationRequest, SegmentationType};
use crate::DicomError;

/// The most letters of a short text (value representation LO).
const MOST_LETTERS: usize = 64;

/// The code of a pixel that is in no segment (PS3.16).
const BACKGROUND: Code = Code::dcm("125040", "Background");

/// A label that has a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The value of its voxels.
    pub(super) value: u16,
    /// The number of the segment: of label maps the value, of masks from 1 on.
    pub(super) number: u16,
    pub(super) name: String,
}

/// All segments, by their numbers.
pub(super) struct Segments {
    kind: SegmentationType,
    all: Vec<Segment>,
    algorithm: String,
}

impl Segments {
    /// Those of a request.
    ///
    /// # Errors
    /// Returns an error if there is no segment, a label is 0 or has two names, or DICOM cannot store a text.
    pub(super) fn new(request: &SegmentationRequest<'_>, to: &Path) -> Result<Segments, DicomError> {
        let wrong = |why: String| DicomError::Segments { path: to.into(), why };
        let mut named = request.names.labels.clone();
        named.sort();
        let values = named.iter().map(|(value, _)| *value);
        if named.is_empty() || values.clone().any(|value| value == 0) {
            return Err(wrong("labels must be numbered from 1".into()));
        }
        if let Some((value, _)) = values.clone().zip(values.skip(1)).find(|(one, next)| one == next) {
            return Err(wrong(format!("label {value} has two names")));
        }
        let texts = [request.algorithm, request.description].into_iter();
        for name in named.iter().map(|(_, name)| name.as_str()).chain(texts) {
            let is_kept = |letter: char| letter != '\\' && !letter.is_control();
            if name.is_empty() || name.chars().count() > MOST_LETTERS || !name.chars().all(is_kept) {
                return Err(wrong(format!(
                    "{name:?} is not a text of up to {MOST_LETTERS} characters without backslashes"
                )));
            }
        }
        let segment = |((value, name), number): ((u16, String), u16)| {
            let number = if request.kind == SegmentationType::LabelMap { value } else { number };
            Segment { value, number, name }
        };
        let all = named.into_iter().zip(1..=u16::MAX).map(segment).collect();
        Ok(Segments { kind: request.kind, all, algorithm: request.algorithm.into() })
    }

    pub(super) fn all(&self) -> &[Segment] {
        &self.all
    }

    /// Bytes of a pixel of a label map.
    pub(super) fn label_bytes(&self) -> usize {
        if self.all.iter().all(|segment| segment.number <= u16::from(u8::MAX)) { 1 } else { 2 }
    }

    /// The items of the Segment Sequence. That of a label map has the background, too.
    pub(super) fn items(&self) -> Vec<InMemDicomObject> {
        let background = (self.kind == SegmentationType::LabelMap).then(|| {
            let concept = Concept { category: BACKGROUND, property: BACKGROUND, side: None };
            self.item(0, "Background", concept, [0.0; 3])
        });
        let of_labels = self.all.iter().enumerate().map(|(place, segment)| {
            self.item(segment.number, &segment.name, concept(&segment.name), label_colour(place))
        });
        background.into_iter().chain(of_labels).collect()
    }

    fn item(&self, number: u16, label: &str, concept: Concept, colour: [f64; 3]) -> InMemDicomObject {
        let mut property = concept.property.item();
        if let Some(side) = concept.side {
            property.put(sequence(tags::SEGMENTED_PROPERTY_TYPE_MODIFIER_CODE_SEQUENCE, vec![side.item()]));
        }
        object([
            whole(tags::SEGMENT_NUMBER, &[number]),
            text(tags::SEGMENT_LABEL, VR::LO, label),
            text(tags::SEGMENT_ALGORITHM_TYPE, VR::CS, "AUTOMATIC"),
            text(tags::SEGMENT_ALGORITHM_NAME, VR::LO, &self.algorithm),
            sequence(tags::SEGMENTED_PROPERTY_CATEGORY_CODE_SEQUENCE, vec![concept.category.item()]),
            sequence(tags::SEGMENTED_PROPERTY_TYPE_CODE_SEQUENCE, vec![property]),
            whole(tags::RECOMMENDED_DISPLAY_CIE_LAB_VALUE, &cie_lab(colour)),
        ])
    }
}

/// A colour of sRGB, from 0 to 1, in CIELab as DICOM keeps it: L* from 0 to 100, a* and b* from −128 to 127, each as 0 to 65535 (PS3.3
/// C.10.7.1.1), with the white of ICC profiles, D50.
fn cie_lab(colour: [f64; 3]) -> [u16; 3] {
    // IEC 61966-2-1; its matrix to XYZ, adapted to D50 after Bradford.
    const TO_XYZ: [[f64; 3]; 3] = [
        [0.436_074_7, 0.385_064_9, 0.143_080_4],
        [0.222_504_5, 0.716_878_6, 0.060_616_9],
        [0.013_932_2, 0.097_104_5, 0.714_173_3],
    ];
    const WHITE: [f64; 3] = [0.964_22, 1.0, 0.825_21];
    let linear =
        colour.map(|part| if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) });
    let root = |part: f64| {
        // CIE 15: a straight line near black.
        if part > 216.0 / 24_389.0 { part.cbrt() } else { (24_389.0 / 27.0 * part + 16.0) / 116.0 }
    };
    let [x, y, z] = [0, 1, 2].map(|row| {
        let sum: f64 = TO_XYZ[row].iter().zip(linear).map(|(factor, part)| factor * part).sum();
        root(sum / WHITE[row])
    });
    let stored = |share: f64| (share.clamp(0.0, 1.0) * 65_535.0).round() as u16;
    let signed = |value: f64| stored((value + 128.0) / 255.0);
    [stored((1.16 * y) - 0.16), signed(500.0 * (x - y)), signed(200.0 * (y - z))]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected colours are LittleCMS's in 8 bits, from its sRGB to its LAB, relative colorimetric: L* in steps of 100/255, a* and b* from −128 on.
    #[test]
    fn colours_are_those_of_cie_lab() {
        for (colour, lab) in [
            ([255, 255, 255], [255, 128, 128]),
            ([0, 0, 0], [0, 128, 128]),
            ([255, 0, 0], [138, 209, 198]),
            ([0, 0, 255], [75, 196, 16]),
            ([128, 200, 50], [188, 87, 190]),
        ] {
            let found = cie_lab(colour.map(|part: u8| f64::from(part) / 255.0));
            for (found, known) in found.into_iter().zip(lab) {
                // 65,535 is 255 · 257.
                let off = f64::from(found) / 257.0 - f64::from(known);
                assert!(off.abs() <= 0.75, "{colour:?}: {found} is not {known}");
            }
        }
    }
}
