//! Reading regions and writing planes take a fixed amount of memory, however large the image.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

mod support;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use plimsoll_memory::{Budget, Bytes, CountingAllocator, forget_heap_peak, heap_use};
use plimsoll_volume::{ElementType, IndexFolder, VolumeError, VolumeFile, VolumeWriter, VoxelBox};
use std::fs;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use support::Raw;

/// Bytes of a block of [`blocks`]: a little more than is between two access points at least.
const BLOCK: usize = 33_000;

/// Noise, deflated in blocks of which each begins with an access point, so that these are as many as there can be. Some blocks copy 4 of 9 bytes
/// from the one before, so that what is kept before their points is in thousands of runs.
fn blocks(length: usize, mut compressed: ZlibEncoder<Vec<u8>>) -> (Vec<u8>, Vec<u8>) {
    const DISTANCE: usize = 32_000;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(word).take(length / 8).flatten().collect();
    for start in (BLOCK..length - BLOCK).step_by(50 * BLOCK) {
        for at in (start..start + DISTANCE).step_by(9) {
            bytes.copy_within(at - DISTANCE..at - DISTANCE + 4, at);
        }
    }
    for block in bytes.chunks(BLOCK) {
        compressed.write_all(block).unwrap();
        compressed.flush().unwrap();
    }
    (bytes, compressed.finish().unwrap())
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const PLANE: usize = 512 * 512;

#[test]
fn the_heap_stays_small_while_images_of_32_mib_are_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let shape = [128, 512, 512];
    let plane: Vec<u8> = (0..PLANE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
    let geometry =
        *VolumeFile::open(Raw::new([1; 3]).write(folder.path(), "one", false, &[0])).unwrap().geometry();
    let geometry = plimsoll_volume::Geometry::new(shape, *geometry.affine()).unwrap();
    let mut region = vec![0.0; 32 * 32 * 32];
    let budget = Budget::new(Bytes::mib(1));
    let large = VoxelBox { start: [3, 100, 7], shape: [100, 200, 300] };
    let mut voxels = vec![0; large.shape.iter().product()];
    let before = heap_use().now;
    for name in ["image.nii", "image.nii.gz", "image.nrrd", "image.mha"] {
        let path = folder.path().join(name);
        let mut writer = VolumeWriter::create(&path, &geometry, 1, ElementType::U8, None).unwrap();
        for _ in 0..shape[0] {
            writer.write_planes(&plane).unwrap();
        }
        writer.finish().unwrap();
        let mut file = VolumeFile::open(&path).unwrap();
        for start in [[64, 100, 100], [10, 400, 3]] {
            file.region_f32(0, VoxelBox { start, shape: [32; 3] }, &mut region).unwrap();
            assert_eq!(region[33], f32::from(plane[(start[1] + 1) * 512 + start[2] + 1]));
        }
        file.for_each_plane::<VolumeError>(0, &budget, |_, voxels| {
            assert_eq!(voxels, plane);
            Ok(())
        })
        .unwrap();
    }
    let most = heap_use().peak - before;
    assert!(most < VolumeFile::OPEN_BYTES, "{most}");
    // Two decompressors, from access points.
    for name in ["image.nii.gz", "image.nrrd", "image.mha"] {
        let mut file = VolumeFile::open(folder.path().join(name)).unwrap();
        file.index_now(&IndexFolder::new(folder.path().join("points")), &AtomicBool::new(false)).unwrap();
        assert!(file.is_random_access(), "{name}");
        file.read_region(0, large, &mut voxels).unwrap();
        for (row, at) in voxels.chunks_exact(300).zip((0..).map(|row| (row % 200 + 100) * 512 + 7)) {
            assert_eq!(row, &plane[at..at + 300]);
        }
        let most = heap_use().peak - before;
        assert!(most < VolumeFile::REGION_BYTES - Bytes(128 << 10), "{name}: {most}");
    }
    // Channels that are stored together, which are picked out of pieces while access points are found.
    let path = folder.path().join("together.mha");
    let header = "ObjectType = Image\nNDims = 3\nDimSize = 512 512 64\nElementType = MET_UCHAR\nElementNumberOfChannels = 4\n\
                  CompressedData = True\nElementDataFile = LOCAL\n";
    let compressed = ZlibEncoder::new(header.as_bytes().to_vec(), Compression::new(6));
    let (voxels, compressed) = blocks(64 << 20, compressed);
    fs::write(&path, compressed).unwrap();
    forget_heap_peak();
    let before = heap_use().now;
    let mut file = VolumeFile::open(&path).unwrap();
    file.index_in(&IndexFolder::new(folder.path().join("points")));
    for channel in [0, 1] {
        file.for_each_plane::<VolumeError>(channel, &budget, |plane, found| {
            let stored = voxels[plane * 4 * PLANE..].iter().skip(channel).step_by(4);
            assert!(stored.take(PLANE).eq(found));
            Ok(())
        })
        .unwrap();
        assert!(file.is_random_access());
        let most = heap_use().peak - before;
        assert!(most < VolumeFile::OPEN_BYTES, "channel {channel}: {most}");
    }
    drop((file, voxels));
    // What compresses badly, what compresses well, and channels that are put together.
    let runs: Vec<u8> = (0..PLANE as u32).map(|i| (i / 37 % 5) as u8).collect();
    let few = plimsoll_volume::Geometry::new([8, 512, 512], *geometry.affine()).unwrap();
    let wide = plimsoll_volume::Geometry::new([2, 64, 64], *geometry.affine()).unwrap();
    for (name, geometry, channels, voxels) in [
        ("noise.nii.zst", &few, 1, &plane[..]),
        ("runs.nii.zst", &few, 1, &runs[..]),
        ("wide.mha", &wide, 700, &runs[..64 * 64]),
    ] {
        forget_heap_peak();
        let before = heap_use().now;
        let path = folder.path().join(name);
        let mut writer = VolumeWriter::create(&path, geometry, channels, ElementType::U8, None).unwrap();
        for _ in 0..channels * geometry.shape()[0] {
            writer.write_planes(voxels).unwrap();
        }
        writer.finish().unwrap();
        let most = heap_use().peak - before;
        assert!(most < VolumeWriter::BYTES, "{name}: {most}");
    }
    assert_eq!(budget.peak(), Bytes::from_len(PLANE));
}
