//! Images on a disk that fails.

use std::fs;
use std::path::Path;

use plimsoll_disk::faults::{Fault, FaultKind, crash_states, inject, record, state_of};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{
    Affine, ElementType, Geometry, Spacing, StoredVolume, VolumeError, VolumeFile, VolumeWriter, VoxelBox,
};

const SHAPE: [usize; 3] = [20, 30, 40];
const NAMES: [&str; 5] = ["image.nii", "image.nii.gz", "image.nii.zst", "image.nrrd", "image.mha"];

/// Voxels that hardly compress, so that also compressed files take several reads and writes.
fn voxels(seed: u32) -> Vec<u8> {
    let count = SHAPE.iter().product::<usize>() as u32;
    (0..count).map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn write(path: &Path, voxels: &[u8]) -> Result<(), VolumeError> {
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None)?;
    voxels.chunks(SHAPE[1] * SHAPE[2]).try_for_each(|plane| writer.write_planes(plane))?;
    writer.finish()
}

fn read(path: &Path) -> Result<Vec<u8>, VolumeError> {
    let image = StoredVolume::read(path, &Budget::new(Bytes::mib(4)), "test")?;
    let mut found = vec![0.0; SHAPE.iter().product()];
    image.region_f32(0, VoxelBox { start: [0; 3], shape: SHAPE }, &mut found).unwrap();
    Ok(found.into_iter().map(|voxel| voxel as u8).collect())
}

#[test]
fn whichever_operation_fails_an_image_is_read_right_or_refused() {
    for name in NAMES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        write(&path, &voxels(1)).unwrap();
        for kind in [FaultKind::Eio, FaultKind::Short] {
            for number in 1.. {
                let (result, reached) = inject(folder.path(), Fault { number, kind }, || read(&path));
                assert_eq!(
                    result.is_ok(),
                    kind == FaultKind::Short || !reached,
                    "{name}, {number}: {result:?}"
                );
                assert!(result.is_err() || result.unwrap() == voxels(1), "{name}, {number}");
                if !reached {
                    assert!(number > 4, "it opens, asks for the length and reads more than once");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_region_that_could_not_be_read_can_be_read_again() {
    // Of one compressed by Zstandard, all of so small a file is held once it is open.
    for name in NAMES.into_iter().filter(|name| !name.ends_with(".zst")) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        write(&path, &voxels(1)).unwrap();
        let plane = |file: &mut VolumeFile, z: usize| {
            let mut found = vec![0.0; SHAPE[1] * SHAPE[2]];
            let region = VoxelBox { start: [z, 0, 0], shape: [1, SHAPE[1], SHAPE[2]] };
            file.region_f32(0, region, &mut found).map(|()| found)
        };
        let expected: Vec<f32> =
            voxels(1)[19 * SHAPE[1] * SHAPE[2]..].iter().map(|v| f32::from(*v)).collect();
        let mut file = VolumeFile::open(&path).unwrap();
        plane(&mut file, 0).unwrap();
        let fault = Fault { number: 1, kind: FaultKind::Eio };
        let (failed, _) = inject(folder.path(), fault, || plane(&mut file, 19));
        assert!(failed.is_err(), "{name}");
        assert_eq!(plane(&mut file, 19).unwrap(), expected, "{name}");
    }
}

#[test]
fn whichever_operation_of_writing_an_image_fails_the_older_one_stays_or_the_new_one_is_whole() {
    for name in NAMES {
        for kind in [FaultKind::Enospc, FaultKind::Torn, FaultKind::Short] {
            for number in 1.. {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join(name);
                write(&path, &voxels(1)).unwrap();
                let (result, reached) =
                    inject(folder.path(), Fault { number, kind }, || write(&path, &voxels(2)));
                let found = read(&path).unwrap();
                assert!(found == voxels(2) || (result.is_err() && found == voxels(1)), "{name}, {number}");
                assert_eq!(result.is_ok(), kind == FaultKind::Short || !reached, "{name}, {number}");
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name}, {number}");
                if !reached {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_power_failure_leaves_the_older_image_or_the_new_one() {
    for name in NAMES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        write(&path, &voxels(1)).unwrap();
        let initial = state_of(folder.path()).unwrap();
        let (result, operations) = record(folder.path(), || write(&path, &voxels(2)));
        result.unwrap();
        let new = fs::read(&path).unwrap();
        let mut states = 0;
        for state in crash_states(&initial, &operations) {
            let found = &state[Path::new(name)];
            assert!(*found == new || *found == initial[Path::new(name)]);
            states += 1;
        }
        assert!(states > 5, "{name}: {states}");
    }
}
