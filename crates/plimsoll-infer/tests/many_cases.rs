//! Fifty cases in one process: what is resident behind the last one is what was behind the first.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::{Case, ChannelFile, Reading};
use plimsoll_infer::{
    Destination, FolderProgress, LabelNames, Outcome, PredictOptions, Predictor, RingStorage, predict_cases,
};
use plimsoll_memory::{Budget, Bytes, keep_resident_small};
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

const CASES: usize = 50;

/// Bytes that may be held more after the last case: fragments of the heap.
const MORE: Bytes = Bytes::mib(4);

/// Returns the memory of this process that belongs to no file, resident or swapped out. Pages of code are not counted: the kernel
/// reads and reclaims them as it likes.
fn anonymous() -> Bytes {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    Bytes((kib("RssAnon:") + kib("VmSwap:")) << 10)
}

fn only_folder(folder: &Path) -> PathBuf {
    fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
}

/// An image of a ball in a wave.
fn image(path: &Path, shape: [usize; 3]) {
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([1.5, 1.0, 1.0]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::I16, None).unwrap();
    let [depth, height, width] = shape;
    for d in 0..depth {
        let mut plane = Vec::new();
        for voxel in 0..height * width {
            let off = |at: usize, extent: usize| at.abs_diff(extent / 2).pow(2);
            let (h, w) = (voxel / width, voxel % width);
            let is_ball = off(d, depth) + off(h, height) + off(w, width) < 60;
            let value = ((d * 3 + h * 5 + w * 7) % 64) as i16 + if is_ball { 300 } else { 1 };
            plane.extend(value.to_ne_bytes());
        }
        writer.write_planes(&plane).unwrap();
    }
    writer.finish().unwrap();
}

/// Returns the resident memory after each of fifty cases whose shapes follow each other in turn, the last one of the first shape.
fn resident_behind(shapes: &[[usize; 3]], limit: Bytes) -> Vec<Bytes> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet/fullres/results");
    let budget = Budget::new(limit);
    let model = only_folder(&only_folder(&results));
    let model = NnUnetModel::open(&model, &NnUnetChoice::default(), &budget).unwrap().model;
    let channels = model.channels.len();
    let folder = tempfile::tempdir().unwrap();
    let cases: Vec<Case> = (0..CASES)
        .map(|number| {
            let shape = if number + 1 == CASES { shapes[0] } else { shapes[number % shapes.len()] };
            let of_channel = |channel: usize| {
                let path = folder.path().join(format!("c{number:02}_{channel:04}.nii.gz"));
                image(&path, shape);
                ChannelFile { path, index: 0 }
            };
            let images = (0..channels).map(of_channel).collect();
            Case { id: format!("c{number:02}"), images, label: None, reading: Reading::default() }
        })
        .collect();
    let labels = folder.path().join("labels");
    fs::create_dir(&labels).unwrap();
    let to = Destination {
        folder: labels,
        names: LabelNames::Cases,
        ending: ".nii.gz".into(),
        overwrite: false,
        probabilities: false,
        earlier: None,
    };
    let options = PredictOptions { ring: Some(RingStorage::F16), ..PredictOptions::new(1.0, false, 2) };
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(2)).unwrap());
    let mut predictor = Predictor::new(model, options, backend, &budget).unwrap();
    let mut found = Vec::with_capacity(CASES);
    let going = AtomicBool::new(false);
    predict_cases(&mut predictor, &cases, &to, &going, &mut |progress| {
        if let FolderProgress::Case { report, .. } = progress {
            assert!(matches!(report.outcome, Outcome::Predicted { .. }), "{:?}", report.outcome);
            found.push(anonymous());
        }
    })
    .unwrap();
    assert_eq!(found.len(), CASES);
    found
}

/// In one test, as both look at the memory of the whole process.
#[test]
fn what_is_resident_behind_the_fiftieth_case_is_what_was_behind_the_first() {
    keep_resident_small();
    let same = [[20, 40, 36]];
    let mixed = [[20, 40, 36], [44, 18, 30], [12, 64, 20], [30, 30, 52], [8, 24, 70]];
    for (name, shapes) in [("of one shape", &same[..]), ("of many shapes", &mixed[..])] {
        let found = resident_behind(shapes, Bytes::mib(192));
        let (first, last) = (found[0], found[CASES - 1]);
        println!(
            "{name}: {first} behind the first case, {last} behind the last, {} at most",
            found.iter().max().unwrap()
        );
        assert!(last <= first + MORE, "{name}: {found:?}");
    }
}
