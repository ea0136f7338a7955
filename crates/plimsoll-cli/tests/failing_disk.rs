//! The program on a disk that fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::plimsoll;
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

fn write(path: &Path, first: u8) {
    let geometry = Geometry::new([4; 3], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    writer.write_planes(&[&[first; 16][..], &[1; 32], &[0; 16]].concat()).unwrap();
    writer.finish().unwrap();
}

fn evaluate(folder: &Path, out: &str) -> Command {
    let mut command = plimsoll();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_string();
    command.args(["evaluate", &file("prediction.nii"), &file("reference.nii"), "--labels", "1"]);
    command.args(["--output", &file(out)]);
    command
}

#[test]
fn whichever_operation_fails_scoring_ends_in_one_error_and_leaves_whole_files_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("prediction.nii"), 0);
    write(&folder.join("reference.nii"), 1);
    let trace = folder.join("trace");
    let output = evaluate(folder, "all.json").env("PLIMSOLL_DISK_TRACE", &trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let operations = fs::read_to_string(&trace).unwrap().lines().count();
    assert!(operations > 20, "{operations} operations");
    let endings = ["json", "csv"];
    let whole = endings.map(|ending| fs::read(folder.join("all").with_extension(ending)).unwrap());
    for number in 1..=operations {
        let out = format!("{number}.json");
        let failing = format!("{number}:enospc");
        let output = evaluate(folder, &out).env("PLIMSOLL_DISK_FAULT", failing).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "operation {number} failed unnoticed");
        let errors = said.lines().filter(|line| line.starts_with("error: ")).count();
        assert!(errors == 1 && said.contains("os error 28"), "operation {number}: {said}");
        for (ending, whole) in endings.iter().zip(&whole) {
            if let Ok(found) = fs::read(folder.join(&out).with_extension(ending)) {
                assert!(found == *whole, "{ending} at operation {number}");
            }
        }
    }
    let left: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.extension().unwrap_or_default() != "partial"), "{left:?}");
}
