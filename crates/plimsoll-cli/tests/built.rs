//! Files that would never be built without notice: files of tests that the program of a crate does not list, and examples in the
//! documentation of crates that declare that they have none.

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

/// The files of sources in a folder and in those inside of it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns `true` if documentation has a block of code that is compiled as an example: one without another language.
fn has_example(source: &str) -> bool {
    let comments = source.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    let fences = comments.filter_map(|text| text.trim_start().strip_prefix("```"));
    // Every other fence ends a block.
    fences.step_by(2).any(|language| !["text", "toml", "python"].contains(&language.trim_end()))
}

#[test]
fn examples_in_documentation_are_tests() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut tested, mut untested) = (0, 0);
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let is_untested = manifest.contains("doctest = false");
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        for file in files {
            let is_example = has_example(&fs::read_to_string(&file).unwrap());
            assert!(!(is_example && is_untested), "{}: its example is no test", file.display());
            tested += usize::from(is_example);
        }
        untested += usize::from(is_untested);
    }
    assert!(tested > 0 && untested > 10, "{tested} files with examples, {untested} crates without");
}
