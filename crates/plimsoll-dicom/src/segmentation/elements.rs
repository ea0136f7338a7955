//! Elements and objects of DICOM, as they are written here.

use dicom_core::value::DataSetSequence;
use dicom_core::{DataElement, PrimitiveValue, Tag, VR};
use dicom_dictionary_std::tags;
use dicom_object::InMemDicomObject;
use dicom_transfer_syntax_registry::entries::{EXPLICIT_VR_LITTLE_ENDIAN, IMPLICIT_VR_LITTLE_ENDIAN};

use crate::DicomError;
use crate::error::chain;

/// The transfer syntax whose lengths all have 32 bits, including texts.
pub(super) const IMPLICIT: &str = "1.2.840.10008.1.2";

/// An element of an object.
pub(super) type Element = DataElement<InMemDicomObject>;

/// The most letters of a number that is written in decimals (value representation DS).
const MOST_DECIMALS: usize = 16;

/// A text of whatever kind.
pub(super) fn text(tag: Tag, kind: VR, value: &str) -> Element {
    DataElement::new(tag, kind, PrimitiveValue::from(value))
}

/// An element without a value, which stands where one may be unknown.
pub(super) fn unknown(tag: Tag, kind: VR) -> Element {
    DataElement::new(tag, kind, PrimitiveValue::Empty)
}

/// Whole numbers of 16 bits.
pub(super) fn whole(tag: Tag, values: &[u16]) -> Element {
    DataElement::new(tag, VR::US, PrimitiveValue::U16(values.into()))
}

/// Whole numbers of 32 bits.
pub(super) fn long(tag: Tag, values: &[u32]) -> Element {
    DataElement::new(tag, VR::UL, PrimitiveValue::U32(values.into()))
}

/// Numbers in decimals.
pub(super) fn decimals(tag: Tag, values: &[f64]) -> Element {
    let values: Vec<String> = values.iter().map(|value| decimal(*value)).collect();
    text(tag, VR::DS, &values.join("\\"))
}

/// The tag of another element.
pub(super) fn pointer(tag: Tag, to: Tag) -> Element {
    DataElement::new(tag, VR::AT, PrimitiveValue::Tags([to].as_slice().into()))
}

/// A sequence of items.
pub(super) fn sequence(tag: Tag, items: Vec<InMemDicomObject>) -> Element {
    DataElement::new(tag, VR::SQ, DataSetSequence::from(items))
}

/// An object of these elements.
pub(super) fn object(elements: impl IntoIterator<Item = Element>) -> InMemDicomObject {
    InMemDicomObject::from_element_iter(elements)
}

/// A concept: its scheme, its code, and what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) scheme: &'static str,
    pub(super) value: &'static str,
    pub(super) meaning: &'static str,
}

impl Code {
    /// A concept of SNOMED CT.
    pub(super) const fn sct(value: &'static str, meaning: &'static str) -> Code {
        Code { scheme: "SCT", value, meaning }
    }

    /// A concept of DICOM's own.
    pub(super) const fn dcm(value: &'static str, meaning: &'static str) -> Code {
        Code { scheme: "DCM", value, meaning }
    }

    /// The item of a code sequence.
    pub(super) fn item(self) -> InMemDicomObject {
        object([
            text(tags::CODE_VALUE, VR::SH, self.value),
            text(tags::CODING_SCHEME_DESIGNATOR, VR::SH, self.scheme),
            text(tags::CODE_MEANING, VR::LO, self.meaning),
        ])
    }
}

/// A number in at most 16 letters, as near as these can say it.
pub(super) fn decimal(value: f64) -> String {
    let shortest = value.to_string();
    if shortest.len() <= MOST_DECIMALS {
        return shortest;
    }
    let off = |text: &String| text.parse().map_or(f64::INFINITY, |found: f64| (found - value).abs());
    let digits = 0..MOST_DECIMALS;
    let written = digits.flat_map(|digits| [format!("{value:.digits$}"), format!("{value:.digits$e}")]);
    let fits = written.filter(|text| text.len() <= MOST_DECIMALS);
    // With no digit behind the point an exponent takes at most seven letters.
    fits.min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(shortest)
}

/// An object in explicit VR, little-endian.
pub(super) fn encode(object: &InMemDicomObject) -> Result<Vec<u8>, DicomError> {
    let mut bytes = Vec::new();
    match object.write_dataset_with_ts(&mut bytes, &EXPLICIT_VR_LITTLE_ENDIAN.erased()) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(DicomError::Unencodable { why: chain(&error) }),
    }
}

/// The same in implicit VR.
pub(super) fn encode_implicit(object: &InMemDicomObject) -> Result<Vec<u8>, DicomError> {
    let mut bytes = Vec::new();
    match object.write_dataset_with_ts(&mut bytes, &IMPLICIT_VR_LITTLE_ENDIAN.erased()) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(DicomError::Unencodable { why: chain(&error) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_at_most_sixteen_letters_and_are_as_near_as_these_allow() {
        for value in
            [0.0, -40.5, 0.1, 1.0 / 3.0, -1.0 / 3.0, 1e-20 / 3.0, -1e22 / 7.0, -0.999_999_999_999_999_9]
        {
            let text = decimal(value);
            let found: f64 = text.parse().unwrap();
            assert!(text.len() <= 16, "{text}");
            assert!((found - value).abs() <= 1e-9 * value.abs(), "{value} is written as {text}");
        }
        // What has few letters keeps all of them.
        assert_eq!([decimal(-40.5), decimal(0.7)], ["-40.5", "0.7"]);
    }
}
