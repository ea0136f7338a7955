//! Runs as other programs have them: what nnU-Net and ONNX Runtime made of our exports, and what our own readers make of them.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

#[path = "../../plimsoll-models/tests/onnx_oracle/mod.rs"]
mod onnx_oracle;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::Dataset;
use plimsoll_graph::{Array, DType, Role};
use plimsoll_infer::{CaseRequest, PredictOptions, Predictor};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel, export_nnunet};
use plimsoll_models::onnx::proto::ModelProto;
use plimsoll_models::onnx::{ExportedGraph, OPSET, OnnxModel, WeightsGo, export_onnx};
use plimsoll_models::{Model, ModelError, SegmentationModel};
use plimsoll_nn::predict;
use plimsoll_nn::weights::SafetensorsFile;
use plimsoll_run::CheckpointKind;
use plimsoll_volume::{VolumeFile, VoxelBox};
use prost::Message;
use serde_json::Value;

use onnx_oracle::{checksum, largest_and_off};

const LIMIT: Bytes = Bytes::mib(512);

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/exported").join(name)
}

fn run(net: &str) -> Model {
    Model::open(&oracle(net).join("run"), CheckpointKind::Final).unwrap()
}

/// Labels of all images, by the names of their cases.
fn labels(model: SegmentationModel) -> Vec<(String, Vec<u8>)> {
    let budget = Budget::new(LIMIT);
    let cases = Dataset::images(oracle("images"), &model.channels, &model.file_ending).unwrap();
    let options = PredictOptions::new(0.5, true, 2);
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(2)).unwrap());
    let mut predictor = Predictor::new(model, options, backend, &budget).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let of = |case| {
        let labels = folder.path().join("labels.nii");
        let request = CaseRequest { case, earlier: None, within: None, labels: &labels, probabilities: None };
        predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).unwrap();
        (case.id.clone(), read(&labels))
    };
    cases.iter().map(of).collect()
}

fn read(path: &Path) -> Vec<u8> {
    let mut file = VolumeFile::open(path).unwrap();
    let mut labels = vec![0; file.geometry().voxel_count()];
    file.region_labels(0, VoxelBox::whole(file.geometry().shape()), &mut labels).unwrap();
    labels
}

fn agreement(one: &[u8], other: &[u8]) -> f64 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).filter(|(one, other)| one == other).count() as f64 / one.len() as f64
}

#[test]
fn nnunet_and_our_reader_of_its_folders_predict_what_the_run_does() {
    for net in ["plain", "resenc", "flat"] {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("model");
        let budget = Budget::new(LIMIT);
        let exported = export_nnunet(&run(net), &to, &budget).unwrap();
        assert_eq!(exported.folds, ["0"]);
        assert_eq!(budget.used(), Bytes::ZERO);
        let own = labels(run(net).try_into().unwrap());
        let opened = NnUnetModel::open(&to, &NnUnetChoice::default(), &budget).unwrap();
        assert_eq!(opened.configuration, if net == "flat" { "2d" } else { "3d_fullres" });
        let again = labels(opened.model);
        assert_eq!(own.len(), 2);
        for ((case, own), (_, again)) in own.iter().zip(&again) {
            let theirs = read(&oracle(net).join(format!("expected/{case}.nii")));
            let (of_reader, of_nnunet) = (agreement(own, again), agreement(own, &theirs));
            println!("{net}, {case}: our reader {of_reader}, nnU-Net {of_nnunet}");
            assert!(own.iter().filter(|label| **label > 0).count() > 300, "{net}, {case}");
            assert!(of_reader >= 0.9999 && of_nnunet >= 0.9999, "{net}, {case}: {of_reader}, {of_nnunet}");
        }
        // Nothing is written over it.
        let error = export_nnunet(&run(net), &to, &budget).unwrap_err();
        assert!(error.to_string().contains("already exists"), "{error}");
    }
}

#[test]
fn networks_that_nnunet_does_not_have_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for net in ["dynunet", "segresnet"] {
        let to = folder.path().join(net);
        let error = export_nnunet(&run(net), &to, &Budget::new(LIMIT)).unwrap_err();
        assert!(
            matches!(&error, ModelError::NotExported { .. }) && error.to_string().contains(net),
            "{error}"
        );
        assert!(!to.exists());
    }
    // A limit that is too low for a tensor: what was made is taken away, and what was there stays.
    let to = folder.path().join("made/on/the/way");
    let error = export_nnunet(&run("plain"), &to, &Budget::new(Bytes(1000))).unwrap_err();
    assert!(matches!(error, ModelError::Memory(_)), "{error}");
    assert!(folder.path().exists() && !folder.path().join("made").exists());
}

/// A run as a graph, with the weights of another.
fn graph(of: &Model, weights: &Model, to: &Path, budget: &Budget) -> Result<ExportedGraph, ModelError> {
    export_onnx(&OnnxModel::from_run(&of.config, &weights.weights[0])?, to, WeightsGo::Inside, budget)
}

#[test]
fn onnx_runtime_makes_the_logits_of_the_definitions() {
    let expected: Value = serde_json::from_slice(&fs::read(oracle("onnx.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for net in ["plain", "resenc", "flat", "dynunet", "segresnet"] {
        let (model, expected) = (run(net), &expected[net]);
        let to = folder.path().join(format!("{net}.onnx"));
        let budget = Budget::new(LIMIT);
        let exported = graph(&model, &model, &to, &budget).unwrap();
        assert_eq!(budget.used(), Bytes::ZERO);
        let file = ModelProto::decode(&fs::read(&to).unwrap()[..]).unwrap();
        let graph = file.graph.as_ref().unwrap();
        assert_eq!((graph.node.len(), graph.initializer.len()), (exported.nodes, exported.tensors));
        assert_eq!(file.opset_import[0].version, OPSET);
        assert!(file.metadata_props.iter().any(|said| said.key == "plimsoll.spacing"));
        // What it read is what is written now.
        assert_eq!(checksum(&file), expected["checksum"].as_str().unwrap(), "{net}");

        // The definitions of all ops in f64, of two samples.
        let network = model.config.training.net.as_architecture();
        let program = predict(network, model.config.training.patch, 2, DType::F32).unwrap();
        let mut values = HashMap::new();
        let mut weights = SafetensorsFile::open(&model.weights[0].path).unwrap();
        for id in program.with_role(Role::Parameter) {
            let info = program.tensor(id);
            let stored = network.stored_shape(&info.name, &info.shape);
            let mut own = vec![0.0; info.shape.count()];
            weights.read(&info.name, &stored, &mut own).unwrap();
            let data = own.into_iter().map(f64::from).collect();
            values.insert(info.name.clone(), Array { shape: info.shape.clone(), data });
        }
        let (largest, worst) = largest_and_off(&program, values, &expected["logits"], 97);
        println!("{net}: {} nodes, logits up to {largest}, off by {worst}", exported.nodes);
        assert!(largest > 0.1 && worst <= 1e-4 * largest, "{net}: {worst} of {largest}");
    }
}

#[test]
fn a_file_that_is_there_stays_if_the_new_one_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("model.onnx");
    fs::write(&to, "older").unwrap();
    let model = run("plain");
    graph(&model, &model, &to, &Budget::new(Bytes(1000))).unwrap_err();
    let error = graph(&model, &run("resenc"), &to, &Budget::new(LIMIT)).unwrap_err();
    assert!(error.to_string().contains("which the network needs with shape"), "{error}");
    assert_eq!(fs::read_to_string(&to).unwrap(), "older");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
