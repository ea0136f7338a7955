//! Imported models are in the requested folder, or nothing is left of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::{Imported, import};

const MODEL: &str = "Dataset106_BatchNorm/nnUNetTrainerBN__nnUNetPlans__3d_fullres";

/// A folder of a data set with one model, whose checkpoint is not looked into here.
fn results(folder: &Path) -> PathBuf {
    let from =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet/batch_norm/results").join(MODEL);
    let to = folder.join("results").join(MODEL);
    fs::create_dir_all(to.join("fold_0")).unwrap();
    for file in ["plans.json", "dataset.json", "fold_0/checkpoint_final.pth"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    to
}

fn import_all(from: &Path, to: &Path) -> Result<Imported, String> {
    let budget = Budget::new(Bytes::mib(1));
    let imported = import(from, to, &budget, &mut |_, _| {}).map_err(|error| error.to_string());
    assert_eq!(budget.used(), Bytes::ZERO);
    imported
}

/// All that is in a folder, below it.
fn all_in(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            all.push(entry.strip_prefix(folder).unwrap().to_str().unwrap().to_string());
            if entry.is_dir() && !entry.is_symlink() {
                left.push(entry);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_folder_that_is_named_by_dots_is_copied_to_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let model = results(dir.path());
    for (name, from) in [("one", model.join("fold_0/..")), ("two", model.join(".")), ("three", model.clone())]
    {
        let to = dir.path().join(name).join("out");
        let imported = import_all(&from, &to).unwrap();
        assert_eq!((imported.files, imported.models), (3, vec![to.join(MODEL)]));
        assert_eq!(all_in(&dir.path().join(name)).len(), 1 + 2 + 1 + 3, "{name}");
    }
    // Names of data sets in a folder of data sets are kept.
    let to = dir.path().join("four");
    assert_eq!(import_all(&dir.path().join("results/."), &to).unwrap().models, [to.join(MODEL)]);
}

#[test]
fn an_import_that_fails_leaves_what_was_there_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let model = results(dir.path());
    fs::create_dir_all(model.join("a/b")).unwrap();
    fs::write(model.join("a/b/notes.txt"), b"x").unwrap();
    // A file where a folder must be.
    let to = dir.path().join("to");
    fs::create_dir_all(to.join(MODEL)).unwrap();
    fs::write(to.join(MODEL).join("fold_0"), b"mine").unwrap();
    let before = all_in(&to);
    import_all(&model, &to).unwrap_err();
    assert_eq!(all_in(&to), before);
    // An archive whose last file has another checksum than it says: all others are written before, into folders that are made.
    let exported = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet/batch_norm/exported.zip");
    let mut bytes = fs::read(exported).unwrap();
    let last = (0..bytes.len() - 4).rfind(|at| bytes[*at..].starts_with(b"PK\x01\x02")).unwrap();
    bytes[last + 16] ^= 1;
    let archive = dir.path().join("model.zip");
    fs::write(&archive, bytes).unwrap();
    let mut copied = 0;
    let new = dir.path().join("new/deep");
    let result = import(&archive, &new, &Budget::new(Bytes::mib(1)), &mut |done, _| copied = done);
    assert!(copied > 1000 && result.is_err(), "{copied} bytes");
    assert!(!dir.path().join("new").exists());
}

#[test]
#[cfg(unix)]
fn a_link_that_leads_nowhere_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let model = results(dir.path());
    let to = dir.path().join("to");
    fs::create_dir_all(to.join(MODEL)).unwrap();
    let link = to.join(MODEL).join("plans.json");
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
    let error = import_all(&model, &to).unwrap_err();
    assert!(error.contains("plans.json already exists"), "{error}");
    assert!(link.is_symlink() && !dir.path().join("nowhere").exists());
}

#[test]
#[cfg(unix)]
fn names_that_lead_elsewhere_on_other_systems_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = results(dir.path());
    for name in ["..\\x", "C:x", "a\u{1b}[2J"] {
        fs::write(model.join(name), b"x").unwrap();
        let error = import_all(&model, &dir.path().join("to")).unwrap_err();
        assert!(error.contains("not a valid file name on every system"), "{error}");
        fs::remove_file(model.join(name)).unwrap();
    }
    assert!(!dir.path().join("to").exists());
}

#[test]
fn names_of_files_and_folders_are_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let model = results(dir.path());
    for place in 0..500 {
        fs::create_dir(model.join(format!("{place}"))).unwrap();
    }
    let budget = Budget::new(Bytes(128 << 10));
    let error = import(&model, &dir.path().join("to"), &budget, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("names of files"), "{error}");
    assert_eq!(budget.used(), Bytes::ZERO);
}

#[test]
fn an_archive_that_grows_far_beyond_its_length_is_refused_before_anything_is_written() {
    use std::io::Write;
    use zip::write::SimpleFileOptions;
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("model.zip");
    let mut writer = zip::ZipWriter::new(fs::File::create(&archive).unwrap());
    let deflated = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    writer.start_file("Dataset001_A/T__P__2d/plans.json", deflated).unwrap();
    writer.write_all(b"{}").unwrap();
    for number in 0..20 {
        writer.start_file(format!("Dataset001_A/T__P__2d/zeros_{number}"), deflated).unwrap();
        writer.write_all(&vec![0; 1 << 20]).unwrap();
    }
    writer.finish().unwrap();
    let to = dir.path().join("to");
    let error = import_all(&archive, &to).unwrap_err();
    assert!(error.contains("its files total 20.0 MiB"), "{error}");
    assert!(!to.exists());
}
