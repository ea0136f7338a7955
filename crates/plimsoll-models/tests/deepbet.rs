//! deepbet's networks become a model whose logits are its own networks', and what is none is refused. `oracles/deepbet.py` made the networks
//! and the numbers.
#![allow(clippy::expect_used, clippy::unwrap_used)] // Test helpers may panic as well.

use std::collections::HashMap;
use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use plimsoll_data::Preparation;
use plimsoll_graph::{Array, DType, Kind, Program, Shape, interpret};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::{ModelError, OpenOptions, OpenedModel, SegmentationModel, deepbet};
use plimsoll_nn::weights::{PytorchFile, SafetensorsFile};
use plimsoll_nn::{ForwardMode, names};
use plimsoll_run::FoldName;
use serde::Deserialize;
use zip::write::SimpleFileOptions;

#[derive(Deserialize)]
struct Expected {
    window: [usize; 3],
    /// Every `step`-th logit.
    step: usize,
    logits: Vec<f64>,
}

/// `sha256sum oracles/deepbet/models/model.pt`
const HASH: &str = "3233289c82517c43f556f644a43e37cb81d06661f60e0d4d60f703eb8965e270";

/// The member with the code of the pooling.
const POOLING: &str = "pooling/___torch_mangle_137.py";

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/deepbet").join(name)
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(64))
}

/// A copy of the networks.
fn networks(folder: &Path) -> PathBuf {
    let copy = folder.join("models");
    fs::create_dir(&copy).unwrap();
    for name in ["bbox_model.pt", "model.pt"] {
        fs::copy(oracle("models").join(name), copy.join(name)).unwrap();
    }
    copy
}

fn import(from: &Path, to: &Path) -> Result<deepbet::ImportedDeepbet, ModelError> {
    deepbet::import(&deepbet::find(from).expect("a folder of deepbet"), to, &budget())
}

fn open(path: &Path) -> Result<SegmentationModel, ModelError> {
    OpenedModel::open(path, &OpenOptions::default(), &budget())?.into_segmentation()
}

/// A copy of an archive. Members of code whose names end in `ending` are changed by a function, or left out if it returns `None`.
fn rewritten(archive: &[u8], ending: &str, change: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let mut old = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut new = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut changed = 0;
    for number in 0..old.len() {
        let mut member = old.by_index(number).unwrap();
        let name = member.name().unwrap().to_string();
        let mut contents = Vec::new();
        member.read_to_end(&mut contents).unwrap();
        if name.ends_with(ending) && name.contains("/code/") {
            let text = String::from_utf8(contents.clone()).unwrap();
            match change(&text) {
                Some(text) if text.as_bytes() != contents => {
                    changed += 1;
                    contents = text.into_bytes();
                }
                Some(_) => {}
                None => {
                    changed += 1;
                    continue;
                }
            }
        }
        let method = zip::CompressionMethod::Stored;
        new.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
        new.write_all(&contents).unwrap();
    }
    assert!(changed > 0, "{ending}");
    new.finish().unwrap().into_inner()
}

#[test]
fn logits_are_those_of_the_traced_network() {
    let expected = fs::read_to_string(oracle("logits.json")).unwrap();
    let Expected { window, step, logits } = serde_json::from_str(&expected).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&oracle(""), &folder.path().join("model")).unwrap();
    let model = open(&imported.model).unwrap();
    let Preparation::Located(steps) = &model.preparation else { panic!("{:?}", model.preparation) };
    assert_eq!((steps.coarse, steps.fine, steps.margin), ([128; 3], [256; 3], 0.1));
    assert_eq!((model.outputs.len(), model.weights.len()), (2, 2));
    let mut program = Program::new("forward");
    let shape = Shape::volume(1, 1, window);
    let input = program.input(names::IMAGE, shape.clone(), Kind::Volume);
    let mode = ForwardMode { training: false, precision: DType::F32 };
    let output = model.net.forward(&mut program, input, mode).unwrap()[0];
    let mut file = SafetensorsFile::open(&model.weights[1].path).unwrap();
    let parameters = program.ids().map(|id| program.tensor(id)).filter(|info| info.role.is_persistent());
    let mut held = HashMap::new();
    for info in parameters {
        let mut values = vec![0.0f32; info.shape.count()];
        file.read(&info.name, &info.shape, &mut values).unwrap();
        held.insert(info.name.clone(), Array::from_fn(info.shape.clone(), |i| values[i].into()));
    }
    // As the oracle's image.
    let image = Array::from_fn(shape, |i| ((i * 7919 + 31) % 211) as f64 / 211.0);
    held.insert(names::IMAGE.into(), image);
    let results = interpret(&program, &held).unwrap();
    let found = results[output.index()].data.iter().step_by(step);
    let furthest = found.zip(&logits).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
    assert!(logits.len() > 700 && furthest < 1e-7, "off by {furthest:e}");
}

/// Checks that a folder with other contents of `model.pt` is refused and leaves nothing.
fn refuses(contents: Option<&[u8]>, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let models = networks(folder.path());
    match contents {
        Some(contents) => fs::write(models.join("model.pt"), contents).unwrap(),
        None => fs::remove_file(models.join("model.pt")).unwrap(),
    }
    let error = import(folder.path(), &folder.path().join("to")).unwrap_err();
    assert!(error.to_string().contains(expected), "{expected}: {error}");
    assert!(error.to_string().contains("model.pt") && error.remedy().is_some(), "{error}");
    assert!(!folder.path().join("to").exists(), "{expected}");
}

#[test]
fn programs_of_other_networks_are_refused_by_what_differs() {
    let whole = fs::read(oracle("models/model.pt")).unwrap();
    for (from, to, expected) in [
        ("torch.relu_", "torch.sigmoid", "`torch.sigmoid` is unknown, in the code of `__torch__."),
        ("torch.max_pool3d", "torch.avg_pool3d", "`torch.avg_pool3d` is unknown"),
        ("[2, 2, 2], [3, 3, 3]", "[1, 1, 1], [3, 3, 3]", "is not in the network"),
        ("1.0000000000000001e-05", "0.001", "`torch.instance_norm("),
        ("(down0).forward(_0, )", "(down0).forward(x, )", "is not in the network"),
        ("torch.add((up1)", "torch.sub((up1)", "`torch.sub` is unknown"),
        ("return _6", "while x:\n    return _6", "`while x:` is neither an assignment nor a call"),
        ("(init).forward(x, )", "(self).forward(x, )", "its calls do not end"),
        ("(init).forward(x, )", "(init).forward(y, )", "`y` is not defined"),
        ("), 1)\n    return _6", "), 1)\n    return _5", "its result is not the network's last"),
    ] {
        let changed = rewritten(&whole, ".py", |text| Some(text.replacen(from, to, 1)));
        refuses(Some(&changed), expected);
    }
    let without = rewritten(&whole, POOLING, |_| None);
    refuses(
        Some(&without),
        "there is no code of the class `__torch__.torch.nn.modules.pooling.___torch_mangle_137.MaxPool3d`",
    );
    let long = rewritten(&whole, POOLING, |text| Some(text.to_string() + &" ".repeat(70_000)));
    refuses(Some(&long), "more than 65536");
    // Rewritten alone, it is the same network.
    let folder = tempfile::tempdir().unwrap();
    let same = rewritten(&whole, POOLING, |text| Some(format!("{text}\n")));
    fs::write(networks(folder.path()).join("model.pt"), same).unwrap();
    assert!(import(folder.path(), &folder.path().join("to")).is_ok());
}

#[test]
fn missing_and_damaged_networks_are_refused_and_leave_nothing() {
    let whole = fs::read(oracle("models/model.pt")).unwrap();
    refuses(None, "model.pt is missing: deepbet has the networks bbox_model.pt and model.pt");
    refuses(Some(&whole[..whole.len() - 1]), "model.pt");
    refuses(Some(b"no archive"), "it has no tensors");
    let mut damaged = whole.clone();
    let place = damaged.len() / 2;
    damaged[place] ^= 1;
    refuses(Some(&damaged), "does not have the checksum");
    // A state dict, whose pickle has no modules.
    let state_dict = fs::read(oracle("state_dict.pt")).unwrap();
    refuses(Some(&state_dict), "it is no archive of TorchScript");
    // The shape of the stem's kernel, as its pickle has it.
    let shape = b"K\x04K\x01K\x07K\x07K\x07t";
    let place = whole.windows(shape.len()).position(|bytes| bytes == shape).unwrap();
    for (at, value, expected) in [
        (3, 2, "its network has 2 channels, but deepbet has one"),
        (1, 8, "`down0.block1"),
        (5, 5, "no kernel of 7×7×7"),
    ] {
        let mut other = whole.clone();
        other[place + at] = value;
        refuses(Some(&other), expected);
    }
}

#[test]
fn a_program_is_no_file_of_weights() {
    let error = PytorchFile::open(&oracle("models/model.pt"), &budget()).err().unwrap();
    assert!(error.to_string().ends_with("it has no tensors"), "{error}");
}

#[test]
fn a_description_with_other_keys_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&oracle(""), &folder.path().join("model")).unwrap();
    let text = fs::read_to_string(&imported.model).unwrap();
    for (from, to, expected) in [
        ("init_filters = 4", "init_filters = 8", "init.0.weight"),
        ("init_filters = 4", "init_filters = 6", "network: "),
        ("fine = [256, 256, 256]", "fine = [256, 256, 100]", "fine: "),
        ("coarse = [128, 128, 128]", "coarse = [0, 128, 128]", "coarse: "),
        ("margin = 0.1", "margin = 2.0", "margin: "),
        ("mask.safetensors", "other.safetensors", "other.safetensors"),
        ("[network]", "colour = 1\n[network]", "colour"),
        ("deepbet", "deeperbet", "model.toml"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        fs::write(&imported.model, text.replacen(from, to, 1)).unwrap();
        let error = open(&imported.model).unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
    fs::write(&imported.model, text).unwrap();
    let fold = OpenOptions { fold: Some(FoldName::Number(0)), ..OpenOptions::default() };
    assert!(OpenedModel::open(&imported.model, &fold, &budget()).is_err());
}

#[test]
fn licences_are_copied_hashes_are_those_of_files_and_existing_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    fs::create_dir_all(site.join("data")).unwrap();
    networks(&site.join("data"));
    let info = site.join("deepbet-1.0.2.dist-info");
    fs::create_dir_all(&info).unwrap();
    fs::write(info.join("LICENSE"), "Permission is granted").unwrap();
    let to = folder.path().join("to");
    // The folder into which the package was unpacked.
    let first = import(&site, &to).unwrap();
    assert_eq!(fs::read_to_string(first.licence.unwrap()).unwrap(), "Permission is granted");
    assert_eq!(first.files.len(), 4);
    assert_eq!(first.sha256[1], ("model.pt".into(), HASH.into()));
    let before = fs::read(&first.model).unwrap();
    let error = import(&site, &to).unwrap_err();
    assert!(error.to_string().ends_with("already exists"), "{error}");
    assert_eq!(fs::read(&first.model).unwrap(), before);
    assert_eq!(deepbet::find(&to), None);
}

#[test]
fn a_budget_without_room_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    for bytes in [1000, 300 << 10, 2 << 20] {
        let error = deepbet::import(&oracle("models"), &to, &Budget::new(Bytes(bytes))).unwrap_err();
        assert!(error.to_string().contains("bbox_model.pt"), "{error}");
        assert!(!to.exists());
    }
}
