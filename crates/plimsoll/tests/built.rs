//! Where a crate lists its programs of tests, a file that no list names would never be built, and nobody would notice.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut listing = 0;
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if !manifest.contains("autotests = false") {
            continue;
        }
        listing += 1;
        let root = fs::read_to_string(folder.join("tests/all.rs")).unwrap();
        let files = fs::read_dir(folder.join("tests")).unwrap().map(|entry| entry.unwrap().path());
        let is_source = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "rs");
        for file in files.filter(is_source) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let is_built =
                root.contains(&format!("mod {name};")) || manifest.contains(&format!("name = \"{name}\""));
            assert!(is_built, "{} is in no program of tests", file.display());
        }
    }
    assert!(listing >= 9, "{listing} crates list their programs of tests");
}
