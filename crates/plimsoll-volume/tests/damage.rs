//! Files that are damaged, truncated, or claim more than they can hold are refused; the error names the file and the
//! numbers.

use std::fs;
use std::path::Path;

use crate::support::{Raw, gzip};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{HeaderError, StoredVolume, VolumeError, VolumeFile, VoxelBox};
use proptest::prelude::*;

fn open(bytes: &[u8], name: &str) -> Result<VolumeFile, VolumeError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    VolumeFile::open(path)
}

/// Opens a file of 60 voxels with this header, plain and compressed, and returns the error.
fn refuse(raw: &Raw) -> HeaderError {
    let bytes = raw.single(&[1; 60]);
    let errors = [(bytes.clone(), "image.nii"), (gzip(&bytes), "image.nii.gz")].map(|(bytes, name)| {
        match open(&bytes, name).err() {
            Some(error @ VolumeError::Header { .. }) => {
                assert!(error.to_string().contains(name), "{error}");
                assert!(error.remedy().is_some(), "{error}");
                let VolumeError::Header { problem, .. } = error else { unreachable!() };
                problem
            }
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(format!("{:?}", errors[0]), format!("{:?}", errors[1]));
    errors[0].clone()
}

#[test]
fn headers_that_are_not_nifti_are_refused() {
    let raw = Raw::new([3, 4, 5]);
    let text = refuse(&Raw { magic: Some(b"nix\0"), ..raw.clone() }).to_string();
    assert!(text.contains(r#"the magic is "nix\x00", not"#), "{text}");
    // Old ANALYZE: the right size, but no signature.
    assert!(matches!(refuse(&Raw { magic: Some(&[0; 4]), ..raw.clone() }), HeaderError::Magic { .. }));
    // A transfer that converted line endings.
    let changed = Raw { version: 2, vox_offset: 544.0, magic: Some(b"n+2\0\n\n\x1a\n"), ..raw.clone() };
    assert!(matches!(refuse(&changed), HeaderError::Magic { .. }));
    assert!(matches!(refuse(&Raw { pair: true, ..raw }), HeaderError::PairInOneFile));
    let error = open(&[b'x'; 1000], "text.nii").unwrap_err();
    assert!(error.to_string().contains("the first field is 2021161080"), "{error}");
}

#[test]
fn invalid_sizes_are_refused() {
    let raw = Raw::new([3, 4, 5]);
    let dim = |dim: [i64; 8]| refuse(&Raw { dim, ..raw.clone() });
    assert_eq!(dim([3, 5, -4, 3, 1, 1, 1, 1]), HeaderError::Dimension { index: 2, found: -4 });
    assert_eq!(dim([3, 5, 4, 0, 1, 1, 1, 1]), HeaderError::Dimension { index: 3, found: 0 });
    assert_eq!(dim([0, 5, 4, 3, 1, 1, 1, 1]), HeaderError::DimensionCount { found: 0 });
    assert_eq!(dim([8, 5, 4, 3, 1, 1, 1, 1]), HeaderError::DimensionCount { found: 8 });
    assert_eq!(dim([-3, 5, 4, 3, 1, 1, 1, 1]), HeaderError::DimensionCount { found: -3 });
    let huge = 32767;
    assert!(matches!(dim([7, huge, huge, huge, huge, huge, huge, huge]), HeaderError::TooLarge { .. }));
    let second = |dim| refuse(&Raw { version: 2, vox_offset: 544.0, dim, ..raw.clone() });
    assert!(matches!(second([3, 1 << 62, 2, 1, 1, 1, 1, 1]), HeaderError::TooLarge { .. }));
    assert!(matches!(second([3, i64::MAX, 1, 1, 1, 1, 1, 1]), HeaderError::TooLarge { .. }));
    assert_eq!(second([3, i64::MIN, 1, 1, 1, 1, 1, 1]), HeaderError::Dimension { index: 1, found: i64::MIN });
    for vox_offset in [0.0, 348.0, 352.5] {
        let mut bytes = raw.single(&[1; 60]);
        bytes[108..112].copy_from_slice(&(vox_offset as f32).to_le_bytes());
        let error = open(&bytes, "image.nii").unwrap_err();
        assert!(error.to_string().contains(&format!("vox_offset is {vox_offset}")), "{error}");
    }
    for vox_offset in [f32::NAN, f32::INFINITY, -352.0] {
        let mut bytes = raw.single(&[1; 60]);
        bytes[108..112].copy_from_slice(&vox_offset.to_le_bytes());
        assert!(matches!(
            open(&bytes, "image.nii"),
            Err(VolumeError::Header { problem: HeaderError::VoxelOffset { .. }, .. })
        ));
    }
}

#[test]
fn voxels_that_are_not_real_numbers_are_refused_by_name() {
    let raw = Raw::new([3, 4, 5]);
    for (datatype, bitpix, name) in [
        (0, 0, "unknown"),
        (1, 1, "binary"),
        (32, 64, "complex64"),
        (128, 24, "RGB"),
        (1536, 128, "float128"),
        (2304, 32, "RGBA"),
        (77, 8, "not defined"),
    ] {
        let text = refuse(&Raw { datatype, bitpix, ..raw.clone() }).to_string();
        assert!(text.contains(name) && text.contains(&datatype.to_string()), "{text}");
    }
    let text = refuse(&Raw { datatype: 4, bitpix: 8, ..raw.clone() }).to_string();
    assert_eq!(text, "bitpix is 8, but voxels of i16 have 16 bits");
    let text = refuse(&Raw { slope: 2.0, intercept: f64::INFINITY, ..raw }).to_string();
    assert_eq!(text, "scl_slope is 2, but scl_inter is inf");
}

#[test]
fn invalid_positions_are_refused() {
    let raw = Raw::new([3, 4, 5]);
    let srow = |at: [usize; 2], value: f64| {
        let mut changed = raw.clone();
        changed.srow[at[0]][at[1]] = value;
        refuse(&changed).to_string()
    };
    assert_eq!(srow([1, 3], f64::NAN), "the affine is not finite: row 1, column 3 is NaN (from the sform)");
    assert!(srow([0, 0], f64::INFINITY).contains("row 0, column 2 is inf"));
    assert_eq!(srow([0, 0], 0.0), "the width spacing is 0 mm (from the sform)");
    let mut flat = raw.clone();
    flat.srow[0] = [0.1, 0.7, 0.0, 0.0];
    flat.srow[1] = [0.3, 2.1, 0.0, 0.0];
    assert!(refuse(&flat).to_string().contains("singular"), "parallel but for rounding to f32");
    let pixdim = |qform_code, index: usize, value: f64| {
        let mut changed = Raw { sform_code: 0, qform_code, ..raw.clone() };
        changed.pixdim[index] = value;
        refuse(&changed)
    };
    for code in [0, 1] {
        assert_eq!(pixdim(code, 2, -1.5), HeaderError::Spacing { index: 2, found: -1.5 });
        assert_eq!(pixdim(code, 3, 0.0), HeaderError::Spacing { index: 3, found: 0.0 });
        assert!(matches!(pixdim(code, 1, f64::NAN), HeaderError::Spacing { index: 1, .. }));
    }
    let turned = Raw { sform_code: 0, qform_code: 1, quatern: [0.9, 0.9, 0.0], ..raw.clone() };
    assert!(matches!(refuse(&turned), HeaderError::Quaternion { .. }));
    assert_eq!(refuse(&Raw { units: 5, ..raw }), HeaderError::Unit { code: 5 });
}

#[test]
fn a_truncated_file_is_refused_when_it_is_opened() {
    let bytes = Raw::new([3, 4, 5]).single(&[1; 60]);
    for (length, found) in [(411, 411), (352, 352), (348, 348)] {
        match open(&bytes[..length], "image.nii") {
            Err(error @ VolumeError::TooShort { .. }) => {
                assert!(error.to_string().contains(&format!("has {found} bytes")), "{error}");
                assert!(error.to_string().contains("end at byte 412") && error.remedy().is_some(), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    for length in [0, 3, 4, 347] {
        match open(&bytes[..length], "image.nii") {
            Err(VolumeError::NoHeader { found, .. }) => assert_eq!(found, length as u64),
            other => panic!("{other:?}"),
        }
    }
    // Trailing bytes are allowed.
    assert!(open(&[bytes, vec![9; 1000]].concat(), "image.nii").is_ok());
}

fn read_whole(path: &Path) -> Result<StoredVolume, VolumeError> {
    StoredVolume::read(path, &Budget::new(Bytes::mib(4)), "test")
}

#[test]
fn a_truncated_compressed_file_is_reported_with_how_far_it_went() {
    let folder = tempfile::tempdir().unwrap();
    let voxels: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let whole = gzip(&Raw::new([64, 128, 128]).single(&voxels));
    let path = folder.path().join("image.nii.gz");
    for length in [whole.len() / 2, whole.len() - 9, whole.len() - 4] {
        fs::write(&path, &whole[..length]).unwrap();
        match read_whole(&path) {
            Err(error @ VolumeError::Damaged { got, expected, .. }) => {
                assert_eq!(expected, 352 + (1 << 20));
                assert!(got <= expected && (length != whole.len() / 2 || got < expected), "{error}");
                assert!(error.to_string().contains("image.nii.gz") && error.remedy().is_some());
            }
            other => panic!("{length}: {:?}", other.err()),
        }
    }
    // A cut within the header, and one within gzip's own.
    let noise: Vec<u8> = (0..348u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&path, &gzip(&noise)[..100]).unwrap();
    assert!(VolumeFile::open(&path).is_err());
    fs::write(&path, &whole[..7]).unwrap();
    assert!(matches!(VolumeFile::open(&path), Err(VolumeError::Damaged { got: 0, .. })));
}

#[test]
fn a_changed_byte_in_a_compressed_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.nii.gz");
    let whole = gzip(&Raw::new([3, 4, 5]).single(&(0..60).collect::<Vec<u8>>()));
    // The checksum and the length at the end of the file.
    for at in [whole.len() - 8, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        fs::write(&path, changed).unwrap();
        let error = read_whole(&path).unwrap_err();
        assert!(matches!(error, VolumeError::Damaged { got: 412, expected: 412, .. }), "{error:?}");
        let mut file = VolumeFile::open(&path).unwrap();
        let error = file.for_each_plane(0, &Budget::new(Bytes::mib(1)), |_, _| Ok::<(), VolumeError>(()));
        assert!(matches!(error, Err(VolumeError::Damaged { .. })));
        // Earlier voxels can still be read, even after the error.
        let mut voxel = [0];
        file.read_region(0, VoxelBox { start: [1, 0, 0], shape: [1; 3] }, &mut voxel).unwrap();
        assert_eq!(voxel, [20]);
    }
}

#[test]
fn a_claim_of_sixty_gigabytes_is_refused_before_anything_is_allocated() {
    let mut raw = Raw::new([1; 3]);
    raw.dim = [3, 2000, 3000, 10_000, 1, 1, 1, 1];
    let bytes = raw.single(&[1; 60]);
    let error = open(&bytes, "image.nii").unwrap_err();
    assert!(matches!(error, VolumeError::TooShort { needed: 60_000_000_352, found: 412, .. }), "{error}");
    let compressed = gzip(&bytes);
    let error = open(&compressed, "image.nii.gz").unwrap_err();
    assert!(
        matches!(error, VolumeError::ImpossibleSize { needed: 60_000_000_352, compressed: c, most, .. }
            if c == compressed.len() as u64 && most == c * 1032),
        "{error}"
    );
    assert!(error.remedy().is_some());
    // The image of a pair is the file that must hold the voxels.
    let folder = tempfile::tempdir().unwrap();
    let path = Raw { pair: true, vox_offset: 0.0, ..raw }.write(folder.path(), "pair", false, &[1; 60]);
    match VolumeFile::open(path) {
        Err(VolumeError::TooShort { path, needed: 60_000_000_000, found: 60 }) => {
            assert!(path.ends_with("pair.img"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_size_that_the_compressed_length_allows_is_still_held_to_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.nii.gz");
    // 64 MB of zeroes compress to about 64 kB.
    let raw = Raw::new([64, 1000, 1000]);
    fs::write(&path, gzip(&raw.single(&vec![0; 64_000_000]))).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 100_000);
    assert!(matches!(read_whole(&path), Err(VolumeError::Memory { .. })));
}

#[test]
fn what_follows_the_voxels_of_a_compressed_image_is_read_up_to_a_limit_and_more_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.nii.gz");
    let mut image = Raw::new([3, 4, 5]).single(&(0..60).collect::<Vec<u8>>());
    let end = image.len();
    image.resize(end + (1 << 20), 0);
    fs::write(&path, gzip(&image)).unwrap();
    read_whole(&path).unwrap();
    image.resize(end + (64 << 20), 0);
    fs::write(&path, gzip(&image)).unwrap();
    let error = read_whole(&path).unwrap_err();
    let named = matches!(&error, VolumeError::Trailing { end: at, most: 1_048_576, .. } if *at == end as u64);
    assert!(named && error.to_string().contains("image.nii.gz") && error.remedy().is_some(), "{error}");
}

#[test]
fn missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = VolumeFile::open(folder.path().join("missing.nii.gz")).unwrap_err();
    assert!(missing.to_string().contains("missing.nii.gz") && missing.remedy().is_some());
    fs::write(folder.path().join("image.gipl"), "of no format that is read").unwrap();
    let name = VolumeFile::open(folder.path().join("image.gipl")).unwrap_err();
    assert!(matches!(name, VolumeError::UnknownName { .. }));
    let half = folder.path().join("half.hdr");
    fs::write(&half, Raw { pair: true, ..Raw::new([1; 3]) }.header()).unwrap();
    let error = VolumeFile::open(half).unwrap_err();
    assert!(error.to_string().contains("half.img, ") && error.to_string().contains("half.img.gz"), "{error}");
    fs::create_dir(folder.path().join("folder.nii")).unwrap();
    assert!(matches!(VolumeFile::open(folder.path().join("folder.nii")), Err(VolumeError::Io { .. })));
}

proptest! {
    #[test]
    fn no_corruption_panics_or_exceeds_the_budget(
        second: bool, pair: bool, compressed: bool,
        changes in prop::collection::vec((0usize..352, any::<u8>()), 1..6),
        length in 300usize..480,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut raw = Raw { pair, ..Raw::new([3, 4, 5]) };
        if second {
            (raw.version, raw.vox_offset) = (2, 544.0);
        }
        let path = raw.write(folder.path(), "image", compressed, &[1; 60]);
        let mut bytes = if pair { raw.header() } else { raw.single(&[1; 60]) };
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length + if second { 192 } else { 0 });
        fs::write(&path, if compressed { gzip(&bytes) } else { bytes }).unwrap();
        let budget = Budget::new(Bytes::mib(1));
        if let Err(error) = StoredVolume::read(&path, &budget, "test") {
            prop_assert!(error.to_string().contains("image."), "{}", error);
        }
    }
}
