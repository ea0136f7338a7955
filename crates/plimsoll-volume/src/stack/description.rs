//! What programs of microscopy write into the description of the first page: whether pages are planes of one channel at one time, or of
//! several, which the pages themselves do not tell.

use std::io::BufReader;

use plimsoll_disk::File;
use tiff::decoder::Decoder;
use tiff::tags::Tag;
use tiff::{TiffError, TiffResult};

/// Bytes of a description that are read, at the beginning of which all of this is said.
const READ: usize = 64 << 10;

/// Why so many pages are not the planes of one volume, by the description of the first page; none if they are, or nothing is said.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn several_channels(
    decoder: &mut Decoder<BufReader<File>>,
    pages: usize,
) -> TiffResult<Option<String>> {
    decoder.seek_to_image(0)?;
    let mut bytes = vec![0; READ];
    match decoder.image_ifd().find_tag_bytes(Tag::ImageDescription, &mut bytes, 0) {
        Ok(_) => {}
        Err(problem @ TiffError::IoError(_)) => return Err(problem),
        // It is no text.
        Err(_) => return Ok(None),
    }
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&bytes);
    // Names of units may be in another encoding than UTF-8.
    Ok(found(&String::from_utf8_lossy(text), pages))
}

fn found(text: &str, pages: usize) -> Option<String> {
    let more = |what: &str, count: &str| {
        let is_one = count.parse() == Ok(1u64);
        (!is_one).then(|| {
            format!("its description says {what} of {count}, and pages are planes of one channel at one time")
        })
    };
    if text.starts_with("ImageJ=") {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        return ["channels", "frames"].into_iter().find_map(|key| more(key, line(key)?.trim()));
    }
    if text.contains("<OME") {
        let attribute = |key: &str| text.split_once(&format!("{key}=\""))?.1.split('"').next();
        return ["SizeC", "SizeT"].into_iter().find_map(|key| more(key, attribute(key)?));
    }
    // tifffile's own.
    let shape = serde_json::from_str::<serde_json::Value>(text).ok()?.get("shape")?.as_array()?.clone();
    let is_volume =
        shape.len() == 3 && shape.first().and_then(serde_json::Value::as_u64) == Some(pages as u64);
    (!is_volume).then(|| {
        let shape = serde_json::Value::from(shape);
        format!(
            "its description says an array of shape {shape}, and its {pages} pages are planes of one volume"
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
            assert_eq!(found(text, 5), None, "{text}");
        }
        for (text, says) in [
            ("ImageJ=1.11a\nimages=4\nchannels=2\nslices=2\n", "channels of 2"),
            ("ImageJ=1.11a\nimages=4\nframes=4\n", "frames of 4"),
            (r#"{"shape": [2, 2, 33, 35]}"#, "[2,2,33,35]"),
            (r#"<OME><Pixels SizeZ="2" SizeC="2" SizeT="1"/></OME>"#, "SizeC of 2"),
        ] {
            assert!(found(text, 4).unwrap().contains(says), "{text}");
        }
    }
}
