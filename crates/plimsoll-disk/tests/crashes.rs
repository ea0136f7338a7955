//! The states that a power failure leaves.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic::{self, BUFFER};
use plimsoll_disk::faults::{Operation, State, crash_states, lay_out, record, state_of};
use plimsoll_disk::{Appender, File};

/// All states that a power failure may leave of a folder with these files while `change` runs.
fn states(files: &[(&str, &[u8])], change: impl FnOnce(&Path)) -> Vec<State> {
    let folder = tempfile::tempdir().unwrap();
    let initial = files.iter().map(|(name, contents)| (PathBuf::from(name), contents.to_vec())).collect();
    lay_out(&initial, folder.path()).unwrap();
    let ((), operations) = record(folder.path(), || change(folder.path()));
    let states: Vec<State> = crash_states(&initial, &operations).collect();
    let (before, after) = (initial, state_of(folder.path()).unwrap());
    assert!(states.contains(&before) && states.contains(&after), "before and after are among the states");
    states
}

/// The possible contents of a file.
fn contents(states: &[State], name: &str) -> BTreeSet<Option<Vec<u8>>> {
    states.iter().map(|state| state.get(Path::new(name)).cloned()).collect()
}

#[test]
fn replacing_a_file_atomically_leaves_the_old_or_the_new_whole_in_every_state() {
    let new: Vec<u8> = (0..5 * BUFFER).map(|i| (i % 251 + 1) as u8).collect();
    let states = states(&[("file", b"old"), ("other", b"kept")], |folder| {
        atomic::write(&folder.join("file"), |file| new.chunks(999).try_for_each(|part| file.write_all(part)))
            .unwrap();
    });
    assert_eq!(contents(&states, "file"), BTreeSet::from([Some(b"old".to_vec()), Some(new)]));
    assert_eq!(contents(&states, "other"), BTreeSet::from([Some(b"kept".to_vec())]));
    assert!((20..200).contains(&states.len()), "{} states", states.len());
}

#[test]
fn renaming_before_the_contents_are_on_the_disk_is_caught() {
    let states = states(&[("file", b"old")], |folder| {
        let temporary = folder.join("temporary");
        File::create_new(&temporary).unwrap().write_all(b"new!").unwrap();
        plimsoll_disk::rename(&temporary, folder.join("file")).unwrap();
        plimsoll_disk::sync_folder(folder).unwrap();
    });
    let expected: [&[u8]; 5] = [b"old", b"", b"ne", b"\0\0\0\0", b"new!"];
    assert_eq!(contents(&states, "file"), expected.map(|bytes| Some(bytes.to_vec())).into());
}

#[test]
fn removing_the_old_file_first_is_caught() {
    let states = states(&[("file", b"old")], |folder| {
        let temporary = folder.join("temporary");
        let mut file = File::create_new(&temporary).unwrap();
        file.write_all(b"new").unwrap();
        file.sync_all().unwrap();
        plimsoll_disk::remove_file(folder.join("file")).unwrap();
        plimsoll_disk::rename(&temporary, folder.join("file")).unwrap();
    });
    assert!(contents(&states, "file").contains(&None));
}

#[test]
fn a_new_file_may_be_missing_until_its_folder_is_synchronised_or_be_there_before_its_contents() {
    let states = states(&[], |folder| {
        let mut file = File::create_new(folder.join("file")).unwrap();
        file.write_all(b"contents").unwrap();
        file.sync_all().unwrap();
    });
    assert!(states.contains(&State::new()));
    let mut found = contents(&states, "file");
    assert!(found.remove(&None) && found.remove(&Some(b"contents".to_vec())));
    // A name may reach the disk before its file is synchronised.
    assert!(found.contains(&Some(Vec::new())));
}

#[test]
fn writes_may_reach_the_disk_in_any_order() {
    let states = states(&[("file", b"......body")], |folder| {
        let mut file = File::append(folder.join("file")).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"+tail").unwrap();
        file.write_all(b"+more").unwrap();
    });
    let found = contents(&states, "file");
    for expected in ["......body", "......body+tail", "......body+tail+more", "......body\0\0\0\0\0+more"] {
        assert!(found.contains(&Some(expected.into())), "{expected:?}");
    }
}

#[test]
fn lines_that_were_appended_are_there_whatever_became_of_the_last() {
    for acknowledged in 0..4_usize {
        let lines = ["first", "second", "third", "fourth"];
        let (before, last) = lines.split_at(acknowledged);
        let whole: String = before.iter().map(|line| format!("{line}\n")).collect();
        let states = states(&[("journal", whole.as_bytes())], |folder| {
            Appender::open(folder.join("journal")).unwrap().append(last[0].as_bytes()).unwrap();
        });
        for state in &states {
            let folder = tempfile::tempdir().unwrap();
            lay_out(state, folder.path()).unwrap();
            let path = folder.path().join("journal");
            Appender::open(&path).unwrap();
            let found = fs::read(&path).unwrap();
            assert!(found.starts_with(whole.as_bytes()), "{state:?}");
        }
    }
}

/// Every subset of the changes of a file by brute force, for one file that is written but never synchronised.
#[test]
fn every_state_is_some_subset_of_the_writes() {
    let writes: [(u64, &[u8]); 4] = [(0, b"aaaa"), (2, b"bbbb"), (6, b"cc"), (1, b"d")];
    let initial = BTreeMap::from([(PathBuf::from("file"), b"....".to_vec())]);
    let operations =
        writes.map(|(offset, bytes)| Operation::Write { path: "file".into(), offset, bytes: bytes.into() });
    let mut possible = BTreeSet::new();
    // Of each write all, half or nothing reaches the disk, and the length is that after any of them.
    for choice in 0..3_usize.pow(4) {
        let mut file = b"....".to_vec();
        let mut lengths = vec![0];
        for (i, (offset, bytes)) in writes.iter().enumerate() {
            let bytes = match choice / 3_usize.pow(i as u32) % 3 {
                0 => &bytes[..0],
                1 => &bytes[..bytes.len() / 2],
                _ => bytes,
            };
            let (start, end) = (*offset as usize, *offset as usize + bytes.len());
            if !bytes.is_empty() {
                file.resize(file.len().max(end), 0);
                file[start..end].copy_from_slice(bytes);
            }
            lengths.push(writes[i].0 as usize + writes[i].1.len());
        }
        for length in lengths {
            let mut longer = file.clone();
            longer.resize(longer.len().max(length), 0);
            possible.insert(longer);
        }
    }
    let found: Vec<State> = crash_states(&initial, &operations).collect();
    assert!(found.len() > 10 && found.len() <= 5 * 4 + 3, "{} states", found.len());
    for state in &found {
        assert!(possible.contains(&state[Path::new("file")]), "{state:?}");
    }
    assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len(), "each comes once");
}

#[test]
fn a_long_write_has_hundreds_of_states_and_not_millions() {
    let operations: Vec<Operation> = std::iter::once(Operation::Create("file".into()))
        .chain((0..5000_u64).map(|i| Operation::Write { path: "file".into(), offset: i, bytes: vec![7] }))
        .chain([Operation::Sync("file".into()), Operation::SyncFolder("".into())])
        .collect();
    let count = crash_states(&State::new(), &operations).count();
    assert!((40..=2 * (5 * 12 + 3) + 4).contains(&count), "{count} states");
}
