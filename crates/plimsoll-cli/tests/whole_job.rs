//! The library's example writes the files that the command line writes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::run;

#[allow(dead_code, clippy::disallowed_macros, reason = "its `main` is not called, and it prints")]
#[path = "../../plimsoll/examples/whole_job.rs"]
mod example;

/// The files below a folder that no time and no process identifier is written into.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path
            .extension()
            .is_some_and(|ending| ["safetensors", "gz", "toml"].iter().any(|own| ending == *own))
            || path.file_name().is_some_and(|name| {
                ["summary.json", "scores.csv", "splits_final.json", "specification.json"]
                    .iter()
                    .any(|own| name == *own)
            })
        {
            into.push(path);
        }
    }
}

#[test]
fn the_example_of_the_library_writes_what_the_command_line_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, other) = (dir.path().join("job"), dir.path().join("other"));
    example::whole_job(&folder).unwrap();
    // Paths are written into files, so both have the same.
    fs::rename(&folder, &other).unwrap();
    let at = |name: &str| folder.join(name).to_str().unwrap().to_string();
    let (data, model, labels) = (at("data"), at("run"), at("labels"));
    fs::create_dir_all(&folder).unwrap();
    let copied =
        std::process::Command::new("cp").arg("-a").arg(other.join("data")).arg(&data).status().unwrap();
    assert!(copied.success());
    let settings = at("settings.toml");
    fs::write(&settings, example::SETTINGS).unwrap();
    for args in [
        vec!["train", &data, "--out", &model, "--config", &settings],
        vec!["predict", &model, "-i", &at("data/imagesTs"), "-o", &labels],
        vec!["evaluate", &labels, &at("data/labelsTs"), "--config", "/dev/null"],
        vec!["report", &model, "-o", &at("report.html")],
    ] {
        let output = run(&args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut found = Vec::new();
    files(&other, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for file in found {
        let same = folder.join(file.strip_prefix(&other).unwrap());
        assert!(fs::read(&file).unwrap() == fs::read(&same).unwrap(), "{} differs", same.display());
    }
    assert!(folder.join("report.html").is_file() && other.join("report.html").is_file());
}
