//! Arrays in chunks and in archives: what a region costs, what is missing, damaged or cannot be. The values are compared in `formats.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{StoredVolume, VolumeError, VolumeFile, VoxelBox};

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/formats").join(name)
}

/// A copy of a folder of the oracle that can be changed.
fn copy(name: &str, to: &Path) -> PathBuf {
    fn copied(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            let to = to.join(entry.file_name());
            if entry.path().is_dir() {
                copied(&entry.path(), &to)
            } else {
                let _ = fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    let to = to.join(name);
    copied(&oracle(name), &to);
    to
}

fn whole(path: &Path) -> Result<Vec<f32>, VolumeError> {
    let volume = StoredVolume::read(path, &Budget::new(Bytes::mib(64)), "test")?;
    let shape = volume.geometry().shape();
    let mut voxels = vec![0.0; shape.iter().product()];
    volume.region_f32(0, VoxelBox::whole(shape), &mut voxels)?;
    Ok(voxels)
}

#[test]
fn decoding_reserves_what_it_says_and_regions_are_cheap() {
    for name in ["image_4.ome.zarr", "shards_3.zarr", "blosc_3.zarr"] {
        let mut file = VolumeFile::open(oracle(name)).unwrap();
        assert!(file.has_cheap_regions() && file.is_random_access() && !file.is_compressed(), "{name}");
        let mut voxel = [0.0];
        let one = VoxelBox { start: [3, 4, 5], shape: [1; 3] };
        assert!(matches!(file.region_f32(0, one, &mut voxel), Err(VolumeError::NotDecoded { .. })));
        let few = Budget::new(Bytes(file.decoding_bytes().0 - 1));
        assert!(matches!(file.decode(&few), Err(VolumeError::Memory { .. })), "{name}");
        let budget = Budget::new(file.decoding_bytes());
        file.decode(&budget).unwrap();
        assert_eq!(budget.used(), file.decoding_bytes(), "{name}");
        file.region_f32(0, one, &mut voxel).unwrap();
        assert_eq!(voxel, [257.0], "{name}");
        drop(file);
        assert_eq!(budget.used(), Bytes::ZERO);
    }
}

#[test]
fn channels_and_units_are_those_of_the_metadata() {
    for name in ["image_4.ome.zarr", "image_5.ome.zarr"] {
        let mut file = VolumeFile::open(oracle(name)).unwrap();
        assert_eq!(
            (file.channels(), file.millimetres_per_unit(), file.warnings().len()),
            (2, 1e-3, 0),
            "{name}"
        );
        file.decode(&Budget::new(Bytes::mib(64))).unwrap();
        let all = VoxelBox::whole([4, 5, 6]);
        let (mut first, mut second) = ([0.0; 120], [0.0; 120]);
        file.region_f32(1, all, &mut second).unwrap();
        file.region_f32(0, all, &mut first).unwrap();
        assert!(first.iter().zip(&second).all(|(first, second)| second - first == 1000.0), "{name}");
    }
}

#[test]
fn planes_are_the_same_however_many_are_read_together() {
    let name = "shards_3.zarr";
    let read = |room: Bytes| {
        let mut file = VolumeFile::open(oracle(name)).unwrap();
        let budget = Budget::new(room);
        file.decode(&budget).unwrap();
        let mut planes = Vec::new();
        let seen = file.for_each_plane(0, &budget, |index, plane| {
            planes.push((index, plane.to_vec()));
            Ok::<(), VolumeError>(())
        });
        seen.map(|()| planes)
    };
    let much = read(Bytes::mib(64)).unwrap();
    assert_eq!(much.len(), 4);
    for room in [Bytes::mib(64), VolumeFile::open(oracle(name)).unwrap().decoding_bytes()] {
        let mut file = VolumeFile::open(oracle(name)).unwrap();
        let budget = Budget::new(room);
        file.decode(&budget).unwrap();
        let (mut planes, mut plane) = (Vec::new(), [0.0; 30]);
        let seen = file.for_each_plane_f32(0, &budget, &mut plane, |index, plane| {
            planes.push((index, plane.iter().flat_map(|value| (*value as i16).to_ne_bytes()).collect()));
            Ok::<(), VolumeError>(())
        });
        seen.unwrap();
        assert_eq!(planes, much);
    }
    // Room for one plane, which is less than a page.
    let few = VolumeFile::open(oracle(name)).unwrap().decoding_bytes() + Bytes(4096);
    assert_eq!(read(few).unwrap(), much);
}

#[test]
fn chunks_that_are_not_there_have_the_fill_value_and_damaged_ones_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("zstd_3.zarr", dir.path());
    let sound = whole(&path).unwrap();
    let chunk = path.join("c/1/0/0");
    let bytes = fs::read(&chunk).unwrap();
    let metadata = fs::read_to_string(path.join("zarr.json")).unwrap();
    fs::write(path.join("zarr.json"), metadata.replace("\"fill_value\": 0", "\"fill_value\": -7")).unwrap();
    fs::remove_file(&chunk).unwrap();
    let without = whole(&path).unwrap();
    assert_eq!((without[0], without[2 * 30], without[2 * 30 + 4]), (sound[0], -7.0, sound[2 * 30 + 4]));
    let expect_damage = |bytes: &[u8]| {
        fs::write(&chunk, bytes).unwrap();
        let error = whole(&path).unwrap_err();
        assert!(error.to_string().contains("c/1/0/0") && error.remedy().is_some(), "{error}");
    };
    expect_damage(&bytes[..bytes.len() - 1]);
    expect_damage(&[]);
    expect_damage(&vec![0; 1 << 20]);
    // Each has a checksum.
    for (name, file, at) in [
        ("checked_3.zarr", "c/0/0/0", 25usize),
        ("shards_3.zarr", "c/0/0/0", usize::MAX),
        ("gzip_2.zarr", "0.0.0", 40),
    ] {
        let path = copy(name, dir.path());
        let file = path.join(file);
        let mut bytes = fs::read(&file).unwrap();
        // The last bytes are the index of a shard and its checksum.
        let at = at.min(bytes.len() - 10);
        bytes[at] ^= 0x55;
        fs::write(&file, bytes).unwrap();
        let error = whole(&path).expect_err(name);
        assert!(error.to_string().contains("a chunk of Zarr"), "{name}: {error}");
    }
}

#[test]
fn an_image_without_any_chunk_is_refused_and_a_label_map_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("zstd_3.zarr", dir.path());
    fs::remove_dir_all(path.join("c")).unwrap();
    let error = VolumeFile::open(&path).unwrap_err();
    assert!(error.to_string().contains("none of its chunks") && error.remedy().is_some(), "{error}");
    // Others are there.
    let path = copy("gzip_2.zarr", dir.path());
    fs::remove_file(path.join("0.0.0")).unwrap();
    VolumeFile::open(&path).unwrap();
    fs::remove_file(path.join("1.0.0")).unwrap();
    assert!(VolumeFile::open(&path).is_err());
    let label = copy("zstd_3.zarr", dir.path());
    fs::remove_dir_all(label.join("c")).unwrap();
    let opened = VolumeFile::open_labels(&label).unwrap();
    assert_eq!(opened.warnings().len(), 1);
    assert!(opened.warnings()[0].contains("all voxels are background"));
}

#[test]
fn a_chunk_that_is_most_of_an_image_has_no_cheap_regions() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0.0.0"), []).unwrap();
    for (chunk, is_cheap) in [([300, 200, 200], false), ([200, 100, 100], true), ([30, 200, 200], true)] {
        let said = serde_json::json!({
            "zarr_format": 2, "shape": [300, 200, 200], "chunks": chunk, "dtype": "<i2", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null
        });
        fs::write(dir.path().join(".zarray"), said.to_string()).unwrap();
        let file = VolumeFile::open(dir.path()).unwrap();
        assert_eq!(file.has_cheap_regions(), is_cheap, "{chunk:?}");
        assert!(file.layer_bytes() >= Bytes(chunk[0] as u64 * 200 * 200 * 2));
    }
}

#[test]
fn orientations_that_are_not_read_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let folder = copy("image_4.ome.zarr", dir.path());
    let attributes = folder.join(".zattrs");
    let said: serde_json::Value = serde_json::from_slice(&fs::read(&attributes).unwrap()).unwrap();
    let oriented = r#""orientation":{"value":"dorsal-to-ventral"},"type":"space""#;
    fs::write(&attributes, said.to_string().replace(r#""type":"space""#, oriented)).unwrap();
    let warnings = VolumeFile::open(&folder).unwrap().warnings();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings.iter().all(|warning| warning.contains("dorsal-to-ventral")), "{warnings:?}");
}

/// Metadata that claim, contradict, or lead out of the folder.
#[test]
fn metadata_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let array = copy("zstd_2.zarr", dir.path());
    let group = copy("image_4.ome.zarr", dir.path());
    let third = copy("shards_3.zarr", dir.path());
    let (of_array, of_group, of_third) =
        (array.join(".zarray"), group.join(".zattrs"), third.join("zarr.json"));
    let squeezed = |path: &Path| {
        let said: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        said.to_string()
    };
    let (array_text, group_text, third_text) =
        (squeezed(&of_array), squeezed(&of_group), squeezed(&of_third));
    for (folder, file, text, from, to, says) in [
        (&array, &of_array, &array_text, "[4,5,6]", "[4,5,0]", "[4, 5, 0]"),
        (&array, &of_array, &array_text, "[4,5,6]", "[4294967296,4294967296,4294967296]", "addressed"),
        (&array, &of_array, &array_text, "[4,5,6]", "[4,5,-6]", "-6"),
        (&array, &of_array, &array_text, "[2,24,36]", "[2,24]", "axes"),
        (&array, &of_array, &array_text, "[2,24,36]", "[2,24,0]", "chunks"),
        (&array, &of_array, &array_text, "[2,24,36]", "[2147483648,2147483648,2147483648]", "addressed"),
        (&array, &of_array, &array_text, "\"C\"", "\"F\"", "order"),
        (&array, &of_array, &array_text, "\"id\":\"zstd\"", "\"id\":\"lzma\"", "lzma"),
        (&array, &of_array, &array_text, "\"zarr_format\":2", "\"zarr_format\":1", "zarr_format"),
        (&array, &of_array, &array_text, "|i1", "<c8", "c8"),
        (&array, &of_array, &array_text, "|i1", "|i2", "|i2"),
        (&array, &of_array, &array_text, "{", "", "metadata of Zarr"),
        (&group, &of_group, &group_text, "\"path\":\"0\"", "\"path\":\"../secret\"", "outside its folder"),
        (&group, &of_group, &group_text, "\"path\":\"0\"", "\"path\":\"/etc\"", "outside its folder"),
        (&group, &of_group, &group_text, "\"path\":\"0\"", "\"path\":\"9\"", "neither zarr.json nor"),
        (&group, &of_group, &group_text, "2500.0", "0.0", "spacing"),
        (&group, &of_group, &group_text, "2500.0,", "", "for each axis"),
        (&group, &of_group, &group_text, "micrometer", "parsec", "parsec"),
        (&group, &of_group, &group_text, "\"type\":\"channel\"", "\"type\":\"time\"", "2 time points"),
        (&group, &of_group, &group_text, "\"multiscales\"", "\"nothing\"", "several images, 0 and 1"),
        (&third, &of_third, &third_text, "[2,2,2]", "[3,2,2]", "whole number"),
        (&third, &of_third, &third_text, "[4,4,6]", "[2147483648,2147483648,6]", "addressed"),
        (&third, &of_third, &third_text, "\"crc32c\"", "\"sum\"", "sum"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        fs::write(file, text.replace(from, to)).unwrap();
        fs::create_dir_all(group.join("1")).unwrap();
        let error = VolumeFile::open(folder).expect_err(to);
        let shown = error.to_string();
        assert!(
            shown.contains(says) && error.remedy().is_some() && shown.lines().count() == 1,
            "{to}: {shown}"
        );
    }
}

#[test]
fn an_array_of_an_archive_is_read_where_it_is_told_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let stored = VolumeFile::open(oracle("one.npz")).unwrap();
    assert!(stored.is_random_access() && !stored.is_compressed());
    let packed = VolumeFile::open(oracle("packed_0000.npz")).unwrap();
    assert!(packed.is_compressed() && !packed.is_random_access());
    // Under another name, and a byte of it changed.
    let bytes = fs::read(oracle("packed_0000.npz")).unwrap();
    let path = dir.path().join("a.bin");
    fs::write(&path, &bytes).unwrap();
    assert_eq!(whole(&path).unwrap().len(), 120);
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, bytes).unwrap();
        if let Err(error) = whole(&path) {
            assert!(
                error.to_string().contains("a.bin") && error.to_string().lines().count() == 1,
                "{at}: {error}"
            );
            refused += 1;
        }
    }
    assert!(refused > bytes.len() / 2, "{refused} of {}", bytes.len());
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(whole(&path).is_err(), "{length}");
    }
    // Of the two arrays none has the name that is read.

    let mut renamed = bytes.clone();
    while let Some(at) = renamed.windows(8).position(|window| window == b"data.npy") {
        renamed[at..at + 4].copy_from_slice(b"more");
    }
    fs::write(&path, renamed).unwrap();
    let error = VolumeFile::open(&path).unwrap_err();
    assert!(error.to_string().contains("2 arrays (other, more)") && error.remedy().is_some(), "{error}");
}
