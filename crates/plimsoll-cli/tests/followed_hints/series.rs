//! Hints about series of DICOM: each series is spoilt, and mended as the hint says.

use std::fs;
use std::path::{Path, PathBuf};

use dicom_object::{DefaultDicomObject, OpenFileOptions, Tag};
use plimsoll_dicom::{DicomError, Series};
use plimsoll_memory::{Budget, Bytes};

const SERIES_UID: Tag = Tag(0x0020, 0x000E);
const INSTANCE_UID: Tag = Tag(0x0008, 0x0018);
const POSITION: Tag = Tag(0x0020, 0x0032);
const ORIENTATION: Tag = Tag(0x0020, 0x0037);
const PHOTOMETRIC: Tag = Tag(0x0028, 0x0004);

fn original(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom/short").join(name)
}

fn find(folder: &Path) -> Result<Series, DicomError> {
    Series::find(folder, &Budget::new(Bytes::mib(64)))
}

/// A copy of the series of six slices, `00.dcm` to `05.dcm`.
fn series(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(name);
    fs::create_dir(&folder).unwrap();
    for slice in fs::read_dir(original("")).unwrap() {
        let slice = slice.unwrap().path();
        fs::copy(&slice, folder.join(slice.file_name().unwrap())).unwrap();
    }
    assert!(find(&folder).is_ok());
    folder
}

fn slice(name: &str) -> DefaultDicomObject {
    OpenFileOptions::new().open_file(original(name)).unwrap()
}

/// A copy of a slice with other texts in attributes.
fn changed(name: &str, attributes: &[(Tag, &str)], to: &Path) {
    let mut slice = slice(name);
    for (tag, text) in attributes {
        let known = slice.element(*tag).unwrap().vr();
        slice.put_str(*tag, known, *text);
    }
    slice.write_to_file(to).unwrap();
}

/// Expects an error of a variant whose hint says something.
fn expect_hint(variant: &str, what: &str, folder: &Path, says: &str) {
    let Err(problem) = find(folder) else { panic!("{what}: it is read") };
    assert!(format!("{problem:?}").starts_with(variant), "{what}: {problem:?} is no {variant}");
    let hint = problem.remedy().unwrap_or_else(|| panic!("{what}: {problem} has no hint"));
    assert!(hint.contains(says), "{what}: {problem}: {hint}");
}

fn expect_read(what: &str, folder: &Path) {
    find(folder).unwrap_or_else(|problem| panic!("{what}: still {problem}"));
}

#[test]
fn series_that_are_mended_as_is_proposed_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = series(dir.path(), "series");
    let more = folder.join("more.dcm");
    let take_away = || fs::remove_file(&more).unwrap();

    fs::remove_file(folder.join("00.dcm")).unwrap();
    expect_hint("Gap", "a slice less", &folder, "copy the series again: it is incomplete");
    fs::copy(original("00.dcm"), folder.join("00.dcm")).unwrap();
    expect_read("it is copied again", &folder);

    // Between two planes, and too near at either end.
    for position in ["-40.5\\20.25\\316", "-40.5\\20.25\\309", "-40.5\\20.25\\323.5"] {
        changed("02.dcm", &[(POSITION, position), (INSTANCE_UID, "2.25.1")], &more);
        expect_hint("Gap", position, &folder, &format!("move {} out of the folder", more.display()));
        take_away();
        expect_read(position, &folder);
    }

    let whole = fs::read(original("02.dcm")).unwrap();
    fs::write(folder.join("02.dcm"), &whole[..whole.len() / 2]).unwrap();
    expect_hint("Unreadable", "half a slice", &folder, "copy the file again from its source");
    fs::write(folder.join("02.dcm"), &whole).unwrap();
    expect_read("it is copied again", &folder);
    // A damaged file that is no slice of it is taken away instead.
    fs::write(&more, &whole[..whole.len() / 2]).unwrap();
    expect_hint("Unreadable", "half a slice more", &folder, "or remove it");
    take_away();
    expect_read("it is taken away", &folder);

    fs::copy(original("02.dcm"), &more).unwrap();
    expect_hint("Doubled", "a slice twice", &folder, "remove one of them");
    take_away();
    expect_read("one is taken away", &folder);

    for (variant, what, attributes, says) in [
        (
            "Stray",
            "a slice beside the others",
            &[(POSITION, "-20.5\\20.25\\325"), (INSTANCE_UID, "2.25.1")][..],
            "put only slices of one volume into the folder",
        ),
        (
            "Differs",
            "a slice that is turned",
            &[(ORIENTATION, "1\\0\\0\\0\\0\\-1"), (INSTANCE_UID, "2.25.1")],
            "put only slices of one volume into the folder",
        ),
        (
            "Attribute",
            "a slice without a place",
            &[(POSITION, ""), (INSTANCE_UID, "2.25.1")],
            "remove files that are not slices of a volume",
        ),
        (
            "Attribute",
            "a slice in colours",
            &[(PHOTOMETRIC, "PALETTE COLOR"), (INSTANCE_UID, "2.25.1")],
            "or remove the file if it is not a slice",
        ),
    ] {
        changed("02.dcm", attributes, &more);
        expect_hint(variant, what, &folder, says);
        take_away();
        expect_read(what, &folder);
    }
}

#[test]
fn series_that_are_put_into_folders_of_their_own_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let both = series(dir.path(), "both");
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    expect_hint(
        "Nothing",
        "nothing",
        &other,
        "name one series (a folder, a ZIP archive, or a file of many slices)",
    );
    for number in 0..6 {
        let name = format!("{number:02}.dcm");
        let attributes = [(SERIES_UID, "2.25.7".to_string()), (INSTANCE_UID, format!("2.25.7{number}"))];
        let attributes = attributes.each_ref().map(|(tag, text)| (*tag, text.as_str()));
        changed(&name, &attributes, &both.join(format!("other_{name}")));
    }
    expect_hint("Several", "two series", &both, "put each series into a separate folder");
    for number in 0..6 {
        let name = format!("{number:02}.dcm");
        fs::rename(both.join(format!("other_{name}")), other.join(name)).unwrap();
    }
    expect_read("the one", &both);
    expect_read("the other", &other);
}
