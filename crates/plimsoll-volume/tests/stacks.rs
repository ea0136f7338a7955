//! TIFF files of several pages as volumes: what is written is read back, by regions and a page at a time, and what is damaged is refused.

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
    // An image has one spacing for all of its channels.
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
        assert!(error.to_string().contains("damaged.tif") && error.remedy().is_some(), "{length}: {error}");
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

/// `oracles/volume_formats.py` made them with tifffile, which says the same lengths.
fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/formats").join(name)
}

/// Copies the slices of the oracle into a folder, each under the name that is given for it.
fn slices(folder: &Path, names: &[(u32, &str)]) -> PathBuf {
    let to = folder.join("scan.tif");
    fs::create_dir_all(&to).unwrap();
    for (number, name) in names {
        fs::copy(oracle("slices_0000.tif").join(format!("slice_{number}.tif")), to.join(name)).unwrap();
    }
    to
}

#[test]
fn units_of_imagej_and_ome_are_those_of_the_file_and_a_file_beside_it_decides() {
    let dir = tempfile::tempdir().unwrap();
    for (name, unit) in
        [("imagej.tif", 1.0), ("imagej_um.tif", 1e-3), ("sizes.ome.tif", 1e-3), ("big.tif", 1.0)]
    {
        let file = VolumeFile::open(oracle(name)).unwrap();
        assert_eq!((file.millimetres_per_unit(), file.warnings().len()), (unit, 0), "{name}");
    }
    let path = dir.path().join("a.tif");
    fs::copy(oracle("imagej_um.tif"), &path).unwrap();
    fs::write(dir.path().join("a.json"), r#"{"spacing": [3, 2, 1]}"#).unwrap();
    let file = VolumeFile::open(&path).unwrap();
    assert_eq!((file.geometry().spacing(), file.millimetres_per_unit()), (Spacing([3.0, 2.0, 1.0]), 1.0));
    // The same letters with another unit, with none, and with a length that is none.
    let bytes = fs::read(oracle("imagej.tif")).unwrap();
    fs::remove_file(dir.path().join("a.json")).unwrap();
    let with = |text: &[u8]| {
        let at = bytes.windows(8).position(|window| window == b"unit=mm\n").unwrap();
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(text);
        fs::write(&path, bytes).unwrap();
        VolumeFile::open(&path)
    };
    assert!(with(b"unit=ly\n").unwrap().warnings()[0].contains("\"ly\", which is not a unit of length"));
    assert!(with(b"what=mm\n").unwrap().warnings()[0].contains("‹unit›"));
    let spacing = bytes.windows(11).position(|window| window == b"spacing=2.5").unwrap();
    let mut wrong = bytes.clone();
    wrong[spacing + 8..spacing + 11].copy_from_slice(b"0.0");
    fs::write(&path, wrong).unwrap();
    let error = VolumeFile::open(&path).unwrap_err();
    assert!(matches!(error, VolumeError::StackLengths { .. }) && error.remedy().is_some(), "{error}");
}

#[test]
fn a_folder_of_slices_is_one_volume_and_holds_a_slice_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let folder = slices(dir.path(), &[(8, "a_9.tif"), (9, "a_10.tif"), (10, "a_11.tif"), (11, "a_12.tif")]);
    let mut file = VolumeFile::open(&folder).unwrap();
    assert_eq!((file.geometry().shape(), file.element_type()), ([4, 5, 6], ElementType::F32));
    let budget = Budget::new(Bytes::mib(5));
    file.decode(&budget).unwrap();
    assert!(budget.used() <= file.decoding_bytes());
    let mut voxels = vec![0.0; 120];
    file.region_f32(0, VoxelBox::whole([4, 5, 6]), &mut voxels).unwrap();
    assert!(voxels.iter().zip((0..120u16).map(|at| f32::from(3 * at) / 4.0)).all(|(a, b)| *a == b));
    // Without an ending, what is in it tells.
    let named = dir.path().join("scan");
    fs::rename(&folder, &named).unwrap();
    assert_eq!(VolumeFile::open(&named).unwrap().geometry().shape(), [4, 5, 6]);
    // A slice that was exchanged since.
    fs::copy(oracle("big.tif"), named.join("a_10.tif")).unwrap();
    assert!(VolumeFile::open(&named).unwrap_err().to_string().contains("several pages"));
}

#[test]
fn slices_that_are_missing_or_differ_are_named() {
    for (names, says) in [
        (&[(8, "a_1.tif"), (9, "a_2.tif"), (10, "a_4.tif")][..], "number 3 between a_2.tif and a_4.tif"),
        (&[(8, "a_1.tif"), (9, "b_2.tif")], "a_1.tif and b_2.tif"),
        (&[], "it has no slices"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let error = VolumeFile::open(slices(dir.path(), names)).unwrap_err();
        assert!(error.to_string().contains(says) && error.remedy().is_some(), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = slices(dir.path(), &[(8, "a_1.tif"), (9, "a_2.tif")]);
    let geometry = Geometry::new([1, 2, 2], Affine::from_spacing(SPACING)).unwrap();
    let mut other =
        VolumeWriter::create(folder.join("a_3.tif"), &geometry, 1, ElementType::U8, None).unwrap();
    other.write_planes(&[1, 2, 3, 4]).unwrap();
    other.finish().unwrap();
    let error = VolumeFile::open(&folder).unwrap_err();
    assert!(error.to_string().contains("a_3.tif has 2 × 2 samples of u8"), "{error}");
}
