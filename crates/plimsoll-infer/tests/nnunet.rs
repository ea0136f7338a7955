//! Models that nnU-Net trained, against what it predicts with them itself.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::{Dataset, prediction_ending};
use plimsoll_infer::{
    CaseRequest, Destination, EnsembleRequest, InferError, LabelNames, Outcome, PredictOptions, Predictor,
    Summed, label_by_mean, predict_cases,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::Answers;
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel};
use plimsoll_volume::{VolumeError, VolumeFile};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet").join(name)
}

/// The folder of a configuration of a model.
fn trained(name: &str, configuration: &str) -> PathBuf {
    let results = oracle(name).join("results");
    let inside =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let folders = inside(&results).into_iter().flat_map(|dataset| inside(&dataset));
    folders
        .into_iter()
        .find(|folder| folder.to_string_lossy().ends_with(&format!("__{configuration}")))
        .unwrap()
}

fn labels(path: &Path) -> Vec<u16> {
    let mut labels = Vec::new();
    let mut file = VolumeFile::open(path).unwrap();
    let (size, budget) = (file.element_type().size(), Budget::new(Bytes::mib(16)));
    file.for_each_plane(0, &budget, |_, plane| {
        match size {
            1 => labels.extend(plane.iter().map(|label| u16::from(*label))),
            _ => labels.extend(plane.as_chunks::<2>().0.iter().map(|label| u16::from_ne_bytes(*label))),
        }
        Ok::<(), VolumeError>(())
    })
    .unwrap();
    labels
}

/// A prediction of the images of an oracle.
#[derive(Clone, Copy)]
struct Prediction<'a> {
    name: &'a str,
    configuration: &'a str,
    /// The memory limit.
    limit: Bytes,
    threads: usize,
    summed: Option<Summed>,
    probabilities: bool,
    /// The labels of an earlier network.
    earlier: Option<&'a Path>,
}

impl<'a> Prediction<'a> {
    /// A prediction of labels alone, on two threads, with the limit of most tests.
    fn new(name: &'a str, configuration: &'a str) -> Prediction<'a> {
        Prediction {
            name,
            configuration,
            limit: LIMIT,
            threads: 2,
            summed: None,
            probabilities: false,
            earlier: None,
        }
    }
}

/// Predicts the images of an oracle, and returns the folder of labels.
fn predict(prediction: Prediction<'_>) -> tempfile::TempDir {
    let Prediction { name, configuration, limit, threads, summed, probabilities, earlier } = prediction;
    let budget = Budget::new(limit);
    let choice = NnUnetChoice::default();
    let model = NnUnetModel::open(&trained(name, configuration), &choice, &budget).unwrap().model;
    let cases = Dataset::images(oracle(name).join("images"), &model.channels, &model.file_ending).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let to = Destination {
        folder: folder.path().into(),
        names: LabelNames::Cases,
        ending: prediction_ending(&model.file_ending).into(),
        overwrite: false,
        probabilities,
        earlier: earlier.map(PathBuf::from),
    };
    let options = PredictOptions { summed, ..PredictOptions::new(0.5, true, threads) };
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(threads)).unwrap());
    let mut predictor = Predictor::new(model, options, backend, &budget).unwrap();
    let report = predict_cases(&mut predictor, &cases, &to, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(!report.cases.is_empty());
    for case in &report.cases {
        match &case.outcome {
            Outcome::Predicted { plan, .. } => {
                assert!(budget.peak() <= plan.ram_budget_bytes);
                assert!(summed.is_none_or(|summed| summed == plan.summed));
            }
            other => panic!("{name}, {}: {other:?}", case.case),
        }
    }
    folder
}

/// The share of voxels that are as nnU-Net's, of the worst case.
fn agreement(name: &str, expected: &str, found: &Path) -> f64 {
    let mut worst = 1.0f64;
    let mut foreground = 0;
    for entry in fs::read_dir(oracle(name).join("expected").join(expected)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "npz" || ending == "json") {
            continue;
        }
        let (expected, found) = (labels(&path), labels(&found.join(path.file_name().unwrap())));
        assert_eq!(expected.len(), found.len());
        let same = expected.iter().zip(&found).filter(|(one, other)| one == other).count();
        foreground += expected.iter().filter(|label| **label > 0).count();
        println!("{name}, {}: {same} of {} voxels", path.display(), expected.len());
        worst = worst.min(same as f64 / expected.len() as f64);
    }
    assert!(foreground > 100, "{name}: labels that are all background would prove nothing");
    worst
}

const LIMIT: Bytes = Bytes::mib(512);

#[test]
fn labels_are_those_that_nnunet_writes() {
    for (name, configuration) in [
        ("fullres", "3d_fullres"),
        ("resenc_regions", "3d_fullres"),
        ("flat", "2d"),
        ("anisotropic", "3d_fullres"),
        ("batch_norm", "3d_fullres"),
        ("old_plans", "3d_fullres"),
        ("cascade", "3d_lowres"),
        ("cascade", "3d_fullres"),
        ("torchres", "3d_lowres"),
        ("torchres_slices", "3d_lowres"),
        ("pictures", "2d"),
        ("stacks", "3d_fullres"),
    ] {
        let found = predict(Prediction::new(name, configuration));
        let agreement = agreement(name, &format!("{configuration}_f32"), found.path());
        assert!(agreement >= 0.9999, "{name}, {configuration}: {agreement}");
    }
}

#[test]
fn the_head_of_the_mean_of_features_says_what_nnunet_makes_of_the_mean_of_logits() {
    for (name, configuration) in [
        ("resenc_regions", "3d_fullres"),
        ("flat", "2d"),
        ("anisotropic", "3d_fullres"),
        ("batch_norm", "3d_fullres"),
        ("torchres", "3d_lowres"),
    ] {
        let prediction = Prediction { probabilities: true, ..Prediction::new(name, configuration) };
        let of = |summed| predict(Prediction { summed: Some(summed), ..prediction });
        let (features, logits) = (of(Summed::Features), of(Summed::Logits));
        let agreement = agreement(name, &format!("{configuration}_f32"), features.path());
        assert!(agreement >= 0.9999, "{name}, {configuration}: {agreement}");
        let mut worst = 0.0f32;
        for entry in fs::read_dir(logits.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "npz") {
                let (logits, features) =
                    (array(&path), array(&features.path().join(path.file_name().unwrap())));
                assert_eq!(logits.len(), features.len());
                worst = logits.iter().zip(&features).fold(worst, |worst, (a, b)| worst.max((a - b).abs()));
            }
        }
        println!("{name}: probabilities differ by {worst} at most");
        assert!(worst < 1e-4, "{name}: {worst}");
    }
}

#[test]
fn folds_which_have_a_head_each_sum_logits() {
    let budget = Budget::new(LIMIT);
    let model = NnUnetModel::open(&trained("fullres", "3d_fullres"), &NnUnetChoice::default(), &budget);
    let mut model = model.unwrap().model;
    model.weights = vec![model.weights[0].clone(); 2];
    let options = PredictOptions { summed: Some(Summed::Features), ..PredictOptions::new(0.5, true, 1) };
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(1)).unwrap());
    let refused = Predictor::new(model, options, backend, &budget).err().unwrap();
    assert!(matches!(refused, InferError::NoFeatures { .. }), "{refused}");
    assert!(refused.remedy().unwrap().contains("‹sum=logits›"));
}

/// The file of the second fold is damaged when its first tensors have already replaced the tensors of the first fold.
#[test]
fn weights_that_fail_midway_are_not_what_the_next_case_is_predicted_with() {
    let budget = Budget::new(LIMIT);
    let model = NnUnetModel::open(&trained("fullres", "3d_fullres"), &NnUnetChoice::default(), &budget);
    let mut model = model.unwrap().model;
    let folder = tempfile::tempdir().unwrap();
    let [_, second] = &mut model.weights[..] else { panic!("two folds") };
    let sound = fs::read(&second.path).unwrap();
    let path = folder.path().join("second.pth");
    second.path = path.clone();
    let mut damaged = sound.clone();
    damaged[sound.len() * 5 / 8..][..64].fill(0xff);
    let cases = Dataset::images(oracle("fullres").join("images"), &model.channels, &model.file_ending);
    let cases = cases.unwrap();
    let written = folder.path().join("labels.nii");
    let request =
        CaseRequest { case: &cases[0], earlier: None, within: None, labels: &written, probabilities: None };
    fs::write(&path, &sound).unwrap();
    let options = PredictOptions::new(0.5, true, 2);
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(2)).unwrap());
    let mut predictor = Predictor::new(model, options, backend, &budget).unwrap();
    let mut predict = |file: &[u8]| {
        fs::write(&path, file).unwrap();
        predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).map(|_| labels(&written))
    };
    let expected = predict(&sound).unwrap();
    let error = predict(&damaged).unwrap_err();
    assert!(matches!(error, InferError::Run(_)), "{error}");
    assert!(predict(&sound).unwrap() == expected, "labels of other weights");
}

#[test]
fn the_second_stage_of_a_cascade_sees_the_labels_of_the_first() {
    // Labels are resized by batchgenerators, and by PyTorch with slices that are as far apart as others, and with ones for themselves.
    for name in ["cascade", "torchres", "torchres_slices"] {
        let earlier = oracle(name).join("expected/3d_lowres_f32");
        let second = Prediction::new(name, "3d_cascade_fullres");
        let found = predict(Prediction { earlier: Some(&earlier), ..second });
        let agreement = agreement(name, "3d_cascade_fullres_f32", found.path());
        assert!(agreement >= 0.9999, "{name}: {agreement}");
    }
    // Without them nothing is predicted.
    let budget = Budget::new(LIMIT);
    let folder = trained("cascade", "3d_cascade_fullres");
    let model = NnUnetModel::open(&folder, &NnUnetChoice::default(), &budget).unwrap().model;
    let cases =
        Dataset::images(oracle("cascade").join("images"), &model.channels, &model.file_ending).unwrap();
    let options = PredictOptions::new(0.5, true, 1);
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(1)).unwrap());
    let mut predictor = Predictor::new(model, options, backend, &budget).unwrap();
    let out = tempfile::tempdir().unwrap();
    let request = CaseRequest {
        case: &cases[0],
        earlier: None,
        within: None,
        labels: &out.path().join("first.nii.gz"),
        probabilities: None,
    };
    let refused = predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, InferError::Prepare { .. }), "{refused}");
    assert!(refused.to_string().contains("needs the labels"), "{refused}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn labels_are_the_same_below_a_lower_limit_and_on_more_threads() {
    let of = |limit: Bytes, threads: usize| {
        let found = predict(Prediction { limit, threads, ..Prediction::new("fullres", "3d_fullres") });
        labels(&found.path().join("first.nii.gz"))
    };
    let roomy = of(LIMIT, 1);
    // No room for a cache: all is read from the files.
    assert!(roomy == of(Bytes::mib(96), 3));
}

/// The array of an `.npz` with one, as f32.
fn array(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (method, from) = (number(8), 30 + number(26) + number(28));
    let mut data = Vec::new();
    match method {
        0 => data.extend(&bytes[from..]),
        _ => {
            flate2::read::DeflateDecoder::new(&bytes[from..]).read_to_end(&mut data).unwrap();
        }
    }
    let text = usize::from(u16::from_le_bytes([data[8], data[9]]));
    let header = String::from_utf8_lossy(&data[10..10 + text]).into_owned();
    assert!(header.contains("'<f4'") && header.contains("False"), "{header}");
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let count: usize = shape.split(',').filter_map(|extent| extent.trim().parse::<usize>().ok()).product();
    let values = data[10 + text..].as_chunks::<4>().0;
    values[..count].iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// The probabilities of three classes that nnU-Net writes for a case in two dimensions, on the stored grid: its reader reorients images, and
/// it writes probabilities as it read them.
fn theirs_as_stored(case: &str) -> (Vec<f32>, [usize; 3]) {
    let read = array(&oracle("flat").join("expected/2d").join(format!("{case}.npz")));
    let image = VolumeFile::open(oracle("flat").join("images").join(format!("{case}_0000.nii.gz"))).unwrap();
    let shape = image.geometry().shape();
    let reorientation = image.geometry().canonical().1;
    let [depth, height, width] = reorientation.shape(shape);
    let voxels = depth * height * width;
    let mut stored = vec![f32::NAN; read.len()];
    for (number, value) in read.iter().enumerate() {
        let (class, at) = (number / voxels, number % voxels);
        let canonical = [at / (height * width), at / width % height, at % width];
        let [d, h, w] = reorientation.source_index(canonical, shape).unwrap();
        stored[class * voxels + (d * shape[1] + h) * shape[2] + w] = *value;
    }
    (stored, shape)
}

#[test]
fn probabilities_are_those_that_nnunet_writes() {
    let found = predict(Prediction { probabilities: true, ..Prediction::new("flat", "2d") });
    for case in ["first", "second"] {
        let (expected, _) = theirs_as_stored(case);
        let found = array(&found.path().join(format!("{case}.npz")));
        assert_eq!(found.len(), expected.len());
        let worst =
            found.iter().zip(&expected).fold(0.0f32, |worst, (one, other)| worst.max((one - other).abs()));
        println!("{case}: {worst} at most, of {} probabilities", found.len());
        // It sums logits in half precision.
        assert!(worst < 5e-3, "{case}: {worst}");
    }
}

/// Writes an `.npz` as NumPy compresses it.
fn compress(path: &Path, values: &[f32], [depth, height, width]: [usize; 3]) {
    let classes = values.len() / (depth * height * width);
    let mut text = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({classes}, {depth}, {height}, {width}), }}"
    );
    text.push('\n');
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend((text.len() as u16).to_le_bytes());
    array.extend(text.as_bytes());
    array.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut archive = ZipWriter::new(fs::File::create(path).unwrap());
    archive.start_file("probabilities.npy", options).unwrap();
    archive.write_all(&array).unwrap();
    archive.finish().unwrap();
}

/// The labels of a case by the mean of several files.
fn averaged(name: &str, probabilities: &[PathBuf], case: &str) -> Result<tempfile::TempDir, InferError> {
    let folder = tempfile::tempdir().unwrap();
    let request = EnsembleRequest {
        case,
        probabilities,
        answers: &Answers::Classes(3),
        image: &oracle(name).join("images").join(format!("{case}_0000.nii.gz")),
        labels: &folder.path().join(format!("{case}.nii.gz")),
    };
    label_by_mean(&request, &Budget::new(Bytes::mib(8)), &AtomicBool::new(false))?;
    Ok(folder)
}

#[test]
fn the_mean_of_several_models_says_what_nnunet_makes_of_it() {
    let of = |configuration: &str| {
        predict(Prediction { probabilities: true, ..Prediction::new("cascade", configuration) })
    };
    let members = [of("3d_lowres"), of("3d_fullres")];
    let files = members.each_ref().map(|folder| folder.path().join("first.npz"));
    let found = averaged("cascade", &files, "first").unwrap();
    let agreement = agreement("cascade", "ensemble", found.path());
    assert!(agreement >= 0.9999, "{agreement}");
}

#[test]
fn probabilities_that_nnunet_compressed_are_averaged_with_those_that_are_not() {
    let own = predict(Prediction { probabilities: true, ..Prediction::new("flat", "2d") });
    for case in ["first", "second"] {
        let theirs = own.path().join(format!("theirs_{case}.npz"));
        let (values, shape) = theirs_as_stored(case);
        compress(&theirs, &values, shape);
        let files = [own.path().join(format!("{case}.npz")), theirs];
        let found = averaged("flat", &files, case).unwrap();
        let expected = labels(&oracle("flat").join("expected/2d").join(format!("{case}.nii.gz")));
        let found = labels(&found.path().join(format!("{case}.nii.gz")));
        let same = expected.iter().zip(&found).filter(|(one, other)| one == other).count();
        assert!(same as f64 / expected.len() as f64 >= 0.9999, "{case}: {same} of {}", expected.len());
    }
    // Of another image, cut off, and none at all.
    let theirs = oracle("flat").join("expected/2d/second.npz");
    let refused = averaged("flat", std::slice::from_ref(&theirs), "first").unwrap_err();
    assert!(refused.to_string().contains("voxels, but 3 of"), "{refused}");
    for file in [own.path().join("theirs_second.npz"), own.path().join("second.npz")] {
        let bytes = fs::read(file).unwrap();
        let cut = own.path().join("cut.npz");
        for length in [0, 20, 100, bytes.len() / 2] {
            fs::write(&cut, &bytes[..length]).unwrap();
            let refused = averaged("flat", std::slice::from_ref(&cut), "second").unwrap_err();
            assert!(matches!(refused, InferError::Probabilities { .. }), "{length}: {refused}");
            assert!(refused.remedy().is_some());
        }
    }
    assert!(matches!(averaged("flat", &[], "first"), Err(InferError::Unreadable { .. })));
}
