//! Files that appear whole.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::fs;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_disk::atomic::{AtomicFile, sweep, write};

fn names(folder: &Path) -> Vec<PathBuf> {
    plimsoll_disk::read_dir(folder).unwrap()
}

#[test]
fn a_failed_write_keeps_the_older_file_and_leaves_no_temporary_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    write(&path, |file| file.write_all(b"first")).unwrap();
    let failed = write(&path, |file| {
        file.write_all(b"half")?;
        Err(io::Error::other("stopped"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "stopped");
    assert_eq!(fs::read(&path).unwrap(), b"first");
    write(&path, |file| file.write_all(b"second")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(names(folder.path()), [path]);
}

#[test]
fn a_path_without_a_file_name_is_refused() {
    let error = write(Path::new(".."), |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_header_can_be_written_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let mut file = BufWriter::new(AtomicFile::create(&path).unwrap());
    file.write_all(b"......body").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"header").unwrap();
    file.into_inner().unwrap().commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"headerbody");
}

#[test]
fn writers_of_one_name_do_not_disturb_each_other_and_the_last_to_commit_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut writers = [(); 3].map(|()| AtomicFile::create(&path).unwrap());
    for (number, writer) in writers.iter_mut().enumerate() {
        writer.write_all(number.to_string().as_bytes()).unwrap();
    }
    for (number, writer) in writers.into_iter().enumerate() {
        writer.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), number.to_string().as_bytes());
    }
    assert_eq!(names(folder.path()), [path]);
}

/// The variable by which the test below runs itself as another process, which it then kills.
const CHILD: &str = "TEST_ATOMIC_FILE";

/// Writes half a file, creates a file `ready` beside it, and waits to be killed.
fn write_without_end(path: &Path) -> ! {
    let mut file = AtomicFile::create(path).unwrap();
    file.write_all(b"half").unwrap();
    fs::write(path.with_file_name("ready"), b"").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn what_a_killed_process_left_is_swept_and_what_is_being_written_is_not() {
    if let Some(path) = std::env::var_os(CHILD) {
        write_without_end(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.nii.gz");
    let hidden =
        [".bashrc", ".image.nii.gz.partial", ".image.0123.partial", "image.0123456789abcdef.partial"];
    let hidden = hidden.map(|name| folder.path().join(name));
    hidden.iter().for_each(|path| fs::write(path, b"a user's").unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "what_a_killed_process_left_is_swept_and_what_is_being_written_is_not"])
        .env(CHILD, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !folder.path().join("ready").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the other process ended early");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ours = AtomicFile::create(&path).unwrap();
    assert_eq!(
        names(folder.path()).len(),
        hidden.len() + 3,
        "two temporary files, and that the other is ready"
    );
    assert_eq!(sweep(folder.path()).unwrap(), [] as [PathBuf; 0], "both are held");
    child.kill().unwrap();
    child.wait().unwrap();
    let swept = sweep(folder.path()).unwrap();
    assert_eq!(swept.len(), 1);
    assert!(swept[0].file_name().unwrap().to_str().unwrap().starts_with(".image.nii.gz."));
    ours.commit().unwrap();
    assert_eq!(sweep(folder.path()).unwrap(), [] as [PathBuf; 0]);
    assert_eq!(names(folder.path()).len(), hidden.len() + 2, "the file, and that the other was ready");
}

#[test]
fn the_next_file_of_a_name_removes_what_killed_processes_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let left = |number: u64| folder.path().join(format!(".report.html.{number:016x}.partial"));
    let other = folder.path().join(".other.html.0000000000000000.partial");
    [left(0), left(1), left(2), other.clone()].iter().for_each(|path| fs::write(path, b"half").unwrap());
    write(&path, |file| file.write_all(b"whole")).unwrap();
    assert_eq!(names(folder.path()), [other, path.clone()], "what another file left is not its own");
    // One that is being written stays, and what was left behind it goes.
    let held = AtomicFile::create(&path).unwrap();
    fs::write(left(1), b"half").unwrap();
    fs::write(left(2), b"half").unwrap();
    write(&path, |file| file.write_all(b"newer")).unwrap();
    assert!(left(0).exists() && !left(1).exists() && !left(2).exists());
    if cfg!(windows) {
        // An open file may keep its name there although it is removed.
        return;
    }
    // Its number is free again when it has no name, and it removes nothing that has its name then.
    fs::remove_file(left(0)).unwrap();
    let newer = AtomicFile::create(&path).unwrap();
    drop(held);
    assert!(left(0).exists());
    newer.commit().unwrap();
}

#[test]
fn a_name_as_long_as_a_file_system_takes_is_written() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["n".repeat(255), format!("{}é", "é".repeat(126)), format!("x{}", "é".repeat(127))] {
        let path = folder.path().join(name);
        write(&path, |file| file.write_all(b"whole")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }
    assert_eq!(names(folder.path()).len(), 3);
}

#[test]
fn sweeping_beside_a_writer_never_takes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |i: usize| folder.path().join(format!("file{i}"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                sweep(folder.path()).unwrap();
            }
        });
        let written: Vec<_> = (0..50).map(|i| write(&path(i), |file| file.write_all(b"whole"))).collect();
        done.store(true, Ordering::Relaxed);
        written.into_iter().for_each(|result| result.unwrap());
    });
    assert!((0..50).all(|i| fs::read(path(i)).unwrap() == b"whole"));
    assert_eq!(names(folder.path()).len(), 50);
}
