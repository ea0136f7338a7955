//! Every format is read as the programs read it that people use (`oracles/volume_formats.py` made the files), and written as they read it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, VolumeError, VolumeFile, VolumeWriter, VoxelBox};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, Serialize)]
struct Known {
    voxels: Vec<f64>,
    corners: [[f64; 3]; 4],
}

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/formats").join(name)
}

fn known() -> BTreeMap<String, Known> {
    serde_json::from_slice(&fs::read(oracle("known.json")).unwrap()).unwrap()
}

fn read(path: &Path) -> (Geometry, Vec<f64>) {
    let mut file = VolumeFile::open(path).unwrap_or_else(|error| panic!("{error}"));
    let budget = Budget::new(Bytes::mib(64));
    file.decode(&budget).unwrap();
    let geometry = *file.geometry();
    let mut voxels = vec![0.0; geometry.voxel_count()];
    file.region_f32(0, VoxelBox::whole(geometry.shape()), &mut voxels).unwrap();
    // Backwards, and a region in the middle: as the whole.
    let [_, height, width] = geometry.shape();
    let region = VoxelBox { start: [1, 2, 1], shape: [2, 2, 3] };
    let mut part = vec![0.0; 12];
    file.region_f32(0, region, &mut part).unwrap();
    for (place, found) in part.iter().enumerate() {
        let [d, h, w] = [1 + place / 6, 2 + place / 3 % 2, 1 + place % 3];
        assert_eq!(*found, voxels[(d * height + h) * width + w], "{}", path.display());
    }
    (geometry, voxels.into_iter().map(f64::from).collect())
}

fn corners(geometry: &Geometry) -> [[f64; 3]; 4] {
    let [d, h, w] = geometry.shape().map(|extent| extent as f64 - 1.0);
    [[0.0; 3], [d, 0.0, 0.0], [0.0, h, 0.0], [0.0, 0.0, w]].map(|corner| geometry.voxel_to_world(corner))
}

fn expect_near(found: [[f64; 3]; 4], known: [[f64; 3]; 4], name: &str) {
    for (found, known) in found.iter().flatten().zip(known.iter().flatten()) {
        assert!((found - known).abs() < 1e-4, "{name}: {found} instead of {known}");
    }
}

#[test]
fn voxels_and_their_places_are_those_of_other_programs() {
    let known = known();
    assert!(known.len() >= 30, "{}", known.len());
    for (name, known) in known {
        let (geometry, voxels) = read(&oracle(&name));
        assert_eq!(voxels, known.voxels, "{name}");
        expect_near(corners(&geometry), known.corners, &name);
    }
}

#[test]
fn the_format_follows_from_what_a_file_begins_with() {
    let dir = tempfile::tempdir().unwrap();
    for (name, other) in
        [("int16.mha", "a.nii.gz"), ("raw.nrrd", "b.mha"), ("c_order.npy", "c.png"), ("one.nii.zst", "d")]
    {
        let path = dir.path().join(other);
        fs::copy(oracle(name), &path).unwrap();
        assert_eq!(read(&path).1, known()[name].voxels, "{name}");
    }
    fs::write(dir.path().join("text"), "no image at all").unwrap();
    let error = VolumeFile::open(dir.path().join("text")).unwrap_err();
    assert!(
        matches!(error, VolumeError::UnknownName { .. }) && error.to_string().contains(".nrrd"),
        "{error}"
    );
}

#[test]
fn channels_are_read_whether_they_are_together_or_apart() {
    for name in ["vector.mha", "vector.nrrd"] {
        let mut file = VolumeFile::open(oracle(name)).unwrap();
        assert_eq!(file.channels(), 2, "{name}");
        let whole = VoxelBox::whole(file.geometry().shape());
        let (mut first, mut second) = (vec![0.0; 120], vec![0.0; 120]);
        file.region_f32(1, whole, &mut second).unwrap();
        file.region_f32(0, whole, &mut first).unwrap();
        assert!(first.iter().zip(&second).all(|(first, second)| second - first == 1000.0), "{name}");
        assert_eq!(f64::from(first[7]), known()["int16.nrrd"].voxels[7], "{name}");
    }
    let error = VolumeFile::open_labels(oracle("vector.nrrd")).unwrap_err();
    assert!(error.to_string().contains("2 layers") && error.remedy().is_some(), "{error}");
}

#[test]
fn what_is_written_is_read_again_and_by_others() {
    let dir = tempfile::tempdir().unwrap();
    // Others read it too: see `oracles/volume_formats.py check`.
    let folder = std::env::var_os("PLIMSOLL_WRITTEN").map_or(dir.path().to_path_buf(), PathBuf::from);
    let (sine, cosine) = 0.3f64.sin_cos();
    // Oblique, and with the depth running down.
    let affine = Affine([
        [0.0, -0.8 * sine, 0.7 * cosine, 12.5],
        [0.0, 0.8 * cosine, 0.7 * sine, -40.25],
        [-2.5, 0.0, 0.0, 7.0],
    ]);
    let geometry = Geometry::new([4, 5, 6], affine).unwrap();
    let mut expected = BTreeMap::new();
    for (element, bytes) in [
        (ElementType::U8, (0..120u8).collect::<Vec<_>>()),
        (ElementType::I16, (0..120i16).flat_map(|v| (v * 50 - 900).to_ne_bytes()).collect()),
        (ElementType::I64, (0..120i64).flat_map(|v| (v - 60).to_ne_bytes()).collect()),
        (ElementType::F32, (0..120u16).flat_map(|v| (f32::from(v) / 8.0).to_ne_bytes()).collect()),
    ] {
        for ending in ["nrrd", "mha", "mhd", "nii.gz", "nii.zst"] {
            let name = format!("{element}.{ending}");
            let path = folder.join(&name);
            let mut writer = VolumeWriter::create(&path, &geometry, 1, element, None).unwrap();
            bytes.chunks(writer.plane_bytes()).for_each(|plane| writer.write_planes(plane).unwrap());
            writer.finish().unwrap();
            let (found, voxels) = read(&path);
            expect_near(corners(&found), corners(&geometry), &name);
            assert_eq!(VolumeFile::open(&path).unwrap().element_type(), element);
            expected.insert(name, Known { voxels, corners: corners(&geometry) });
        }
    }
    // Three channels, which MetaImage has together: more voxels than are put together at a time.
    let geometry = Geometry::new([5, 40, 50], affine).unwrap();
    let count = geometry.voxel_count();
    let value = |channel: usize, at: usize| (at * 3 % 30_011) as i16 - 1000 * channel as i16;
    let planar: Vec<u8> =
        (0..3).flat_map(|channel| (0..count).flat_map(move |at| value(channel, at).to_ne_bytes())).collect();
    let together =
        (0..count).flat_map(|at| (0..3).map(move |channel| f64::from(value(channel, at)))).collect();
    let together: Vec<f64> = together;
    for name in ["channels.mha", "channels.mhd"] {
        let path = folder.join(name);
        let mut writer = VolumeWriter::create(&path, &geometry, 3, ElementType::I16, None).unwrap();
        planar.chunks(2 * writer.plane_bytes()).for_each(|planes| writer.write_planes(planes).unwrap());
        writer.finish().unwrap();
        let mut file = VolumeFile::open(&path).unwrap();
        assert_eq!((file.channels(), file.element_type()), (3, ElementType::I16), "{name}");
        expect_near(corners(file.geometry()), corners(&geometry), name);
        let whole = VoxelBox::whole(geometry.shape());
        for channel in [2, 0, 1] {
            let mut voxels = vec![0.0; count];
            file.region_f32(channel, whole, &mut voxels).unwrap();
            assert!((0..count).all(|at| voxels[at] == f32::from(value(channel, at))), "{name} {channel}");
        }
        expected.insert(name.into(), Known { voxels: together.clone(), corners: corners(&geometry) });
    }
    assert_eq!(expected["i16.nrrd"].voxels, expected["i16.nii.gz"].voxels);
    assert_eq!(expected["i16.nrrd"].voxels, expected["i16.nii.zst"].voxels);
    assert_eq!(expected["f32.mha"].voxels, expected["f32.nii.gz"].voxels);
    assert_eq!(expected["f32.mhd"].voxels, expected["f32.nii.gz"].voxels);
    assert_eq!(fs::metadata(folder.join("i64.raw")).unwrap().len(), 8 * 120);
    fs::write(folder.join("expected.json"), serde_json::to_vec(&expected).unwrap()).unwrap();
}

#[test]
fn compressed_voxels_are_decompressed_beside_and_damage_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["packed.mha", "int16.nrrd", "detached_packed.nhdr", "detached_packed.mhd", "two.nii.zst"] {
        let mut file = VolumeFile::open(oracle(name)).unwrap();
        assert!(file.is_compressed() && !file.is_random_access(), "{name}");
        file.decode(&Budget::new(Bytes::mib(64))).unwrap();
        file.decompress_beside(&dir.path().join("beside"), &AtomicBool::new(false)).unwrap();
        assert!(file.is_random_access(), "{name}");
        let mut voxels = vec![0.0; 120];
        file.region_f32(0, VoxelBox::whole([4, 5, 6]), &mut voxels).unwrap();
        assert!(voxels.iter().zip(&known()[name].voxels).all(|(a, b)| f64::from(*a) == *b), "{name}");
        // The last bytes are of the checksum.
        if !name.contains("detached") {
            let mut bytes = fs::read(oracle(name)).unwrap();
            let at = bytes.len() - if name.ends_with("nrrd") { 8 } else { 1 };
            bytes[at] ^= 0x55;
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            let mut file = VolumeFile::open(&path).unwrap();
            file.decode(&Budget::new(Bytes::mib(64))).unwrap();
            let error = file.region_f32(0, VoxelBox::whole([4, 5, 6]), &mut voxels).unwrap_err();
            assert!(matches!(error, VolumeError::Damaged { .. }), "{name}: {error}");
        }
    }
}

#[test]
fn zstandard_reserves_what_it_goes_back_to() {
    let mut file = VolumeFile::open(oracle("one.nii.zst")).unwrap();
    let mut voxel = [0.0];
    let one = VoxelBox { start: [0; 3], shape: [1; 3] };
    assert!(matches!(file.region_f32(0, one, &mut voxel), Err(VolumeError::NotDecoded { .. })));
    let budget = Budget::new(Bytes(1000));
    assert!(matches!(file.decode(&budget), Err(VolumeError::Memory { .. })));
    let budget = Budget::new(Bytes::mib(64));
    file.decode(&budget).unwrap();
    assert_eq!(budget.used(), file.decoding_bytes());
    drop(file);
    assert_eq!(budget.used(), Bytes::ZERO);
}

/// A format that is read, but not written, is reported as such.
#[test]
fn formats_that_are_not_written_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let geometry =
        Geometry::new([1, 2, 2], Affine::from_spacing(plimsoll_volume::Spacing([1.0; 3]))).unwrap();
    for name in ["a.npy", "a.nhdr", "a.dcm"] {
        let error =
            VolumeWriter::create(dir.path().join(name), &geometry, 1, ElementType::U8, None).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("is written") && error.remedy().is_some(), "{text}");
    }
}

/// Bytes that were decompressed for the header are freed, and damage behind it is reported as such.
#[test]
fn zstandard_that_ends_early_is_damaged_and_is_read_again_from_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.nii.zst");
    let bytes = fs::read(oracle("two.nii.zst")).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 6]).unwrap();
    let mut file = VolumeFile::open(&path).unwrap();
    file.decode(&Budget::new(Bytes::mib(64))).unwrap();
    for _ in 0..2 {
        let error = file.region_f32(0, VoxelBox::whole([4, 5, 6]), &mut [0.0; 120]).unwrap_err();
        assert!(matches!(error, VolumeError::Damaged { .. }), "{error}");
    }
}

/// Headers that claim, contradict or leave out: each is reported with the field, and none leads out of its folder.
#[test]
fn headers_that_cannot_be_are_refused() {
    let nrrd = |field: &str, value: &str| {
        let fields = [
            ("type", "short"),
            ("dimension", "3"),
            ("sizes", "2 2 2"),
            ("endian", "little"),
            ("encoding", "raw"),
            ("space", "left-posterior-superior"),
            ("space directions", "(1,0,0) (0,1,0) (0,0,1)"),
        ];
        let mut text = String::from("NRRD0004\n");
        for (name, usual) in fields.iter().filter(|(name, _)| *name != field || !value.is_empty()) {
            text += &format!("{name}: {}\n", if *name == field { value } else { usual });
        }
        if !fields.iter().any(|(name, _)| *name == field) {
            text += &format!("{field}: {value}\n");
        }
        [text.as_bytes(), b"\n", &[1; 16]].concat()
    };
    let mha = |field: &str, value: &str| {
        let fields = [
            ("ObjectType", "Image"),
            ("NDims", "3"),
            ("DimSize", "2 2 2"),
            ("ElementType", "MET_SHORT"),
            ("ElementDataFile", "LOCAL"),
        ];
        let mut text = String::new();
        if !fields.iter().any(|(name, _)| *name == field) {
            text += &format!("{field} = {value}\n");
        }
        for (name, usual) in fields.iter().filter(|(name, _)| *name != field || !value.is_empty()) {
            text += &format!("{name} = {}\n", if *name == field { value } else { usual });
        }
        [text.as_bytes(), &[1; 16]].concat()
    };
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        VolumeFile::open(&path)
    };
    assert!(open("good.nrrd", &nrrd("endian", "little")).is_ok());
    // Keys may have colons, be there twice, and be as long as they like.
    let keys = format!("little\n0008:0010:=x\n0008:0020:=a: b\nwhat:={}", "k".repeat(20_000));
    assert!(open("keys.nrrd", &nrrd("endian", &keys)).is_ok());
    assert!(open("good.mha", &mha("ElementSpacing", "1 1 2")).is_ok());
    for (field, value, says) in [
        ("type", "block", "block"),
        ("type", "", "`type` is missing"),
        ("dimension", "4", "`dimension` is 4"),
        ("dimension", "3\ndimension: 3", "appears twice"),
        ("kinds", &"domain ".repeat(2000), "more than"),
        ("sizes", "2 2 -2", "-2"),
        ("sizes", "2 2 0", "empty axis"),
        ("sizes", "4294967296 4294967296 4294967296", "address"),
        ("sizes", "2 2 3", "has "),
        ("endian", "", "`endian` is missing"),
        ("encoding", "bzip2", "bzip2"),
        ("encoding", "ascii", "ascii"),
        ("space", "left-posterior-superior-time", "`space`"),
        ("space directions", "(1,0,0) (0,1,0) (0,0,0)", "spacing"),
        ("space directions", "(1,0,0) (0,1,0) (nan,0,1)", "finite"),
        ("space directions", "(1,0,0) (0,1,0)", "2 vectors"),
        ("space directions", "(1,0,0) none (0,0,1)", "channels"),
        ("space directions", "(1,0,0) (0,1,0) (0,0,1", "space directions"),
        ("data file", "/etc/passwd", "outside its folder"),
        ("data file", "../secret.raw", "outside its folder"),
        ("data file", "LIST", "several files"),
        ("data file", "missing.raw", "missing.raw"),
        ("byte skip", "99999999999999999999", "byte skip"),
        ("byte skip", "-2", "byte skip"),
        ("line skip", "1", "line skip"),
        ("space units", "\"furlong\" \"furlong\" \"furlong\"", "furlong"),
    ] {
        let error = open("bad.nrrd", &nrrd(field, value)).expect_err(value);
        let text = error.to_string();
        assert!(
            text.contains(says) && error.remedy().is_some() && text.lines().count() == 1,
            "{field} {value}: {text}"
        );
    }
    for (field, value, says) in [
        ("ObjectType", "Mesh", "Mesh"),
        ("NDims", "4", "NDims is 4"),
        ("DimSize", "2 2", "DimSize has 2"),
        ("DimSize", "2 2 x", "\"x\""),
        ("DimSize", "0 2 2", "empty axis"),
        ("DimSize", "99999999 99999999 99999999", "address"),
        ("DimSize", "2 2 5", "has "),
        ("ElementType", "MET_STRING", "MET_STRING"),
        ("ElementType", "", "ElementType is missing"),
        ("ElementDataFile", "../../secret.raw", "outside its folder"),
        ("ElementDataFile", "slice%03d.raw 1 3 1", "several files"),
        ("ElementDataFile", "", "not a field"),
        ("ElementNumberOfChannels", "0", "impossibly large"),
        ("ElementNumberOfChannels", "18446744073709551615", "impossibly large"),
        ("BinaryData", "False", "are text"),
        ("CompressedData", "perhaps", "perhaps"),
        ("CompressedData", "True", "damaged"),
        ("HeaderSize", "-3", "HeaderSize"),
        ("HeaderSize", "9223372036854775807", "HeaderSize"),
        ("ElementSpacing", "1 1 0", "spacing"),
        ("TransformMatrix", "1 0 0 0 1 0 0 0", "8 numbers"),
        ("TransformMatrix", "1 0 0 0 1 0 0 1 0", "singular"),
    ] {
        let opened = open("bad.mha", &mha(field, value))
            .and_then(|mut file| file.region_f32(0, VoxelBox { start: [0; 3], shape: [1; 3] }, &mut [0.0]));
        let error = opened.expect_err(value);
        let text = error.to_string();
        assert!(
            text.contains(says) && error.remedy().is_some() && text.lines().count() == 1,
            "{field} {value}: {text}"
        );
    }
    // An array of claims.
    let npy = |text: &str| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        [&bytes[..], text.as_bytes(), &[0; 16]].concat()
    };
    for (shape, says) in [
        ("(2, 2, 4)", None),
        ("(2, 2, 5)", Some("has ")),
        ("(16,)", Some("axes")),
        ("(1, 1, 2, 2, 4)", Some("axes")),
        ("(4294967296, 4294967296, 4294967296)", Some("address")),
        ("(0, 2, 2)", Some("empty axis")),
    ] {
        let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
        match (open("a.npy", &npy(&text)), says) {
            (Ok(_), None) => {}
            (Err(error), Some(says)) => {
                assert!(error.to_string().contains(says) && error.remedy().is_some(), "{error}")
            }
            (found, _) => panic!("{shape}: {found:?}"),
        }
    }
}
