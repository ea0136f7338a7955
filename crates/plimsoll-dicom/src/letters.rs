//! Texts in the character set of their file (DICOM PS3.3, C.12.1.1.2).

use std::borrow::Cow;
use std::path::Path;

use dicom_core::VR;
use dicom_core::dictionary::{DataDictionary, DataDictionaryEntry};
use dicom_dictionary_std::StandardDataDictionary;
use dicom_object::{InMemDicomObject, Tag};
use dicom_transfer_syntax_registry::entries::EXPLICIT_VR_LITTLE_ENDIAN;

use crate::DicomError;
use crate::error::chain;

/// Character sets of one byte for each letter, by their numbers at ISO.
const SETS_OF_BYTES: [&str; 10] = ["13", "100", "101", "109", "110", "126", "127", "138", "144", "166"];

/// Character sets that cannot be combined with others: UTF-8, and two of Chinese.
const SETS_ALONE: [&str; 3] = ["ISO_IR 192", "GB18030", "GBK"];

/// The byte that switches from one character set to another within a text.
const ESCAPE: u8 = 0x1B;

/// The character set of a file.
pub(crate) struct Letters<'a> {
    /// The file.
    pub(crate) path: &'a Path,
    /// Specific Character Set, if the file has one.
    pub(crate) set: Option<Cow<'a, str>>,
    /// The texts that are decoded, as an error names them.
    pub(crate) texts: &'static str,
}

impl Letters<'_> {
    /// Decodes the values of attributes.
    ///
    /// # Errors
    /// Returns an error if a value has letters beyond ASCII and the character set is missing or not supported.
    pub(crate) fn decode<'v>(
        &self,
        found: impl Iterator<Item = (Tag, &'v [u8])> + Clone,
    ) -> Result<InMemDicomObject, DicomError> {
        let mut bytes = Vec::new();
        for (tag, value) in found.clone() {
            self.expect_known(value)?;
            // Values of both byte orders are the same letters; their types are the standard's, which files of implicit ones do not say.
            let kind: Option<VR> = StandardDataDictionary.by_tag(tag).map(|entry| entry.vr().relaxed());
            let length = u16::try_from(value.len().next_multiple_of(2));
            let (Some(kind), Ok(length)) = (kind, length) else { continue };
            bytes.extend([tag.group(), tag.element()].map(u16::to_le_bytes).as_flattened());
            bytes.extend(kind.to_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(2), b' ');
        }
        let object =
            InMemDicomObject::read_dataset_with_ts(bytes.as_slice(), &EXPLICIT_VR_LITTLE_ENDIAN.erased())
                .map_err(|error| DicomError::Unreadable { path: self.path.into(), why: chain(&error) })?;
        // What cannot be decoded, as a letter of two bytes that a separator of values cuts in two, is put in numbers behind backslashes.
        let is_escaped = |(tag, value): (Tag, &[u8])| {
            let text = object.get(tag).and_then(|element| element.to_str().ok());
            text.is_some_and(|text| separators(text.as_bytes()) > separators(value))
        };
        match found.clone().any(is_escaped) {
            true => Err(self.wrong()),
            false => Ok(object),
        }
    }

    /// Refuses a text with letters that are not decoded. Plain ASCII is the same in all sets.
    fn expect_known(&self, text: &[u8]) -> Result<(), DicomError> {
        let is_decoded = |set: &str| {
            let number = set.strip_prefix("ISO_IR ").or_else(|| set.strip_prefix("ISO 2022 IR "));
            SETS_ALONE.contains(&set) || number.is_some_and(|number| SETS_OF_BYTES.contains(&number))
        };
        let is_known = || self.set.as_deref().is_some_and(|set| is_decoded(trimmed(set)));
        match text.contains(&ESCAPE) || (!text.is_ascii() && !is_known()) {
            true => Err(self.wrong()),
            false => Ok(()),
        }
    }

    fn wrong(&self) -> DicomError {
        let why = match &self.set {
            None => "is missing, but texts have characters outside ASCII".into(),
            Some(set) => {
                let shown: String =
                    trimmed(set).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                format!("is `{shown}`, in which {} cannot be decoded", self.texts)
            }
        };
        DicomError::Attribute { path: self.path.into(), attribute: "SpecificCharacterSet", why }
    }
}

/// The number of separators of values in a text.
fn separators(text: &[u8]) -> usize {
    text.iter().filter(|letter| **letter == b'\\').count()
}

/// A text without padding.
pub(crate) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c == '\0' || c.is_whitespace())
}
