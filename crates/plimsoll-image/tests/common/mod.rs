//! Reference images of `oracles/image_pipeline.py`.
#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests, not all of which every test needs")]

use std::path::{Path, PathBuf};

use plimsoll_image::Extent;
use plimsoll_memory::fnv1a;
use serde_json::Value;

pub fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles")
}

pub fn reference() -> Value {
    serde_json::from_slice(&std::fs::read(oracles().join("image_pipeline.json")).unwrap()).unwrap()
}

pub fn file(name: &str) -> PathBuf {
    oracles().join("image_files").join(name)
}

/// The image that operations are tried on: see the script.
pub fn image(extent: Extent, channels: usize) -> Vec<u8> {
    let (h, w) = (extent.height, extent.width);
    let mut samples = Vec::new();
    for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
        let smooth = [255 * x / (w - 1), 255 * y / (h - 1), 255 * (x + y) / (h + w - 2)];
        let across = ((2 * x + 1) as i64 - w as i64) * h as i64;
        let down = ((2 * y + 1) as i64 - h as i64) * w as i64;
        let inside = across * across + down * down <= ((h * w) as i64).pow(2);
        for smooth in smooth.into_iter().take(channels) {
            let noise = (((samples.len() as u64 + 1) * 2_654_435_761 % (1 << 32)) >> 24) as usize;
            samples.push(if inside { (3 * smooth + noise) / 4 } else { noise / 64 } as u8);
        }
    }
    samples
}

pub fn extent(value: &Value) -> Extent {
    Extent { height: value[0].as_u64().unwrap() as usize, width: value[1].as_u64().unwrap() as usize }
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The difference between samples and an output of the reference.
#[derive(Debug)]
pub struct Difference {
    /// The most, in levels.
    pub most: u8,
    /// The share of compared samples that differ.
    pub share: f64,
    /// `true` if all bytes are the same.
    pub none: bool,
}

pub fn compare(found: &[u8], out: &Value) -> Difference {
    let every = out["every"].as_u64().unwrap() as usize;
    let samples = numbers(&out["samples"]);
    assert_eq!(found.len().div_ceil(every), samples.len());
    let levels =
        || found.iter().step_by(every).zip(&samples).map(|(found, expected)| found.abs_diff(*expected as u8));
    Difference {
        most: levels().max().unwrap(),
        share: levels().filter(|levels| *levels > 0).count() as f64 / samples.len() as f64,
        none: format!("{:016x}", fnv1a(found)) == out["hash"].as_str().unwrap(),
    }
}
