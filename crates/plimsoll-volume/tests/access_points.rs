//! Regions of compressed images that are not gzip from their first byte: they have the voxels of the original, and with
//! access points cost no more than a few reads. The files are built here, byte by byte.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::support::gzip;
use flate2::Compression;
use flate2::write::{DeflateEncoder, ZlibEncoder};
use plimsoll_disk::faults::{Fault, FaultKind, inject};
use plimsoll_volume::{IndexFolder, VolumeError, VolumeFile, VoxelBox};

const SHAPE: [usize; 3] = [64, 200, 320];
const SIZE: usize = 2;

static NEVER: AtomicBool = AtomicBool::new(false);

/// Pseudo-random numbers, always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// Noise of 12 bits on a slope, with runs of zeros: what is compressed has millions of bytes, and deflate has matches to make.
fn voxels() -> Vec<u8> {
    let mut noise = Numbers(7);
    let voxel = |at: usize| match (at / 300) % 4 {
        0 => 0,
        _ => (noise.below(1 << 12) + at / 700) as i16,
    };
    (0..SHAPE.iter().product()).map(voxel).flat_map(i16::to_le_bytes).collect()
}

/// An archive of members with these names and bytes, which are deflated or stored as they are.
fn archive(members: &[(&str, &[u8], bool)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes, is_deflated) in members {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(bytes).unwrap();
        let packed = if *is_deflated { encoder.finish().unwrap() } else { bytes.to_vec() };
        let checksum = crc32fast::hash(bytes);
        let mut fields = Vec::new();
        // The version that is needed, flags, the method, time and date.
        for field in [20, 0, if *is_deflated { 8 } else { 0 }, 0, 33u16] {
            fields.extend(field.to_le_bytes());
        }
        for field in [checksum, packed.len() as u32, bytes.len() as u32] {
            fields.extend(field.to_le_bytes());
        }
        // The length of what is extra is 0.
        fields.extend((name.len() as u32).to_le_bytes());
        let begin = file.len() as u32;
        file.extend([&b"PK\x03\x04"[..], &fields, name.as_bytes(), &packed].concat());
        // No comment, the first disk, no attributes.
        directory.extend([&b"PK\x01\x02\x14\x00"[..], &fields, &[0; 10], &begin.to_le_bytes()].concat());
        directory.extend(name.as_bytes());
    }
    let (count, begin) = ((members.len() as u16).to_le_bytes(), (file.len() as u32).to_le_bytes());
    let length = (directory.len() as u32).to_le_bytes();
    [&file[..], &directory, b"PK\x05\x06", &[0; 4], &count, &count, &length, &begin, &[0; 2]].concat()
}

fn array(shape: &str, voxels: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '<i2', 'fortran_order': False, 'shape': ({shape}), }}");
    let header = format!("{text:117}\n");
    let length = (header.len() as u16).to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), voxels].concat()
}

/// A folder with an image in each of the forms, and where their points are kept, which are beside it: what is counted is what is read
/// of images.
struct Images {
    _dir: tempfile::TempDir,
    folder: PathBuf,
    points: PathBuf,
    voxels: Vec<u8>,
}

/// Each image, and the file that has its compressed voxels.
const NAMES: [(&str, &str); 5] = [
    ("attached.nrrd", "attached.nrrd"),
    ("detached.nhdr", "detached.raw.gz"),
    ("zlib.mha", "zlib.mha"),
    ("gzip.mha", "gzip.mha"),
    ("among_others.npz", "among_others.npz"),
];

impl Images {
    fn new() -> Images {
        let dir = tempfile::tempdir().unwrap();
        let (folder, points) = (dir.path().join("images"), dir.path().join("points"));
        fs::create_dir(&folder).unwrap();
        let voxels = voxels();
        let [depth, height, width] = SHAPE;
        let nrrd = |data: &str| {
            format!(
                "NRRD0004\ntype: short\ndimension: 3\nsizes: {width} {height} {depth}\nendian: little\nencoding: gzip\n\
                 space: left-posterior-superior\nspace directions: (1,0,0) (0,1,0) (0,0,1)\n{data}\n"
            )
        };
        let meta = format!(
            "ObjectType = Image\nNDims = 3\nDimSize = {width} {height} {depth}\nElementType = MET_SHORT\n\
             CompressedData = True\nElementDataFile = LOCAL\n"
        );
        let zipped = gzip(&voxels);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::new(6));
        zlib.write_all(&voxels).unwrap();
        let other = array("40, 50, 60", &voxels[..40 * 50 * 60 * SIZE]);
        let data = array(&format!("{depth}, {height}, {width}"), &voxels);
        let images = Images { _dir: dir, folder, points, voxels };
        images.write("attached.nrrd", &[nrrd("").as_bytes(), &zipped].concat());
        images.write("detached.nhdr", nrrd("data file: detached.raw.gz\n").as_bytes());
        images.write("detached.raw.gz", &zipped);
        images.write("zlib.mha", &[meta.as_bytes(), &zlib.finish().unwrap()].concat());
        images.write("gzip.mha", &[meta.as_bytes(), &zipped].concat());
        let members =
            [("a.npy", &other[..], false), ("data.npy", &data[..], true), ("z.npy", &other[..], true)];
        images.write("among_others.npz", &archive(&members));
        images
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folder.join(name), bytes).unwrap();
    }

    /// Changes a file, which then has the time of modification that it had.
    fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.folder.join(name);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }

    fn open(&self, name: &str) -> VolumeFile {
        VolumeFile::open(self.folder.join(name)).unwrap()
    }

    fn indexes(&self) -> IndexFolder {
        IndexFolder::new(&self.points)
    }

    fn indexed(&self, name: &str) -> VolumeFile {
        let mut file = self.open(name);
        file.index_in(&self.indexes());
        file
    }

    /// Finds the points of an image. Returns the file in which they are kept.
    fn find_points(&self, name: &str) -> PathBuf {
        let before = listed(&self.points);
        self.open(name).index_now(&self.indexes(), &NEVER).unwrap();
        let mut new = listed(&self.points);
        new.retain(|path| !before.contains(path));
        assert_eq!(new.len(), 1, "{name}");
        new.remove(0)
    }

    /// Returns `true` if a region has the voxels of the original.
    fn is_right(&self, found: &[u8], region: VoxelBox) -> bool {
        let [_, height, width] = SHAPE;
        let ([d, h, w], row) = (region.start, region.shape[2] * SIZE);
        found.chunks_exact(row).enumerate().all(|(number, found)| {
            let at = ((d + number / region.shape[1]) * height + h + number % region.shape[1]) * width + w;
            *found == self.voxels[at * SIZE..][..row]
        })
    }

    fn expect_right(&self, file: &mut VolumeFile, region: VoxelBox) {
        let found = read(file, region).unwrap();
        assert!(self.is_right(&found, region), "{}, {region:?}", file.path().display());
    }
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
}

fn read(file: &mut VolumeFile, region: VoxelBox) -> Result<Vec<u8>, VolumeError> {
    let mut found = vec![0; region.shape.iter().product::<usize>() * SIZE];
    file.read_region(0, region, &mut found)?;
    Ok(found)
}

/// A few rows of a plane.
fn rows(plane: usize) -> VoxelBox {
    VoxelBox { start: [plane, 100, 0], shape: [1, 10, SHAPE[2]] }
}

/// Returns `true` if a read accesses the disk as often as one that decompresses most of the image: each access reads 64
/// KiB, and the points and the bytes behind one of them take few.
fn is_long(images: &Images, file: &mut VolumeFile, region: VoxelBox) -> bool {
    let fault = Fault { number: 24, kind: FaultKind::Eio };
    let (found, reached) = inject(&images.folder, fault, || read(file, region));
    assert_eq!(found.is_err(), reached);
    assert!(found.is_err() || images.is_right(&found.unwrap(), region));
    reached
}

#[test]
fn regions_in_any_order_are_those_of_the_voxels_and_cost_little_from_access_points() {
    let images = Images::new();
    let mut numbers = Numbers(3);
    for (name, _) in NAMES {
        let mut file = images.open(name);
        assert!(file.is_compressed() && !file.is_random_access() && file.has_cheap_regions(), "{name}");
        images.expect_right(&mut file, rows(60));
        assert!(is_long(&images, &mut file, rows(50)), "{name}: from the beginning");
        let kept = images.find_points(name);
        assert!(fs::metadata(&kept).unwrap().len() > 5_000, "{name}: there are many");

        let mut file = images.indexed(name);
        assert!(file.is_random_access(), "{name}");
        images.expect_right(&mut file, rows(60));
        for plane in [50, 2, 33] {
            assert!(!is_long(&images, &mut file, rows(plane)), "{name}: plane {plane}");
        }
        for _ in 0..30 {
            let start = SHAPE.map(|extent| numbers.below(extent));
            let shape = [0, 1, 2].map(|axis| 1 + numbers.below((SHAPE[axis] - start[axis]).min(40)));
            images.expect_right(&mut file, VoxelBox { start, shape });
        }
        // In two halves at once, and to the end, where the checksum is.
        images.expect_right(&mut file, VoxelBox { start: [20, 0, 0], shape: [30, 200, 320] });
        images.expect_right(&mut file, VoxelBox::whole(SHAPE));
    }
}

#[test]
fn points_that_are_damaged_or_of_another_file_are_passed_over_and_found_again() {
    let images = Images::new();
    for (name, data) in NAMES {
        let kept = images.find_points(name);
        let good = fs::read(&kept).unwrap();
        let mut bad = good.clone();
        let last = bad.len() - 1;
        bad[last] ^= 1;
        for bad in [&bad[..], &good[..good.len() / 2], &[]] {
            fs::write(&kept, bad).unwrap();
            let mut file = images.indexed(name);
            assert!(!file.is_random_access(), "{name}, {} bytes", bad.len());
            images.expect_right(&mut file, rows(30));
            images.expect_right(&mut file, rows(4));
        }
        images.open(name).index_now(&images.indexes(), &NEVER).unwrap();
        assert!(fs::read(&kept).unwrap() == good, "{name}");
        // A file that was written since may be another one.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(7);
        let written = fs::File::options().write(true).open(images.folder.join(data)).unwrap();
        written.set_modified(later).unwrap();
        let mut file = images.indexed(name);
        assert!(!file.is_random_access(), "{name}");
        images.expect_right(&mut file, rows(30));
    }
}

#[test]
fn damage_between_access_points_is_told_where_a_region_meets_it() {
    let images = Images::new();
    for (name, data) in NAMES {
        images.find_points(name);
        images.damage(data, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        });
        let mut file = images.indexed(name);
        assert!(file.is_random_access(), "{name}");
        images.expect_right(&mut file, rows(60));
        images.expect_right(&mut file, rows(3));
        let middle = VoxelBox { start: [28, 0, 0], shape: [8, 200, 320] };
        let error = read(&mut file, middle).unwrap_err();
        assert!(matches!(error, VolumeError::Damaged { .. }), "{name}: {error}");
    }
}

#[test]
fn damage_before_the_first_access_point_is_told_where_the_first_planes_are_read() {
    let images = Images::new();
    // What is in an archive begins at another place.
    for (name, data) in NAMES.into_iter().filter(|(name, _)| !name.ends_with("npz")) {
        images.find_points(name);
        images.damage(data, |bytes| bytes[5000] ^= 4);
        let mut file = images.indexed(name);
        assert!(file.is_random_access(), "{name}");
        images.expect_right(&mut file, rows(60));
        for _ in 0..2 {
            let error = read(&mut file, VoxelBox { start: [0; 3], shape: [1, 1, 320] }).unwrap_err();
            assert!(matches!(error, VolumeError::Damaged { .. }), "{name}: {error}");
        }
    }
}

#[test]
fn a_file_that_ends_early_is_told_and_has_no_points() {
    let images = Images::new();
    for (name, data) in NAMES {
        images.damage(data, |bytes| bytes.truncate(bytes.len() / 2));
        // The directory of an archive is at its end.
        if name.ends_with("npz") {
            let error = VolumeFile::open(images.folder.join(name)).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            continue;
        }
        let mut file = images.open(name);
        let error = file.index_now(&images.indexes(), &NEVER).unwrap_err();
        assert!(matches!(error, VolumeError::Damaged { .. }), "{name}: {error}");
        assert!(!images.indexed(name).is_random_access(), "{name}");
        images.expect_right(&mut file, rows(3));
        assert!(matches!(read(&mut file, rows(60)), Err(VolumeError::Damaged { .. })), "{name}");
    }
}

#[test]
fn data_of_another_kind_than_the_header_says_are_damaged() {
    let images = Images::new();
    for name in ["attached.nrrd", "zlib.mha"] {
        images.damage(name, |bytes| {
            // What gzip and zlib begin with is in no header.
            let begin =
                bytes.windows(2).position(|pair| pair == [0x1f, 0x8b] || pair == [0x78, 0x9c]).unwrap();
            bytes[begin] ^= 0x20;
        });
        let error = read(&mut images.open(name), rows(0)).unwrap_err();
        assert!(matches!(error, VolumeError::Damaged { .. }), "{name}: {error}");
    }
}
