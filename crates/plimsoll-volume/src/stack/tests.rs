//! Stacks as other programs write them, made by hand.

use std::path::PathBuf;

use plimsoll_memory::Bytes;
use tiff::encoder::TiffEncoder;
use tiff::encoder::colortype::RGB8;
use tiff::tags::Tag;

use super::*;

/// Types of entries.
const ASCII: u16 = 2;
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// A little-endian file of pages of 8 bits, each of this number of rows and columns and each row in a strip of its own;
/// its first page has a description. The number of strips is given as `more` too many.
fn stack(folder: &Path, [pages, height, width]: [u32; 3], description: &[u8], more: u32) -> PathBuf {
    let mut file = vec![b'I', b'I', 42, 0, 8, 0, 0, 0];
    for page in 0..pages {
        let put = |file: &mut Vec<u8>, tag: u16, kind: u16, count: u32, value: u32| {
            file.extend(tag.to_le_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(count.to_le_bytes());
            file.extend(value.to_le_bytes());
        };
        // The directory, the places of rows, how long they are, the description, the rows.
        let entries = 10;
        let places = file.len() as u32 + 2 + 12 * entries + 4;
        let lengths = places + 4 * height;
        let text = lengths + 4 * height;
        let rows = text + description.len() as u32;
        let next = if page + 1 == pages { 0 } else { rows + height * width };
        file.extend((entries as u16).to_le_bytes());
        put(&mut file, 256, LONG, 1, width);
        put(&mut file, 257, LONG, 1, height);
        put(&mut file, 258, SHORT, 1, 8);
        put(&mut file, 259, SHORT, 1, 1);
        put(&mut file, 262, SHORT, 1, 1);
        put(&mut file, 270, ASCII, description.len() as u32, text);
        put(&mut file, 273, LONG, height + more, places);
        put(&mut file, 277, SHORT, 1, 1);
        put(&mut file, 278, LONG, 1, 1);
        put(&mut file, 279, LONG, height, lengths);
        file.extend(next.to_le_bytes());
        for row in 0..height {
            file.extend((rows + row * width).to_le_bytes());
        }
        for _ in 0..height {
            file.extend(width.to_le_bytes());
        }
        file.extend(description);
        file.extend((0..height * width).map(|at| (page * 100 + at) as u8));
    }
    let path = folder.join("a.tif");
    std::fs::write(&path, file).unwrap();
    path
}

fn read(path: &Path) -> Result<Vec<u8>, VolumeError> {
    let Opened { layout, mut source, .. } = Stack::open(path, Content::Intensities)?.unwrap();
    source.decode(&Budget::new(Bytes::mib(8)))?;
    let mut bytes = vec![0; layout.bytes as usize];
    source.read(0, 0, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn pages_of_short_rows_each_in_a_strip_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let expected: Vec<u8> = (0..3).flat_map(|page| (0..60).map(move |at| (page * 100 + at) as u8)).collect();
    assert_eq!(read(&stack(folder.path(), [3, 60, 1], b"rows", 0)).unwrap(), expected);
}

#[test]
fn a_description_in_another_encoding_is_read_as_far_as_it_matters() {
    let folder = tempfile::tempdir().unwrap();
    let sound = b"ImageJ=1.11a\nchannels=1\nunit=\xb5m\n";
    assert_eq!(read(&stack(folder.path(), [2, 3, 4], sound, 0)).unwrap().len(), 24);
    let several = b"ImageJ=1.11a\nunit=\xb5m\nchannels=2\n";
    let error = read(&stack(folder.path(), [2, 3, 4], several, 0)).unwrap_err();
    assert!(error.to_string().contains("channels of 2"), "{error}");
    // However long it is.
    let long = [&several[..], &vec![b' '; 1 << 20]].concat();
    let error = read(&stack(folder.path(), [2, 3, 4], &long, 0)).unwrap_err();
    assert!(error.to_string().contains("channels of 2"), "{error}");
}

#[test]
fn an_entry_of_millions_of_values_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let error = read(&stack(folder.path(), [2, 3, 4], b"many", 1 << 22)).unwrap_err();
    assert!(error.to_string().contains("4194307 values") && error.remedy().is_some(), "{error}");
}

#[test]
fn a_picture_of_three_colours_is_left_to_the_reader_of_pictures_whatever_its_description_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tif");
    let mut file = std::io::Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut file).unwrap();
    let mut picture = encoder.new_image::<RGB8>(2, 4).unwrap();
    picture.encoder().write_tag(Tag::ImageDescription, r#"{"shape": [4, 2, 3]}"#).unwrap();
    picture.write_data(&[7; 24]).unwrap();
    std::fs::write(&path, file.into_inner()).unwrap();
    assert!(Stack::open(&path, Content::Intensities).unwrap().is_none());
    // Grey pages of several planes behind one directory are refused.
    let grey = stack(folder.path(), [1, 4, 2], br#"{"shape": [3, 4, 2]}"#, 0);
    assert!(Stack::open(&grey, Content::Intensities).is_err());
}
