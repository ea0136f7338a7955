//! Images.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{StoredVolume, VolumeError, VolumeFile, VoxelBox};

use crate::folder::Folder;

/// Room for planes and for whole images: small, so that reading either is refused for what is too large.
const ROOM: Bytes = Bytes(256 << 10);

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Channels that are read of an image that may have millions, each of them without voxels to speak of.
const MOST_CHANNELS: usize = 4;

/// An image in one file, plain.
pub fn nifti(bytes: &[u8]) {
    let folder = Folder::new();
    read(&folder.write("a.nii", bytes));
}

/// An image in one compressed file. Bytes that are not compressed are compressed first, so that what is in the file is tried
/// as well as how.
pub fn nifti_gz(bytes: &[u8]) {
    let folder = Folder::new();
    if bytes.starts_with(&GZIP) {
        read(&folder.write("a.nii.gz", bytes));
        return;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    if encoder.write_all(bytes).is_ok()
        && let Ok(compressed) = encoder.finish()
    {
        read(&folder.write("a.nii.gz", &compressed));
    }
}

/// An image in two files: the header ends where that of the first version does.
pub fn nifti_pair(bytes: &[u8]) {
    const HEADER: usize = 348;
    let (header, voxels) = bytes.split_at(bytes.len().min(HEADER));
    let folder = Folder::with("a.img", voxels);
    read(&folder.write("a.hdr", header));
}

/// Reads all that can be read of an image; what cannot must say why.
fn read(path: &Path) {
    for result in [planes(path), whole(path)] {
        if let Err(error) = result {
            assert!(error.to_string().contains(&*path.with_extension("").to_string_lossy()), "{error}");
            error.hint();
        }
    }
}

fn planes(path: &Path) -> Result<(), VolumeError> {
    let budget = Budget::new(ROOM);
    let mut file = VolumeFile::open(path)?;
    let shape = file.geometry().shape();
    for channel in 0..file.channels().min(MOST_CHANNELS) {
        file.for_each_plane(channel, &budget, |_, _| Ok::<(), VolumeError>(()))?;
        let corner = VoxelBox { start: [0; 3], shape: shape.map(|extent| extent.min(4)) };
        let count = corner.shape.iter().product();
        file.region_f32(channel, corner, &mut vec![0.0; count])?;
        file.region_labels(channel, corner, &mut vec![0; count])?;
    }
    Ok(())
}

fn whole(path: &Path) -> Result<(), VolumeError> {
    let budget = Budget::new(ROOM);
    let volume = StoredVolume::read(path, &budget, "image")?;
    assert_eq!(budget.used(), volume.reserved());
    let (canonical, _) = volume.geometry().canonical();
    assert_eq!(canonical.voxel_count(), volume.geometry().voxel_count());
    Ok(())
}
