//! Model folders that nnU-Net 2.8.1 wrote (`oracles/nnunet_models.py`), as models; and what is refused of such folders, by name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_data::{Interpolation, Normalisation, Preparation, TargetSpacing};
use plimsoll_graph::{DType, Role};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::Answers;
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel, find_model, is_nnunet, read_postprocessing};
use plimsoll_nn::weights::{WeightFile, fits};
use plimsoll_nn::{Network, UNetNorm, predict};
use plimsoll_run::FoldName;
use serde_json::{Value, json};

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet")
}

/// The folder of a configuration of a case.
fn folder(case: &str, configuration: &str) -> PathBuf {
    let results = fs::read_dir(oracles().join(case).join("results")).unwrap().next().unwrap().unwrap().path();
    let of = |path: &PathBuf| path.to_str().unwrap().ends_with(&format!("__{configuration}"));
    fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path()).find(of).unwrap()
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(256))
}

fn open(folder: &Path) -> Result<NnUnetModel, String> {
    NnUnetModel::open(folder, &NnUnetChoice::default(), &budget()).map_err(|error| {
        assert!(error.remedy().is_some(), "{error}");
        error.to_string()
    })
}

fn steps(model: &NnUnetModel) -> &plimsoll_data::NnUnetSteps {
    match &model.model.preparation {
        Preparation::NnUnet(steps) => steps,
        other => panic!("{other:?}"),
    }
}

const CASES: [(&str, &str); 13] = [
    ("fullres", "3d_fullres"),
    ("resenc_regions", "3d_fullres"),
    ("flat", "2d"),
    ("anisotropic", "3d_fullres"),
    ("cascade", "3d_lowres"),
    ("cascade", "3d_fullres"),
    ("cascade", "3d_cascade_fullres"),
    ("batch_norm", "3d_fullres"),
    ("old_plans", "3d_fullres"),
    ("torchres", "3d_cascade_fullres"),
    ("torchres_slices", "3d_lowres"),
    ("pictures", "2d"),
    ("stacks", "3d_fullres"),
];

#[test]
fn every_parameter_of_the_network_is_in_the_checkpoint_with_its_shape() {
    for (case, configuration) in CASES {
        let model = open(&folder(case, configuration)).unwrap().model;
        let program = predict(model.net.as_architecture(), model.patch, 1, DType::F32).unwrap();
        assert!(!model.weights.is_empty());
        for weights in &model.weights {
            let file = WeightFile::open_source(weights, &budget()).unwrap();
            for id in program.with_role(Role::Parameter) {
                let info = program.tensor(id);
                let found = file.shape(&info.name).unwrap_or_else(|| panic!("{case}: no {}", info.name));
                assert!(fits(&found, &info.shape), "{case}: {} is {found}", info.name);
            }
        }
    }
}

#[test]
fn folders_become_the_models_that_they_describe() {
    let fullres = open(&folder("fullres", "3d_fullres")).unwrap();
    assert_eq!(fullres.folds, [FoldName::Number(0), FoldName::Number(1)]);
    assert_eq!(fullres.trainer, "nnUNetTrainer");
    assert_eq!((fullres.model.patch, fullres.model.mirror_axes), ([24, 20, 24], [true; 3]));
    assert_eq!(fullres.model.answers, Answers::Classes(4));
    assert_eq!(fullres.model.outputs, ["background", "shell", "core", "seed"]);
    assert_eq!(fullres.model.file_ending, ".nii.gz");
    let of = &steps(&fullres).channels;
    assert_eq!((of[0].normalisation, of[0].inside_mask), (Normalisation::Ct, false));
    assert_eq!((of[1].normalisation, of[1].inside_mask), (Normalisation::ZScore, true));
    assert_eq!(fullres.model.foreground[&0].percentile_99_5, 301.5);
    let resizing = (steps(&fullres).images, steps(&fullres).logits, steps(&fullres).labels);
    assert_eq!((resizing.0.order, resizing.0.order_across), (Interpolation::Cubic, Interpolation::Nearest));
    assert_eq!((resizing.1.order, resizing.2.order), (Interpolation::Linear, Interpolation::Linear));
    assert_eq!(resizing.0.slices, None);

    let regions = open(&folder("resenc_regions", "3d_fullres")).unwrap();
    assert_eq!(regions.model.answers, Answers::Regions(vec![1, 2, 3]));
    // In the order of the file, which is not alphabetical.
    assert_eq!(regions.model.outputs, ["whole [1, 2, 3]", "core [2, 3]", "seed [3]"]);
    assert_eq!(steps(&regions).transposed, [2, 0, 1]);
    assert!(
        matches!(&regions.model.net, Network::ResidualEncoderUNet(net) if net.shape.encoder_convs == [1, 2, 2])
    );

    let flat = open(&folder("flat", "2d")).unwrap();
    assert_eq!(flat.folds, [FoldName::All]);
    assert_eq!((flat.model.patch, flat.model.mirror_axes), ([1, 24, 28], [false, true, true]));
    // The label that is ignored has no output.
    assert_eq!(flat.model.answers, Answers::Classes(3));
    assert!(steps(&flat).reorients && steps(&flat).spacing == TargetSpacing::InPlane([1.0, 1.0]));
    assert!(matches!(&flat.model.net, Network::PlainConvUNet(net) if net.shape.kernels[0] == [1, 3, 3]));

    let anisotropic = open(&folder("anisotropic", "3d_fullres")).unwrap();
    assert_eq!(anisotropic.model.mirror_axes, [true, true, false]);
    assert_eq!(anisotropic.trainer, "nnUNetTrainer_onlyMirror01");

    let cascade = open(&folder("cascade", "3d_cascade_fullres")).unwrap();
    assert_eq!((cascade.previous.as_deref(), cascade.model.earlier_labels), (Some("3d_lowres"), 2));
    assert_eq!(cascade.model.net.in_channels(), 3);
    // What is inherited counts unless a configuration says it itself.
    assert_eq!(cascade.model.patch, [20, 24, 20]);

    let batch = open(&folder("batch_norm", "3d_fullres")).unwrap();
    assert!(
        matches!(&batch.model.net, Network::PlainConvUNet(net) if net.shape.norm == UNetNorm::Batch { conv_bias: true })
    );

    let old = open(&folder("old_plans", "3d_fullres")).unwrap();
    assert_eq!(old.model.mirror_axes, [false; 3], "nothing is said of mirroring");
    assert_eq!(old.model.channels[0].name, "CT");
    assert!(matches!(&old.model.net, Network::PlainConvUNet(net) if net.shape.features == [4, 6, 6]));
}

/// A copy of a model whose files can be changed.
struct Copy {
    dir: tempfile::TempDir,
}

impl Copy {
    fn new(case: &str, configuration: &str) -> Copy {
        let dir = tempfile::tempdir().unwrap();
        let from = folder(case, configuration);
        for file in ["plans.json", "dataset.json"] {
            fs::copy(from.join(file), dir.path().join(file)).unwrap();
        }
        let folds =
            fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        for fold in folds.filter(|name| name.starts_with("fold_")) {
            fs::create_dir(dir.path().join(&fold)).unwrap();
            let file = Path::new(&fold).join("checkpoint_final.pth");
            fs::copy(from.join(&file), dir.path().join(&file)).unwrap();
        }
        Copy { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Changes a JSON file, by the pointer to a value; without a value it is taken away.
    fn set(&self, file: &str, pointer: &str, value: Option<Value>) {
        let path = self.path().join(file);
        let mut root: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match (root.pointer_mut(parent).unwrap(), value) {
            (Value::Object(parent), Some(value)) => drop(parent.insert(key.into(), value)),
            (Value::Object(parent), None) => drop(parent.remove(key).unwrap()),
            (Value::Array(parent), Some(value)) => parent[key.parse::<usize>().unwrap()] = value,
            other => panic!("{other:?}"),
        }
        fs::write(&path, serde_json::to_vec(&root).unwrap()).unwrap();
    }
}

/// An error of a model whose plans or description has another value, which names the file, and texts of it.
fn refused(case: &str, configuration: &str, file: &str, pointer: &str, value: Option<Value>, says: &[&str]) {
    let copy = Copy::new(case, configuration);
    copy.set(file, pointer, value.clone());
    let error = open(copy.path()).map(|model| model.lines()).expect_err(&format!("{pointer} = {value:?}"));
    assert!(error.contains(file), "{pointer}: {error}");
    for text in says {
        assert!(error.contains(text), "{pointer} = {value:?}: {error} does not say {text}");
    }
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn absurd_numbers_in_plans_are_one_error_that_names_file_and_key() {
    let budget = budget();
    let kwargs = "/configurations/3d_fullres/architecture/arch_kwargs";
    let cases: Vec<(String, Value, &str)> = vec![
        (
            format!("{kwargs}/features_per_stage"),
            json!([1_000_000_000u64, 6, 8]),
            "arch_kwargs.features_per_stage[0]",
        ),
        (format!("{kwargs}/features_per_stage"), json!(1e30), "features_per_stage"),
        (format!("{kwargs}/features_per_stage"), json!([4, 6]), "features_per_stage"),
        (format!("{kwargs}/n_stages"), json!(40), "n_stages"),
        (format!("{kwargs}/n_stages"), json!(-1), "n_stages"),
        (format!("{kwargs}/n_stages"), json!("three"), "n_stages"),
        (format!("{kwargs}/strides"), json!([[1, 1, 1], [0, 2, 2], [2, 2, 2]]), "strides[1][0]"),
        (format!("{kwargs}/strides"), json!([1, -2, 2]), "strides[1]"),
        (format!("{kwargs}/strides"), json!([2, 2, 2]), "arch_kwargs"),
        (format!("{kwargs}/kernel_sizes"), json!(4), "arch_kwargs"),
        (format!("{kwargs}/kernel_sizes"), json!([[3, 3], [3, 3], [3, 3]]), "kernel_sizes[0]"),
        (format!("{kwargs}/n_conv_per_stage"), json!([2, 2, 1_000_000]), "n_conv_per_stage[2]"),
        (format!("{kwargs}/conv_op"), json!("torch.nn.modules.conv.Conv2d"), "conv_op"),
        (format!("{kwargs}/norm_op"), json!("torch.nn.GroupNorm"), "norm_op"),
        (format!("{kwargs}/nonlin"), json!("torch.nn.SiLU"), "nonlin"),
        (format!("{kwargs}/nonlin_first"), json!(true), "nonlin_first"),
        (format!("{kwargs}/squeeze_excitation"), json!(true), "squeeze_excitation"),
        (
            "/configurations/3d_fullres/architecture/network_class_name".into(),
            json!("nets.Primus"),
            "PlainConvUNet",
        ),
        ("/configurations/3d_fullres/patch_size".into(), json!([1_000_000, 20, 24]), "patch_size[0]"),
        ("/configurations/3d_fullres/patch_size".into(), json!([4096, 4096, 4096]), "patch_size"),
        ("/configurations/3d_fullres/patch_size".into(), json!([23, 20, 24]), "patch_size"),
        ("/configurations/3d_fullres/patch_size".into(), json!([20]), "patch_size"),
        ("/configurations/3d_fullres/spacing".into(), json!([1.0, 0.0, 1.0]), "spacing"),
        ("/configurations/3d_fullres/spacing".into(), json!([1.0, 1e300, 1.0]), "spacing"),
        (
            "/configurations/3d_fullres/normalization_schemes".into(),
            json!(["CTNormalization"]),
            "normalization_schemes",
        ),
        (
            "/configurations/3d_fullres/normalization_schemes/0".into(),
            json!("MyNormalization"),
            "ZScoreNormalization",
        ),
        (
            "/configurations/3d_fullres/resampling_fn_data".into(),
            json!("no_resampling_data_or_seg_to_shape"),
            "resample_data_or_seg_to_shape, resample_torch_fornnunet",
        ),
        (
            "/configurations/3d_fullres/resampling_fn_data".into(),
            json!("resample_torch_fornnunet"),
            "`resample_torch_fornnunet` does not have this argument",
        ),
        (
            "/configurations/3d_fullres/resampling_fn_data_kwargs/order".into(),
            json!(2),
            "resampling_fn_data_kwargs.order",
        ),
        (
            "/configurations/3d_fullres/resampling_fn_data_kwargs/mode".into(),
            json!("linear"),
            "resampling_fn_data_kwargs.mode",
        ),
        ("/configurations/3d_fullres/preprocessor_name".into(), json!("Mine"), "DefaultPreprocessor"),
        ("/transpose_forward".into(), json!([0, 0, 1]), "transpose_forward"),
        ("/transpose_backward".into(), json!([1, 0, 2]), "transpose_backward"),
        ("/image_reader_writer".into(), json!("MyIO"), "SimpleITKIO"),
        (
            "/image_reader_writer".into(),
            json!("Tiff3DIO"),
            "have the ending .nii.gz, but this reader reads .tif, .tiff",
        ),
        ("/configurations".into(), json!({}), "configurations.3d_fullres"),
        ("/foreground_intensity_properties_per_channel/0/mean".into(), json!(1e300), "per_channel.0.mean"),
        (
            "/foreground_intensity_properties_per_channel/0".into(),
            json!({
                "mean": 3e38, "median": 0, "std": 1e-3, "min": 0, "max": 1, "percentile_00_5": 0, "percentile_99_5": 1
            }),
            "not be finite",
        ),
        ("/foreground_intensity_properties_per_channel/0/std".into(), json!(1e300), "per_channel.0.std"),
        ("/foreground_intensity_properties_per_channel/0/std".into(), json!(0), "per_channel.0.std"),
        ("/foreground_intensity_properties_per_channel/0/std".into(), json!(1e-60), "per_channel.0.std"),
        (
            "/foreground_intensity_properties_per_channel/0/percentile_99_5".into(),
            json!(-1e300),
            "per_channel.0.percentile_99_5",
        ),
        (
            "/foreground_intensity_properties_per_channel/0/percentile_00_5".into(),
            json!(1e5),
            "per_channel.0.percentile_00_5",
        ),
        (
            "/foreground_intensity_properties_per_channel".into(),
            json!({}),
            "foreground_intensity_properties_per_channel.0",
        ),
    ];
    for (pointer, value, says) in cases {
        refused("fullres", "3d_fullres", "plans.json", &pointer, Some(value), &[says]);
    }
    // Labels, unlike numbers, are not interpolated between slices.
    refused(
        "torchres_slices",
        "3d_lowres",
        "plans.json",
        "/configurations/3d_lowres/resampling_fn_seg_kwargs/aniso_axis_mode",
        Some(json!("linear")),
        &["resampling_fn_seg_kwargs.aniso_axis_mode", "nearest-exact"],
    );
    assert_eq!(budget.used(), Bytes::ZERO);
    for key in ["patch_size", "spacing", "normalization_schemes", "resampling_fn_probabilities"] {
        refused(
            "fullres",
            "3d_fullres",
            "plans.json",
            &format!("/configurations/3d_fullres/{key}"),
            None,
            &[key],
        );
    }
    for (key, value) in [
        ("UNet_base_num_features", json!(1u64 << 40)),
        ("unet_max_num_features", json!(0)),
        ("UNet_class_name", json!("Mine")),
    ] {
        refused(
            "old_plans",
            "3d_fullres",
            "plans.json",
            &format!("/configurations/3d_fullres/{key}"),
            Some(value),
            &[],
        );
    }
}

#[test]
fn descriptions_that_contradict_themselves_are_refused_by_name() {
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/labels", json!({"shell": 1}), "labels.background"),
        ("/labels", json!({"background": 1}), "labels.background"),
        ("/labels", json!({"background": 0, "a": -1}), "labels.a"),
        ("/labels", json!({"background": 0, "a": 1, "ignore": 1}), "labels.ignore"),
        ("/labels", json!({"background": 0, "a": [1, 2], "b": 2}), "regions_class_order"),
        ("/channel_names", json!({"0": "CT", "2": "T1"}), "channel_names"),
        ("/file_ending", json!(".gipl"), "file_ending"),
        (
            "/file_ending",
            json!(".gipl"),
            "have the ending .bmp, .mha, .nii, .nii.gz, .nrrd, .png, .tif, .tiff",
        ),
    ];
    for (pointer, value, says) in cases {
        refused("fullres", "3d_fullres", "dataset.json", pointer, Some(value), &[says]);
    }
    refused(
        "resenc_regions",
        "3d_fullres",
        "dataset.json",
        "/regions_class_order",
        Some(json!([1, 2])),
        &["regions_class_order"],
    );
    // Another number of classes or channels is another network, whose weights are others.
    let copy = Copy::new("fullres", "3d_fullres");
    copy.set("dataset.json", "/labels", Some(json!({"background": 0, "a": 1})));
    assert_eq!(open(copy.path()).unwrap().model.net.classes(), 2);
}

#[test]
fn configurations_that_inherit_in_a_circle_are_refused() {
    let copy = Copy::new("cascade", "3d_cascade_fullres");
    copy.set("plans.json", "/configurations/3d_fullres/inherits_from", Some(json!("3d_cascade_fullres")));
    let error = open(copy.path()).unwrap_err();
    assert!(error.contains("in a circle: 3d_cascade_fullres, 3d_fullres, 3d_cascade_fullres"), "{error}");
    refused(
        "cascade",
        "3d_cascade_fullres",
        "plans.json",
        "/configurations/3d_cascade_fullres/inherits_from",
        Some(json!("4d")),
        &["configurations.4d"],
    );
}

#[test]
fn a_chain_of_configurations_is_followed_to_an_end() {
    let copy = Copy::new("fullres", "3d_fullres");
    let chain = |copy: &Copy, count: usize| {
        copy.set("plans.json", "/configurations/3d_fullres/inherits_from", Some(json!("c1")));
        for place in 1..count {
            let next = if place + 1 < count { json!(format!("c{}", place + 1)) } else { Value::Null };
            let own = json!({ "inherits_from": next });
            copy.set("plans.json", &format!("/configurations/c{place}"), Some(own));
        }
    };
    chain(&copy, 64);
    open(copy.path()).unwrap();
    chain(&copy, 65);
    let error = open(copy.path()).unwrap_err();
    assert!(error.contains("`configurations.c63.inherits_from`") && error.contains("64"), "{error}");
}

#[test]
fn an_earlier_stage_is_one_of_the_configurations_and_not_another_folder() {
    for name in ["../../x", "/tmp/x", "..", "", "3d_lowres/", "./3d_lowres", "4d"] {
        let copy = Copy::new("cascade", "3d_cascade_fullres");
        copy.set("plans.json", "/configurations/3d_cascade_fullres/previous_stage", Some(json!(name)));
        let refused = || {
            let error = open(copy.path()).map(|model| model.previous).expect_err(name);
            assert!(error.contains("configurations.3d_cascade_fullres.previous_stage"), "{name}: {error}");
        };
        refused();
        if name != "4d" {
            // Also if a configuration has that name.
            let path = copy.path().join("plans.json");
            let mut plans: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            plans["configurations"][name] = json!({});
            fs::write(&path, serde_json::to_vec(&plans).unwrap()).unwrap();
            refused();
        }
    }
}

#[test]
fn what_a_model_is_is_said_without_control_characters() {
    let copy = Copy::new("fullres", "3d_fullres");
    copy.set("dataset.json", "/channel_names/0", Some(json!("CT\u{1b}[2J\r\nfolds \u{9b}1m")));
    copy.set("plans.json", "/dataset_name", Some(json!("a\u{7}\tb")));
    let lines = open(copy.path()).unwrap().lines();
    assert!(!lines.iter().any(|line| line.contains(char::is_control)), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("CT\u{fffd}[2J")), "{lines:?}");
    // Nor do errors have any.
    copy.set("plans.json", "/configurations/3d_fullres/preprocessor_name", Some(json!("Mine\u{1b}c")));
    let error = NnUnetModel::open(copy.path(), &NnUnetChoice::default(), &budget()).unwrap_err();
    let line = plimsoll_run::one_line(&error);
    assert!(line.contains("Mine\u{fffd}c") && !line.contains(char::is_control), "{line}");
}

#[test]
fn folds_are_those_that_are_asked_for_or_those_that_are_there() {
    let copy = Copy::new("fullres", "3d_fullres");
    let with = |folds: &[FoldName], checkpoint: &str| {
        let choice = NnUnetChoice { folds: folds.to_vec(), checkpoint: checkpoint.into(), trainer: None };
        NnUnetModel::open(copy.path(), &choice, &budget())
            .map(|model| model.folds)
            .map_err(|error| error.to_string())
    };
    const FINAL: &str = "checkpoint_final.pth";
    assert_eq!(with(&[FoldName::Number(1)], FINAL).unwrap(), [FoldName::Number(1)]);
    let error = with(&[FoldName::Number(1), FoldName::Number(4)], FINAL).unwrap_err();
    assert!(error.contains("fold_4") && error.contains(FINAL), "{error}");
    assert!(with(&[], "checkpoint_best.pth").unwrap_err().contains("checkpoint_best.pth"));
    // `all` is left out where there are others, as nnU-Net does.
    fs::create_dir(copy.path().join("fold_all")).unwrap();
    fs::copy(copy.path().join("fold_0").join(FINAL), copy.path().join("fold_all").join(FINAL)).unwrap();
    assert_eq!(with(&[], FINAL).unwrap(), [FoldName::Number(0), FoldName::Number(1)]);
    assert_eq!(with(&[FoldName::All], FINAL).unwrap(), [FoldName::All]);
}

#[test]
fn trainers_that_are_not_known_are_refused_unless_one_is_named_instead() {
    let copy = Copy::new("anisotropic", "3d_fullres");
    let path = copy.path().join("fold_0/checkpoint_final.pth");
    let mut bytes = fs::read(&path).unwrap();
    let own = b"nnUNetTrainer_onlyMirror01";
    let places: Vec<usize> =
        (0..bytes.len() - own.len()).filter(|at| bytes[*at..].starts_with(own)).collect();
    for place in places {
        bytes[place..place + own.len()].copy_from_slice(b"nnUNetTrainer_onlyMyself99");
    }
    fs::write(&path, bytes).unwrap();
    let error = open(copy.path()).unwrap_err();
    assert!(error.contains("unknown trainer `nnUNetTrainer_onlyMyself99`"), "{error}");
    assert!(error.contains("nnUNetTrainerBN") && error.contains("nnUNetTrainer_250epochs"), "{error}");
    let choice = NnUnetChoice { trainer: Some("nnUNetTrainer".into()), ..NnUnetChoice::default() };
    assert_eq!(NnUnetModel::open(copy.path(), &choice, &budget()).unwrap().trainer, "nnUNetTrainer");
}

#[test]
fn a_model_is_found_by_its_content() {
    let model = folder("fullres", "3d_fullres");
    let dataset = model.parent().unwrap();
    assert!(is_nnunet(&model).unwrap() && is_nnunet(dataset).unwrap());
    assert_eq!(find_model(&model).unwrap(), model);
    assert_eq!(find_model(dataset).unwrap(), model);
    let several = folder("cascade", "3d_lowres");
    let error = find_model(several.parent().unwrap()).unwrap_err();
    assert!(error.to_string().contains("has 3 models of nnU-Net"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert!(!is_nnunet(empty.path()).unwrap());
    fs::write(empty.path().join("plans.pkl"), b"").unwrap();
    assert!(find_model(empty.path()).unwrap_err().to_string().contains("nnU-Net 1"));
}

#[test]
fn what_a_description_takes_is_reserved() {
    let model = folder("fullres", "3d_fullres");
    let budget = Budget::new(Bytes(1 << 12));
    let error = NnUnetModel::open(&model, &NnUnetChoice::default(), &budget).unwrap_err();
    assert!(error.to_string().contains("plans.json"), "{error}");
    assert_eq!(budget.used(), Bytes::ZERO);
}

#[test]
fn steps_of_post_processing_are_sets_of_labels() {
    let steps =
        read_postprocessing(&oracles().join("postprocessing/postprocessing.json"), &budget()).unwrap();
    let labels: Vec<Vec<u16>> = steps.iter().map(|step| step.labels.iter().copied().collect()).collect();
    assert_eq!(labels, [vec![1, 2, 3, 4], vec![1], vec![2, 3], vec![4]]);
}
