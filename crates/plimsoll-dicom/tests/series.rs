//! Series come to the voxels and places that SimpleITK finds, and what is no volume is told: `oracles/dicom_series.py` made the files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_dicom::{DicomError, Series, has_dicom};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, VolumeFile, VoxelBox};
use serde::Deserialize;

const SHAPE: [usize; 3] = [6, 9, 12];

#[derive(Deserialize)]
struct Known {
    voxels: Vec<f64>,
    points: [[f64; 3]; 4],
}

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom").join(name)
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(16))
}

#[test]
fn voxels_and_their_places_are_simpleitks() {
    let dir = tempfile::tempdir().unwrap();
    let known: HashMap<String, Known> =
        serde_json::from_slice(&fs::read(oracle("series.json")).unwrap()).unwrap();
    assert_eq!(known.len(), 3);
    for (name, known) in known {
        assert!(has_dicom(&oracle(&name)).unwrap());
        let series = Series::find(&oracle(&name), &budget()).unwrap();
        assert_eq!(series.what(), format!("CT {name}"));
        let path = dir.path().join(format!("{name}.nii.gz"));
        let budget = budget();
        series.write(&path, &budget, &AtomicBool::new(false)).unwrap();
        assert_eq!(budget.used(), Bytes::ZERO);
        let mut file = VolumeFile::open(&path).unwrap();
        assert_eq!(file.geometry().shape(), SHAPE);
        let expected_type = if name == "floats" { ElementType::F32 } else { ElementType::I16 };
        assert_eq!(file.element_type(), expected_type);
        let mut voxels = vec![0.0; SHAPE.iter().product()];
        file.region_f32(0, VoxelBox::whole(SHAPE), &mut voxels).unwrap();
        assert!(voxels.iter().zip(&known.voxels).all(|(found, known)| f64::from(*found) == *known), "{name}");
        let corners = [[0.0; 3], [5.0, 0.0, 0.0], [0.0, 8.0, 0.0], [0.0, 0.0, 11.0]];
        for (corner, [x, y, z]) in corners.into_iter().zip(known.points) {
            let found = file.geometry().voxel_to_world(corner);
            // NIfTI's world is RAS, and its affine of single precision.
            for (found, known) in found.into_iter().zip([-x, -y, z]) {
                assert!((found - known).abs() < 1e-3, "{name}: {corner:?} is at {found}, not {known}");
            }
        }
    }
}

/// A copy of a series, to be spoilt.
fn copy(name: &str, to: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(to).unwrap();
    let mut files: Vec<PathBuf> =
        fs::read_dir(oracle(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let copied = |from: &PathBuf| {
        let path = to.join(format!("{name}_{}", from.file_name().unwrap().to_str().unwrap()));
        fs::copy(from, &path).unwrap();
        path
    };
    files.iter().map(copied).collect()
}

fn error(folder: &Path) -> DicomError {
    let error = Series::find(folder, &budget()).unwrap_err();
    assert!(error.hint().is_some() && error.to_string().lines().count() == 1, "{error}");
    error
}

#[test]
fn what_makes_no_volume_is_told_by_name_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let (none, gap, two, twice) =
        (dir.path().join("none"), dir.path().join("gap"), dir.path().join("two"), dir.path().join("twice"));
    fs::create_dir(&none).unwrap();
    fs::write(none.join("readme.txt"), "no DICOM").unwrap();
    assert!(!has_dicom(&none).unwrap());
    assert!(matches!(error(&none), DicomError::Nothing { .. }));

    // The slices are files 02, 01, 00, 05, 04, 03 in their order.
    let files = copy("short", &gap);
    fs::remove_file(&files[0]).unwrap();
    let told = error(&gap);
    assert!(matches!(&told, DicomError::Gap { missing: Some(1), .. }), "{told}");
    let told = told.to_string();
    assert!(told.contains("short_01.dcm") && told.contains("short_05.dcm"), "{told}");
    assert!(told.contains("5.000 mm, but slices are 2.500 mm apart: 1 missing"), "{told}");

    copy("short", &two.join("deeper"));
    copy("tilted", &two);
    let told = error(&two).to_string();
    assert!(
        told.contains("2 series") && told.contains("CT short (6 slices, ") && told.contains("CT tilted"),
        "{told}"
    );

    let files = copy("short", &twice);
    fs::copy(&files[3], twice.join("again.dcm")).unwrap();
    let told = error(&twice);
    assert!(matches!(told, DicomError::Doubled { .. }), "{told}");
    assert!(told.to_string().contains("again.dcm") && told.to_string().contains("short_03.dcm"), "{told}");
}

#[test]
fn damaged_files_are_errors_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.nii.gz");
    let folder = dir.path().join("series");
    let files = copy("floats", &folder);
    let whole = fs::read(&files[0]).unwrap();
    let series = Series::find(&folder, &budget()).unwrap();
    let write = |budget: &Budget, stop| series.write(&out, budget, &AtomicBool::new(stop));
    assert!(matches!(write(&budget(), true), Err(DicomError::Interrupted { .. })));
    assert!(matches!(write(&Budget::new(Bytes(5000)), false), Err(DicomError::OverBudget(_))));
    // Cut off within the pixels, and within the header.
    fs::write(&files[0], &whole[..whole.len() - 60]).unwrap();
    let told = write(&budget(), false).unwrap_err().to_string();
    assert!(told.contains("floats_00.dcm"), "{told}");
    assert!(!out.exists());
    for length in (133..whole.len() / 2).step_by(17) {
        fs::write(&files[0], &whole[..length]).unwrap();
        // Either it cannot be read, or what it says is incomplete; never a volume.
        let told = error(&folder).to_string();
        assert!(told.contains("floats_"), "{length}: {told}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// The file with what `change` makes of its bytes, alone in a folder.
fn changed(folder: &Path, name: &str, change: impl Fn(&mut Vec<u8>)) -> String {
    let files = copy(name, folder);
    files.iter().skip(1).for_each(|file| fs::remove_file(file).unwrap());
    let mut bytes = fs::read(&files[0]).unwrap();
    change(&mut bytes);
    fs::write(&files[0], bytes).unwrap();
    error(folder).to_string()
}

/// Where an element of explicit VR begins.
fn find(bytes: &[u8], element: &[u8]) -> usize {
    bytes.windows(element.len()).position(|found| found == element).unwrap()
}

#[test]
fn lengths_and_depths_that_a_file_only_claims_and_pixels_of_other_kinds_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("series");
    // A text of four gigabytes.
    let long = b"\x09\x00\x10\x00UT\x00\x00\xfe\xff\xff\xff";
    let told = changed(&folder, "short", |bytes| bytes.extend_from_slice(long));
    assert!(told.contains("an element has 4294967294 bytes, but 0 are left"), "{told}");
    // Sequences within sequences, of lengths that end at delimiters.
    let deeper = b"\x08\x00\x40\x11SQ\x00\x00\xff\xff\xff\xff\xfe\xff\x00\xe0\xff\xff\xff\xff";
    let told = changed(&folder, "short", |bytes| bytes.extend(deeper.repeat(10_000)));
    assert!(told.contains("nested deeper than 32"), "{told}");
    let told = changed(&folder, "short", |bytes| {
        let at = find(bytes, b"\x28\x00\x02\x01US\x02\x00");
        bytes[at + 8] += 1;
    });
    assert!(told.contains("HighBit is 12, but the highest of 12 bits is 11"), "{told}");
    let told = changed(&folder, "short", |bytes| {
        let at = find(bytes, b"MONOCHROME2");
        bytes[at..at + 11].copy_from_slice(b"PALETTE COL");
    });
    assert!(told.contains("PhotometricInterpretation is PALETTE COL"), "{told}");
    let told = changed(&folder, "short", |bytes| {
        let at = find(bytes, b"\x28\x00\x53\x10DS\x02\x00");
        bytes[at + 8] = b'0';
    });
    assert!(told.contains("RescaleSlope is 0"), "{told}");
}
