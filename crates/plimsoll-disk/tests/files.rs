//! Files and folders.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};

#[cfg(unix)]
use plimsoll_disk::Substitute;
use plimsoll_disk::{File, TooLong};

#[test]
fn a_file_is_read_whole_up_to_the_bytes_that_are_allowed_and_refused_beyond() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.toml");
    fs::write(&path, b"twelve bytes").unwrap();
    assert_eq!(plimsoll_disk::read(&path, 12).unwrap(), b"twelve bytes");
    assert_eq!(plimsoll_disk::read(&path, 12).unwrap().capacity(), 12);
    assert_eq!(plimsoll_disk::read_to_string(&path, u64::MAX).unwrap(), "twelve bytes");
    let error = plimsoll_disk::read(&path, 11).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(TooLong::from_error(&error), Some(TooLong { found: 12, most: 11 }));
    assert_eq!(error.to_string(), "the file has 12 bytes, but at most 11 are supported");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_tells_no_length_is_bounded_as_well() {
    // The kernel says 0 bytes of it.
    let version = plimsoll_disk::read("/proc/version", 4096).unwrap();
    assert_eq!(version, fs::read("/proc/version").unwrap());
    assert!(TooLong::from_error(&plimsoll_disk::read("/proc/version", 3).unwrap_err()).is_some());
    // A device need not end: it is not opened.
    let error = plimsoll_disk::read("/dev/zero", 1000).unwrap_err();
    assert_eq!(Substitute::find(&error), Some(Substitute::CharacterDevice));
}

#[cfg(unix)]
#[test]
fn what_stands_in_the_place_of_a_file_is_told_by_what_it_is_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let error = File::open(folder.path().join(name)).unwrap_err();
        Substitute::find(&error).unwrap_or_else(|| panic!("{name}: {error}"))
    };
    let pipe = folder.path().join("a.nii.gz");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(of("a.nii.gz"), Substitute::NamedPipe);
    assert_eq!(Substitute::find(&File::append(&pipe).unwrap_err()), Some(Substitute::NamedPipe));
    let _bound = std::os::unix::net::UnixListener::bind(folder.path().join("b.nii.gz")).unwrap();
    assert_eq!(of("b.nii.gz"), Substitute::Socket);
    let link = |name: &str, to: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    link("c.nii.gz", "../.git/annex/objects/xX/1z/SHA256E-s9--0a.nii.gz/SHA256E-s9--0a.nii.gz");
    assert_eq!(of("c.nii.gz"), Substitute::GitAnnex);
    link("d.nii.gz", "/dev/zero");
    assert_eq!(of("d.nii.gz"), Substitute::CharacterDevice);
    assert!(plimsoll_disk::read("/dev/null", 1).unwrap().is_empty());
    link("e.nii.gz", "nowhere");
    assert_eq!(File::open(folder.path().join("e.nii.gz")).unwrap_err().kind(), io::ErrorKind::NotFound);
    fs::write(
        folder.path().join("f.pth"),
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    )
    .unwrap();
    assert_eq!(of("f.pth"), Substitute::GitLfs);
    fs::write(folder.path().join("g.json"), "<!DOCTYPE html><html><body>log in").unwrap();
    assert_eq!(of("g.json"), Substitute::WebPage);
    assert!(File::open_any(folder.path().join("g.json")).is_ok());
    // A file is read from its beginning, whatever was looked at before.
    fs::write(folder.path().join("h"), "abc").unwrap();
    let mut text = String::new();
    File::open(folder.path().join("h")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "abc");
}

#[test]
fn a_text_is_read_without_its_byte_order_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dataset.json");
    fs::write(&path, "\u{feff}{}").unwrap();
    assert_eq!(plimsoll_disk::read_to_string(&path, 9).unwrap(), "{}");
    assert_eq!(plimsoll_disk::without_mark(b"{}".to_vec()), b"{}");
}

#[test]
fn text_that_is_not_utf_8_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, [b'a', 0xff]).unwrap();
    assert_eq!(plimsoll_disk::read_to_string(&path, 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_new_file_is_never_an_old_one_and_appending_goes_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut file = File::create_new(&path).unwrap();
    assert_eq!(file.path(), path);
    file.write_all(b"0123456789").unwrap();
    file.seek(SeekFrom::Start(2)).unwrap();
    file.write_all(b"ab").unwrap();
    file.set_len(5).unwrap();
    file.sync_all().unwrap();
    assert_eq!(File::create_new(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let mut file = File::append(&path).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"!").unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.len().unwrap(), 6);
    let mut text = String::new();
    File::open(&path).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "01ab4!");
}

#[test]
fn a_lock_is_held_by_one_open_file_until_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let (first, second) = (File::append(&path).unwrap(), File::append(&path).unwrap());
    assert!(first.try_lock().unwrap());
    assert!(!second.try_lock().unwrap());
    drop(first);
    assert!(second.try_lock().unwrap());
}

#[test]
fn a_folder_is_listed_in_the_order_of_names() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a").join("b");
    plimsoll_disk::create_dir_all(&inner).unwrap();
    for name in ["9", "10", "c", "B"] {
        fs::write(inner.join(name), name).unwrap();
    }
    let names = ["10", "9", "B", "c"].map(|name| inner.join(name));
    assert_eq!(plimsoll_disk::read_dir(&inner).unwrap(), names);
    plimsoll_disk::rename(inner.join("9"), inner.join("c")).unwrap();
    plimsoll_disk::remove_file(inner.join("B")).unwrap();
    plimsoll_disk::sync_folder(&inner).unwrap();
    assert_eq!(plimsoll_disk::read_dir(&inner).unwrap(), [inner.join("10"), inner.join("c")]);
    assert_eq!(fs::read(inner.join("c")).unwrap(), b"9");
    assert!(
        plimsoll_disk::exists(inner.join("c")).unwrap() && !plimsoll_disk::exists(inner.join("B")).unwrap()
    );
    assert_eq!(plimsoll_disk::metadata(inner.join("10")).unwrap().len(), 2);
}

#[test]
fn room_is_taken_with_zeros_and_a_longer_file_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = File::create_new(folder.path().join("labels")).unwrap();
    file.write_all(b"begin").unwrap();
    file.allocate(0).unwrap();
    assert_eq!(file.len().unwrap(), 5);
    file.allocate(8).unwrap();
    assert_eq!(fs::read(file.path()).unwrap(), b"begin\0\0\0");
    file.allocate(3).unwrap();
    assert_eq!(fs::read(file.path()).unwrap(), b"begin\0\0\0");
    let read_only = File::open(file.path()).unwrap();
    assert!(read_only.allocate(9).is_err());
}

#[test]
fn a_locked_file_can_be_read_by_those_who_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let mut owner = File::append(&path).unwrap();
    assert!(owner.try_lock().unwrap());
    owner.write_all(b"owner").unwrap();
    let mut other = File::append(&path).unwrap();
    assert!(!other.try_lock().unwrap());
    let mut name = [0; 5];
    other.read_exact(&mut name).unwrap();
    assert_eq!(&name, b"owner");
    drop(owner);
    assert!(other.try_lock().unwrap());
}

#[test]
fn a_folder_has_free_room_and_is_writable_unless_it_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    assert!(plimsoll_disk::free_bytes(folder.path()).unwrap() > 0);
    plimsoll_disk::expect_writable(folder.path()).unwrap();
    assert!(plimsoll_disk::read_dir(folder.path()).unwrap().is_empty());
    let absent = folder.path().join("absent");
    assert!(plimsoll_disk::free_bytes(&absent).is_err());
    assert!(plimsoll_disk::expect_writable(&absent).is_err());
}
