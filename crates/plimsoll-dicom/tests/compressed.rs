//! Series in all transfer syntaxes that are read, of many frames, and in archives, have the voxels that pydicom finds, which are SimpleITK's:
//! `oracles/dicom_compressed.py` made the files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use flate2::read::GzDecoder;
use plimsoll_dicom::{DicomError, Series, has_dicom};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{VolumeFile, VoxelBox};
use serde::Deserialize;

const SHAPE: [usize; 3] = [3, 36, 43];

#[derive(Deserialize)]
struct Known {
    series: BTreeMap<String, KnownSeries>,
    volumes: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct KnownSeries {
    /// The largest difference of a voxel from its value before compression.
    error: f64,
    /// The index of the volume.
    volume: usize,
}

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom/compressed").join(name)
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(16))
}

fn voxels(series: &Series, path: &Path) -> Result<Vec<f32>, DicomError> {
    let budget = budget();
    series.write(path, &budget, &AtomicBool::new(false))?;
    assert_eq!(budget.used(), Bytes::ZERO);
    let mut voxels = vec![0.0; SHAPE.iter().product()];
    VolumeFile::open(path).unwrap().region_f32(0, VoxelBox::whole(SHAPE), &mut voxels).unwrap();
    Ok(voxels)
}

/// The voxels of a folder, archive or file as of any image, within what it says to reserve.
fn values_of_image(path: &Path) -> Vec<f32> {
    plimsoll_dicom::register();
    let mut file = VolumeFile::open(path).unwrap();
    let room = Budget::new(file.decoding_bytes());
    file.decode(&room).unwrap();
    let mut voxels = vec![0.0; SHAPE.iter().product()];
    file.region_f32(0, VoxelBox::whole(SHAPE), &mut voxels).unwrap_or_else(|error| panic!("{error}"));
    voxels
}

#[test]
fn voxels_of_every_transfer_syntax_are_those_of_other_decoders() {
    let dir = tempfile::tempdir().unwrap();
    let packed = File::open(oracle("voxels.json.gz")).unwrap();
    let Known { series: known, volumes } = serde_json::from_reader(GzDecoder::new(packed)).unwrap();
    assert_eq!(known.len(), 23);
    let mut lossy = Vec::new();
    for (name, known) in known {
        let series =
            Series::find(&oracle(&name), &budget()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(has_dicom(&oracle(&name)).unwrap());
        assert_eq!(series.geometry().shape(), SHAPE, "{name}");
        let spacing = series.geometry().spacing().0;
        assert!(
            spacing.iter().zip([2.5, 0.8, 0.7]).all(|(a, b)| (a - b).abs() < 1e-9),
            "{name}: {spacing:?}"
        );
        let path = dir.path().join(format!("{name}.nii"));
        let found = voxels(&series, &path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == values_of_image(&oracle(&name)), "{name}");
        let most = found
            .iter()
            .zip(&volumes[known.volume])
            .map(|(a, b)| (f64::from(*a) - b).abs())
            .fold(0.0, f64::max);
        // Transforms in floating point are rounded one way or the other; all else is the same to the last bit.
        let allowed = if ["jpeg", "jpeg_2000_lossy"].contains(&name.as_str()) { 1.0 } else { 0.0 };
        assert!(most <= allowed, "{name}: {most}");
        if !series.warnings().is_empty() {
            lossy.push(name.clone());
        }
        assert_eq!(known.error > 0.0, !series.warnings().is_empty(), "{name}: {:?}", series.warnings());
    }
    assert_eq!(lossy, ["jpeg", "jpeg_2000_lossy", "jpeg_ls_near"]);
}

#[test]
fn loss_is_told_with_how_and_of_which_slices() {
    let series = Series::find(&oracle("jpeg_ls_near"), &budget()).unwrap();
    let warnings = series.warnings();
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(warning.starts_with("3 of 3 slices were compressed with loss (JPEG-LS Near-Lossless, 7.5 : 1)"));
    assert!(warning.contains("jpeg_ls_near/0.dcm"), "{warning}");
}

/// Whatever is changed within the pixels, the answer is a volume or one line that names the file, and nothing that is half written.
#[test]
fn damaged_pixels_end_in_one_error_or_another_volume() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("series");
    fs::create_dir(&folder).unwrap();
    let out = dir.path().join("out.nii");
    let mut refused = 0;
    for name in [
        "deflated_frame",
        "rle",
        "jpeg_lossless",
        "jpeg_lossless_sv1",
        "jpeg",
        "jpeg_ls",
        "jpeg_2000",
        "jpeg_2000_lossy",
    ] {
        let whole = fs::read(oracle(name).join("0.dcm")).unwrap();
        let pixels = whole.windows(4).rposition(|tag| tag == b"\xe0\x7f\x10\x00").unwrap();
        let path = folder.join("0.dcm");
        for nth in 0..60 {
            let mut bytes = whole.clone();
            let at = pixels + 12 + (nth * 7919) % (bytes.len() - pixels - 12);
            bytes[at] ^= 1 << (nth % 8);
            if nth % 10 == 9 {
                bytes.truncate(at);
            }
            fs::write(&path, &bytes).unwrap();
            let budget = budget();
            let written = Series::find(&folder, &budget)
                .and_then(|series| series.write(&out, &budget, &AtomicBool::new(false)));
            assert_eq!(budget.used(), Bytes::ZERO);
            match written {
                Ok(()) => fs::remove_file(&out).unwrap(),
                Err(error) => {
                    refused += 1;
                    let told = error.to_string();
                    assert!(told.contains("0.dcm") && told.lines().count() == 1, "{name}, byte {at}: {told}");
                    assert!(!out.exists());
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// A file with what `change` makes of the codestream of its only frame.
fn with_codestream(whole: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let at = whole.windows(4).position(|found| found == b"\xff\x4f\xff\x51").unwrap();
    let length = u32::from_le_bytes(whole[at - 4..at].try_into().unwrap()) as usize;
    let (stream, behind) = whole[at..].split_at(length);
    let mut stream = stream.to_vec();
    change(&mut stream);
    if stream.len() % 2 == 1 {
        stream.push(0);
    }
    let length = (stream.len() as u32).to_le_bytes();
    [&whole[..at - 4], &length, &stream, behind].concat()
}

/// Returns the position of a marker.
fn marker(stream: &[u8], of: u8) -> usize {
    stream.windows(2).position(|found| found == [0xFF, of]).unwrap()
}

/// The image that a file becomes, or why it does not.
fn alone(dir: &Path, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (folder, out) = (dir.join("series"), dir.join("out.nii"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("0.dcm"), bytes).unwrap();
    let series = Series::find(&folder, &budget()).map_err(|error| error.to_string())?;
    series.write(&out, &budget(), &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    Ok(fs::read(out).unwrap())
}

#[test]
fn codestreams_without_a_length_of_their_last_part_or_an_end_are_completed() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["0.dcm", "1.dcm"] {
        let whole = fs::read(oracle("jpeg_2000").join(name)).unwrap();
        let expected = alone(dir.path(), &whole).unwrap();
        let without_length = |stream: &mut Vec<u8>| {
            let part = marker(stream, 0x90);
            stream[part + 6..part + 10].fill(0);
        };
        let without_end = |stream: &mut Vec<u8>| {
            let end = stream.windows(2).rposition(|found| found == b"\xff\xd9").unwrap();
            stream.truncate(end);
        };
        assert_eq!(alone(dir.path(), &with_codestream(&whole, without_length)).unwrap(), expected);
        assert_eq!(alone(dir.path(), &with_codestream(&whole, without_end)).unwrap(), expected);
        let without_either = |stream: &mut Vec<u8>| {
            without_length(stream);
            without_end(stream);
        };
        assert_eq!(alone(dir.path(), &with_codestream(&whole, without_either)).unwrap(), expected);
    }
}

/// A decoder that takes a marker to be without a segment, or a segment to be shorter than it says, finds another coding style in it.
#[test]
fn a_second_coding_style_is_refused_wherever_it_hides() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(oracle("jpeg_2000").join("0.dcm")).unwrap();
    let style = b"\xff\x52\x00\x0c\x00\x00\x00\x20\x00\x05\x00\x00\x00\x01";
    let before = |bytes: Vec<u8>| {
        let changed = with_codestream(&whole, |stream| {
            let at = marker(stream, 0x90);
            drop(stream.splice(at..at, bytes));
        });
        alone(dir.path(), &changed).unwrap_err()
    };
    let told = before([&b"\xff\x30"[..], style].concat());
    assert!(told.contains("0.dcm") && told.contains("a segment FF52 of 10 bytes"), "{told}");
    let told = before([&b"\xff\x5e\x00\x13\x00\x01\x00"[..], style].concat());
    assert!(told.contains("a segment FF5E of 17 bytes"), "{told}");
    let told = before(b"\xff\x60\x00\x03\x00".to_vec());
    assert!(told.contains("a segment FF60 of 1 bytes"), "{told}");
    // Steps that each tile would have a copy of.
    let told = before([&b"\xff\x5c\x40\x03\x00"[..], &[0; 0x4000]].concat());
    assert!(told.contains("a segment FF5C of 16385 bytes"), "{told}");
}

#[test]
fn sign_and_bits_of_compressed_pixels_are_those_of_the_header() {
    let dir = tempfile::tempdir().unwrap();
    let element = |name: &str, element: &[u8], value: u8| {
        let mut bytes = fs::read(oracle(name).join("0.dcm")).unwrap();
        let at = bytes.windows(element.len()).position(|found| found == element).unwrap();
        bytes[at + 8] = value;
        bytes
    };
    let told = alone(dir.path(), &element("jpeg_2000", b"\x28\x00\x03\x01US\x02\x00", 1)).unwrap_err();
    assert!(told.contains("its pixels are unsigned, but PixelRepresentation is signed"), "{told}");
    for name in ["jpeg_2000", "jpeg_ls", "jpeg_lossless"] {
        let mut bytes = element(name, b"\x28\x00\x01\x01US\x02\x00", 2);
        let high = bytes.windows(8).position(|found| found == b"\x28\x00\x02\x01US\x02\x00").unwrap();
        bytes[high + 8] = 1;
        let told = alone(dir.path(), &bytes).unwrap_err();
        assert!(told.contains("but BitsStored is 2"), "{name}: {told}");
    }
}

#[test]
fn an_archive_that_was_damaged_is_told_by_the_file_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scan.zip");
    for name in ["stored.zip", "deflate.zip"] {
        let whole = fs::read(oracle(name)).unwrap();
        let mut bytes = whole.clone();
        // In the middle of the packed bytes of a slice.
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let told = Series::find(&path, &budget()).unwrap_err().to_string();
        assert!(told.contains("scan.zip/DICOM/S0001/"), "{told}");
        fs::write(&path, &whole[..whole.len() - 30]).unwrap();
        let told = Series::find(&path, &budget()).unwrap_err().to_string();
        assert!(told.contains("scan.zip: it has no valid directory of a ZIP archive"), "{told}");
    }
    // In the first packed bytes of the first slice: it is not passed over as if it were no DICOM.
    let mut bytes = fs::read(oracle("deflate.zip")).unwrap();
    let name = b"DICOM/S0001/0.dcm";
    let at = bytes.windows(name.len()).position(|found| found == name).unwrap();
    let extra = u16::from_le_bytes([bytes[at - 2], bytes[at - 1]]);
    // A block of a kind that there is not.
    bytes[at + name.len() + usize::from(extra)] = 0xFF;
    fs::write(&path, &bytes).unwrap();
    let told = Series::find(&path, &budget()).unwrap_err().to_string();
    assert!(told.contains("scan.zip/DICOM/S0001/0.dcm"), "{told}");
}
