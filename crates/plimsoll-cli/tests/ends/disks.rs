//! Disks that are full or not to be written, and folders that are taken.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::Running;
use crate::support::{Ended, SmallDisk, Tiny, warnings};

#[test]
fn a_folder_that_cannot_be_written_is_told_before_any_image_is_read() {
    let tiny = Tiny::new();
    let folder = tiny.path("folder");
    fs::create_dir(&folder).unwrap();
    // A user who may write everywhere is stopped by a disk that is mounted to be read.
    let disk = SmallDisk::mount(&folder.join("disk"), "64k");
    let place = match &disk {
        Some(disk) => {
            let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
            assert!(remounted.unwrap().success());
            disk.0.clone()
        }
        None => {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
            folder.clone()
        }
    };
    // Not even looked at.
    fs::write(tiny.data.join("imagesTr/vessel_001_0000.nii.gz"), "no image").unwrap();
    let error = Ended::run(&mut tiny.train(&place.join("run"), &[])).error(1);
    let why = if disk.is_some() { "Read-only file system" } else { "Permission denied" };
    assert!(error.contains(place.to_str().unwrap()) && error.contains(why), "{error}");
    assert!(error.contains("choose another folder"), "{error}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_second_process_on_a_fold_is_told_who_has_it_and_a_killed_one_is_taken_over_from() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let long = ["--epochs", "100000"];
    let latest = run.join("fold_0/checkpoint_latest.safetensors");
    let mut first = Running::start(&mut tiny.train(&run, &long)).until(|| latest.exists());
    let pid = first.child().id();
    let error = Ended::run(&mut tiny.train(&run, &[&long[..], &["--resume"]].concat())).error(1);
    assert!(error.contains(&format!("fold_0 is being trained by process {pid} on ")), "{error}");
    assert!(error.contains("hint: wait for it (`plimsoll status`"), "{error}");
    assert_eq!(first.signal("KILL").end().status, None);
    let again = Running::with_its_output(&mut tiny.train(&run, &[&long[..], &["--resume"]].concat()));
    // What it left unfinished, if it was killed while it wrote, is told as well.
    let taken_over = || {
        let mut all = warnings(&run.join("fold_0")).into_iter();
        all.find(|warning| warning.contains("continued from"))
    };
    let again = again.until(|| taken_over().is_some());
    let said = taken_over().unwrap();
    assert!(said.contains(&format!("continued from process {pid} on ")), "{said}");
    assert!(said.contains("which ended without an error message"), "{said}");
    again.signal("TERM").end();
    // Who ended in order is not mentioned.
    let warned = warnings(&run.join("fold_0")).len();
    let mut third = tiny.train(&run, &[&long[..], &["--resume"]].concat());
    let metrics = run.join("fold_0/metrics.jsonl");
    let length = fs::metadata(&metrics).unwrap().len();
    let third = Running::start(&mut third).until(|| fs::metadata(&metrics).unwrap().len() > length);
    third.signal("TERM").end().error(75);
    assert_eq!(warnings(&run.join("fold_0")).len(), warned);
}
