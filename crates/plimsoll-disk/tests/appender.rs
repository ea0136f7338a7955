//! Files of lines.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::io;

use plimsoll_disk::Appender;
use plimsoll_disk::faults::{Fault, FaultKind, inject};

#[test]
fn lines_are_appended_to_those_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    Appender::open(&path).unwrap().append(b"one").unwrap();
    let mut file = Appender::open(&path).unwrap();
    assert_eq!((file.length(), file.torn()), (4, 0));
    file.append(b"").unwrap();
    file.append(b"three").unwrap();
    assert_eq!(file.append(b"a\nb").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(fs::read(&path).unwrap(), b"one\n\nthree\n");
    assert_eq!(file.length(), 11);
}

#[test]
fn a_torn_last_line_is_cut_off_wherever_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    for whole in [0, 1, 4095, 4096, 4097, 9000] {
        for torn in [0, 1, 4095, 4096, 4097, 12288] {
            let mut contents = vec![b'x'; whole];
            contents.iter_mut().last().into_iter().for_each(|last| *last = b'\n');
            contents.extend(vec![b'y'; torn]);
            fs::write(&path, &contents).unwrap();
            let file = Appender::open(&path).unwrap();
            assert_eq!((file.length(), file.torn()), (whole as u64, torn as u64));
            assert_eq!(fs::read(&path).unwrap(), contents[..whole]);
        }
    }
}

#[test]
fn a_long_file_without_lines_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.nii");
    fs::write(&path, vec![0; 2 << 20]).unwrap();
    assert_eq!(Appender::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 << 20);
}

#[test]
fn it_is_cut_back_but_never_extended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    let mut file = Appender::open(&path).unwrap();
    for line in ["one", "two"] {
        file.append(line.as_bytes()).unwrap();
    }
    let error = file.truncate(9).unwrap_err();
    assert_eq!(error.to_string(), "the file has 8 bytes and cannot be cut off at 9");
    file.truncate(4).unwrap();
    file.append(b"2").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one\n2\n");
}

#[test]
fn after_any_failure_the_next_line_follows_the_last_whole_one() {
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::Torn, FaultKind::Short] {
        for number in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal.jsonl");
            let mut file = Appender::open(&path).unwrap();
            file.append(b"one").unwrap();
            let (result, reached) = inject(folder.path(), Fault { number, kind }, || file.append(b"two"));
            if !reached {
                assert!(number > 2, "it writes and synchronises");
                break;
            }
            assert_eq!(result.is_ok(), kind == FaultKind::Short);
            let middle: &[u8] = if result.is_ok() { b"two\n" } else { b"" };
            file.append(b"three").unwrap();
            assert_eq!(fs::read(&path).unwrap(), [b"one\n", middle, b"three\n"].concat());
        }
    }
}

#[test]
fn a_locked_file_of_lines_has_one_writer_at_a_time_and_a_removed_one_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let open = || Appender::open_locked(&path).unwrap();
    let mut first = open().unwrap();
    first.append(b"one").unwrap();
    assert!(open().is_none());
    if cfg!(windows) {
        // An open file may keep its name there although it is removed.
        drop(first);
        assert_eq!(open().unwrap().length(), 4);
        return;
    }
    fs::remove_file(&path).unwrap();
    // The lock of a file that is gone is no lock of the one that follows it.
    let mut second = open().unwrap();
    second.append(b"two").unwrap();
    drop(first);
    assert!(open().is_none() && fs::read(&path).unwrap() == b"two\n");
    drop(second);
    assert_eq!(open().unwrap().length(), 4);
}

#[test]
fn an_open_file_knows_whether_its_path_still_leads_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = plimsoll_disk::File::append(folder.path().join("file")).unwrap();
    assert!(file.is_at_its_path().unwrap());
    fs::rename(file.path(), folder.path().join("elsewhere")).unwrap();
    assert!(!file.is_at_its_path().unwrap());
    fs::write(file.path(), "another").unwrap();
    assert!(!file.is_at_its_path().unwrap());
}
