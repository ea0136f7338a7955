//! More classes than a byte has values.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::{Case, Channel, ChannelFile, Normalisation, Preparation, Reading, TargetSpacing};
use plimsoll_graph::{DType, Role, Shape, TensorId};
use plimsoll_infer::{CaseRequest, PredictOptions, Predictor, RingStorage, Summed};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::{Answers, Interpolated, SegmentationModel, WindowLayout};
use plimsoll_nn::weights::safetensors;
use plimsoll_nn::{Network, NetworkSettings, predict};
use plimsoll_run::Topology;
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeError, VolumeFile, VolumeWriter};

const CLASSES: usize = 300;
/// Its low byte is another class.
const LIKELIEST: usize = 290;
const SPACING: Spacing = Spacing([1.0; 3]);
const SHAPE: [usize; 3] = [5, 40, 36];

/// Weights of a network that finds one class everywhere: its head adds 1 to that class and multiplies all features by 0.
fn write_weights(path: &Path, net: &Network, window: [usize; 3]) {
    let program = predict(net.as_architecture(), window, 1, DType::F32).unwrap();
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).collect();
    let listed: Vec<(String, Shape)> = parameters
        .iter()
        .map(|id| program.tensor(*id))
        .map(|tensor| (tensor.name.clone(), tensor.shape.clone()))
        .collect();
    let mut buffer = vec![0.0f32; listed.iter().map(|(_, shape)| shape.count()).max().unwrap()];
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut heads = 0;
    safetensors::write(&mut file, &listed, &BTreeMap::new(), &mut buffer, |place, values| {
        let shape = &listed[place].1;
        net.initialise(program.tensor(parameters[place]), 0, values);
        if shape.dim(0) == CLASSES {
            heads += 1;
            values.fill(0.0);
            if shape.count() == CLASSES {
                values[LIKELIEST] = 1.0;
            }
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(heads, 2, "weights and a bias");
}

#[test]
fn labels_above_255_are_written_in_16_bits_whichever_way_they_are_summed() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(Bytes::mib(512));
    let weights = folder.path().join("weights.safetensors");
    let window = [16; 3];
    let topology = Topology::new(TargetSpacing::Volume(SPACING), window);
    assert_eq!(topology.patch, window);
    let features = Some(vec![4, 6]);
    let mut design = topology.design(1, CLASSES);
    design.strides.truncate(2);
    design.kernels.truncate(2);
    let net = Network::design(&design, &NetworkSettings { features, ..NetworkSettings::default() }).unwrap();
    write_weights(&weights, &net, window);
    let image = folder.path().join("case_0000.nii");
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(SPACING)).unwrap();
    let mut file = VolumeWriter::create(&image, &geometry, 1, ElementType::I16, None).unwrap();
    let voxels: Vec<u8> = (0..geometry.voxel_count()).flat_map(|at| (at as i16 % 71).to_ne_bytes()).collect();
    file.write_planes(&voxels).unwrap();
    file.finish().unwrap();
    let case = Case {
        id: "case".into(),
        images: vec![ChannelFile { path: image, index: 0 }],
        label: None,
        reading: Reading::default(),
    };
    for (summed, ring) in [(Summed::Logits, RingStorage::F32), (Summed::Features, RingStorage::F16)] {
        let model = SegmentationModel {
            net: net.clone(),
            patch: window,
            precision: DType::F32,
            weights: vec![weights.clone().into()],
            channels: vec![Channel { name: "image".into(), normalisation: Normalisation::ZScore }],
            file_ending: ".nii".into(),
            foreground: BTreeMap::new(),
            preparation: Preparation::Canonical { spacing: TargetSpacing::Volume(SPACING) },
            earlier_labels: 0,
            answers: Answers::Classes(CLASSES),
            outputs: (0..CLASSES).map(|class| format!("class {class}")).collect(),
            mirror_axes: [true; 3],
            windows: WindowLayout::Even,
            interpolated: Interpolated::Logits,
        };
        let options =
            PredictOptions { summed: Some(summed), ring: Some(ring), ..PredictOptions::new(0.5, false, 2) };
        let backend = Arc::new(CpuBackend::new(CpuOptions::new(2)).unwrap());
        let mut predictor = Predictor::new(model, options, backend, &budget).unwrap();
        let labels = folder.path().join("labels.nii");
        let request =
            CaseRequest { case: &case, earlier: None, within: None, labels: &labels, probabilities: None };
        predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let mut written = VolumeFile::open(&labels).unwrap();
        assert_eq!((written.element_type(), written.geometry().shape()), (ElementType::U16, SHAPE));
        written
            .for_each_plane(0, &Budget::new(Bytes::mib(4)), |_, plane| {
                let all = plane.as_chunks::<2>().0.iter().map(|label| u16::from_ne_bytes(*label));
                assert!(all.into_iter().all(|label| usize::from(label) == LIKELIEST), "{summed}");
                Ok::<(), VolumeError>(())
            })
            .unwrap();
    }
}
