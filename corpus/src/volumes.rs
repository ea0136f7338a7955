//! Images.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{StoredVolume, VolumeError, VolumeFile, VoxelBox};

use crate::folder::Folder;
use crate::granted;

/// Room for planes and for whole images: small, so that reading either is refused for what is too large.
const ROOM: Bytes = Bytes(256 << 10);

/// Room for the windows of Zstandard's frames as well.
const ROOM_OF_WINDOWS: Bytes = Bytes::mib(40);

/// Room for a page and its decoder.
const ROOM_OF_PAGES: Bytes = Bytes::mib(6);

/// Room for a chunk and its decoder, and the bytes of the largest image whose planes are all read.
const ROOM_OF_CHUNKS: Bytes = Bytes::mib(4);
const MOST_OF_CHUNKS: u64 = 1 << 20;

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

/// An image of NRRD. A file of voxels that it may name is beside it.
pub fn nrrd(bytes: &[u8]) {
    let folder = Folder::with("a.raw", &[7; 64]);
    read(&folder.write("a.nrrd", bytes));
}

/// A MetaImage. A file of voxels that it may name is beside it.
pub fn meta_image(bytes: &[u8]) {
    let folder = Folder::with("a.raw", &[7; 64]);
    read(&folder.write("a.mha", bytes));
}

/// An array of NumPy's.
pub fn npy(bytes: &[u8]) {
    let folder = Folder::new();
    read(&folder.write("a.npy", bytes));
}

/// An archive of NumPy's arrays that contains an image.
pub fn npz_image(bytes: &[u8]) {
    let folder = Folder::new();
    read(&folder.write("a.npz", bytes));
}

/// A TIFF file of one page or several, and the same as the only slice of a folder, with room for pages.
pub fn tiff(bytes: &[u8]) {
    let folder = Folder::new();
    read_within(&folder.write("a.tif", bytes), ROOM_OF_PAGES);
    let slice = folder.write("slices.tif/1.tif", bytes);
    read_within(slice.parent().unwrap_or(&slice), ROOM_OF_PAGES);
}

/// An image of OME-Zarr in one chunk, with room for it: its metadata, then a zero, then those of its array, then a zero, then the chunk. With
/// `zarr_format` 3 they are files of the third version.
pub fn zarr(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (image, array, chunk) = (part(), part(), part());
    let folder = Folder::new();
    let is_third = image.windows(THIRD.len()).any(|window| window == THIRD);
    let names = if is_third {
        ["zarr.json", "0/zarr.json", "0/c/0/0/0"]
    } else {
        [".zattrs", "0/.zarray", "0/0.0.0"]
    };
    for (name, bytes) in names.iter().zip([image, array, chunk]) {
        folder.write(&format!("a.zarr/{name}"), bytes);
    }
    let path = folder.path().join("a.zarr");
    // Chunks that are not there cost nothing, so that no length of a file says how many there are.
    match VolumeFile::open(&path) {
        Ok(file) if file.stored_bytes() > MOST_OF_CHUNKS => {}
        _ => read_within(&path, ROOM_OF_CHUNKS),
    }
}

/// The text that identifies metadata of Zarr's third version.
const THIRD: &[u8] = b"\"zarr_format\":3";

/// An image compressed by Zstandard, with room for what that goes back to.
pub fn nifti_zst(bytes: &[u8]) {
    let folder = Folder::new();
    // What decompressing the header takes for a moment, before there is a budget.
    granted(Bytes::mib(1));
    read_within(&folder.write("a.nii.zst", bytes), ROOM_OF_WINDOWS);
}

/// Reads all that can be read of an image; what cannot must say why.
fn read(path: &Path) {
    read_within(path, ROOM);
}

fn read_within(path: &Path, room: Bytes) {
    let folder = path.parent().unwrap_or(path);
    for result in [planes(path, room), whole(path, room)] {
        if let Err(error) = result {
            assert!(error.to_string().contains(&*folder.to_string_lossy()), "{error}");
            error.remedy();
        }
    }
}

fn planes(path: &Path, room: Bytes) -> Result<(), VolumeError> {
    let budget = Budget::new(room);
    let read = planes_of(path, &budget);
    if room > ROOM {
        granted(budget.peak());
    }
    read
}

fn planes_of(path: &Path, budget: &Budget) -> Result<(), VolumeError> {
    let mut file = VolumeFile::open(path)?;
    let shape = file.geometry().shape();
    for channel in 0..file.channels().min(MOST_CHANNELS) {
        file.for_each_plane(channel, budget, |_, _| Ok::<(), VolumeError>(()))?;
        let corner = VoxelBox { start: [0; 3], shape: shape.map(|extent| extent.min(4)) };
        let count = corner.shape.iter().product();
        file.region_f32(channel, corner, &mut vec![0.0; count])?;
        file.region_labels(channel, corner, &mut vec![0; count])?;
    }
    Ok(())
}

fn whole(path: &Path, room: Bytes) -> Result<(), VolumeError> {
    let budget = Budget::new(room);
    let volume = StoredVolume::read(path, &budget, "image")?;
    assert_eq!(budget.used(), volume.reserved());
    let (canonical, _) = volume.geometry().canonical();
    assert_eq!(canonical.voxel_count(), volume.geometry().voxel_count());
    Ok(())
}
