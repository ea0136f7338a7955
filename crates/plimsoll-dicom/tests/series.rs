//! Series have the voxels and positions that SimpleITK finds, and a series that is no volume is reported:
//! `oracles/dicom_series.py` made the files.

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
        expect_same_as_image(&oracle(&name), &path);
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

#[test]
fn files_without_a_preamble_are_the_same_volume() {
    const PREAMBLE: usize = 132;
    let dir = tempfile::tempdir().unwrap();
    let known: HashMap<String, Known> =
        serde_json::from_slice(&fs::read(oracle("series.json")).unwrap()).unwrap();
    for name in known.keys() {
        let expected = Series::find(&oracle(name), &budget()).unwrap();
        let files = copy(name, &dir.path().join(name));
        let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        // Beginning with the first group, and with the object itself.
        let of_group: fn(&[u8]) -> usize =
            |bytes| PREAMBLE + 12 + u32::from_le_bytes(bytes[140..144].try_into().unwrap()) as usize;
        // Without the first group, nothing says how pixels are compressed.
        let is_compressed = whole.iter().any(|bytes| {
            let meta = &bytes[..of_group(bytes)];
            let has = |uid: &[u8]| meta.windows(uid.len()).any(|found| found == uid);
            has(b"1.2.840.10008.1.2.4.") || has(b"1.2.840.10008.1.2.5")
        });
        for start in [|_: &[u8]| PREAMBLE, of_group].into_iter().take(2 - usize::from(is_compressed)) {
            for (file, bytes) in files.iter().zip(&whole) {
                fs::write(file, &bytes[start(bytes)..]).unwrap();
            }
            let folder = dir.path().join(name);
            assert!(has_dicom(&folder).unwrap());
            let found = Series::find(&folder, &budget()).unwrap();
            assert!(found.geometry().difference(expected.geometry(), 1e-9).is_none(), "{name}");
            assert_eq!(found.what(), expected.what());
            let voxels = |series: &Series, path: &str| {
                let path = dir.path().join(path);
                series.write(&path, &budget(), &AtomicBool::new(false)).unwrap();
                let mut voxels = vec![0.0; SHAPE.iter().product()];
                let mut file = VolumeFile::open(&path).unwrap();
                file.region_f32(0, VoxelBox::whole(SHAPE), &mut voxels).unwrap();
                voxels
            };
            assert_eq!(voxels(&found, "found.nii"), voxels(&expected, "expected.nii"), "{name}");
            // The file by itself is told to be one by what it begins with.
            plimsoll_dicom::register();
            assert!(VolumeFile::open(&folder).is_ok());
        }
    }
}

#[test]
fn what_is_no_dicom_is_not_taken_for_a_file_without_a_preamble() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let tables = [
        vec![8u8; 400],
        [[8, 0, 0, 0].as_slice(), &[0; 400]].concat(),
        vec![0; 400],
        b"8\0\x05\0CS".repeat(60),
    ];
    for bytes in tables {
        fs::write(&path, bytes).unwrap();
        assert!(!has_dicom(&path).unwrap());
    }
}

#[test]
fn hints_of_pixels_do_not_ask_for_what_cannot_help() {
    let attribute = |attribute| DicomError::Attribute { path: "a.dcm".into(), attribute, why: "is 8".into() };
    for name in ["HighBit", "NumberOfFrames", "BitsAllocated", "PhotometricInterpretation"] {
        let hint = attribute(name).remedy().unwrap();
        assert!(hint.starts_with("convert the series to NIfTI"), "{name}: {hint}");
    }
    assert!(attribute("ImagePositionPatient").remedy().unwrap().starts_with("remove files"));
    let pixels = DicomError::Pixels { path: "a.dcm".into(), why: "its pixels are signed".into() };
    assert!(!pixels.remedy().unwrap().starts_with("copy"));
}

/// Checks that the folder of a series reads as the same image as the file that it was written to, within the memory
/// that it says to reserve.
fn expect_same_as_image(folder: &Path, written: &Path) {
    plimsoll_dicom::register();
    let (mut series, mut file) = (VolumeFile::open(folder).unwrap(), VolumeFile::open(written).unwrap());
    assert_eq!((series.element_type(), series.channels()), (file.element_type(), 1));
    assert!(series.geometry().difference(file.geometry(), 1e-3).is_none());
    let middle = VoxelBox { start: [1, 2, 3], shape: [4, 5, 6] };
    let (mut found, mut known) = (vec![0.0; 120], vec![0.0; 120]);
    assert!(series.region_f32(0, middle, &mut found).is_err(), "before there is room for a slice");
    let room = Budget::new(series.decoding_bytes());
    series.decode(&room).unwrap();
    series.region_f32(0, middle, &mut found).unwrap();
    file.region_f32(0, middle, &mut known).unwrap();
    assert_eq!(found, known);
    drop(series);
    assert_eq!(room.used(), Bytes::ZERO);
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
    assert!(error.remedy().is_some() && error.to_string().lines().count() == 1, "{error}");
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
    assert!(matches!(&told, DicomError::Gap { missing, .. } if missing.here == Some(1)), "{told}");
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
    assert!(told.to_string().ends_with(": the same slice twice"), "{told}");
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
    let refused = write(&Budget::new(Bytes(5000)), false);
    assert!(matches!(refused, Err(DicomError::OverBudget(_) | DicomError::Memory(_))));
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

/// Returns the position of an element of explicit VR.
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
    assert!(told.contains("an element has 4294967294 bytes, but 0 remain"), "{told}");
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

/// A missing attribute of a slice is not guessed: an element is renamed to another group, so that it is missing.
#[test]
fn attributes_that_tell_what_pixels_mean_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("series");
    for (element, told) in [
        (&b"\x28\x00\x02\x00US"[..], "SamplesPerPixel is missing"),
        (b"\x28\x00\x04\x00CS", "PhotometricInterpretation is missing"),
        (b"\x28\x00\x02\x01US", "HighBit is missing"),
        (b"\x28\x00\x03\x01US", "PixelRepresentation is missing"),
        (b"\x28\x00\x52\x10DS", "RescaleIntercept is missing"),
        (b"\x28\x00\x53\x10DS", "RescaleSlope is missing"),
    ] {
        let found = changed(&folder, "short", |bytes| {
            let at = find(bytes, element);
            bytes[at] = 0x29;
        });
        assert!(found.contains(told), "{found}");
    }
    let told = changed(&folder, "short", |bytes| {
        let at = find(bytes, b"\x28\x00\x03\x01US\x02\x00");
        bytes[at + 8] = 2;
    });
    assert!(told.contains("PixelRepresentation is 2, and not 0 or 1"), "{told}");
    let told = changed(&folder, "short", |bytes| {
        let at = find(bytes, b"\xe0\x7f\x10\x00");
        let pixels = bytes[at..].to_vec();
        bytes.extend(pixels);
    });
    assert!(told.contains("it has pixels twice"), "{told}");
    let told = changed(&folder, "short", |bytes| {
        let at = find(bytes, b"\\20.250000\\");
        bytes[at + 1..at + 10].copy_from_slice(b"2.0250e07");
    });
    assert!(told.contains("ImagePositionPatient has 20250000 mm"), "{told}");
}

#[cfg(unix)]
#[test]
fn links_to_folders_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("series");
    copy("short", &folder);
    std::os::unix::fs::symlink(&folder, folder.join("round")).unwrap();
    assert_eq!(Series::find(&folder, &budget()).unwrap().geometry().shape(), SHAPE);
}

#[test]
fn other_values_of_a_slice_are_as_they_are_in_its_file() {
    let series = Series::find(&oracle("short"), &budget()).unwrap();
    let (name, rows, weight) = ((0x0010, 0x0010), (0x0028, 0x0010), (0x0010, 0x1030));
    // The slices are files 02, 01, 00, 05, 04, 03 in their order, and were numbered from the other end.
    let number = (0x0020, 0x0013);
    let found = series.values(2, &[name, rows, weight, number], &budget()).unwrap();
    let found: Vec<Option<&[u8]>> = found.iter().map(Option::as_deref).collect();
    assert_eq!(found, [Some(&b"Phantom "[..]), Some(&[9, 0]), None, Some(b"4 ")]);
    assert!(matches!(series.values(0, &[name], &Budget::new(Bytes(1000))), Err(DicomError::OverBudget(_))));
}

/// The series `short` with other positions: y and z of each slice in order, from 20.25 and 310 mm on.
fn moved(folder: &Path, to: impl Fn(usize) -> [f64; 2]) {
    let files = copy("short", folder);
    for slice in 0..SHAPE[0] {
        let path = &files[(slice * 5 + 2) % SHAPE[0]];
        let mut bytes = fs::read(path).unwrap();
        let [y, z] = to(slice);
        let old = format!("\\20.250000\\{:.6}", 310.0 + 2.5 * slice as f64);
        let new = format!("\\{:.6}\\{:.6}", 20.25 + y, 310.0 + z);
        assert_eq!(old.len(), new.len());
        let at = find(&bytes, old.as_bytes());
        bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_tilted_gantry_shears_the_image_and_strays_and_several_gaps_are_told_with_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let usual = |slice: usize| 2.5 * slice as f64;
    let tilted = dir.path().join("tilt");
    moved(&tilted, |slice| [0.5 * slice as f64, usual(slice)]);
    let series = Series::find(&tilted, &budget()).unwrap();
    let straight = Series::find(&oracle("short"), &budget()).unwrap();
    let place = |series: &Series| series.geometry().voxel_to_world([4.0, 3.0, 2.0]);
    let (found, [x, y, z]) = (place(&series), place(&straight));
    // Four slices up, 2 mm to the back, which is towards −y in RAS.
    for (found, known) in found.into_iter().zip([x, y - 2.0, z]) {
        assert!((found - known).abs() < 1e-6, "{found} instead of {known}");
    }
    assert!(straight.warnings().is_empty());
    let told = series.warnings().concat();
    // The tangent is one fifth.
    assert!(told.contains("short_02.dcm") && told.contains("tilted by 11.31° against them"), "{told}");
    assert!(
        told.contains("2.500 mm above the one before, and shifted by 0.500 mm down its columns"),
        "{told}"
    );
    assert!(told.contains("and 0.000 mm along its rows"), "{told}");
    let refused = |name: &str, to: &dyn Fn(usize) -> [f64; 2]| {
        moved(&dir.path().join(name), to);
        error(&dir.path().join(name)).to_string()
    };
    let told = refused("stray", &|slice| [if slice == 3 { 5.0 } else { 0.0 }, usual(slice)]);
    assert!(told.contains("short_05.dcm is 5.000 mm beside the straight line"), "{told}");
    let told = refused("gaps", &|slice| [0.0, 2.5 * [0.0, 1.0, 3.0, 4.0, 6.0, 7.0][slice]]);
    assert!(told.contains(": 1 missing; there are 2 such gaps, with 2 slices missing in all"), "{told}");
    // A slice too many leaves no whole number of slices out, and not one less than none.
    let told = refused("near", &|slice| [0.0, 2.5 * [0.0, 0.2, 1.0, 2.0, 3.0, 4.0][slice]]);
    assert!(told.contains("0.500 mm, but slices are 2.500 mm apart; there are 2 such places"), "{told}");
    assert!(told.contains("short_01.dcm is not on a plane of the others"), "{told}");
    // Of two distances the shorter one is the distance of slices.
    let three = dir.path().join("three");
    copy("short", &three);
    for slice in [2, 3, 4] {
        fs::remove_file(three.join(format!("short_{:02}.dcm", (slice * 5 + 2) % SHAPE[0]))).unwrap();
    }
    let told = error(&three).to_string();
    assert!(told.contains("10.000 mm, but slices are 2.500 mm apart: 3 missing"), "{told}");
}
