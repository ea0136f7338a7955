//! Predictions that are killed at any instant and go on come to the files of those that were not, with all that is made beside labels.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Draws, FEW, files, wait};
use crate::support::{expect_same, plimsoll};

/// Takes away the record of what the time was spent on, which no two calls share, and which is not there where one was killed between its last label
/// and its record.
fn without_record(folder: &Path) {
    if let Err(error) = fs::remove_file(folder.join("run.json")) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

fn oracle(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name);
    path.canonicalize().unwrap().to_str().unwrap().into()
}

/// Kills a command again and again, at first while it is at any place and then while a file is being written, until it has ended by itself;
/// then all files of the folder that it writes to equal the files of a command that nobody killed.
fn expect_the_same_files(args: &[&str], makes: &[&str], seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let of = |output: &Path| {
        let mut command = plimsoll();
        command.args(args).arg("-o").arg(output).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let output = |folder: &str| {
        let folder = dir.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        // The name of a file, where one is made.
        let file = makes.iter().find(|name| name.ends_with(".seg.nrrd")).map(|name| folder.join(name));
        (folder.clone(), file.unwrap_or(folder))
    };
    let (whole, to) = output("whole");
    let start = Instant::now();
    let ended = of(&to).spawn().unwrap().wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let seconds = start.elapsed();
    without_record(&whole);
    let mut made: Vec<String> = fs::read_dir(&whole)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    made.sort();
    assert_eq!(made, makes);
    let mut draws = Draws(seed);
    let (killed_folder, to) = output("killed");
    let mut killed = 0;
    loop {
        let mut child = of(&to).spawn().unwrap();
        let start = Instant::now();
        let delay = Duration::from_micros(draws.below(seconds.as_micros() as u64 + 1));
        let is_written = || !files(&killed_folder, |name| name.ends_with(".partial")).is_empty();
        let ended = killed == FEW
            || match killed % 2 {
                0 => wait(&mut child, || start.elapsed() > delay),
                _ => wait(&mut child, || start.elapsed() > delay / 2 && is_written()),
            };
        if !ended {
            // `kill` is SIGKILL.
            child.kill().unwrap();
            killed += 1;
        }
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            without_record(&killed_folder);
            expect_same(&killed_folder, &whole, &format!("after {killed} kills"));
            if killed == FEW {
                break;
            }
            fs::remove_dir_all(&killed_folder).unwrap();
            fs::create_dir_all(&killed_folder).unwrap();
            continue;
        }
        assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut left: Vec<String> = fs::read_dir(&killed_folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, makes, "after {killed} kills nothing else is there");
    println!("{killed} kills of {}", args.join(" "));
}

#[test]
fn labels_in_tiff_with_probabilities_spacings_and_previews() {
    let results = oracle("nnunet/stacks/results/Dataset111_Stacks/nnUNetTrainer__nnUNetPlans__3d_fullres");
    let images = oracle("nnunet/stacks/images");
    let args = [
        "predict",
        "-m",
        &results,
        "-i",
        &images,
        "--save_probabilities",
        "--preview",
        "--continue_prediction",
    ];
    let of = |case: &str| ["json", "npz", "preview.png", "tif"].map(|ending| format!("{case}.{ending}"));
    let makes = [of("first"), of("second")].concat();
    expect_the_same_files(&args, &makes.iter().map(String::as_str).collect::<Vec<_>>(), 3);
}

#[test]
fn label_maps_of_a_folder_with_statistics_and_previews() {
    let images = tempfile::tempdir().unwrap();
    for case in ["a", "b"] {
        fs::copy(oracle("total_segmentator/ct.nii.gz"), images.path().join(format!("{case}.nii.gz")))
            .unwrap();
    }
    let (weights, input) = (oracle("total_segmentator/weights"), images.path().to_str().unwrap());
    let args = [
        "segment",
        "total",
        "--fast",
        "-i",
        input,
        "--weights",
        &weights,
        "--ml",
        "--statistics",
        "--preview",
    ];
    let of =
        |case: &str| ["nii.gz", "preview.png", "statistics.json"].map(|ending| format!("{case}.{ending}"));
    let makes = [of("a"), of("b")].concat();
    expect_the_same_files(&args, &makes.iter().map(String::as_str).collect::<Vec<_>>(), 4);
}

#[test]
fn a_segmentation_of_3d_slicer_with_statistics_and_a_preview() {
    let (weights, ct) = (oracle("total_segmentator/weights"), oracle("total_segmentator/ct.nii.gz"));
    let args =
        ["segment", "total", "--fast", "-i", &ct, "--weights", &weights, "--ml", "--statistics", "--preview"];
    expect_the_same_files(&args, &["a.preview.png", "a.seg.nrrd", "a.statistics.json"], 5);
}
