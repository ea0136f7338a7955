//! Every memory limit that a plan accepts suffices for prediction, for models of all origins.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::{Case, Dataset};
use plimsoll_infer::{CaseEstimate, CaseRequest, InferError, PredictOptions, Predictor};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::SegmentationModel;
use plimsoll_models::monai::MonaiModel;
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel};

/// A model in the format of its authors.
#[derive(Clone, Copy, Debug)]
enum Origin {
    NnUnet(&'static str, &'static str),
    MonaiConfig(&'static str),
    MonaiBundle(&'static str),
}

fn oracles(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name)
}

impl Origin {
    /// Opens the model within a budget. Returns also the folder of its images.
    fn open(self, budget: &Budget) -> (SegmentationModel, PathBuf) {
        let monai = |name| oracles("monai").join(name);
        match self {
            Origin::MonaiConfig(name) => {
                let opened = MonaiModel::open_config(&monai(name).join("model.toml"), budget).unwrap();
                (opened.model, monai(name).join("images"))
            }
            Origin::MonaiBundle(name) => {
                (MonaiModel::open_bundle(&monai(name), budget).unwrap().model, monai(name).join("images"))
            }
            Origin::NnUnet(name, configuration) => {
                let folder = oracles("nnunet").join(name);
                let inside = |folder: &Path| -> Vec<PathBuf> {
                    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
                };
                let models = inside(&folder.join("results")).into_iter().flat_map(|dataset| inside(&dataset));
                let ending = format!("__{configuration}");
                let of = models.into_iter().find(|model| model.to_string_lossy().ends_with(&ending)).unwrap();
                let opened = NnUnetModel::open(&of, &NnUnetChoice::default(), budget).unwrap();
                (opened.model, folder.join("images"))
            }
        }
    }

    fn predictor(self, limit: Bytes) -> Result<(Predictor, Case, Budget), InferError> {
        let (model, images) = self.open(&Budget::new(Bytes::mib(64)));
        let case = Dataset::images(images, &model.channels, &model.file_ending).unwrap().remove(0);
        let budget = Budget::new(limit);
        let backend = Arc::new(CpuBackend::new(CpuOptions::new(1)).unwrap());
        let predictor = Predictor::new(model, PredictOptions::new(0.5, false, 1), backend, &budget)?;
        Ok((predictor, case, budget))
    }

    fn plan(self, limit: Bytes) -> Result<CaseEstimate, InferError> {
        let (predictor, case, _) = self.predictor(limit)?;
        let nowhere = Path::new("/nowhere/labels.nii.gz");
        let request =
            CaseRequest { case: &case, earlier: None, within: None, labels: nowhere, probabilities: None };
        predictor.plan(&[request]).unwrap().remove(0)
    }

    fn predict(self, limit: Bytes) {
        let (mut predictor, case, budget) = self.predictor(limit).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let labels = folder.path().join("labels.nii.gz");
        let request =
            CaseRequest { case: &case, earlier: None, within: None, labels: &labels, probabilities: None };
        let done = predictor.predict(&request, &AtomicBool::new(false), &mut |_| {});
        done.unwrap_or_else(|error| {
            panic!("{self:?} is planned within {limit}, but prediction fails: {error}")
        });
        assert!(budget.peak() <= limit && labels.is_file());
    }
}

#[test]
fn whatever_a_plan_accepts_runs() {
    for origin in [
        Origin::MonaiConfig("unet"),
        Origin::MonaiConfig("unet_plain"),
        Origin::MonaiConfig("dynunet"),
        Origin::MonaiConfig("segresnet"),
        Origin::MonaiBundle("bundle"),
        Origin::NnUnet("fullres", "3d_fullres"),
        Origin::NnUnet("flat", "2d"),
        Origin::NnUnet("batch_norm", "3d_fullres"),
        Origin::NnUnet("cascade", "3d_lowres"),
    ] {
        let roomy = origin.plan(Bytes::mib(512)).unwrap();
        let (least, total) = (roomy.least_ram_bytes, roomy.plan.total_bytes);
        // Caches take all memory beyond the least, so limits between the least and the total leave nothing free.
        let between = |share: u64| least + Bytes((total - least).0 * share / 5);
        let mut limits: Vec<Bytes> = (0..=5).map(between).collect();
        limits.extend([least + Bytes(432), least + Bytes(4096), total - Bytes(1), total + Bytes(432)]);
        let mut accepted = 0;
        for limit in limits {
            match origin.plan(limit) {
                Ok(planned) => {
                    assert!(planned.plan.total_bytes <= limit);
                    origin.predict(limit);
                    accepted += 1;
                }
                Err(error) => assert!(limit < total, "{origin:?} within {limit}: {error}"),
            }
        }
        assert!(origin.plan(least).is_ok(), "{origin:?}: {least} is reported as the least");
        assert!(accepted >= 8, "{origin:?}: {accepted}");
    }
}
