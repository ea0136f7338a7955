//! `interact` against what nnInteractive's own session makes of the same prompts, and its errors with hints that work.
//! `oracles/nninteractive_sessions.py` made model, image and segmentations.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeError, VolumeFile, VolumeWriter};

use crate::support::{run_error, run_json};

const SHAPE: [usize; 3] = [96, 128, 104];

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nninteractive")
}

/// The bytes of an array in an archive of NumPy.
fn array(archive: &str, name: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(fs::File::open(oracle().join(archive)).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.split_off(10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])))
}

fn expected(sequence: &str, step: usize) -> Vec<u8> {
    let bits = array(&format!("{sequence}.npz"), &format!("step_{step}"));
    bits.iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .take(SHAPE.iter().product())
        .collect()
}

fn write(path: &Path, element: ElementType, voxels: &[u8]) {
    let geometry = Geometry::new(SHAPE, Affine::from_spacing(Spacing([2.0, 1.0, 1.0]))).unwrap();
    let mut file = VolumeWriter::create(path, &geometry, 1, element, None).unwrap();
    file.write_planes(voxels).unwrap();
    file.finish().unwrap();
}

fn read(path: &Path) -> Vec<u8> {
    let mut labels = Vec::new();
    VolumeFile::open(path)
        .unwrap()
        .for_each_plane(0, &Budget::new(Bytes::mib(16)), |_, plane| {
            labels.extend_from_slice(plane);
            Ok::<(), VolumeError>(())
        })
        .unwrap();
    labels
}

/// A folder with the image, and the words of a call but for prompts.
struct Call {
    folder: tempfile::TempDir,
    words: Vec<String>,
}

impl Call {
    fn new() -> Call {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
        write(&folder.path().join("image.nii.gz"), ElementType::I16, &array("image.npz", "image"));
        let model = oracle().join("model").to_str().unwrap().to_string();
        let words =
            ["interact", &path("image.nii.gz"), "-m", &model, "-o", &path("labels.nii.gz"), "--ram", "1GiB"];
        let words = words.into_iter().chain(["--threads", "2", "--no-zoom", "--overwrite"]).map(String::from);
        Call { words: words.collect(), folder }
    }

    fn labels(&self) -> PathBuf {
        self.folder.path().join("labels.nii.gz")
    }

    fn with<'a>(&'a self, prompts: &[&'a str]) -> Vec<&'a str> {
        let prompts = prompts.iter().flat_map(|prompt| ["--prompt", *prompt]);
        self.words.iter().map(String::as_str).chain(prompts).collect()
    }
}

#[test]
fn labels_of_points_are_those_of_nninteractive_and_memory_keeps_to_its_plan() {
    let call = Call::new();
    let report = run_json(&call.with(&["point:58,70,58", "point:58,110,58"]));
    assert!(read(&call.labels()) == expected("still", 1));
    assert_eq!(report["prompts"].as_array().unwrap().len(), 2);
    assert_eq!(report["license"], "CC0 1.0");
    let planned = report["plan"]["total_bytes"].as_u64().unwrap();
    let peak = report["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak <= planned, "{peak} of {planned}");
    let alone = run_json(&call.with(&[]).into_iter().chain(["--plan"]).collect::<Vec<_>>());
    assert_eq!(alone["total_bytes"], report["plan"]["total_bytes"]);
}

#[test]
fn masks_in_files_mark_objects() {
    let call = Call::new();
    let file = call.folder.path().join("mask.nii.gz");
    let mut mask = vec![0u8; SHAPE.iter().product()];
    // Lassos of the oracle are small masks in a slice.
    let lasso = array("masks.npz", "mask_0");
    for (place, voxel) in lasso.iter().enumerate() {
        mask[(30 * 128 + 24 + place / 22) * 104 + 25 + place % 22] = *voxel;
    }
    write(&file, ElementType::U8, &mask);
    run_json(&call.with(&[&format!("lasso:{}", file.display())]));
    assert!(read(&call.labels()) == expected("masks", 0));
    let before = read(&call.labels());
    let error =
        run_error(&call.with(&[&format!("scribble:{}", oracle().join("model/plans.json").display())]));
    assert!(error.contains("plans.json"), "{error}");
    assert!(read(&call.labels()) == before, "a failed call replaced the labels");
}

#[test]
fn wrong_prompts_and_models_are_one_error_with_a_hint_that_works() {
    let call = Call::new();
    for (wrong, says, right) in [
        ("point:96,1,1", "outside of the image, whose shape is [96, 128, 104]", "point:30,34,36"),
        ("box:20:30,20:30,20:30", "does not support a solid box", "box:20:21,20:30,20:30"),
        ("box:20:20,20:30,20:30", "has no voxel along an axis", "box:20:21,20:30,20:30"),
    ] {
        let error = run_error(&call.with(&[wrong]));
        assert!(error.contains(says), "{error}");
        assert!(!call.labels().exists());
        run_json(&call.with(&[right]));
        fs::remove_file(call.labels()).unwrap();
    }
    let empty = call.folder.path().join("empty.nii.gz");
    write(&empty, ElementType::U8, &vec![0u8; SHAPE.iter().product()]);
    let error = run_error(&call.with(&[&format!("scribble:{}", empty.display())]));
    assert!(error.contains("a scribble marks no voxel"), "{error}");
    let low: Vec<&str> = call.with(&["point:30,34,36"]);
    let low: Vec<&str> = low.iter().map(|word| if *word == "1GiB" { "48MiB" } else { word }).collect();
    let error = run_error(&low);
    assert!(error.contains("hint: raise") && error.contains("--ram"), "{error}");
    let model = call.words[3].clone();
    let other = Path::new(&model).parent().unwrap().to_str().unwrap();
    let words: Vec<&str> = call
        .with(&["point:30,34,36"])
        .into_iter()
        .map(|word| if word == model { other } else { word })
        .collect();
    let error = run_error(&words);
    assert!(error.contains("has no inference_info.json"), "{error}");
}
