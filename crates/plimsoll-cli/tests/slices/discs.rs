//! Bright discs in noise, drawn slice by slice.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_random::mix;
use plimsoll_volume::{Affine, ElementType, Geometry, Reorientation, Spacing, VolumeWriter};

/// A slice with a disc: intensities and labels.
pub fn disc(height: usize, width: usize, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let draw = |of: u64| (mix(seed.wrapping_mul(0x9e37).wrapping_add(of)) >> 11) as f64 / (1u64 << 53) as f64;
    let between = |of: u64, low: f64, high: f64| low + (high - low) * draw(of);
    let (y, x) = (between(1, 0.3, 0.7) * height as f64, between(2, 0.3, 0.7) * width as f64);
    let radius = between(3, 0.12, 0.22) * height.min(width) as f64;
    let labels: Vec<u8> = (0..height * width)
        .map(|at| {
            let (down, right) = ((at / width) as f64 - y, (at % width) as f64 - x);
            u8::from(down * down + right * right < radius * radius)
        })
        .collect();
    let noise = |at: usize| 60.0 * draw(100 + at as u64);
    let image =
        labels.iter().enumerate().map(|(at, label)| (60.0 + 90.0 * f64::from(*label) + noise(at)) as u8);
    (image.collect(), labels)
}

/// Writes a volume of slices, each with a disc of its own; `reversed` stores the last slice first.
pub fn volume(image: &Path, label: &Path, shape: [usize; 3], spacing: [f64; 3], seed: u64) {
    let [depth, height, width] = shape;
    let canonical = Geometry::new(shape, Affine::from_spacing(Spacing(spacing))).unwrap();
    let geometry = Reorientation::new([0, 1, 2], [seed % 2 == 1, false, false]).unwrap().geometry(&canonical);
    let writer = |path| VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    let (mut images, mut labels) = (writer(image), writer(label));
    for slice in 0..depth {
        let (intensities, classes) = disc(height, width, 1000 * seed + slice as u64);
        images.write_planes(&intensities).unwrap();
        labels.write_planes(&classes).unwrap();
    }
    images.finish().unwrap();
    labels.finish().unwrap();
}

/// A data set of volumes with thick slices, five to train on and one to predict. No two have the same spacing between slices.
pub fn volumes(folder: &Path) -> PathBuf {
    let data = folder.join("discs");
    folders(&data);
    for case in 0..6 {
        let (images, labels) = if case == 5 { ("imagesTs", "labelsTs") } else { ("imagesTr", "labelsTr") };
        volume(
            &data.join(format!("{images}/case_{case}_0000.nii.gz")),
            &data.join(format!("{labels}/case_{case}.nii.gz")),
            [5 + case, 40, 44],
            [4.0 + case as f64, 1.0, 1.0],
            case as u64,
        );
    }
    describe(&data, &["MRI"], ".nii.gz", 5);
    data
}

/// Folders for images and labels, to train on and to predict.
pub fn folders(data: &Path) {
    for name in ["imagesTr", "labelsTr", "imagesTs", "labelsTs"] {
        fs::create_dir_all(data.join(name)).unwrap();
    }
}

/// Writes the description of a data set of discs.
pub fn describe(data: &Path, channels: &[&str], ending: &str, cases: usize) {
    let channels: serde_json::Map<String, serde_json::Value> =
        channels.iter().enumerate().map(|(number, name)| (number.to_string(), (*name).into())).collect();
    let json = serde_json::json!({
        "channel_names": channels, "labels": {"background": 0, "disc": 1}, "numTraining": cases, "file_ending": ending,
    });
    fs::write(data.join("dataset.json"), json.to_string()).unwrap();
}
