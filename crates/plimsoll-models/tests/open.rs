//! Models of other programs are opened without naming their kind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::{ModelError, ModelSource, OpenOptions, OpenedModel};
use plimsoll_run::FoldName;

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name)
}

fn open(path: &Path, fold: Option<usize>) -> Result<OpenedModel, ModelError> {
    let options = OpenOptions { fold: fold.map(FoldName::Number), ..OpenOptions::default() };
    OpenedModel::open(path, &options, &Budget::new(Bytes::mib(512)))
}

#[test]
fn a_folder_of_a_data_set_of_nnunet_opens_as_its_configuration_with_the_chosen_fold() {
    let dataset = oracle("nnunet/fullres/results/Dataset101_Fullres");
    let all = open(&dataset, None).unwrap();
    assert!(matches!(all, OpenedModel::NnUnet { .. }));
    assert_eq!(all.path(), dataset.join("nnUNetTrainer__nnUNetPlans__3d_fullres"));
    assert_eq!(all.previous(), None);
    assert!(all.lines().iter().any(|line| line.starts_with("network")));
    assert_eq!(all.clone().into_segmentation().unwrap().weights.len(), 2);
    assert!(matches!(all.into_run(), Err(ModelError::NotARun { .. })));
    let one = open(&dataset, Some(1)).unwrap().into_segmentation().unwrap();
    let [weights] = &one.weights[..] else { panic!("{:?}", one.weights) };
    assert!(weights.path.ends_with("fold_1/checkpoint_final.pth"), "{weights:?}");
    assert!(matches!(open(&dataset, Some(7)), Err(ModelError::NnUnet(_))));
}

#[test]
fn a_later_stage_of_a_cascade_names_the_earlier_one() {
    let folder = oracle("nnunet/cascade/results");
    let dataset = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let folders = std::fs::read_dir(dataset).unwrap().map(|entry| entry.unwrap().path());
    let later =
        folders.into_iter().find(|path| path.ends_with("nnUNetTrainer__nnUNetPlans__3d_cascade_fullres"));
    assert_eq!(open(&later.unwrap(), None).unwrap().previous(), Some("3d_lowres"));
}

#[test]
fn bundles_and_descriptions_of_monai_open_and_have_no_folds() {
    for name in ["monai/bundle", "monai/unet/model.toml"] {
        let path = oracle(name);
        let source = ModelSource::detect(&path).unwrap();
        assert!(
            source.is_monai() && !source.is_classifier().unwrap() && source.settings().unwrap().is_none()
        );
        let opened = open(&path, None).unwrap();
        assert_eq!(opened.path(), path);
        assert_eq!(source.describe(&Budget::new(Bytes::mib(512))).unwrap(), opened.lines());
        assert_eq!(opened.into_segmentation().unwrap().weights.len(), 1);
        let error = open(&path, Some(0)).unwrap_err();
        assert!(matches!(error, ModelError::WithoutFolds { .. }), "{error}");
        assert!(error.remedy().unwrap().contains("‹fold›"));
    }
}

#[test]
fn a_folder_without_a_model_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(folder.path(), None).unwrap_err();
    assert!(matches!(&error, ModelError::NotAModel { path, .. } if path == folder.path()), "{error}");
}
