//! Models of nnU-Net 2.8.1 predict here what they predict there, and archives of models are unpacked or refused.
//!
//! The models, the images and nnU-Net's own predictions come from `oracles/nnunet_models.py`.

mod ensembles;
mod formats;
mod outputs;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::support::{plimsoll, run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, VolumeFile};
use zip::write::SimpleFileOptions;

/// The share of voxels that must have the label that nnU-Net gives them.
const SAME: f64 = 0.9999;
/// The largest difference of a probability from nnU-Net's, which is computed from logits in half precision.
const MOST_APART: f32 = 1e-3;

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet")
}

fn model(case: &str, configuration: &str) -> PathBuf {
    model_in(&oracles(), case, configuration)
}

fn model_in(oracles: &Path, case: &str, configuration: &str) -> PathBuf {
    let results = fs::read_dir(oracles.join(case).join("results")).unwrap().next().unwrap().unwrap().path();
    let of = |path: &PathBuf| path.to_str().unwrap().ends_with(&format!("__{configuration}"));
    fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path()).find(of).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Shape, affine and labels of a file.
fn labels(path: &Path) -> ([usize; 3], [[f64; 4]; 3], Vec<u8>) {
    let mut file = VolumeFile::open(path).unwrap();
    let mut all = Vec::new();
    file.for_each_plane(0, &Budget::new(Bytes::mib(64)), |_, plane| {
        all.extend_from_slice(plane);
        Ok::<(), plimsoll_volume::VolumeError>(())
    })
    .unwrap();
    assert_eq!(file.element_type(), ElementType::U8);
    (file.geometry().shape(), file.geometry().affine().0, all)
}

/// The share of voxels with the same labels of all cases of two folders, which are on the same grid.
fn agreement(found: &Path, expected: &Path) -> Vec<f64> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(expected).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| [".nii.gz", ".png", ".tif"].iter().any(|ending| text(file).ends_with(ending)));
    assert!(!files.is_empty());
    let share = |file: PathBuf| {
        let (found, expected) = (labels(&found.join(file.file_name().unwrap())), labels(&file));
        assert_eq!(found.0, expected.0, "{}", file.display());
        let mut numbers = found.1.iter().flatten().zip(expected.1.iter().flatten());
        assert!(
            numbers.all(|(a, b)| (a - b).abs() < 1e-3),
            "{}: {:?}, {:?}",
            file.display(),
            found.1,
            expected.1
        );
        let foreground = expected.2.iter().filter(|label| **label != 0).count();
        assert!(foreground > 100, "{} has {foreground} voxels of foreground", file.display());
        let same = found.2.iter().zip(&expected.2).filter(|(a, b)| a == b).count();
        same as f64 / expected.2.len() as f64
    };
    files.into_iter().map(share).collect()
}

/// Predicts a case with more arguments, and compares with nnU-Net's labels.
fn check(case: &str, configuration: &str, more: &[&str]) -> tempfile::TempDir {
    check_in(&oracles(), case, configuration, more)
}

/// The same of a case in a folder of cases.
fn check_in(oracles: &Path, case: &str, configuration: &str, more: &[&str]) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let images = oracles.join(case).join("images");
    let folder = model_in(oracles, case, configuration);
    let mut args =
        vec!["predict", "-m", text(&folder), "-i", text(&images), "-o", text(out.path()), "--ram", "1GiB"];
    args.extend(more);
    run_json(&args);
    let expected = oracles.join(case).join("expected");
    let single = agreement(out.path(), &expected.join(format!("{configuration}_f32")));
    let half = agreement(out.path(), &expected.join(configuration));
    println!(
        "{case} {configuration}: {single:?} of voxels as nnU-Net with sums in single precision, {half:?} as it is"
    );
    assert!(single.iter().all(|share| *share >= SAME), "{case}: {single:?}");
    out
}

#[test]
fn two_folds_of_two_channels_normalised_in_two_ways() {
    check("fullres", "3d_fullres", &[]);
}

#[test]
fn a_residual_encoder_of_regions_on_transposed_axes() {
    check("resenc_regions", "3d_fullres", &[]);
}

#[test]
fn slices_that_are_far_apart_are_resized_for_themselves() {
    check("anisotropic", "3d_fullres", &[]);
}

#[test]
fn batch_normalisation() {
    check("batch_norm", "3d_fullres", &[]);
}

/// `oracles/nnunet_models.py primus FOLDER`, and the same of `primus_v2` and `primus_v3`.
#[test]
#[ignore = "weights of 90 to 300 MB, in the folder of the variable PLIMSOLL_ORACLE"]
fn trainers_of_primus() {
    let folder = PathBuf::from(std::env::var_os("PLIMSOLL_ORACLE").unwrap());
    let cases = ["primus", "primus_v2", "primus_v3"].into_iter().filter(|case| folder.join(case).is_dir());
    let cases: Vec<&str> = cases.collect();
    assert!(!cases.is_empty(), "{} has none of them", folder.display());
    for case in cases {
        check_in(&folder, case, "3d_fullres", &[]);
    }
}

#[test]
fn plans_from_before_networks_were_written_out() {
    check("old_plans", "3d_fullres", &[]);
}

#[test]
fn a_cascade_predicts_its_earlier_stage_or_takes_its_labels() {
    check("cascade", "3d_fullres", &[]);
    let out = check("cascade", "3d_cascade_fullres", &[]);
    let shares = agreement(&out.path().join("3d_lowres"), &oracles().join("cascade/expected/3d_lowres_f32"));
    assert!(shares.iter().all(|share| *share >= SAME), "{shares:?}");
    let earlier = oracles().join("cascade/expected/3d_lowres");
    check("cascade", "3d_cascade_fullres", &["-prev_stage_predictions", text(&earlier)]);
    // A model that is no later stage takes no labels.
    let (images, folder) = (oracles().join("cascade/images"), model("cascade", "3d_lowres"));
    let error = run_error(&[
        "predict",
        "-m",
        text(&folder),
        "-i",
        text(&images),
        "-o",
        text(out.path()),
        "-prev_stage_predictions",
        text(&earlier),
    ]);
    assert!(error.contains("-prev_stage_predictions") && error.contains("3d_lowres"), "{error}");
}

/// The array `probabilities` of a .npz file, which is of f32 and in the order of C, and its four extents.
fn probabilities(path: &Path) -> (Vec<usize>, Vec<f32>) {
    let mut archive = zip::ZipArchive::new(fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name("probabilities.npy").unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(&bytes[..6], b"\x93NUMPY");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
    assert!(header.contains("'<f4'") && header.contains("'fortran_order': False"), "{header}");
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let shape = shape.split(',').map(|extent| extent.trim().parse().unwrap()).collect();
    let values = bytes[10 + length..].as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
    (shape, values.collect())
}

/// Probabilities on the stored axes of the case `first` of `flat`, in the order of the canonical ones: the last axis runs downwards, the
/// second backwards, the first to the right.
fn to_canonical(shape: &[usize], values: &[f32]) -> (Vec<usize>, Vec<f32>) {
    let [outputs, depth, height, width] = *shape else { panic!("{shape:?}") };
    let mut all = Vec::with_capacity(values.len());
    for output in 0..outputs {
        for z in (0..width).rev() {
            for y in (0..height).rev() {
                all.extend((0..depth).map(|x| values[((output * depth + x) * height + y) * width + z]));
            }
        }
    }
    (vec![outputs, width, height, depth], all)
}

#[test]
fn slices_of_a_reoriented_volume_and_their_probabilities() {
    let out = check("flat", "2d", &["--save_probabilities"]);
    for case in ["first.npz", "second.npz"] {
        // Ours are on the stored axes always; nnU-Net's where its reader leaves them, which the second case is stored on.
        let mut found = probabilities(&out.path().join(case));
        if case == "first.npz" {
            found = to_canonical(&found.0, &found.1);
        }
        let expected = probabilities(&oracles().join("flat/expected/2d").join(case));
        assert_eq!(found.0, expected.0);
        let furthest = found.1.iter().zip(&expected.1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{case}: probabilities differ by at most {furthest:e} from nnU-Net's");
        assert!(found.1.len() == expected.1.len() && furthest <= MOST_APART, "{case}: {furthest}");
    }
}

#[test]
fn a_model_is_found_by_the_names_that_nnu_net_gives_it() {
    let out = tempfile::tempdir().unwrap();
    let images = oracles().join("old_plans/images");
    let predict = |more: &[&str]| {
        let mut command = plimsoll();
        command.env("nnUNet_results", oracles().join("old_plans/results"));
        command
            .args(["predict", "-i", text(&images), "-o", text(out.path()), "--ram", "1GiB", "-f", "0"])
            .args(more);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let names =
        ["-chk", "checkpoint_final.pth", "-tr", "nnUNetTrainer", "-p", "nnUNetPlans", "-step_size", "0.5"];
    let (success, error) = predict(&[&["-d", "107", "-c", "3d_fullres", "--verbose"][..], &names].concat());
    assert!(success, "{error}");
    assert!(error.contains("Dataset107_Old 3d_fullres, trained by nnUNetTrainer"), "{error}");
    assert!(agreement(out.path(), &oracles().join("old_plans/expected/3d_fullres_f32"))[0] >= SAME);
    let (success, error) = predict(&["-d", "108", "-c", "3d_fullres"]);
    assert!(!success && error.contains("0 folders for data set 108"), "{error}");
    let (success, error) = predict(&["-d", "107", "-c", "3d_fullres", "--continue_prediction"]);
    assert!(success && error.contains("already existed and was kept"), "{error}");
}

#[test]
fn flags_without_effect_and_folds_that_are_not_there_are_refused() {
    let out = tempfile::tempdir().unwrap();
    let (images, folder) = (oracles().join("old_plans/images"), model("old_plans", "3d_fullres"));
    let predict = |more: &[&str]| {
        let args = ["predict", "-m", text(&folder), "-i", text(&images), "-o", text(out.path())];
        run_error(&[&args[..], more].concat())
    };
    assert!(predict(&["-f", "1"]).contains("checkpoint_final.pth in fold_1"));
    assert!(predict(&["-chk", "checkpoint_best.pth"]).contains("checkpoint_best.pth"));
    assert!(predict(&["--trainer-as", "Mine"]).contains("unknown trainer `Mine`"));
    for step in ["0", "1.01", "nan"] {
        let error = predict(&["-step_size", step]);
        assert!(
            error.contains("-step_size") && error.contains("is not more than 0 and at most 1"),
            "{error}"
        );
    }
    assert!(predict(&["--overlap", "1"]).contains("--overlap 1 is not at least 0 and less than 1"));
    let error = predict(&["--checkpoint", "best"]);
    assert!(error.contains("--checkpoint has no effect") && error.contains("-chk"), "{error}");
    assert!(predict(&["-d", "101", "-c", "3d_fullres"]).contains("cannot be used with"));
    let named = ["predict", text(&folder), "-d", "101", "-c", "3d_fullres", "-i", text(&images), "-o", "out"];
    assert!(run_error(&named).contains("cannot be used with"));
    assert!(predict(&["--disable_tta", "--mirror"]).contains("cannot be used with"));
}

#[test]
fn windows_are_mirrored_along_the_axes_that_are_chosen_of_those_of_training() {
    let dir = tempfile::tempdir().unwrap();
    let predict = |case: &str, name: &str, more: &[&str]| {
        let (images, folder) = (oracles().join(case).join("images"), model(case, "3d_fullres"));
        let out = dir.path().join(name);
        let args =
            ["predict", "-m", text(&folder), "-i", text(&images), "-o", text(&out), "--save_probabilities"];
        run_json(&[&args[..], more].concat());
        fs::read(out.join("first.npz")).unwrap()
    };
    let all = predict("batch_norm", "all", &[]);
    assert!(predict("batch_norm", "chosen", &["--mirror-axes", "2,0,1"]) == all);
    let one = predict("batch_norm", "one", &["--mirror-axes", "1"]);
    let none = predict("batch_norm", "none", &["--disable_tta"]);
    assert!(one != all && one != none && none != all);
    // This one was trained mirrored along two axes.
    let (images, folder) = (oracles().join("anisotropic/images"), model("anisotropic", "3d_fullres"));
    let out = dir.path().join("refused");
    let refused = |axes: &str| {
        run_error(&[
            "predict",
            "-m",
            text(&folder),
            "-i",
            text(&images),
            "-o",
            text(&out),
            "--mirror-axes",
            axes,
        ])
    };
    let error = refused("2");
    assert!(
        error.contains("not trained with mirroring along axis 2") && error.contains("--mirror-axes 0,1"),
        "{error}"
    );
    assert!(refused("3").contains("--mirror-axes"));
    assert!(!out.exists());
}

#[test]
fn windows_whose_voxels_count_alike_and_several_at_once() {
    let expected = oracles().join("batch_norm/expected/3d_fullres_constant");
    let found = check("batch_norm", "3d_fullres", &["--window-batch", "3"]);
    let gaussian = agreement(found.path(), &expected);
    let (images, folder) = (oracles().join("batch_norm/images"), model("batch_norm", "3d_fullres"));
    let out = tempfile::tempdir().unwrap();
    let args = ["predict", "-m", text(&folder), "-i", text(&images), "-o", text(out.path())];
    let report = run_json(&[&args[..], &["--window-weights", "constant", "--window-batch", "3"]].concat());
    assert_eq!(report["cases"][0]["plan"]["window_batch"], 3);
    let constant = agreement(out.path(), &expected);
    println!("{constant:?} of voxels as nnU-Net without a Gaussian, {gaussian:?} with one");
    assert!(constant.iter().all(|share| *share >= SAME), "{constant:?}");
    assert!(
        gaussian.iter().all(|share| *share < SAME),
        "{gaussian:?}: a Gaussian changes labels of this case"
    );
}

#[test]
fn weights_that_are_not_finite_or_of_another_network_are_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let (images, from) = (oracles().join("old_plans/images"), model("old_plans", "3d_fullres"));
    let copy = dir.path().join("model");
    fs::create_dir_all(copy.join("fold_0")).unwrap();
    for file in ["plans.json", "dataset.json", "fold_0/checkpoint_final.pth"] {
        fs::copy(from.join(file), copy.join(file)).unwrap();
    }
    let out = dir.path().join("out");
    let predict =
        || run_error(&["predict", "-m", text(&copy), "-i", text(&images), "-o", text(&out), "--ram", "1GiB"]);
    let plans = fs::read_to_string(copy.join("plans.json")).unwrap();
    fs::write(
        copy.join("plans.json"),
        plans.replace("\"unet_max_num_features\": 6", "\"unet_max_num_features\": 5"),
    )
    .unwrap();
    let error = predict();
    assert!(error.contains("checkpoint_final.pth") && error.contains("has shape"), "{error}");
    fs::write(copy.join("plans.json"), plans).unwrap();
    // A NaN in place of a weight: in a file whose checksum says that it was other, and in one that was saved so.
    let checkpoint = copy.join("fold_0/checkpoint_final.pth");
    let mut file =
        plimsoll_nn::weights::PytorchFile::open(&checkpoint, &Budget::new(Bytes::mib(64))).unwrap();
    let name = "encoder.stages.0.0.convs.0.conv.weight";
    let shape = file.shape(name).unwrap();
    let mut values = vec![0.0; shape.count()];
    file.read(name, &shape, &mut values).unwrap();
    let first: Vec<u8> = values.iter().take(4).flat_map(|value: &f32| value.to_le_bytes()).collect();
    let spoil = |bytes: &mut [u8]| {
        if let Some(place) = bytes.windows(16).position(|window| window == first) {
            bytes[place..place + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
    };
    let mut bytes = fs::read(&checkpoint).unwrap();
    spoil(&mut bytes);
    fs::write(&checkpoint, &bytes).unwrap();
    let error = predict();
    assert!(error.contains("checkpoint_final.pth is damaged") && error.contains(name), "{error}");
    let mut sound =
        zip::ZipArchive::new(fs::File::open(from.join("fold_0/checkpoint_final.pth")).unwrap()).unwrap();
    let mut saved = zip::ZipWriter::new(fs::File::create(&checkpoint).unwrap());
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for place in 0..sound.len() {
        let mut member = sound.by_index(place).unwrap();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        spoil(&mut bytes);
        saved.start_file(member.name().unwrap().to_string(), options).unwrap();
        saved.write_all(&bytes).unwrap();
    }
    saved.finish().unwrap();
    let error = predict();
    assert!(error.contains("1 of the") && error.contains(&format!("`{name}` are not finite")), "{error}");
    assert!(!out.join("first.nii.gz").exists());
}

#[test]
fn post_processing_keeps_the_largest_components_as_nnu_net_does() {
    let dir = tempfile::tempdir().unwrap();
    // Labels are a prediction that is there already, and of which only post-processing is missing.
    let out = dir.path().join("out");
    let steps = oracles().join("postprocessing/postprocessing.json");
    let all: serde_json::Value = serde_json::from_slice(&fs::read(&steps).unwrap()).unwrap();
    let images = dir.path().join("images");
    fs::create_dir_all(&images).unwrap();
    fs::copy(oracles().join("postprocessing/before.nii.gz"), images.join("before_0000.nii.gz")).unwrap();
    for count in 1..=4 {
        fs::create_dir_all(out.join("unprocessed")).unwrap();
        fs::copy(oracles().join("postprocessing/before.nii.gz"), out.join("unprocessed/before.nii.gz"))
            .unwrap();
        let mut some = all.clone();
        for key in ["postprocessing_fns", "postprocessing_kwargs"] {
            some[key].as_array_mut().unwrap().truncate(count);
        }
        let file = dir.path().join("some.json");
        fs::write(&file, serde_json::to_vec(&some).unwrap()).unwrap();
        let folder = model("old_plans", "3d_fullres");
        let args = ["predict", "-m", text(&folder), "-i", text(&images), "-o", text(&out), "--ram", "1GiB"];
        if count == 1 {
            // What is not processed yet is not predicted again.
            let plans = run_json(&[&args[..], &["--postprocessing", text(&file), "--plan"]].concat());
            assert_eq!(plans[0]["kept"], 1, "{plans}");
        }
        run_json(&[&args[..], &["--postprocessing", text(&file)]].concat());
        let expected = labels(&oracles().join(format!("postprocessing/after_{count}.nii.gz")));
        assert_eq!(labels(&out.join("before.nii.gz")).2, expected.2, "{count} steps");
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn post_processing_replaces_neither_an_image_nor_a_label_map_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let steps = oracles().join("postprocessing/postprocessing.json");
    let images = dir.path().join("images");
    fs::create_dir_all(&images).unwrap();
    let image = images.join("a.nii.gz");
    fs::copy(oracles().join("postprocessing/before.nii.gz"), &image).unwrap();
    let bytes = fs::read(&image).unwrap();
    let folder = model("old_plans", "3d_fullres");
    let into = |out: &Path| -> Vec<String> {
        let args = ["predict", "-m", text(&folder), "-i", text(&image), "-o", text(out), "--ram", "1GiB"];
        [&args[..], &["--postprocessing", text(&steps)]].concat().iter().map(|arg| arg.to_string()).collect()
    };
    // Labels before post-processing would be in a folder of their own, but those after it where the image is.
    let args = into(&images);
    let error = run_error(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(error.contains("a.nii.gz") && error.contains("image"), "{error}");
    assert_eq!(fs::read(&image).unwrap(), bytes);
    assert!(!images.join("unprocessed").exists());
    // Those that are there are kept, without those that they were made of as well.
    let out = dir.path().join("out");
    fs::create_dir_all(&out).unwrap();
    fs::write(out.join("a.nii.gz"), "of old").unwrap();
    let args = into(&out);
    let report = run_json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(report["kept"][0]["file"], text(&out.join("a.nii.gz")));
    assert_eq!(report["cases"].as_array().unwrap().len(), 0);
    assert_eq!(fs::read_to_string(out.join("a.nii.gz")).unwrap(), "of old");
}

#[test]
fn an_exported_model_is_unpacked_shown_and_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let archive = oracles().join("batch_norm/exported.zip");
    let out = dir.path().join("models");
    let report = run_json(&["models", "import", text(&archive), "-o", text(&out)]);
    assert_eq!(report["files"], 6);
    let lines = report["models"][0]["lines"].to_string();
    assert!(lines.contains("nnUNetTrainerBN") && lines.contains("PlainConvUNet"), "{lines}");
    let folder = out.join("Dataset106_BatchNorm/nnUNetTrainerBN__nnUNetPlans__3d_fullres");
    let same = |file: &str| {
        fs::read(folder.join(file)).unwrap()
            == fs::read(model("batch_norm", "3d_fullres").join(file)).unwrap()
    };
    assert!(same("plans.json") && same("fold_0/checkpoint_final.pth"));
    let shown = run_json(&["models", "show", text(&out)]);
    assert_eq!(shown[0]["folder"].as_str(), Some(text(&folder)));
    assert!(run_error(&["models", "import", text(&archive), "-o", text(&out)]).contains("already exists"));
    let error = run_error(&["predict", "-m", text(&archive), "-i", text(&out), "-o", text(&out)]);
    assert!(error.contains("models import"), "{error}");
    // A folder is copied under the names of its data set.
    let other = dir.path().join("other");
    run_json(&["models", "import", text(&model("batch_norm", "3d_fullres")), "-o", text(&other)]);
    assert!(other.join("Dataset106_BatchNorm/nnUNetTrainerBN__nnUNetPlans__3d_fullres/plans.json").is_file());
    assert!(run_error(&["models", "show", text(dir.path().join("none").as_path())]).contains("none"));
}

#[test]
fn archives_that_lead_elsewhere_or_claim_too_much_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("model.zip");
    let out = dir.path().join("deep/out");
    let write = |files: &[(&str, &[u8])], link: Option<(&str, &str)>| {
        let mut zip = zip::ZipWriter::new(fs::File::create(&archive).unwrap());
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        for (name, bytes) in files {
            zip.start_file(*name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        if let Some((name, target)) = link {
            zip.add_symlink(name, target, options).unwrap();
        }
        zip.finish().unwrap();
    };
    let refused = || {
        let error = run_error(&["models", "import", text(&archive), "-o", text(&out)]);
        let written = dir.path().join("deep").exists();
        assert!(!written && !dir.path().join("evil").exists() && !Path::new("/tmp/plimsoll-evil").exists());
        error
    };
    let plans: (&str, &[u8]) = ("Dataset001_A/T__P__2d/plans.json", b"{}");
    for name in ["../evil", "a/../../../evil", "/tmp/plimsoll-evil", "a\\..\\evil"] {
        write(&[plans, (name, b"x")], None);
        let error = refused();
        assert!(error.contains("is outside the folder"), "{name}: {error}");
    }
    write(&[plans], Some(("Dataset001_A/link", "/etc/passwd")));
    assert!(refused().contains("`Dataset001_A/link` is a link"));
    write(&[("a.txt", b"x")], None);
    assert!(refused().contains("it has no plans.json"));
    fs::write(&archive, b"PK\x03\x04 and no archive").unwrap();
    assert!(refused().contains("model.zip"));
    // A file that claims more bytes than its packed ones can be: the same number in both headers.
    write(&[plans, ("Dataset001_A/big", &[0; 1000])], None);
    let mut bytes = fs::read(&archive).unwrap();
    let claimed = 1000u32.to_le_bytes();
    let places: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..*at + 4] == claimed).collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place..place + 4].copy_from_slice(&0x7fff_0000u32.to_le_bytes());
    }
    fs::write(&archive, bytes).unwrap();
    assert!(refused().contains("claims"), "a size beyond what is packed");
    // A file that has other bytes than were packed, after one that has its own.
    write(&[plans, ("Dataset001_B/damaged", b"x")], None);
    let mut bytes = fs::read(&archive).unwrap();
    let last = (0..bytes.len() - 4).rfind(|at| bytes[*at..].starts_with(b"PK\x01\x02")).unwrap();
    bytes[last + 16] ^= 1;
    fs::write(&archive, bytes).unwrap();
    assert!(refused().contains("Dataset001_B/damaged"));
    // The last bytes are missing.
    write(&[plans], None);
    let bytes = fs::read(&archive).unwrap();
    fs::write(&archive, &bytes[..bytes.len() - 30]).unwrap();
    refused();
}
