//! TIFF files of several pages as volumes: what is written is read back, by regions and a page at a time, and what is damaged is refused.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{
    Affine, ElementType, Geometry, Spacing, StoredVolume, VolumeError, VolumeFile, VolumeWriter, VoxelBox,
};

const SHAPE: [usize; 3] = [5, 7, 9];
const SPACING: Spacing = Spacing([2.5, 0.5, 0.75]);

fn value(at: usize) -> u16 {
    (at * 37 % 251) as u16
}

/// Writes labels of 8 or 16 bits, some planes at a time.
fn written(folder: &Path, name: &str, element: ElementType) -> PathBuf {
    let path = folder.join(name);
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(SPACING)).unwrap();
    let mut writer = VolumeWriter::create(&path, &geometry, 1, element, None).unwrap();
    let voxels = 0..SHAPE.iter().product();
    let bytes: Vec<u8> = match element {
        ElementType::U8 => voxels.map(|at| value(at) as u8).collect(),
        _ => voxels.flat_map(|at| (value(at) * 200).to_ne_bytes()).collect(),
    };
    let plane = writer.plane_bytes();
    writer.write_planes(&bytes[..3 * plane]).unwrap();
    writer.write_planes(&bytes[3 * plane..]).unwrap();
    writer.finish().unwrap();
    path
}

#[test]
fn what_is_written_is_read_back_with_its_spacing() {
    let dir = tempfile::tempdir().unwrap();
    for (name, element, factor) in [("a.tif", ElementType::U8, 1), ("b.TIFF", ElementType::U16, 200)] {
        let path = written(dir.path(), name, element);
        let mut file = VolumeFile::open_labels(&path).unwrap();
        assert_eq!((file.geometry().shape(), file.element_type()), (SHAPE, element));
        assert_eq!(file.geometry().spacing(), SPACING);
        assert!(!file.is_picture() && file.header().is_none());
        // A page is all that is held of it, and the decoder's own.
        let budget = Budget::new(Bytes::mib(5));
        let region = VoxelBox { start: [1, 2, 3], shape: [3, 4, 5] };
        let mut voxels = vec![0.0; 60];
        let not_yet = file.region_f32(0, region, &mut voxels).unwrap_err();
        assert!(matches!(not_yet, VolumeError::NotDecoded { .. }), "{not_yet}");
        file.decode(&budget).unwrap();
        assert!(budget.used() <= file.decoding_bytes());
        file.region_f32(0, region, &mut voxels).unwrap();
        for (number, voxel) in voxels.iter().enumerate() {
            let [d, h, w] = [1 + number / 20, 2 + number / 5 % 4, 3 + number % 5];
            assert_eq!(*voxel, f32::from(value((d * 7 + h) * 9 + w) * factor));
        }
        drop(file);
        assert_eq!(budget.used(), Bytes::ZERO);
        let whole = StoredVolume::read(&path, &budget, "test").unwrap();
        assert_eq!(whole.bytes().len(), 315 * element.size());
    }
    // Of an image, the spacing is that of all of its channels.
    fs::rename(dir.path().join("a.tif"), dir.path().join("case_0001.tif")).unwrap();
    fs::rename(dir.path().join("a.json"), dir.path().join("case.json")).unwrap();
    let file = VolumeFile::open(dir.path().join("case_0001.tif")).unwrap();
    assert_eq!(file.geometry().spacing(), SPACING);
}

#[test]
fn a_file_that_is_cut_off_or_changed_is_refused_or_read_and_never_more() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(written(dir.path(), "a.tif", ElementType::U8)).unwrap();
    let path = dir.path().join("damaged.tif");
    let budget = Budget::new(Bytes::mib(32));
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        StoredVolume::read(&path, &budget, "test")
    };
    for length in 0..whole.len() {
        // Directories stand at the end, so that none of these has all of them.
        let error = read(&whole[..length]).unwrap_err();
        assert!(error.to_string().contains("damaged.tif") && error.hint().is_some(), "{length}: {error}");
    }
    let mut refused = 0;
    for at in 0..whole.len() {
        for flipped in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flipped;
            refused += usize::from(read(&bytes).is_err());
            assert_eq!(budget.used(), Bytes::ZERO);
        }
    }
    assert!(refused > whole.len() / 4, "{refused} of {}", 3 * whole.len());
    assert_eq!(read(&whole).unwrap().geometry().shape(), SHAPE);
}

#[test]
fn labels_that_tiff_has_no_place_for_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(SPACING)).unwrap();
    for (name, channels, element) in [
        ("a.tif", 2, ElementType::U8),
        ("a.tif", 1, ElementType::F32),
        ("a.png", 1, ElementType::U8),
        ("a.bmp", 1, ElementType::U8),
    ] {
        let refused = VolumeWriter::create(dir.path().join(name), &geometry, channels, element, None);
        assert!(matches!(refused, Err(VolumeError::UnwritablePicture { .. })), "{name}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
