//! Every kind of file that the format allows, built byte by byte, is read back correctly.

use std::fs;

use crate::support::{Raw, gzip};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{
    ByteOrder, ElementType, Scaling, StoredVolume, VolumeError, VolumeFile, VoxelBox, decode_f32,
};
use proptest::prelude::*;

/// The codes of the format's document, in the order of [`ElementType::ALL`].
const DATATYPES: [i16; 10] = [2, 256, 512, 4, 768, 8, 1280, 1024, 16, 64];

/// Bytes of voxels, none of which is NaN.
fn voxels(element_type: ElementType, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|i| {
            let value = (i * i * 37 % 251) as f64 - 60.0;
            let mut native = match element_type {
                ElementType::U8 => (value as i32 as u8).to_ne_bytes().to_vec(),
                ElementType::I8 => (value as i32 as i8).to_ne_bytes().to_vec(),
                ElementType::U16 => (value as i32 as u16).to_ne_bytes().to_vec(),
                ElementType::I16 => (value as i16 * 100).to_ne_bytes().to_vec(),
                ElementType::U32 => (value as i32 as u32).to_ne_bytes().to_vec(),
                ElementType::I32 => (value as i32 * 1_000_001).to_ne_bytes().to_vec(),
                ElementType::U64 => (value as i64 as u64).to_ne_bytes().to_vec(),
                ElementType::I64 => (value as i64 * 1_000_000_000_001).to_ne_bytes().to_vec(),
                ElementType::F32 => (value as f32 / 7.0).to_ne_bytes().to_vec(),
                ElementType::F64 => (value / 7.0).to_ne_bytes().to_vec(),
            };
            native.truncate(element_type.size());
            native
        })
        .collect()
}

fn in_byte_order(big_endian: bool, size: usize, native: &[u8]) -> Vec<u8> {
    let swap = big_endian == (ByteOrder::NATIVE == ByteOrder::Little);
    let element = |bytes: &[u8]| if swap { bytes.iter().rev().copied().collect() } else { bytes.to_vec() };
    native.chunks(size).flat_map(element).collect()
}

#[test]
fn every_type_byte_order_version_and_packing_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let (shape, channels) = ([3, 4, 5], 2);
    let mut kinds = 0;
    for (element_type, datatype) in ElementType::ALL.into_iter().zip(DATATYPES) {
        let size = element_type.size();
        let native = voxels(element_type, 3 * 4 * 5 * channels);
        for choice in 0..16u8 {
            let [big_endian, second, compressed, pair] = [0, 1, 2, 3].map(|bit| choice >> bit & 1 == 1);
            let mut raw = Raw::new(shape);
            raw.version = if second { 2 } else { 1 };
            raw.vox_offset = if pair { 0.0 } else { [352.0, 544.0][usize::from(second)] };
            raw.dim = [5, 5, 4, 3, 1, channels as i64, 1, 1];
            (raw.datatype, raw.bitpix, raw.big_endian, raw.pair) =
                (datatype, size as i16 * 8, big_endian, pair);
            let name = format!("{element_type}-{choice}");
            let path = raw.write(folder.path(), &name, compressed, &in_byte_order(big_endian, size, &native));
            let mut file = VolumeFile::open(&path).unwrap();
            assert_eq!(file.element_type(), element_type);
            assert_eq!((file.geometry().shape(), file.channels()), (shape, channels));
            assert_eq!(file.stored_bytes(), native.len() as u64);
            assert_eq!(file.is_random_access(), !compressed);
            let stored = StoredVolume::read(&path, &Budget::new(Bytes::mib(1)), "test").unwrap();
            assert_eq!(stored.bytes(), native, "{name}");
            // Backwards through channels and planes, so that a compressed file has to be rewound.
            for (channel, part) in native.chunks(native.len() / channels).enumerate().rev() {
                let mut planes = vec![0; part.len()];
                for d in (0..shape[0]).rev() {
                    let region = VoxelBox { start: [d, 0, 0], shape: [1, 4, 5] };
                    let plane = &mut planes[d * 20 * size..(d + 1) * 20 * size];
                    file.read_region(channel, region, plane).unwrap();
                }
                assert_eq!(planes, part, "{name}");
                let mut decoded = vec![0.0; shape.iter().product()];
                let mut expected = decoded.clone();
                file.region_f32(channel, VoxelBox::whole(shape), &mut decoded).unwrap();
                decode_f32(element_type, Scaling::NONE, part, &mut expected).unwrap();
                assert_eq!(decoded, expected, "{name}");
            }
            kinds += 1;
        }
    }
    assert_eq!(kinds, 160);
}

#[test]
fn scaling_applies_unless_the_slope_is_zero_or_not_finite() {
    let folder = tempfile::tempdir().unwrap();
    for (slope, intercept, expected) in [
        (2.0, -10.0, [-10.0, -8.0, 500.0]),
        (0.0, 5.0, [0.0, 1.0, 255.0]),
        (f64::NAN, f64::NAN, [0.0, 1.0, 255.0]),
        (f64::INFINITY, 0.0, [0.0, 1.0, 255.0]),
    ] {
        let raw = Raw { slope, intercept, ..Raw::new([1, 1, 3]) };
        let path = raw.write(folder.path(), "scaled", false, &[0, 1, 255]);
        let mut voxels = [0.0; 3];
        let mut file = VolumeFile::open(path).unwrap();
        file.region_f32(0, VoxelBox::whole([1, 1, 3]), &mut voxels).unwrap();
        assert_eq!(voxels, expected, "{slope}");
        assert_eq!(file.scaling().is_none(), slope != 2.0);
    }
}

#[test]
fn a_voxel_that_is_not_a_label_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Raw { datatype: 4, bitpix: 16, dim: [4, 3, 2, 2, 2, 1, 1, 1], ..Raw::new([2, 2, 3]) };
    let mut values = [1i16; 24];
    values[12 + 6 + 3 + 2] = -5;
    let path = raw.write(folder.path(), "labels", true, bytemuck::cast_slice(&values));
    let mut file = VolumeFile::open(&path).unwrap();
    let stored = StoredVolume::read(&path, &Budget::new(Bytes::mib(1)), "test").unwrap();
    let mut labels = [0; 12];
    file.region_labels(0, VoxelBox::whole([2, 2, 3]), &mut labels).unwrap();
    assert_eq!(labels, [1; 12]);
    let region = VoxelBox { start: [0, 0, 1], shape: [2, 2, 2] };
    for error in [
        file.region_labels(1, region, &mut labels[..8]).unwrap_err(),
        stored.region_labels(1, region, &mut labels[..8]).unwrap_err(),
    ] {
        assert!(
            matches!(error, VolumeError::NotALabel { channel: 1, voxel: [1, 1, 2], value: -5.0, .. }),
            "{error}"
        );
        assert!(error.remedy().is_some());
    }
}

#[test]
fn planes_are_read_one_by_one_within_a_budget_far_smaller_than_the_volume() {
    let folder = tempfile::tempdir().unwrap();
    let shape = [64, 128, 128];
    let voxels: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = Raw::new(shape).write(folder.path(), "large", true, &voxels);
    let budget = Budget::new(Bytes(16 << 10));
    let error = StoredVolume::read(&path, &budget, "cache").unwrap_err();
    assert!(matches!(error, VolumeError::Memory { .. }) && error.remedy().is_some());
    assert!(error.to_string().contains("cache needs 1.0 MiB, but 16.0 KiB of 16.0 KiB is free"), "{error}");
    let mut file = VolumeFile::open(&path).unwrap();
    let mut seen = 0;
    file.for_each_plane::<VolumeError>(0, &budget, |d, plane| {
        assert_eq!(plane, &voxels[d << 14..(d + 1) << 14]);
        seen += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, 64);
    assert_eq!((budget.used(), budget.peak()), (Bytes::ZERO, Bytes(16 << 10)));
}

#[test]
fn members_of_a_gzip_file_are_joined_and_garbage_after_them_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let voxels: Vec<u8> = (0..60).collect();
    let bytes = Raw::new([3, 4, 5]).single(&voxels);
    let mut members: Vec<u8> = bytes.chunks(100).flat_map(gzip).collect();
    members.extend([0; 32]);
    let path = folder.path().join("members.nii.gz");
    fs::write(&path, members).unwrap();
    let stored = StoredVolume::read(&path, &Budget::new(Bytes::mib(1)), "test").unwrap();
    assert_eq!(stored.bytes(), voxels);
}

#[test]
fn compression_is_detected_from_the_content_whatever_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let voxels: Vec<u8> = (0..60).collect();
    let bytes = Raw::new([3, 4, 5]).single(&voxels);
    fs::write(folder.path().join("a.nii"), gzip(&bytes)).unwrap();
    fs::write(folder.path().join("b.nii.gz"), &bytes).unwrap();
    for name in ["a.nii", "b.nii.gz"] {
        let stored =
            StoredVolume::read(folder.path().join(name), &Budget::new(Bytes::mib(1)), "test").unwrap();
        assert_eq!(stored.bytes(), voxels);
    }
}

#[test]
fn out_of_bounds_reads_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new([3, 4, 5]).write(folder.path(), "small", false, &[7; 60]);
    let mut file = VolumeFile::open(path).unwrap();
    let mut read = |channel, start, shape, length: usize| {
        file.read_region(channel, VoxelBox { start, shape }, &mut vec![0; length])
            .map_err(|error| error.to_string())
    };
    assert!(read(1, [0; 3], [1; 3], 1).unwrap_err().contains("1 channels, but channel 1 was requested"));
    assert!(read(0, [2, 0, 0], [2, 1, 1], 2).unwrap_err().contains("shape [3, 4, 5]"));
    assert!(read(0, [usize::MAX, 0, 0], [2, 1, 1], 2).unwrap_err().contains("shape [3, 4, 5]"));
    assert!(read(0, [0; 3], [2, 2, 2], 7).unwrap_err().contains("7 elements instead of 8"));
    assert_eq!(read(0, [3, 4, 5], [0; 3], 0), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn regions_are_slices_of_the_whole(
        shape in prop::array::uniform3(1usize..9),
        corners in prop::collection::vec(
            (prop::array::uniform3(0.0..1.0f64), prop::array::uniform3(0.0..1.0f64)), 1..8,
        ),
        compressed: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let count = shape.iter().product::<usize>();
        let native = voxels(ElementType::I32, count);
        let raw = Raw { datatype: 8, bitpix: 32, big_endian: true, slope: 0.5, ..Raw::new(shape) };
        let path = raw.write(folder.path(), "image", compressed, &in_byte_order(true, 4, &native));
        let mut file = VolumeFile::open(&path).unwrap();
        let stored = StoredVolume::read(&path, &Budget::new(Bytes::mib(1)), "test").unwrap();
        let whole: &[i32] = bytemuck::cast_slice(stored.bytes());
        for (start, extent) in corners {
            let start: [usize; 3] = std::array::from_fn(|a| (start[a] * shape[a] as f64) as usize);
            let extent = std::array::from_fn(|a| (extent[a] * (shape[a] - start[a] + 1) as f64) as usize);
            let region = VoxelBox { start, shape: extent };
            let mut expected = Vec::new();
            for d in start[0]..start[0] + extent[0] {
                for h in start[1]..start[1] + extent[1] {
                    let row = (d * shape[1] + h) * shape[2] + start[2];
                    expected.extend_from_slice(&whole[row..row + extent[2]]);
                }
            }
            let mut bytes = vec![0; expected.len() * 4];
            file.read_region(0, region, &mut bytes).unwrap();
            prop_assert_eq!(&bytes, bytemuck::cast_slice::<i32, u8>(&expected));
            let halves: Vec<f32> = expected.iter().map(|value| *value as f32 * 0.5).collect();
            let mut decoded = vec![0.0; expected.len()];
            file.region_f32(0, region, &mut decoded).unwrap();
            prop_assert_eq!(&decoded, &halves);
            stored.region_f32(0, region, &mut decoded).unwrap();
            prop_assert_eq!(&decoded, &halves);
        }
    }
}
