//! The spacing of images that have no place for it, such as TIFF: `{"spacing": [depth, height, width]}` in a file beside them, of the same name
//! with `.json`, and of an image without the number of its channel: `scan.json` beside `scan_0000.tif` and `scan_0001.tif`, as nnU-Net's
//! `Tiff3DIO` names it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::{Spacing, VolumeError};

/// The longest file that is read.
const LARGEST: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Said {
    spacing: [f64; 3],
}

/// The file beside a stack. Of a label map the name has no channel.
fn beside(path: &Path, content: Content) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_number = |text: &str| text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = match (content, stem.rsplit_once('_')) {
        (Content::Intensities, Some((case, number))) if is_number(number) && !case.is_empty() => case,
        _ => &*stem,
    };
    path.with_file_name(format!("{stem}.json"))
}

/// The spacing of a stack; none if there is no file that says it.
///
/// # Errors
/// Returns an error if there is one, but it cannot be read, or does not have three lengths above 0.
pub(crate) fn read(path: &Path, content: Content) -> Result<Option<Spacing>, VolumeError> {
    let path = beside(path, content);
    let text = match plimsoll_disk::read_to_string(&path, LARGEST) {
        Ok(text) => text,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(VolumeError::Io { path, action: "read", source }),
    };
    let wrong = |why: String| VolumeError::StackSpacing { path: path.clone(), why };
    let Said { spacing } = serde_json::from_str(&text).map_err(|problem| wrong(problem.to_string()))?;
    match spacing.iter().all(|length| length.is_finite() && *length > 0.0) {
        true => Ok(Some(Spacing(spacing))),
        false => Err(wrong(format!("it says {spacing:?}"))),
    }
}

/// The most that two equal lengths may differ by rounding, as a share of them: headers have spacings in single precision.
const ROUNDING: f64 = 1e-5;

/// Returns `true` if the file beside a label map states its spacing already. It may be the file of its image, too.
///
/// # Errors
/// Returns an error if the file cannot be read, or has another spacing: it is not replaced.
pub(crate) fn is_said(path: &Path, spacing: Spacing) -> io::Result<bool> {
    let Some(found) = read(path, Content::Labels).map_err(io::Error::other)? else { return Ok(false) };
    let mut lengths = found.0.iter().zip(spacing.0);
    if lengths.all(|(found, own)| (found - own).abs() <= ROUNDING * own) {
        return Ok(true);
    }
    let why = format!(
        "{} states a spacing of {:?}, but these labels have {:?}: write them to another folder, or remove it",
        beside(path, Content::Labels).display(),
        found.0,
        spacing.0
    );
    Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
}

/// Writes the spacing of a label map beside it, unless it is there.
///
/// # Errors
/// Returns an error if the file cannot be written, or another one exists.
pub(crate) fn write(path: &Path, spacing: Spacing) -> io::Result<()> {
    if is_said(path, spacing)? {
        return Ok(());
    }
    plimsoll_disk::atomic::write(&beside(path, Content::Labels), |file| {
        Ok(serde_json::to_writer(file, &Said { spacing: spacing.0 })?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spacing_of_an_image_is_named_without_its_channel() {
        let of = |name: &str, content| beside(&Path::new("a").join(name), content);
        assert_eq!(of("scan_0001.tif", Content::Intensities), Path::new("a/scan.json"));
        assert_eq!(of("scan_0001.tif", Content::Labels), Path::new("a/scan_0001.json"));
        assert_eq!(of("scan.v2.tiff", Content::Intensities), Path::new("a/scan.v2.json"));
        assert_eq!(of("_0000.tif", Content::Intensities), Path::new("a/_0000.json"));
    }

    #[test]
    fn a_spacing_that_cannot_be_is_an_error_and_none_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let stack = dir.path().join("a_0000.tif");
        assert_eq!(read(&stack, Content::Intensities).unwrap(), None);
        for text in
            ["", "{}", r#"{"spacing": [1, 2]}"#, r#"{"spacing": [1, 0, 2]}"#, r#"{"spacing": [1, 1e999, 2]}"#]
        {
            std::fs::write(dir.path().join("a.json"), text).unwrap();
            let error = read(&stack, Content::Intensities).unwrap_err();
            assert!(error.to_string().contains("a.json") && error.remedy().is_some(), "{text}: {error}");
        }
        // What is no spacing is not replaced by one.
        let labels = dir.path().join("a.tif");
        assert!(write(&labels, Spacing([1.4, 0.9, 1.0])).is_err());
        std::fs::remove_file(dir.path().join("a.json")).unwrap();
        write(&labels, Spacing([1.4, 0.9, 1.0])).unwrap();
        assert_eq!(read(&stack, Content::Intensities).unwrap(), Some(Spacing([1.4, 0.9, 1.0])));
    }

    #[test]
    fn the_spacing_that_is_there_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (labels, file) = (dir.path().join("a.tif"), dir.path().join("a.json"));
        let of_image = r#"{"spacing": [1.4, 0.9, 1.0], "scanner": "a microscope"}"#;
        std::fs::write(&file, of_image).unwrap();
        write(&labels, Spacing([f64::from(1.4f32), 0.9, 1.0])).unwrap();
        let error = write(&labels, Spacing([1.4, 0.9, 2.0])).unwrap_err();
        assert!(error.to_string().contains("a.json states a spacing of [1.4, 0.9, 1.0]"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), of_image);
    }
}
