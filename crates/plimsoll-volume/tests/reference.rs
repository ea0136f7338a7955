//! Images written by other programs, against what nibabel reads from them.

use crate::support::{data, oracle};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{GeometryDifference, NiftiVersion, StoredVolume, VolumeFile, VoxelBox};
use serde_json::Value;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn grids_match_nibabel() {
    for (name, expected) in oracle("volume_affines.json").as_object().unwrap() {
        let file = VolumeFile::open(data(name)).unwrap();
        let geometry = file.geometry();
        assert_eq!(geometry.shape().map(|n| n as f64).to_vec(), numbers(&expected["shape"]), "{name}");
        assert_eq!(file.channels() as u64, expected["channels"].as_u64().unwrap(), "{name}");
        assert_eq!(file.element_type().name(), expected["type"], "{name}");
        for (row, expected) in geometry.affine().0.iter().zip(expected["affine"].as_array().unwrap()) {
            for (ours, theirs) in row.iter().zip(numbers(expected)) {
                assert!((ours - theirs).abs() < 1e-5, "{name}: {ours} against {theirs}");
            }
        }
        assert_eq!(geometry.orientation().to_string(), expected["letters"], "{name}");
        let obliqueness = expected["obliqueness"].as_f64().unwrap();
        // The cosine is close to 1, where the arc cosine doubles the number of lost digits.
        assert!((geometry.orientation().obliqueness - obliqueness).abs() < 1e-4, "{name}");
    }
}

#[test]
fn voxels_match_nibabel() {
    for (name, expected) in oracle("volume_affines.json").as_object().unwrap() {
        let mut file = VolumeFile::open(data(name)).unwrap();
        let geometry = *file.geometry();
        let mut sum = 0.0;
        let mut channel_voxels = vec![0.0; geometry.voxel_count()];
        for channel in 0..file.channels() {
            file.region_f32(channel, VoxelBox::whole(geometry.shape()), &mut channel_voxels).unwrap();
            sum += channel_voxels.iter().map(|value| f64::from(*value)).sum::<f64>();
        }
        let expected_sum = expected["sum"].as_f64().unwrap();
        assert!((sum - expected_sum).abs() <= expected_sum.abs() * 1e-7, "{name}: {sum} {expected_sum}");
        let stored = StoredVolume::read(data(name), &Budget::new(Bytes::mib(4)), "test").unwrap();
        for sample in expected["samples"].as_array().unwrap() {
            let [channel, d, h, w, value] = numbers(sample)[..] else { panic!("{sample}") };
            let region = VoxelBox { start: [d, h, w].map(|at| at as usize), shape: [1; 3] };
            let mut from_file = [f32::NAN];
            let mut from_memory = [f32::NAN];
            file.region_f32(channel as usize, region, &mut from_file).unwrap();
            stored.region_f32(channel as usize, region, &mut from_memory).unwrap();
            assert!((f64::from(from_file[0]) - value).abs() <= value.abs() * 1e-6, "{name} {sample}");
            assert_eq!(from_file, from_memory, "{name}");
        }
    }
}

#[test]
fn either_file_of_a_pair_can_be_named() {
    for (header, image) in [
        ("microns_pair.hdr", "microns_pair.img"),
        ("scaled_pair_big_endian.hdr.gz", "scaled_pair_big_endian.img.gz"),
    ] {
        let by_header = VolumeFile::open(data(header)).unwrap();
        let by_image = VolumeFile::open(data(image)).unwrap();
        assert_eq!(by_header.geometry(), by_image.geometry());
        assert_eq!(by_header.header(), by_image.header());
        assert_eq!(by_header.path(), data(image));
        assert_eq!(by_image.path(), data(image));
    }
}

#[test]
fn differing_grids_are_told_apart() {
    let anatomical = VolumeFile::open(data("anatomical.nii")).unwrap();
    let functional = VolumeFile::open(data("functional.nii")).unwrap();
    assert_eq!(anatomical.geometry().difference(anatomical.geometry(), 0.0), None);
    assert_eq!(
        anatomical.geometry().difference(functional.geometry(), 1.0),
        Some(GeometryDifference::Shape { first: [25, 41, 33], second: [3, 21, 17] })
    );
    let nifti2 = VolumeFile::open(data("example_nifti2.nii.gz")).unwrap();
    assert_eq!(nifti2.header().unwrap().version(), NiftiVersion::Two);
    assert!(!nifti2.is_random_access() && functional.is_random_access());
    assert_eq!(functional.stored_bytes(), 3 * 21 * 17 * 20 * 2);
}
