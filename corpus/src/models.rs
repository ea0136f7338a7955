//! Models of others, and those that are one file.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::model_file::{MODEL_ENDING, ModelFile};
use plimsoll_models::monai::MonaiModel;
use plimsoll_models::{Adoption, ModelError, ModelSource, Start};
use plimsoll_run::{Settings, one_line};

use crate::folder::Folder;
use crate::granted;

/// The budget for a description and for weights: more than descriptions of MONAI's own bundles need.
const ROOM: Bytes = Bytes(24 << 20);

/// The heap for describing a network of a few levels and planning its forward pass, once a description was
/// found valid.
const NETWORK: u64 = 4 << 20;

/// Weights of the models that seeds describe.
const PLAIN: &[u8] = include_bytes!("../../oracles/monai/unet_plain/model.pt");
const BUNDLE: &[u8] = include_bytes!("../../oracles/monai/bundle/models/model.pt");
const METADATA: &[u8] = include_bytes!("../../oracles/monai/bundle/configs/metadata.json");

const ENCODER: &[u8] = include_bytes!("../../oracles/pretrained/same.safetensors");

thread_local! {
    static PLAN_FOLDER: Folder = Folder::with("encoder.safetensors", ENCODER);
    static CONFIG_FOLDER: Folder = Folder::with("model.pt", PLAIN);
    static BUNDLE_FOLDER: Folder = Folder::with("models/model.pt", BUNDLE);
}

/// A `model.toml` beside weights.
pub fn monai_config(bytes: &[u8]) {
    CONFIG_FOLDER.with(|folder| {
        let path = folder.write("model.toml", bytes);
        open(folder.path(), |budget| MonaiModel::open_config(&path, budget));
    });
}

/// An `adaptation_plan.json` beside weights.
pub fn adaptation_plan(bytes: &[u8]) {
    PLAN_FOLDER.with(|folder| {
        folder.write("adaptation_plan.json", bytes);
        let budget = Budget::new(ROOM);
        let adopted = Adoption::ALL.into_iter().collect();
        let used = Start::open(folder.path(), &budget).and_then(|start| {
            assert!(start.is_encoder() && start.notes().iter().all(|line| line.lines().count() == 1));
            start.normalisation(&adopted)?;
            start.complete(Settings::default(), &adopted)
        });
        match used {
            Ok(settings) => assert!(settings.check().is_ok(), "adopted settings are possible"),
            Err(error) => expect_told(&error, folder.path()),
        }
        assert_eq!(budget.used(), Bytes::ZERO);
        granted(budget.peak() + Bytes(NETWORK));
    });
}

/// The `inference.json` of a bundle, and behind a zero its `metadata.json`, if that is not the usual one.
pub fn monai_bundle(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    BUNDLE_FOLDER.with(|folder| {
        folder.write("configs/inference.json", parts.next().unwrap_or(b""));
        folder.write("configs/metadata.json", parts.next().unwrap_or(METADATA));
        open(folder.path(), |budget| MonaiModel::open_bundle(folder.path(), budget));
    });
}

fn open(folder: &Path, open: impl FnOnce(&Budget) -> Result<MonaiModel, ModelError>) {
    let budget = Budget::new(ROOM);
    match open(&budget) {
        Ok(model) => {
            assert_eq!(model.model.outputs.len(), model.description.labels.len());
            assert!(model.lines().iter().all(|line| line.lines().count() <= 1));
        }
        Err(error) => expect_told(&error, folder),
    }
    assert_eq!(budget.used(), Bytes::ZERO);
    granted(budget.peak() + Bytes(NETWORK));
}

/// An error names a file, in one line as it is printed.
fn expect_told(error: &ModelError, folder: &Path) {
    let told = one_line(error);
    assert!(told.contains(&*folder.to_string_lossy()), "{told}");
    assert!(!told.contains(char::is_control), "{told}");
    error.remedy();
}

/// A `.plimsoll` file. Bytes that begin with a brace are what such a file says of its model: what says it is put around them, so that
/// it is tried as well as the file itself.
pub fn model_file(bytes: &[u8]) {
    let whole = match bytes.first() {
        Some(b'{') => saying(bytes),
        _ => bytes.to_vec(),
    };
    let folder = Folder::new();
    let path = folder.write(&format!("a.{MODEL_ENDING}"), &whole);
    let opened = ModelSource::detect(&path).and_then(|_| ModelFile::open(&path));
    match opened {
        Ok(file) => {
            assert!(file.tensors > 0 && !file.weights().is_empty());
            assert!(file.lines().iter().all(|line| line.lines().count() <= 1));
            let budget = Budget::new(ROOM);
            if let Err(error) = ModelFile::verify(&path, &budget, &mut |_, _| {}) {
                expect_told(&error, folder.path());
            }
            assert_eq!(budget.used(), Bytes::ZERO);
            granted(budget.peak() + Bytes(NETWORK));
        }
        Err(error) => expect_told(&error, folder.path()),
    }
}

/// A file of weights with this text about the model, one tensor of one number, and no checksums.
fn saying(text: &[u8]) -> Vec<u8> {
    let header = serde_json::json!({
        "__metadata__": { "plimsoll.model": String::from_utf8_lossy(text) },
        "fold_0.a": { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] },
    });
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&[0; 4]);
    file
}
