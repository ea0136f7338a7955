//! Models of MONAI: labels equal the labels of MONAI's own transforms and inferer, and unsupported settings are refused by name.
//! `oracles/monai_models.py` made models, images and labels.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{run_error, run_json};
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::{PytorchFile, safetensors};
use plimsoll_volume::{VolumeError, VolumeFile};
use serde_json::{Value, json};

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/monai")
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().into()
}

fn labels(path: &Path) -> Vec<u8> {
    let mut volume = VolumeFile::open(path).unwrap();
    let mut all = Vec::new();
    let visit = |_, plane: &[u8]| {
        all.extend_from_slice(plane);
        Ok::<(), VolumeError>(())
    };
    volume.for_each_plane(0, &Budget::new(Bytes::mib(4)), visit).unwrap();
    all
}

/// The share of voxels that have MONAI's label, and how many have one above 0.
fn agreement(model: &Path, images: &Path, expected: &Path, more: &[&str]) -> (f64, usize) {
    let to = tempfile::tempdir().unwrap();
    let (model, images) = (text(model), text(images));
    let out = text(&to.path().join("labels"));
    let args = ["predict", "-m", &model, "-i", &images, "-o", &out, "--ram", "256MiB", "--threads", "2"];
    let report = run_json(&[&args[..], more].concat());
    let peak = report["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak <= report["planned_bytes"].as_u64().unwrap(), "{report}");
    let (found, expected) = (labels(&to.path().join("labels/a.nii.gz")), labels(expected));
    assert_eq!(found.len(), expected.len());
    let same = found.iter().zip(&expected).filter(|(found, expected)| found == expected).count();
    (same as f64 / found.len() as f64, expected.iter().filter(|label| **label > 0).count())
}

#[test]
fn labels_are_those_of_monai() {
    for name in [
        "unet",
        "unet_plain",
        "dynunet",
        "segresnet",
        "swinunetr",
        "attentionunet",
        "unetr",
        "bundle",
        "bundle_swinunetr",
    ] {
        let case = oracles().join(name);
        let model = if name.starts_with("bundle") { case.clone() } else { case.join("model.toml") };
        let (share, foreground) = agreement(&model, &case.join("images"), &case.join("labels.nii.gz"), &[]);
        println!("{name}: {:.4} % of voxels have the same label", 100.0 * share);
        assert!(foreground > 500 && share >= 0.9999, "{name}: {share}, {foreground}");
    }
}

#[test]
fn probabilities_sum_to_one_and_labels_are_the_largest_of_them() {
    let case = oracles().join("unet");
    let model = case.join("model.toml");
    let more = ["--save_probabilities"];
    let (share, _) = agreement(&model, &case.join("images"), &case.join("labels.nii.gz"), &more);
    assert!(share >= 0.9999, "{share}");
    // The mean of a model's probabilities with its own labels as it does.
    let copy = tempfile::tempdir().unwrap();
    for file in ["model.toml", "model.pt"] {
        fs::copy(case.join(file), copy.path().join(file)).unwrap();
    }
    let other = text(&copy.path().join("model.toml"));
    let (share, _) = agreement(&model, &case.join("images"), &case.join("labels.nii.gz"), &["-m", &other]);
    assert!(share >= 0.9999, "{share}");
}

#[test]
fn models_are_shown() {
    let shown = run_json(&["models", "show", &text(&oracles().join("segresnet/model.toml"))]);
    let lines = shown[0]["lines"].to_string();
    for what in ["SegResNet", "16 × 16 × 16", "at the spacing of the image", "ball, core, written as [1, 2]"]
    {
        assert!(lines.contains(what), "{what}: {lines}");
    }
    let shown = run_json(&["models", "show", &text(&oracles().join("bundle"))]);
    assert!(shown[0]["lines"].to_string().contains("background, ball"), "{shown}");
}

/// A copy of a case's model, whose description is changed.
struct Changed {
    dir: tempfile::TempDir,
    name: &'static str,
}

impl Changed {
    fn new(name: &'static str) -> Changed {
        let changed = Changed { dir: tempfile::tempdir().unwrap(), name };
        fs::copy(oracles().join(name).join("model.pt"), changed.dir.path().join("model.pt")).unwrap();
        changed
    }

    /// The one error of a prediction with a description in which a text stands for another.
    fn error(&self, from: &str, to: &str) -> String {
        let original = fs::read_to_string(oracles().join(self.name).join("model.toml")).unwrap();
        let changed = original.replace(from, to);
        assert_ne!(changed, original, "{from} is not there");
        self.error_of(&changed)
    }

    fn error_of(&self, description: &str) -> String {
        let model = self.dir.path().join("model.toml");
        fs::write(&model, description).unwrap();
        let (images, out) = (text(&oracles().join(self.name).join("images")), self.dir.path().join("labels"));
        let error =
            run_error(&["predict", &text(&model), "-i", &images, "-o", &text(&out), "--ram", "256MiB"]);
        assert_eq!(fs::read_dir(&out).map_or(0, Iterator::count), 0, "{error}");
        error
    }
}

#[test]
fn what_a_description_cannot_mean_is_refused_by_name() {
    let unet = Changed::new("unet");
    for (from, to, says) in [
        ("orientation = \"RAS\"", "orientation = \"LPS\"", "images.orientation is \"LPS\""),
        ("roi_size = [24, 20, 16]", "roi_size = [24, 21, 16]", "roi_size: "),
        ("roi_size = [24, 20, 16]", "roi_size = [4000000000, 20, 16]", "roi_size: "),
        ("roi_size = [24, 20, 16]", "roi_size = [24, -20, 16]", "line "),
        ("overlap = 0.25", "overlap = 1.0", "overlap is [1.0, 1.0, 1.0]"),
        ("overlap = 0.25", "overlap = nan", "overlap is [NaN"),
        ("spacing = [1.2, 1.3, 1.5]", "spacing = [0.0, 1.3, 1.5]", "spacing: "),
        ("spacing = [1.2, 1.3, 1.5]", "spacing = [1e300, 1.3, 1.5]", "spacing"),
        ("a_max = 300.0", "a_max = -1e9", "a range must end above where it begins"),
        ("a_max = 300.0", "a_max = inf", "ends must be numbers of single precision"),
        ("mode = \"gaussian\"", "mode = \"hann\"", "hann"),
        ("activation = \"softmax\"", "activation = \"argmax\"", "argmax"),
        (
            "[\"background\", \"ball\", \"core\"]",
            "[\"a\", \"b\"]",
            "2 labels are named, but the network has 3",
        ),
        ("channels = [\"CT\"]", "channels = [\"a\", \"b\"]", "2 channels are named, but the network has 1"),
        ("name = \"UNet\"", "name = \"VNet\"", "VNet"),
        ("name = \"UNet\"", "name = \"UNet\"\ncolour = 3", "colour"),
        ("spatial_dims = 3", "spatial_dims = 2", "only 3 is supported"),
        ("norm = \"batch\"", "norm = \"layer\"", "`layer` is not instance or batch"),
        ("channels = [4, 8, 16]", "channels = [4, 8, 17]", "has shape"),
        ("channels = [4, 8, 16]", "channels = [4, 8, 999999999999]", "`features`"),
        ("num_res_units = 2", "num_res_units = 999999999999", "`residual_units`"),
        ("num_res_units = 2", "num_res_units = 3", "there is no tensor `model.0.conv.unit2.adn.A.weight`"),
        ("strides = [2, 2]", "strides = [2]", "`strides`"),
        ("name = \"ScaleIntensityRange\"", "name = \"HistogramNormalize\"", "HistogramNormalize"),
        ("weights = \"model.pt\"", "weights = \"other.pt\"", "other.pt"),
        ("[network]", "[network]\nact = \"mish\"", "`mish` is not prelu"),
        ("[network]", "[netwrok]", "line "),
        ("[network]", "[network]\nact = \"relu\"", "act is not prelu, but the weights"),
    ] {
        let error = unet.error(from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
    let dynunet = Changed::new("dynunet");
    for (from, to, says) in [
        ("deep_supervision = false", "res_block = true", "res_block is true"),
        (
            "upsample_kernel_size = [2, [2, 2, 1]]",
            "upsample_kernel_size = [2, 2]",
            "upsample_kernel_size must be strides",
        ),
        ("affine = true", "affine = false", "have no place"),
    ] {
        let error = dynunet.error(from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
    let regions = Changed::new("segresnet");
    let error = regions.error("activation = \"sigmoid\"", "activation = \"sigmoid\"\nvalues = [3, 3]");
    assert!(error.contains("values are [3, 3], but must be 2 different ones above 0"), "{error}");
    // A transformer says with which version of MONAI it was trained.
    let swin = "weights = \"model.pt\"\n[network]\nname = \"SwinUNETR\"\nin_channels = 1\nout_channels = 2\n[images]\n\
                channels = [\"a\"]\norientation = \"RAS\"\n[intensity]\nname = \"none\"\n[window]\nroi_size = [64, 64, 64]\n\
                overlap = 0.5\nmode = \"gaussian\"\n[output]\nactivation = \"softmax\"\nlabels = [\"a\", \"b\"]\n";
    let error = unet.error_of(swin);
    assert!(error.contains("monai_version must be given"), "{error}");
    let error = unet.error_of(&format!("monai_version = \"1.3.0\"\n{swin}"));
    assert!(error.contains("there is no tensor"), "{error}");
    let long = format!("{swin}# {}", "x".repeat(2 << 20));
    assert!(unet.error_of(&long).contains("more than 1048576"));
}

#[test]
fn weights_that_harm_or_are_no_numbers_are_refused() {
    let unet = Changed::new("unet");
    let path = |name: &str| unet.dir.path().join(name);
    // `os.system("touch …")` by Python's unpickling.
    let touched = path("touched");
    let command = format!("touch {}", touched.display());
    let mut pickle = b"\x80\x02cos\nsystem\nX".to_vec();
    pickle.extend((command.len() as u32).to_le_bytes());
    pickle.extend(command.as_bytes());
    pickle.extend(b"\x85R.");
    fs::write(path("harmful.pt"), pickle).unwrap();
    let error = unet.error("model.pt", "harmful.pt");
    assert!(error.contains("harmful.pt") && !touched.exists(), "{error}");
    let whole = fs::read(path("model.pt")).unwrap();
    fs::write(path("cut.pt"), &whole[..whole.len() / 2]).unwrap();
    assert!(unet.error("model.pt", "cut.pt").contains("cut.pt"));
    let file = PytorchFile::open(&path("model.pt"), &Budget::new(Bytes::mib(16))).unwrap();
    let tensors: Vec<(String, Shape)> =
        file.names().map(|name| (name.to_string(), file.shape(name).unwrap())).collect();
    for (name, spoilt) in [("slopes", ".A.weight"), ("weights", ".conv.weight")] {
        let fill = |number: usize, values: &mut [f32]| {
            values.fill(if tensors[number].0.ends_with(spoilt) { f32::NAN } else { 0.5 });
            Ok(())
        };
        let to = path(&format!("{name}.safetensors"));
        let mut made = fs::File::create(&to).unwrap();
        safetensors::write(&mut made, &tensors, &BTreeMap::new(), &mut vec![0.0; 1 << 16], fill).unwrap();
        let error = unet.error("model.pt", &format!("{name}.safetensors"));
        assert!(error.contains("are not finite") && error.contains(spoilt), "{error}");
    }
}

#[test]
fn flags_that_a_model_of_monai_does_not_take_are_refused() {
    let case = oracles().join("unet");
    let (model, images) = (text(&case.join("model.toml")), text(&case.join("images")));
    for flags in [&["--overlap", "0.5"][..], &["-step_size", "0.5"], &["--checkpoint", "best"], &["-f", "0"]]
    {
        let error =
            run_error(&[&["predict", &model, "-i", &images, "-o", "/nowhere/labels"], flags].concat());
        assert!(error.contains(&format!("{} has no effect", flags[0])), "{error}");
    }
}

#[test]
fn the_unet_of_monai_is_not_trained() {
    let error = run_error(&["bench", "step", "--net", "unet", "--size", "32", "--ram", "1GiB"]);
    assert!(error.contains("`net` is unet") && error.contains("for prediction only"), "{error}");
}

/// The configuration of `oracles/monai/bundle`, written as bundles of MONAI's model zoo are in YAML.
const IN_YAML: &str = r#"---
imports:
- "$import glob"
- "$import os"
bundle_root: "/workspace/balls"
image_key: image
output_dir: "$@bundle_root + '/eval'"
dataset_dir: "/workspace/data"
datalist: "$list(sorted(glob.glob(@dataset_dir + '/imagesTs/*.nii.gz')))"
device: "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')"
spatial_size: [24, 24, 12]
network_def:
  _target_: UNet   # of MONAI
  spatial_dims: 3
  in_channels: 1
  out_channels: 2
  channels: [4, 8, 16]
  strides:
  - 2
  - 2
  num_res_units: 1
  norm: batch
network: "$@network_def.to(@device)"
preprocessing:
  _target_: Compose
  transforms:
  - _target_: LoadImaged
    keys: "@image_key"
  - _target_: EnsureChannelFirstd
    keys: "@image_key"
  - _target_: Orientationd
    keys: "@image_key"
    axcodes: RAS
  - _target_: Spacingd
    keys: "@image_key"
    pixdim: [1.5, 1.5, 2.0]
    mode: bilinear
  - {_target_: ScaleIntensityRanged, keys: "@image_key", a_min: -57, a_max: 264, b_min: 0, b_max: 1, clip: true}
  - _target_: EnsureTyped
    keys: "@image_key"
inferer:
  _target_: SlidingWindowInferer
  roi_size: "@spatial_size"
  sw_batch_size: 4
  overlap: 0.5
postprocessing:
  _target_: Compose
  transforms:
  - _target_: Activationsd
    keys: pred
    softmax: yes
  - _target_: Invertd
    keys: pred
    transform: "@preprocessing"
    orig_keys: "@image_key"
    nearest_interp: false
  - _target_: AsDiscreted
    keys: pred
    argmax: true
  - _target_: SaveImaged
    _disabled_: true
    keys: pred
    output_dir: "@output_dir"
run:
- "$@evaluator.run()"
"#;

#[test]
fn a_bundle_in_yaml_labels_as_the_same_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("bundle");
    let case = oracles().join("bundle");
    for file in ["configs/metadata.json", "models/model.pt"] {
        fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
        fs::copy(case.join(file), folder.join(file)).unwrap();
    }
    // The second as some editors of Windows save it.
    for (name, mark) in [("inference.yaml", ""), ("inference.yml", "\u{feff}")] {
        let config = folder.join("configs").join(name);
        fs::write(&config, format!("{mark}{IN_YAML}")).unwrap();
        let (share, foreground) = agreement(&folder, &case.join("images"), &case.join("labels.nii.gz"), &[]);
        assert!(foreground > 500 && share >= 0.9999, "{name}: {share}, {foreground}");
        fs::remove_file(&config).unwrap();
    }
    let (config, out) = (folder.join("configs/inference.yaml"), text(&dir.path().join("labels")));
    let (folder, images) = (text(&folder), text(&case.join("images")));
    let predict = ["predict", &folder, "-i", &images, "-o", &out, "--ram", "256MiB"];
    for (from, to, says, way) in [
        ("axcodes: RAS", "axcodes: LPS", "axcodes are \"LPS\"", "write a model.toml"),
        (
            "pixdim: [1.5, 1.5, 2.0]",
            "pixdim: \"$@spatial_size\"",
            "the expression `$@spatial_size`",
            "write a model.toml",
        ),
        ("spatial_size: [24", "spatial_size: &a [*a, 24", "aliases are not supported", "correct the file"),
        ("image_key: image", "image_key: !!python/name:os.system", "the tag", "correct the file"),
        ("norm: batch", "norm: [batch", "line ", "correct the file"),
    ] {
        fs::write(&config, IN_YAML.replace(from, to)).unwrap();
        let error = run_error(&predict);
        assert!(
            error.contains("inference.yaml") && error.contains(says) && error.contains(way),
            "{to}: {error}"
        );
        assert!(!Path::new(&out).exists());
    }
    for bytes in [&b"- "[..], b"\xff", &b"[".repeat(100_000), &vec![b' '; 5 << 20]] {
        fs::write(&config, bytes).unwrap();
        assert!(run_error(&predict).contains("inference.yaml"));
    }
}

#[test]
fn what_a_bundle_does_otherwise_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("bundle");
    for inner in ["configs", "models"] {
        fs::create_dir_all(folder.join(inner)).unwrap();
        for entry in fs::read_dir(oracles().join("bundle").join(inner)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.join(inner).join(entry.file_name())).unwrap();
        }
    }
    let inference = folder.join("configs/inference.json");
    let original: Value = serde_json::from_slice(&fs::read(&inference).unwrap()).unwrap();
    let images = text(&oracles().join("bundle/images"));
    let out = dir.path().join("labels");
    let error_of = |bytes: &[u8]| {
        fs::write(&inference, bytes).unwrap();
        let error =
            run_error(&["predict", &text(&folder), "-i", &images, "-o", &text(&out), "--ram", "256MiB"]);
        assert!(!out.exists() && error.contains("inference.json"), "{error}");
        error
    };
    let transform = |list: &str, number: usize| format!("/{list}/transforms/{number}");
    let (before, after) =
        (|number| transform("preprocessing", number), |number| transform("postprocessing", number));
    for (pointer, value, says) in [
        (
            before(2),
            json!({"_target_": "CropForegroundd", "keys": "image"}),
            "`CropForegroundd` is not supported before",
        ),
        (format!("{}/axcodes", before(2)), json!("LPS"), "axcodes are \"LPS\""),
        (format!("{}/pixdim", before(3)), json!("$@spatial_size"), "the expression `$@spatial_size`"),
        (format!("{}/pixdim", before(3)), json!([1e300, 1, 1]), "spacing"),
        (format!("{}/mode", before(3)), json!("nearest"), "mode must be bilinear"),
        (format!("{}/clip", before(4)), json!("$os.remove('x')"), "$os.remove('x')"),
        (format!("{}/a_min", before(4)), json!(1e9), "a range must end above"),
        (
            before(4),
            json!({"_target_": "ScaleIntensityRangePercentilesd"}),
            "ScaleIntensityRangePercentilesd",
        ),
        (format!("{}/nearest_interp", after(1)), json!(true), "nearest_interp must be set to false"),
        (format!("{}/threshold", after(2)), json!(0.3), "AsDiscreted must be argmax"),
        (after(2), json!({"_target_": "KeepLargestConnectedComponentd"}), "KeepLargestConnectedComponentd"),
        ("/inferer/_target_".into(), json!("SliceInferer"), "`SliceInferer` is not a SlidingWindowInferer"),
        ("/inferer/padding_mode".into(), json!("reflect"), "padding_mode must be constant"),
        ("/inferer/roi_size".into(), json!("@nothing"), "refers to `@nothing`"),
        ("/network_def/_target_".into(), json!("scripts.my.Net"), "`network_def`: unknown variant `Net`"),
        ("/network_def".into(), json!("$import_it()"), "the expression `$import_it()`"),
        ("/network_def/strides".into(), json!([1e300]), "`network_def`"),
        ("/network_def/norm".into(), json!(null), "`norm` is null"),
        ("/network_def/norm".into(), json!(["batch", {"affine": null}]), "`norm.affine` is null"),
        ("/network_def/act".into(), json!(null), "`act` is null"),
        (
            format!("{}/labels", before(2)),
            json!([["R", "L"], ["P", "A"], ["I", "S"]]),
            "labels must be left out",
        ),
        (format!("{}/keys", before(3)), json!(["image", "label"]), "Spacingd: keys must be one"),
        (format!("{}/keys", before(3)), json!("label"), "Spacingd: keys are \"label\""),
        (
            after(0),
            json!({"_target_": "Invertd", "keys": "pred", "nearest_interp": false}),
            "Invertd appears twice",
        ),
        (
            after(1),
            json!({"_target_": "Activationsd", "keys": "pred", "softmax": true}),
            "Activationsd appears twice",
        ),
        (
            after(1),
            json!({"_target_": "AsDiscreted", "keys": "pred", "argmax": true}),
            "AsDiscreted comes after AsDiscreted",
        ),
    ] {
        let mut changed = original.clone();
        match changed.pointer_mut(&pointer) {
            Some(place) => *place = value,
            None => {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                changed.pointer_mut(parent).unwrap()[key] = value;
            }
        }
        let error = error_of(changed.to_string().as_bytes());
        assert!(error.contains(says) && error.contains("write a model.toml"), "{pointer}: {error}");
    }
    let mut without = original.clone();
    without.as_object_mut().unwrap().remove("postprocessing");
    assert!(error_of(without.to_string().as_bytes()).contains("there is no `postprocessing`"));
    for bytes in [&b"{"[..], b"[]", &b"[".repeat(100_000), &vec![b' '; 5 << 20]] {
        assert!(!error_of(bytes).is_empty());
    }
    fs::write(&inference, original.to_string()).unwrap();
    fs::remove_file(folder.join("models/model.pt")).unwrap();
    let error = run_error(&["predict", &text(&folder), "-i", &images, "-o", &text(&out)]);
    assert!(error.contains("models/model.pt"), "{error}");
}
