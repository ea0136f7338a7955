//! Runs on a disk without enough room.

use std::fs;

use crate::support::{Ended, SmallDisk, Tiny, expect_same};

pub fn a_full_disk_ends_a_run_with_one_error_and_with_room_it_goes_on_to_the_same_bits() {
    let tiny = Tiny::new();
    let disk = SmallDisk::mount(&tiny.path("disk"), "3M").unwrap();
    let settings = ["--features", "8,16", "--epochs", "3"];
    let whole = tiny.path("whole");
    tiny.trained(&whole, &settings);
    let run = disk.0.join("run");
    // So much is left that the run begins, and its checkpoints do not fit.
    let one = fs::metadata(whole.join("fold_0/checkpoint_final.safetensors")).unwrap().len();
    let filler = disk.0.join("filler");
    fs::write(&filler, vec![1; (3 << 20) - 2 * one as usize - (200 << 10)]).unwrap();
    let error = Ended::run(&mut tiny.train(&run, &settings)).error(1);
    assert!(error.contains("checkpoint_") && error.contains("No space left on device"), "{error}");
    assert!(error.contains("hint: free space on the disk, then --resume"), "{error}");
    let again = Ended::run(&mut tiny.train(&run, &[&settings[..], &["--resume"]].concat())).error(1);
    assert!(again.contains("No space left on device"), "{again}");
    fs::remove_file(&filler).unwrap();
    tiny.trained(&run, &[&settings[..], &["--resume"]].concat());
    expect_same(&run, &whole, "after the disk was full");
}

pub fn a_start_that_does_not_fit_on_the_disk_leaves_nothing_behind() {
    let tiny = Tiny::new();
    let disk = SmallDisk::mount(&tiny.path("disk"), "16k").unwrap();
    let error = Ended::run(&mut tiny.train(&disk.0.join("runs/run"), &[])).error(1);
    assert!(error.contains("No space left on device"), "{error}");
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 0);
}
