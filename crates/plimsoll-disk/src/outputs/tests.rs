use std::fs;

use super::*;

const PAGE: Contents = Contents { name: "a page", is_own: |head| head.starts_with(b"<page>") };

/// Checks one output file against a folder `data` and a file `table.csv`.
fn check(dir: &Path, output: &str, existing: Existing) -> Result<(), OutputError> {
    let input = |name, path: &str| Input {
        name,
        part: "a file",
        path: dir.join(path),
        closed: &["images", "fold_*"],
    };
    CommandFiles {
        inputs: vec![input("the data set", "data"), input("the table", "table.csv")],
        files: vec![OutputFile { name: "--page", path: dir.join(output), contents: PAGE, existing }],
        folders: Vec::new(),
    }
    .check()
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("data/images")).unwrap();
    for (name, text) in [
        ("data/images/a", "voxels"),
        ("data/page", "<page>"),
        ("table.csv", "<page>"),
        ("page", "<page>"),
        ("other", "text"),
        ("empty", ""),
        ("data/empty", ""),
    ] {
        fs::write(at(name), text).unwrap();
    }
    dir
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no call for hard links")]
fn inputs_are_refused_under_any_name_and_own_pages_are_replaced() {
    use Existing::{AsAllowed, SameContents};
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::hard_link(at("data/images/a"), at("hard")).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(at("data/images/a"), at("soft")).unwrap();
        std::os::unix::fs::symlink(at("table.csv"), at("soft.csv")).unwrap();
        std::os::unix::fs::symlink(at("nothing"), at("dangling")).unwrap();
        std::os::unix::fs::symlink(at("data"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("other"), at("data/images/b")).unwrap();
        let check = |output| check(dir.path(), output, AsAllowed);
        assert!(matches!(check("soft"), Err(OutputError::ReplacesPart { .. })));
        assert!(matches!(check("soft.csv"), Err(OutputError::ReplacesInput { .. })));
        assert!(matches!(check("dangling"), Err(OutputError::DanglingLink { .. })));
        assert!(matches!(check("link/images/a"), Err(OutputError::ReplacesPart { .. })));
        // The input is a link to the output.
        assert!(matches!(check("other"), Err(OutputError::ReplacesPart { .. })));
        fs::remove_file(at("data/images/b")).unwrap();
    }
    for existing in [AsAllowed, SameContents] {
        let check = |output| check(dir.path(), output, existing);
        check("new").unwrap();
        check("data/new").unwrap();
        check("page").unwrap();
        check("empty").unwrap();
        assert!(matches!(check("data/empty"), Err(OutputError::ReplacesPart { .. })));
        check("data/page").unwrap();
        assert!(matches!(check("data/images/a"), Err(OutputError::ReplacesPart { .. })));
        assert!(matches!(check("data/images/../images/a"), Err(OutputError::ReplacesPart { .. })));
        assert!(matches!(check("table.csv"), Err(OutputError::ReplacesInput { .. })));
        assert!(matches!(check("data"), Err(OutputError::ReplacesInput { .. })));
        let of_link = check("hard");
        let of_other = check("other");
        match existing {
            AsAllowed => {
                assert!(matches!(of_link, Err(OutputError::ReplacesPart { .. })));
                of_other.unwrap();
            }
            _ => {
                assert!(matches!(of_link, Err(OutputError::OtherContents { .. })));
                assert!(matches!(of_other, Err(OutputError::OtherContents { .. })));
            }
        }
    }
}

#[test]
fn folders_of_outputs_are_kept_apart_from_those_of_inputs() {
    let dir = place();
    let check = |output: &str| {
        CommandFiles {
            inputs: vec![Input {
                name: "the data set",
                part: "a file",
                path: dir.path().join("data"),
                closed: &["images", "fold_*"],
            }],
            files: Vec::new(),
            folders: vec![OutputFolder { name: "-o", path: dir.path().join(output) }],
        }
        .check()
    };
    for refused in ["data", "data/", "data/../data"] {
        assert!(matches!(check(refused), Err(OutputError::IsInputs { .. })), "{refused}");
    }
    for refused in ["data/images", "data/images/new", "data/fold_3/new", "data/new/images/x"] {
        assert!(matches!(check(refused), Err(OutputError::AmongInputs { .. })), "{refused}");
    }
    for allowed in ["data/new", "new", "images", "data2"] {
        check(allowed).unwrap();
    }
}

#[test]
fn two_outputs_are_two_files() {
    let dir = place();
    let output = |name, path: &str| OutputFile {
        name,
        path: dir.path().join(path),
        contents: PAGE,
        existing: Existing::SameContents,
    };
    let twice = |second: &str| {
        let files = vec![output("--csv", "data/new"), output("--picture", second)];
        CommandFiles { files, ..CommandFiles::default() }.check()
    };
    assert!(matches!(twice("data/images/../new"), Err(OutputError::Twice { .. })));
    twice("data/newer").unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no call for hard links")]
fn files_that_an_input_lists_are_no_outputs_wherever_they_are() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("slices/series")).unwrap();
    fs::write(at("slices/series/1.dcm"), "<page>").unwrap();
    fs::hard_link(at("page"), at("hard")).unwrap();
    let listed = [at("page"), at("data/images/a"), at("slices/series"), at("gone")];
    let file = |path: &str| OutputFile {
        name: "--page",
        path: at(path),
        contents: PAGE,
        existing: Existing::AsAllowed,
    };
    let check = |files: &[&str], folders: &[&str]| {
        let folders = folders.iter().map(|path| OutputFolder { name: "--out", path: at(path) });
        let files = files.iter().map(|path| file(path)).collect();
        CommandFiles { files, folders: folders.collect(), inputs: Vec::new() }
            .check_listed("the data set", listed.iter().map(PathBuf::as_path))
    };
    for refused in ["page", "hard", "data/../page", "data/images/a"] {
        assert!(matches!(check(&[refused], &[]), Err(OutputError::ReplacesInput { .. })), "{refused}");
    }
    assert!(matches!(check(&["slices/series/1.dcm"], &[]), Err(OutputError::ReplacesPart { .. })));
    for refused in ["", "data/images", "slices/series", "data/../slices"] {
        assert!(matches!(check(&[], &[refused]), Err(OutputError::IsInputs { .. })), "{refused}");
    }
    check(&["other", "new", "gone"], &["data", "new", "data/images/new"]).unwrap();
}
