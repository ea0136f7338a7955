//! Reading, writing and interpolating a real image; `benches/volume_peers.py` measures the peers.
//!
//! ```text
//! cargo bench -p plimsoll-volume -- IMAGE.nii.gz [--regions]
//! ```
#![allow(clippy::unwrap_used)] // A benchmark may panic.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{
    IndexFolder, Outside, SourceBlock, Spacing, StoredVolume, VolumeFile, VolumeWriter, VoxelBox, VoxelMap,
    pull_linear, pull_nearest,
};

const PATCH: [usize; 3] = [96; 3];

/// The median of some runs in seconds.
fn median(mut run: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// A region in the middle of a compressed file, with and without access points, and what these take to be found and kept.
fn compressed_regions(path: &Path, folder: &Path, rate: &dyn Fn(&str, f64)) {
    let points = IndexFolder::new(folder.join("points"));
    let kept = points.file(path).unwrap();
    let pass = |with_points: bool| {
        let mut file = VolumeFile::open(path).unwrap();
        if with_points {
            let _ = std::fs::remove_file(&kept);
            file.index_in(&points);
        }
        let [depth, height, width] = file.geometry().shape();
        let mut plane = vec![0; height * width * file.element_type().size()];
        for d in 0..depth {
            let region = VoxelBox { start: [d, 0, 0], shape: [1, height, width] };
            file.read_region(0, region, &mut plane).unwrap();
        }
    };
    rate("pass", median(|| pass(false)));
    rate("pass that finds points", median(|| pass(true)));
    println!("{:24} {:8.0} KiB", "points", std::fs::metadata(&kept).unwrap().len() as f64 / 1024.0);
    let mut out = vec![0.0; PATCH.iter().product()];
    for (name, with_points) in [("region, from the begin", false), ("region, with points", true)] {
        let mut region_of = |at: [f64; 3]| {
            let mut file = VolumeFile::open(path).unwrap();
            if with_points {
                file.index_in(&points);
            }
            let shape = file.geometry().shape();
            let start = std::array::from_fn(|axis| ((shape[axis] - 96) as f64 * at[axis]) as usize);
            file.region_f32(0, VoxelBox { start, shape: PATCH }, &mut out).unwrap();
        };
        for at in [[0.1, 0.5, 0.5], [0.5; 3], [0.9, 0.3, 0.6]] {
            println!("{name:24} {:8.1} ms", 1e3 * median(|| region_of(at)));
        }
    }
}

fn main() {
    let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with('-')) else {
        return println!("give an image, at least 96 voxels along each axis");
    };
    let budget = Budget::new(Bytes::gib(1));
    let stored = StoredVolume::read(&path, &budget, "bench").unwrap();
    let (shape, megabytes) = (stored.geometry().shape(), stored.bytes().len() as f64 / 1e6);
    println!("{shape:?} {} {megabytes:.1} MB", stored.element_type());
    let rate = |name: &str, seconds: f64| println!("{name:24} {:8.0} MB/s", megabytes / seconds);
    let folder = std::env::temp_dir().join(format!("plimsoll-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    compressed_regions(Path::new(&path), &folder, &rate);
    if std::env::args().any(|argument| argument == "--regions") {
        return std::fs::remove_dir_all(&folder).unwrap();
    }
    rate("read compressed", median(|| drop(StoredVolume::read(&path, &budget, "bench").unwrap())));

    let write = |name: &str| {
        let (grid, element_type) = (stored.geometry(), stored.element_type());
        let mut writer = VolumeWriter::create(folder.join(name), grid, 1, element_type, None).unwrap();
        writer.write_planes(stored.bytes()).unwrap();
        writer.finish().unwrap();
    };
    rate("write compressed", median(|| write("image.nii.gz")));
    rate("write plain", median(|| write("image.nii")));
    println!("{:24} {:8.4}", "compressed to", {
        let length = std::fs::metadata(folder.join("image.nii.gz")).unwrap().len();
        length as f64 / 1e6 / megabytes
    });
    let plain = folder.join("image.nii");
    rate("read plain", median(|| drop(StoredVolume::read(&plain, &budget, "bench").unwrap())));

    let voxels = PATCH.iter().product::<usize>();
    let per_voxel =
        |name: &str, seconds: f64| println!("{name:24} {:8.2} ns/voxel", seconds * 1e9 / voxels as f64);
    let start = shape.map(|size| (size - 96) / 2);
    let region = VoxelBox { start, shape: PATCH };
    let mut out = vec![0.0; voxels];
    let mut file = VolumeFile::open(&plain).unwrap();
    per_voxel("region of plain file", median(|| file.region_f32(0, region, &mut out).unwrap()));
    per_voxel("region of memory", median(|| stored.region_f32(0, region, &mut out).unwrap()));
    std::fs::remove_dir_all(&folder).unwrap();

    let mut image = vec![0.0; shape.iter().product()];
    stored.region_f32(0, VoxelBox::whole(shape), &mut image).unwrap();
    let labels: Vec<u8> = image.iter().map(|value| *value as u8).collect();
    let crop = VoxelMap::translation(start.map(|at| at as f64));
    let centre = shape.map(|size| size as f64 / 2.0);
    let finer = crop.then(&VoxelMap::scale([0.7; 3], centre));
    let turned = finer.then(&VoxelMap::rotation([0.2, -0.3, 0.4], Spacing([1.0; 3]), centre));
    let (source, label_source) =
        (SourceBlock::whole(&image, shape).unwrap(), SourceBlock::whole(&labels, shape).unwrap());
    let mut label_out = vec![0; voxels];
    for (name, map) in [("crop", crop), ("finer", finer), ("turned", turned)] {
        let seconds = median(|| {
            pull_linear(&source, &map, PATCH, Outside::Constant(0.0), black_box(&mut out)).unwrap();
        });
        per_voxel(&format!("linear, {name}"), seconds);
        let seconds = median(|| {
            pull_nearest(&label_source, &map, PATCH, Outside::Constant(0), black_box(&mut label_out))
                .unwrap();
        });
        per_voxel(&format!("nearest, {name}"), seconds);
    }
}
