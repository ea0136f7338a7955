//! A fold's files are read as they grow, also where a process went back.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;

use plimsoll_monitor::{Curve, FoldFollower};
use plimsoll_run::{FoldName, RunFolder};

/// The lines of an epoch in metrics.jsonl and events.jsonl.
fn epoch(epoch: u64, loss: f64) -> (String, String) {
    let metrics = format!(
        r#"{{"epoch":{epoch},"steps":{},"learning_rate":0.01,"train_loss":{loss},"validation_loss":null,"train_loss_parts":[],"validation_loss_parts":[],"pseudo_dice":[0.5],"mean_pseudo_dice":0.5,"ema_pseudo_dice":0.5,"skipped_steps":0}}"#,
        (epoch + 1) * 10
    );
    let event = format!(
        r#"{{"time":"2026-11-23T04:00:00.000Z","event":"epoch","epoch":{epoch},"seconds":2.0,"validation_seconds":0.5,"resident_bytes":1048576}}"#
    );
    (metrics + "\n", event + "\n")
}

#[test]
fn curves_grow_with_the_files_and_are_cut_back_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(dir.path()).fold(FoldName::Number(0));
    fs::create_dir_all(folder.path()).unwrap();
    let append = |path: std::path::PathBuf, text: &str| {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    let mut follower = FoldFollower::new(folder.clone());
    // There is no run before it has a specification.
    assert!(follower.update().is_err());
    let known = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../oracles/exported/plain/run/fold_0/specification.json");
    fs::copy(known, folder.specification()).unwrap();
    assert_eq!(follower.update().unwrap().epochs_done, 0);
    for number in 0..3 {
        let (metrics, event) = epoch(number, -0.1 * number as f64);
        append(folder.metrics(), &metrics);
        append(folder.events(), &event);
    }
    // A line that is being written is no line yet.
    let (next, _) = epoch(3, -9.0);
    append(folder.metrics(), &next[..40]);
    let status = follower.update().unwrap();
    assert_eq!((status.epochs_done, follower.points().len(), follower.costs().len()), (3, 3, 3));
    append(folder.metrics(), &next[40..]);
    assert_eq!(follower.update().unwrap().epochs_done, 4);
    assert_eq!(follower.points()[3].1.train_loss, Some(-9.0));
    // Another process goes on after the second epoch.
    let text = fs::read_to_string(folder.metrics()).unwrap();
    let kept: String = text.split_inclusive('\n').take(2).collect();
    fs::write(folder.metrics(), kept).unwrap();
    assert_eq!(follower.update().unwrap().epochs_done, 2);
    append(
        folder.events(),
        "{\"time\":\"2026-11-23T04:00:01.000Z\",\"event\":\"start\",\"host\":\"a\",\"pid\":1,\"started\":0,\"oom_kills\":null,\
         \"version\":\"0.1.0\",\"specification\":\"0000000000000000\",\"steps\":20,\"of\":40}\n",
    );
    for number in 2..4 {
        let (metrics, event) = epoch(number, 7.0 + number as f64);
        append(folder.metrics(), &metrics);
        append(folder.events(), &event);
    }
    assert_eq!(follower.update().unwrap().epochs_done, 4);
    let losses: Vec<_> = follower.points().iter().map(|(_, point)| point.train_loss.unwrap()).collect();
    assert_eq!(losses, [0.0, -0.1, 9.0, 10.0]);
    assert_eq!(follower.costs().len(), 4);
    assert_eq!(follower.steps(), 40);
    // An event that is there without its newline is taken once, when it is whole.
    let told = follower.events().count();
    append(
        folder.events(),
        r#"{"time":"2026-11-23T04:00:02.000Z","event":"warning","what":"the last letter is missing"}"#,
    );
    follower.update().unwrap();
    assert_eq!(follower.events().count(), told);
    append(folder.events(), "\n");
    follower.update().unwrap();
    assert_eq!(follower.events().count(), told + 1);
    // What is no line of ours is left out, and ends nothing.
    append(folder.events(), "\0\u{1b}[2J{\"event\":\"start\"}\n");
    append(folder.metrics(), "nonsense\n");
    assert_eq!(follower.update().unwrap().epochs_done, 4);
    let empty: Curve<()> = Curve::default();
    assert!(empty.points().is_empty());
}
