//! Data sets for tests.
#![allow(dead_code, clippy::unwrap_used)] // Each test file uses a part of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::{
    Dataset, Fold, InspectConfig, Inspection, Patches, Problem, Sampler, SamplerConfig, VolumeCache, phantom,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};
use serde_json::Value;

/// A straight grid.
pub fn grid(shape: [usize; 3], spacing: [f64; 3]) -> Geometry {
    Geometry::new(shape, Affine::from_spacing(Spacing(spacing))).unwrap()
}

/// The hash that the oracles use, of 20 bits.
pub fn hash(index: u64) -> u32 {
    (((index + 1) * 2_654_435_761) as u32) >> 12
}

/// Writes an image of one or more channels.
pub fn write_image(
    path: &Path,
    geometry: &Geometry,
    channels: usize,
    element_type: ElementType,
    voxels: &[f32],
) {
    let mut bytes = Vec::new();
    for value in voxels {
        match element_type {
            ElementType::U8 => bytes.push(*value as u8),
            ElementType::I16 => bytes.extend((*value as i16).to_ne_bytes()),
            ElementType::F32 => bytes.extend(value.to_ne_bytes()),
            other => panic!("{other}"),
        }
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = VolumeWriter::create(path, geometry, channels, element_type, None).unwrap();
    writer.write_planes(&bytes).unwrap();
    writer.finish().unwrap();
}

/// A data set in nnU-Net's layout under construction.
pub struct Raw {
    pub folder: tempfile::TempDir,
}

impl Raw {
    pub fn new(channels: &[&str], labels: Value) -> Raw {
        let raw = Raw { folder: tempfile::tempdir().unwrap() };
        let names: serde_json::Map<String, Value> =
            channels.iter().enumerate().map(|(i, name)| (i.to_string(), (*name).into())).collect();
        raw.describe(serde_json::json!({
            "channel_names": names, "labels": labels, "numTraining": 1, "file_ending": ".nii.gz"
        }));
        fs::create_dir(raw.path().join("imagesTr")).unwrap();
        fs::create_dir(raw.path().join("labelsTr")).unwrap();
        raw
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn describe(&self, description: Value) {
        fs::write(self.path().join("dataset.json"), description.to_string()).unwrap();
    }

    /// Changes an entry of the description, or removes it.
    pub fn set(&self, key: &str, value: Option<Value>) {
        let text = fs::read(self.path().join("dataset.json")).unwrap();
        let mut description: Value = serde_json::from_slice(&text).unwrap();
        match value {
            Some(value) => description[key] = value,
            None => drop(description.as_object_mut().unwrap().remove(key)),
        }
        self.describe(description);
    }

    pub fn image(&self, id: &str, channel: usize) -> PathBuf {
        self.path().join(format!("imagesTr/{id}_{channel:04}.nii.gz"))
    }

    pub fn label(&self, id: &str) -> PathBuf {
        self.path().join(format!("labelsTr/{id}.nii.gz"))
    }

    /// A case with an image of noise in each channel and these labels.
    pub fn case(&self, id: &str, channels: usize, geometry: &Geometry, labels: &[u8]) {
        let count = geometry.voxel_count();
        for channel in 0..channels {
            let noise: Vec<f32> =
                (0..count).map(|i| (hash((i + 131 * channel) as u64) >> 8) as f32 - 1000.0).collect();
            write_image(&self.image(id, channel), geometry, 1, ElementType::I16, &noise);
        }
        let labels: Vec<f32> = labels.iter().map(|label| f32::from(*label)).collect();
        write_image(&self.label(id), geometry, 1, ElementType::U8, &labels);
    }

    pub fn open(&self) -> Dataset {
        Dataset::open(self.path()).unwrap()
    }
}

/// Labels that are 1 in a box in the middle.
pub fn block(shape: [usize; 3]) -> Vec<u8> {
    let middle = |at: usize, size: usize| at >= size / 3 && at < (2 * size).div_ceil(3);
    let [depth, height, width] = shape;
    let mut labels = Vec::new();
    for d in 0..depth {
        for h in 0..height {
            labels.extend(
                (0..width).map(|w| u8::from(middle(d, depth) && middle(h, height) && middle(w, width))),
            );
        }
    }
    labels
}

/// Inspects with plenty of memory and two threads.
pub fn inspect(dataset: &Dataset) -> Inspection {
    let config = InspectConfig { threads: 2, seed: 1 };
    Inspection::run(dataset, config, &Budget::new(Bytes::mib(64)), &|_, _| ()).unwrap()
}

/// The lines of a saved inspection: what is known of all cases together, then files, problems and cases.
pub struct SavedLines {
    pub path: PathBuf,
    pub head: Value,
    pub files: Vec<Value>,
    pub problems: Vec<Value>,
    pub cases: Vec<Value>,
}

impl SavedLines {
    pub fn read(folder: &Path) -> SavedLines {
        let path = folder.join("inspection.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let head = lines.next().unwrap();
        let mut take = |key: &str| -> Vec<Value> {
            let count = head[key].as_u64().unwrap();
            (0..count).map(|_| lines.next().unwrap()).collect()
        };
        let [files, problems, cases] = ["files", "problems", "cases"].map(&mut take);
        SavedLines { path, head, files, problems, cases }
    }

    pub fn write(&self) {
        let lines = std::iter::once(&self.head).chain(&self.files).chain(&self.problems).chain(&self.cases);
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(&self.path, text).unwrap();
    }
}

/// The text of the only problem.
pub fn only(problems: &[Problem]) -> &Problem {
    assert_eq!(problems.len(), 1, "{problems:#?}");
    &problems[0]
}

/// A small phantom, and its data set.
pub fn phantom(cases: usize) -> (tempfile::TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let config = phantom::PhantomConfig { cases, test_cases: 0, size: [24, 40], ..Default::default() };
    phantom::write(folder.path(), &config).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    (folder, dataset)
}

/// Patches of all cases of a data set.
pub fn patches(
    dataset: &Dataset,
    inspection: Arc<Inspection>,
    config: SamplerConfig,
    cache: Bytes,
) -> Arc<Patches> {
    let sampler = Sampler::new(inspection, &Fold::all(&ids(dataset)), config).unwrap();
    let cache = Arc::new(VolumeCache::new(Budget::new(cache)));
    Arc::new(Patches::new(dataset, sampler, cache).unwrap())
}

pub fn ids(dataset: &Dataset) -> Vec<String> {
    dataset.cases.iter().map(|case| case.id.clone()).collect()
}

/// Reference values, computed by another program.
pub fn oracle(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

pub fn three(value: &Value) -> [f64; 3] {
    numbers(value).try_into().unwrap()
}

pub fn shape(value: &Value) -> [usize; 3] {
    three(value).map(|size| size as usize)
}
