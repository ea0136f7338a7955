//! Completions and manual pages, which packages of the program install.

use std::fs;
use std::process::Command;

use crate::support::plimsoll;

#[test]
fn completions_are_a_script_that_knows_commands_and_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = plimsoll().args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let script = String::from_utf8(output.stdout).unwrap();
        for known in ["train", "segment", "ram", "overlap"] {
            assert!(script.contains(known), "{shell}: {known}");
        }
        // Escaped control characters would be no script.
        assert!(!script.contains("\\u00"), "{shell}");
        if shell == "bash" {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), script).unwrap();
            let read = Command::new("bash").arg("-n").arg(file.path()).output().unwrap();
            assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        }
    }
    let output = plimsoll().args(["completions", "dash"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: invalid value 'dash'"));
}

#[test]
fn the_manual_has_a_page_for_each_command_and_replaces_none_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("share/man1");
    let manual = |flags: &[&str]| plimsoll().arg("manual").arg(&folder).args(flags).output().unwrap();
    let output = manual(&["--json"]);
    assert!(output.status.success(), "{output:?}");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    for page in ["plimsoll.1", "plimsoll-train.1", "plimsoll-models-export.1"] {
        assert!(names.iter().any(|name| name == page), "{page}: {names:?}");
    }
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["pages"].as_array().unwrap().len(), names.len());
    let train = folder.join("plimsoll-train.1");
    let text = fs::read_to_string(&train).unwrap();
    assert!(text.contains(".TH plimsoll-train 1"), "{text}");
    assert!(text.contains("\\-\\-ram") && text.contains("The memory limit"), "{text}");

    fs::write(&train, "mine").unwrap();
    let refused = manual(&[]);
    assert!(!refused.status.success());
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        error.starts_with("error: ") && error.contains("exists") && error.contains("--overwrite"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&train).unwrap(), "mine");
    assert!(manual(&["--overwrite"]).status.success());
    assert_eq!(fs::read_to_string(&train).unwrap(), text);
}
