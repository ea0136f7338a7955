//! Operations that fail on demand.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_disk::atomic::{self, BUFFER};
use plimsoll_disk::faults::{Fault, FaultKind, inject};
use plimsoll_disk::{Appender, File};

const FAILING: [FaultKind; 3] = [FaultKind::Eio, FaultKind::Enospc, FaultKind::Torn];

/// Each kind of operation at least once, and what was read.
fn each_operation(folder: &Path) -> io::Result<Vec<u8>> {
    let inner = folder.join("inner");
    plimsoll_disk::create_dir_all(&inner)?;
    let path = inner.join("file");
    let mut file = File::create_new(&path)?;
    if !file.try_lock()? {
        return Err(io::Error::other("locked"));
    }
    file.write_all(b"some bytes to read")?;
    file.set_len(10)?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    plimsoll_disk::rename(&path, inner.join("other"))?;
    plimsoll_disk::sync_folder(&inner)?;
    let found = plimsoll_disk::read_dir(&inner)?;
    for path in found {
        bytes.extend(plimsoll_disk::read(&path, 100)?);
        plimsoll_disk::remove_file(&path)?;
    }
    Ok(bytes)
}

#[test]
fn every_operation_fails_once_with_the_error_that_was_asked_for() {
    for kind in FAILING {
        let mut operations = 0;
        for number in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let (result, reached) =
                inject(folder.path(), Fault { number, kind }, || each_operation(folder.path()));
            if !reached {
                assert_eq!(result.unwrap(), b"some bytessome bytes");
                break;
            }
            let expected = match (kind == FaultKind::Enospc, cfg!(windows)) {
                (true, false) => 28,
                (true, true) => 112,
                (false, false) => 5,
                (false, true) => 1117,
            };
            assert_eq!(result.unwrap_err().raw_os_error(), Some(expected), "operation {number}");
            operations = number;
        }
        assert!(operations >= 16, "{operations} operations failed");
    }
}

#[test]
fn short_reads_and_writes_change_nothing() {
    for number in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let fault = Fault { number, kind: FaultKind::Short };
        let (result, reached) = inject(folder.path(), fault, || each_operation(folder.path()));
        assert_eq!(result.unwrap(), b"some bytessome bytes");
        if !reached {
            break;
        }
    }
}

#[test]
fn a_torn_write_leaves_half_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let (result, _) = inject(folder.path(), Fault { number: 2, kind: FaultKind::Torn }, || {
        File::create_new(&path).unwrap().write_all(b"12345678")
    });
    assert!(result.is_err());
    assert_eq!(fs::read(&path).unwrap(), b"1234");
}

#[test]
fn whichever_operation_of_an_atomic_write_fails_the_file_is_the_old_or_the_new() {
    let (old, new) = (vec![1; 100], vec![2; 3 * BUFFER]);
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::Torn, FaultKind::Short] {
        for number in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            fs::write(&path, &old).unwrap();
            let (result, reached) = inject(folder.path(), Fault { number, kind }, || {
                atomic::write(&path, |file| new.chunks(1000).try_for_each(|part| file.write_all(part)))
            });
            let found = fs::read(&path).unwrap();
            assert!(found == new || (result.is_err() && found == old), "{kind:?} at {number}");
            assert_eq!(result.is_ok(), kind == FaultKind::Short || !reached, "{kind:?} at {number}");
            assert_eq!(atomic::sweep(folder.path()).unwrap(), [] as [PathBuf; 0]);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{kind:?} at {number}");
            if !reached {
                assert!(number > 8, "create, lock, look, three writes, sync, rename, sync");
                break;
            }
        }
    }
}

#[test]
fn faults_in_one_folder_do_not_reach_another() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (result, reached) = inject(folder.path(), Fault { number: 1, kind: FaultKind::Eio }, || {
        Appender::open(other.path().join("file")).map(drop)
    });
    assert!(result.is_ok() && !reached);
}

/// The variable by which a test runs itself as another process, which performs each operation in the folder of that name.
const CHILD: &str = "TEST_FOLDER";

/// Runs the test of the environment as another process.
fn process(fault: Option<&str>, trace: Option<&Path>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "the_environment_traces_the_operations_of_a_process_and_makes_each_fail";
    command.args(["--exact", test, "--nocapture"]);
    command.env(CHILD, folder.path());
    fault.map(|fault| command.env("PLIMSOLL_DISK_FAULT", fault));
    trace.map(|trace| command.env("PLIMSOLL_DISK_TRACE", trace));
    command.output().unwrap()
}

#[test]
fn the_environment_traces_the_operations_of_a_process_and_makes_each_fail() {
    if let Some(folder) = std::env::var_os(CHILD) {
        match each_operation(Path::new(&folder)) {
            Ok(_) => return,
            Err(error) => panic!("it failed: {error}"),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    assert!(process(None, Some(&trace)).status.success());
    let trace = fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("{} ", i + 1)), "{line}");
    }
    let kinds: std::collections::BTreeSet<&str> =
        lines.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
    let all = "create create_dir lock metadata open read read_dir remove rename seek set_len sync sync_folder write";
    assert_eq!(kinds.into_iter().collect::<Vec<_>>().join(" "), all);
    assert!(Path::new(&lines[1]).ends_with("inner/file"), "{}", lines[1]);
    for number in [1, lines.len() / 2, lines.len()] {
        let output = process(Some(&format!("{number}:enospc")), None);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success()
                && said.contains(if cfg!(windows) { "os error 112" } else { "os error 28" }),
            "{said}"
        );
    }
    assert!(process(Some(&format!("{}:eio", lines.len() + 1)), None).status.success());
    assert!(process(Some("5:short"), None).status.success());
    let aborted = process(Some("3:abort"), None).status;
    assert!(!aborted.success());
    #[cfg(unix)]
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&aborted), Some(6));
}

#[test]
fn a_fault_that_there_is_not_is_reported_and_not_passed_over() {
    for fault in ["", "eio", "0:eio", "1:oops", "-1:eio", "1:eio:2"] {
        assert!(fault.parse::<Fault>().is_err(), "{fault}");
    }
    assert_eq!("7:torn".parse(), Ok(Fault { number: 7, kind: FaultKind::Torn }));
    let output = process(Some("1:oops"), None);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the fault `1:oops` is not NUMBER:KIND"), "{said}");
}
