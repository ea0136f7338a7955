//! Label maps whose files name their values, and what stands in the place of files, from the command line.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Tiny, run_error, run_json};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file of NRRD of 4 × 4 × 4 voxels, or of a part of these from a place on, with segments of these names and values.
fn nrrd(path: &Path, side: usize, origin: usize, segments: &[(&str, u8)], voxels: &[u8]) {
    let mut header = format!(
        "NRRD0004\ntype: uchar\ndimension: 3\nspace: left-posterior-superior\nsizes: {side} {side} {side}\n\
         space directions: (1,0,0) (0,1,0) (0,0,1)\nkinds: domain domain domain\nencoding: raw\nspace origin: ({origin},{origin},{origin})\n"
    );
    for (at, (name, value)) in segments.iter().enumerate() {
        header +=
            &format!("Segment{at}_Name:={name}\nSegment{at}_LabelValue:={value}\nSegment{at}_Layer:=0\n");
    }
    header.push('\n');
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [header.as_bytes(), voxels].concat()).unwrap();
}

/// The label map of a box of two voxels a side in the middle: organ, and tumour in its upper half.
fn whole(organ: u8, tumour: u8) -> Vec<u8> {
    let class = |at: usize| {
        let [z, y, x] = [at / 16, at / 4 % 4, at % 4];
        let is_in = [z, y, x].iter().all(|at| (1..3).contains(at));
        if !is_in {
            0
        } else if z == 2 {
            tumour
        } else {
            organ
        }
    };
    (0..64).map(class).collect()
}

#[test]
fn references_are_scored_by_the_names_of_their_segments_and_where_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let (predictions, references) = (dir.path().join("predicted"), dir.path().join("labelsTr"));
    for case in ["a", "b", "c"] {
        nrrd(&predictions.join(format!("{case}.nrrd")), 4, 0, &[], &whole(1, 2));
    }
    nrrd(&references.join("a.nrrd"), 4, 0, &[("organ", 1), ("tumour", 2)], &whole(1, 2));
    // Numbered otherwise, and cropped.
    nrrd(&references.join("b.nrrd"), 2, 1, &[("tumour", 1), ("organ", 2)], &[2, 2, 2, 2, 1, 1, 1, 1]);
    // A prediction that was corrected in Slicer is read by its names as well.
    nrrd(&predictions.join("c.nrrd"), 2, 1, &[("organ", 7), ("tumour", 5)], &[7, 7, 7, 7, 5, 5, 5, 5]);
    nrrd(&references.join("c.nrrd"), 4, 0, &[("organ", 1), ("tumour", 2)], &whole(1, 2));
    let evaluate = ["evaluate", text(&predictions), text(&references)];
    let described = r#"{"channel_names": {"0": "CT"}, "labels": {"background": 0, "organ": 1, "tumour": 2},
        "numTraining": 3, "file_ending": ".nrrd"}"#;
    for case in ["a", "b", "c"] {
        nrrd(&dir.path().join(format!("imagesTr/{case}_0000.nrrd")), 4, 0, &[], &whole(1, 2));
    }
    fs::write(dir.path().join("dataset.json"), described).unwrap();
    run_json(&evaluate);
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(predictions.join("summary.json")).unwrap()).unwrap();
    for case in summary["metric_per_case"].as_array().unwrap() {
        for class in ["1", "2"] {
            assert_eq!(case["metrics"][class]["Dice"], 1.0, "{case}");
            assert_eq!(case["metrics"][class]["n_ref"], 4.0, "{case}");
        }
    }
    // A name that the data set does not have is named, with its file.
    nrrd(&references.join("b.nrrd"), 2, 1, &[("tumor", 1), ("organ", 2)], &[2, 2, 2, 2, 1, 1, 1, 1]);
    let error = run_error(&evaluate);
    assert!(
        error.contains("b.nrrd") && error.contains("\"tumor\" (the value 1), which is not a class"),
        "{error}"
    );
    let hinted =
        described.replace("\"numTraining\"", "\"segments\": {\"tumor\": \"tumour\"}, \"numTraining\"");
    fs::write(dir.path().join("dataset.json"), hinted).unwrap();
    run_json(&evaluate);
    // Without a data set, files that disagree are refused.
    fs::remove_file(dir.path().join("dataset.json")).unwrap();
    let error = run_error(&[&evaluate[..], &["--labels", "1,2"]].concat());
    assert!(error.contains("b.nrrd: the value 1 is \"tumor\", but \"organ\" in"), "{error}");
    assert!(error.contains("a.nrrd"), "{error}");
}

#[test]
fn what_is_no_file_among_images_is_refused_by_its_kind_in_every_command() {
    let tiny = Tiny::new();
    let data = text(&tiny.data);
    let image = tiny.data.join("imagesTr/vessel_001_0000.nii.gz");
    let run_folder = tiny.path("run");
    let refused = |expected: &str| {
        let started = Instant::now();
        let train = ["train", data, "--out", text(&run_folder), "--ram", "512MiB", "--patch-size", "8"];
        let commands: [&[&str]; 3] =
            [&["inspect", data], &["plan", data, "--ram", "512MiB", "--patch-size", "8"], &train];
        for args in commands {
            let error = run_error(args);
            assert!(
                error.contains("vessel_001_0000.nii.gz") && error.contains(expected),
                "{args:?}: {error}"
            );
        }
        assert!(!run_folder.exists());
        assert!(started.elapsed() < Duration::from_secs(60));
    };
    fs::remove_file(&image).unwrap();
    assert!(Command::new("mkfifo").arg(&image).status().unwrap().success());
    refused("it is a named pipe, not a file");
    fs::remove_file(&image).unwrap();
    let socket = UnixListener::bind(&image).unwrap();
    refused("it is a socket, not a file");
    drop(socket);
    fs::remove_file(&image).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &image).unwrap();
    refused("it is a character device, not a file");
    fs::remove_file(&image).unwrap();
    fs::write(&image, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n").unwrap();
    refused("it is a Git LFS pointer");
    fs::write(&image, "<!DOCTYPE html>\n<html><body>Please log in</body></html>").unwrap();
    refused("it is a web page (HTML)");
    fs::remove_file(&image).unwrap();
    std::os::unix::fs::symlink("../../.git/annex/objects/x1/SHA256E-s9--0a.nii.gz", &image).unwrap();
    refused("it is a git-annex pointer");
    // Descriptions, tables and weights are read in the same way.
    let tiny = Tiny::new();
    let data = text(&tiny.data);
    let pointer = tiny.path("weights.pth");
    fs::write(&pointer, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n").unwrap();
    let out = ["--out", text(&run_folder), "--ram", "512MiB", "--start", text(&pointer)];
    let error = run_error(&[&["train", data][..], &out].concat());
    assert!(error.contains("it is a Git LFS pointer"), "{error}");
    fs::write(tiny.data.join("dataset.json"), "<html>").unwrap();
    let error = run_error(&["inspect", data]);
    assert!(error.contains("dataset.json") && error.contains("it is a web page"), "{error}");
}
