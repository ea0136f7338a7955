//! The description that programs of microscopy write into the first page: whether pages are planes of one channel at one time, or of
//! several, which the pages themselves do not state; and the distance between them.

use std::io::BufReader;

use plimsoll_disk::File;
use tiff::decoder::Decoder;
use tiff::decoder::ifd::Value;
use tiff::tags::Tag;
use tiff::{TiffError, TiffResult};

use super::lengths::{Lengths, attribute, pixels};

/// The bytes of a description that are read: all of this is at its beginning.
const READ: usize = 64 << 10;

/// The description of a page, and its pixels per unit along x and y.
pub(super) struct Description {
    text: String,
    per_unit: [Option<f64>; 2],
}

impl Description {
    /// Reads the description of the present page.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(super) fn read(decoder: &mut Decoder<BufReader<File>>) -> TiffResult<Description> {
        let mut bytes = vec![0; READ];
        let text = match decoder.image_ifd().find_tag_bytes(Tag::ImageDescription, &mut bytes, 0) {
            Ok(_) => bytes.split(|byte| *byte == 0).next().unwrap_or(&bytes),
            Err(problem @ TiffError::IoError(_)) => return Err(problem),
            // It is no text.
            Err(_) => &[],
        };
        // Names of units may be in another encoding than UTF-8.
        let text = String::from_utf8_lossy(text).into_owned();
        let mut per_unit = [None; 2];
        for (found, tag) in per_unit.iter_mut().zip([Tag::XResolution, Tag::YResolution]) {
            *found = match decoder.find_tag(tag) {
                Ok(Some(Value::Rational(above, below))) => Some(f64::from(above) / f64::from(below)),
                Err(problem @ TiffError::IoError(_)) => return Err(problem),
                // It is no number of pixels.
                Ok(_) | Err(_) => None,
            };
        }
        Ok(Description { text, per_unit })
    }

    /// The reason why these pages are not the planes of one volume; none if they are, or the file states nothing.
    pub(super) fn several_channels(&self, pages: usize) -> Option<String> {
        several_channels(&self.text, pages)
    }

    /// The distances between voxels.
    ///
    /// # Errors
    /// In words, if they are no lengths.
    pub(super) fn lengths(&self) -> Result<Lengths, String> {
        Lengths::said(&self.text, self.per_unit)
    }
}

fn several_channels(text: &str, pages: usize) -> Option<String> {
    let other = |what: &str, count: &str, expected: usize, why: &str| {
        let is_expected = count.parse() == Ok(expected);
        (!is_expected).then(|| format!("its description states {what} of {count}, but {why}"))
    };
    let one = "pages are planes of one channel at one time";
    let all = format!("it has {pages} of them");
    if text.starts_with("ImageJ=") {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let counts = [("channels", 1, one), ("frames", 1, one), ("images", pages, &all)];
        return counts.iter().find_map(|(key, count, why)| other(key, line(key)?.trim(), *count, why));
    }
    if text.contains("<OME") {
        let images = text.matches("<Pixels").count();
        if images > 1 {
            return Some(format!("its description states {images} images, but only one is supported"));
        }
        let pixels = pixels(text)?;
        let counts = [("SizeC", 1, one), ("SizeT", 1, one), ("SizeZ", pages, &all)];
        return counts.iter().find_map(|(key, count, why)| other(key, attribute(pixels, key)?, *count, why));
    }
    // tifffile's own.
    let shape = serde_json::from_str::<serde_json::Value>(text).ok()?.get("shape")?.as_array()?.clone();
    let extents: Option<Vec<u64>> = shape.iter().map(serde_json::Value::as_u64).collect();
    let is_volume = match extents.as_deref() {
        Some([_, _] | [_, _, 1]) if pages == 1 => true,
        Some([depth, _, _]) => *depth == pages as u64,
        _ => false,
    };
    (!is_volume).then(|| {
        let shape = serde_json::Value::from(shape);
        format!(
            "its description states an array of shape {shape}, but its {pages} pages are planes of one volume"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_several_channels_or_times_are_no_volume() {
        for text in [
            "",
            "a slice of a mouse",
            "ImageJ=1.11a\nimages=5\nslices=5\n",
            "ImageJ=1.11a\nimages=5\nchannels=1\nslices=5\n",
            r#"{"shape": [5, 33, 35]}"#,
            r#"<?xml version="1.0"?><OME><Pixels SizeX="3" SizeZ="5" SizeC="1" SizeT="1"/></OME>"#,
        ] {
            assert_eq!(several_channels(text, 5), None, "{text}");
        }
        assert_eq!(several_channels(r#"{"shape": [33, 35, 1]}"#, 1), None);
        for (text, says) in [
            ("ImageJ=1.11a\nimages=4\nchannels=2\nslices=2\n", "channels of 2"),
            ("ImageJ=1.11a\nimages=4\nframes=4\n", "frames of 4"),
            ("ImageJ=1.11a\nimages=5\nslices=5\n", "images of 5"),
            (r#"{"shape": [2, 2, 33, 35]}"#, "[2,2,33,35]"),
            (r#"<OME><Pixels SizeZ="2" SizeC="2" SizeT="1"/></OME>"#, "SizeC of 2"),
            (r#"<OME><Pixels SizeZ="2" SizeC="1" SizeT="1"/></OME>"#, "SizeZ of 2"),
            (r#"<OME><Pixels SizeZ="4"/><Pixels SizeZ="4"/></OME>"#, "2 images"),
        ] {
            assert!(several_channels(text, 4).unwrap().contains(says), "{text}");
        }
    }
}
