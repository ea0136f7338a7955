//! Bytes that a server reads from the network.

use plimsoll_memory::Bytes;
use plimsoll_serve::inputs::{part_lengths, read_upload, refused_text};

use crate::folder::Folder;

/// The limit of unpacked bytes.
const UNPACKED: Bytes = Bytes(256 << 10);
/// The bytes of a body that arrive at a time.
const STEPS: [usize; 3] = [1, 7, 1 << 10];

/// An upload.
pub fn serve_upload(bytes: &[u8]) {
    let folder = Folder::with("upload", bytes);
    let images = folder.path().join("images");
    match read_upload(&folder.path().join("upload"), UNPACKED, &images) {
        Ok(()) if images.exists() => {
            let mut unpacked = 0;
            for file in std::fs::read_dir(&images).into_iter().flatten().flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                assert!(name.starts_with("image_") && name.contains(".nii"), "{name}");
                unpacked += file.metadata().map_or(0, |metadata| metadata.len());
            }
            assert!(unpacked <= UNPACKED.0, "{unpacked}");
        }
        Ok(()) => {}
        Err(refused) => {
            for text in [&refused.error, &refused.hint] {
                assert!(!text.is_empty() && text.lines().count() == 1, "{text}");
                assert!(!text.contains(&*folder.path().to_string_lossy()), "{text}");
            }
        }
    }
    // Nothing is written beside it.
    let beside = std::fs::read_dir(folder.path()).into_iter().flatten().count();
    assert!(beside <= 2, "{beside} files");
}

/// The answer of an archive with the instances of a series: its content type in the first line, then the body.
pub fn serve_parts(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let content_type = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let body = lines.next().unwrap_or_default();
    let whole = part_lengths(&content_type, [body]);
    if let Some(whole) = &whole {
        assert!(whole.lengths.iter().sum::<u64>() <= body.len() as u64);
    }
    for step in STEPS {
        assert_eq!(part_lengths(&content_type, body.chunks(step)), whole, "in steps of {step}");
    }
}

/// A message of the Model Context Protocol.
pub fn serve_message(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(answer) = refused_text(text) {
        assert_eq!(answer.lines().count(), 1, "{answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        assert!(answer["error"]["code"].is_i64() && answer["error"]["message"].is_string(), "{answer}");
    }
}
