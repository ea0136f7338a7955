//! Windows whose interior counts give the labels of one window over all of the image, however small they are.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::{
    Case, Channel, ChannelFile, MonaiIntensity, MonaiSteps, Normalisation, Preparation, Reading,
};
use plimsoll_graph::{DType, Role, Shape, TensorId};
use plimsoll_infer::{CaseRequest, PredictOptions, Predictor, RingStorage};
use plimsoll_memory::{Budget, Bytes, Overhead};
use plimsoll_models::{Answers, Interpolated, SegmentationModel, WindowLayout};
use plimsoll_nn::weights::safetensors;
use plimsoll_nn::{MeshNet, Network, predict};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

const CLASSES: usize = 4;
/// Shorter than the extent that it is padded to along one axis.
const SHAPE: [usize; 3] = [20, 37, 41];
const EXTENT: [usize; 3] = [40, 36, 28];

/// A network that sees six voxels to each side, with biases, so that borders differ from padding.
fn network() -> Network {
    MeshNet { instance_norm: false, ..MeshNet::new(1, CLASSES, &[6, 6], &[2, 4]) }.into()
}

fn write_weights(path: &Path, net: &Network) {
    let program = predict(net.as_architecture(), EXTENT, 1, DType::F32).unwrap();
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).collect();
    let listed: Vec<(String, Shape)> =
        parameters.iter().map(|id| (program.tensor(*id).name.clone(), program.shape(*id).clone())).collect();
    let mut buffer = vec![0.0f32; listed.iter().map(|(_, shape)| shape.count()).max().unwrap()];
    let mut file = BufWriter::new(File::create(path).unwrap());
    safetensors::write(&mut file, &listed, &BTreeMap::new(), &mut buffer, |place, values| {
        net.initialise(program.tensor(parameters[place]), 3, values);
        if listed[place].0.ends_with("bias") {
            (0..values.len()).for_each(|i| values[i] = 0.1 - 0.06 * i as f32);
        }
        Ok(())
    })
    .unwrap();
}

fn model(weights: &Path, patch: [usize; 3]) -> SegmentationModel {
    SegmentationModel {
        net: network(),
        patch,
        precision: DType::F32,
        weights: vec![weights.to_path_buf().into()],
        channels: vec![Channel { name: "image".into(), normalisation: Normalisation::None }],
        file_ending: ".nii".into(),
        foreground: BTreeMap::new(),
        preparation: Preparation::Monai(MonaiSteps {
            spacing: None,
            intensity: MonaiIntensity::ScaleIntensity { minv: 0.0, maxv: 1.0, channel_wise: false },
        }),
        earlier_labels: 0,
        answers: Answers::Classes(CLASSES),
        outputs: (0..CLASSES).map(|class| format!("class {class}")).collect(),
        mirror_axes: [false; 3],
        windows: WindowLayout::Interior { margin: 6, extent: EXTENT },
        interpolated: Interpolated::Probabilities,
    }
}

fn write_image(path: &Path) {
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let mut file = VolumeWriter::create(path, &geometry, 1, ElementType::I16, None).unwrap();
    let voxels =
        (0..geometry.voxel_count()).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as i16 % 100 + 100);
    let voxels: Vec<u8> = voxels.flat_map(i16::to_ne_bytes).collect();
    file.write_planes(&voxels).unwrap();
    file.finish().unwrap();
}

#[test]
fn labels_are_those_of_one_window_over_the_whole_image() {
    let folder = tempfile::tempdir().unwrap();
    let (image, weights) = (folder.path().join("case_0000.nii"), folder.path().join("weights.safetensors"));
    write_weights(&weights, &network());
    write_image(&image);
    let case = Case {
        id: "case".into(),
        images: vec![ChannelFile { path: image, index: 0 }],
        label: None,
        reading: Reading::default(),
    };
    let labels = |patch: [usize; 3], ring: RingStorage| {
        let model = model(&weights, patch);
        let options = PredictOptions { ring: Some(ring), ..PredictOptions::new(0.5, false, 2) };
        let backend = Arc::new(CpuBackend::new(CpuOptions::new(2)).unwrap());
        let budget = Budget::new(Bytes::mib(512));
        let mut predictor = Predictor::new(model, options, backend, &budget).unwrap();
        let to = folder.path().join("labels.nii");
        let request =
            CaseRequest { case: &case, earlier: None, within: None, labels: &to, probabilities: None };
        let predicted = predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).unwrap();
        (fs::read(&to).unwrap(), predicted.plan.windows)
    };
    // Along right, anterior and superior, as the network sees the image: 41, 37 and 28 voxels with the padding.
    let (whole, windows) = labels([41, 37, 28], RingStorage::F32);
    assert_eq!(windows, 1);
    let counts = |labels: &[u8]| {
        [0, 1, 2, 3].map(|class| labels[352..].iter().filter(|label| **label == class).count())
    };
    assert!(counts(&whole).iter().filter(|count| **count > 100).count() >= 2, "{:?}", counts(&whole));
    for (patch, expected) in
        [([26, 37, 28], 3), ([20, 18, 19], 4 * 5 * 3), ([13, 21, 28], 29 * 3), ([38, 36, 27], 2 * 2 * 2)]
    {
        let (found, windows) = labels(patch, RingStorage::F32);
        assert_eq!(windows, expected, "{patch:?}");
        assert!(found == whole, "{patch:?}");
    }
    // Each voxel is of windows that have it inside, so half precision rounds logits alone.
    let (halved, _) = labels([20, 18, 19], RingStorage::F16);
    let differing = whole.iter().zip(&halved).filter(|(whole, halved)| whole != halved).count();
    assert!(differing * 500 < whole.len(), "{differing} of {}", whole.len());
}

#[test]
fn a_low_limit_makes_windows_smaller_and_a_lower_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights.safetensors");
    write_weights(&weights, &network());
    let window = |beyond_the_process: Bytes| {
        let budget = Budget::new(Overhead::new(2).total() + beyond_the_process);
        let backend = Arc::new(CpuBackend::new(CpuOptions::new(2)).unwrap());
        let predictor =
            Predictor::new(model(&weights, [64; 3]), PredictOptions::new(0.5, false, 2), backend, &budget);
        predictor.map(|predictor| predictor.model().patch)
    };
    assert_eq!(window(Bytes::mib(256)).unwrap(), [64; 3]);
    // Two maps of sixteen channels of f32, logits and image take 148 bytes a voxel: 22 MiB of two windows that divide the depth (38 × 64 × 64
    // each, with margins of 6), and 17 of three. With half of the limit three fit.
    assert_eq!(window(Bytes::mib(40)).unwrap(), [30, 64, 64]);
    // Windows of 38³ take 7.7 MiB; those that are cheaper take 10 and more.
    assert_eq!(window(Bytes::mib(16)).unwrap(), [38; 3]);
    // Shorter windows would have next to nothing inside of their margins.
    let refused = window(Bytes::mib(1)).unwrap_err();
    assert!(refused.to_string().contains("is free"), "{refused}");
}
