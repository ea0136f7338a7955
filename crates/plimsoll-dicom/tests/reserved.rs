//! A series takes no more memory than is reserved for it, whatever its files claim: all heap is counted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use plimsoll_dicom::{DicomError, Series};
use plimsoll_memory::{Budget, Bytes, CountingAllocator, forget_heap_peak, heap_use};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// All heap of the process counts, so one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Memory that is not reserved: messages, and the system's buffer for listing a folder.
const BESIDE: u64 = 32 << 10;

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom").join(name)
}

/// Finds and writes a series, and returns how that ended. The heap may not be more than what was reserved, which nothing is afterwards.
fn measured(path: &Path, limit: Bytes) -> Result<(), DicomError> {
    let out = tempfile::tempdir().unwrap();
    let image = out.path().join("image.nii");
    let budget = Budget::new(limit);
    let before = heap_use().now;
    forget_heap_peak();
    let ended = Series::find(path, &budget).and_then(|series| {
        let found = heap_use().now - before;
        let held = budget.used();
        assert!(found <= held + Bytes(BESIDE), "{}: {found} are kept of {held}", path.display());
        series.write(&image, &budget, &AtomicBool::new(false))
    });
    let peak = heap_use().peak - before;
    println!("{:60} heap {peak:>12} reserved {:>12}", path.display(), budget.peak());
    assert!(peak <= budget.peak() + Bytes(BESIDE), "{}: {peak} of {}", path.display(), budget.peak());
    assert_eq!(budget.used(), Bytes::ZERO);
    assert_eq!(image.exists(), ended.is_ok());
    ended
}

#[test]
fn every_way_of_compression_takes_no_more_than_was_reserved() {
    let _one = ONE.lock().unwrap_or_else(|lock| lock.into_inner());
    let mut paths = vec![oracle("short"), oracle("tilted"), oracle("floats")];
    let compressed = fs::read_dir(oracle("compressed")).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(compressed.filter(|path| !path.ends_with("voxels.json.gz")));
    assert_eq!(paths.len(), 26);
    // What is made once, such as tables, is made before.
    let _ = measured(&paths[0], Bytes::mib(16));
    for path in &paths {
        measured(path, Bytes::mib(16)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// The beginning of a slice in explicit VR, up to before an attribute of group 7FE0 or 5200.
fn start(of: &str) -> (Vec<u8>, Vec<u8>) {
    let whole = fs::read(oracle(of)).unwrap();
    let at = whole.windows(4).rposition(|tag| tag == b"\xe0\x7f\x10\x00").unwrap();
    (whole[..at].to_vec(), whole[at..].to_vec())
}

/// Files that claim, nest and repeat: each ends in one error that names it, or is read, within the same few hundred kilobytes.
#[test]
fn hostile_files_end_within_the_limit() {
    let _one = ONE.lock().unwrap_or_else(|lock| lock.into_inner());
    let (before, pixels) = start("short/00.dcm");
    let element = |tag: [u8; 4], kind: &[u8; 2], length: u32, value: &[u8]| {
        let mut bytes = tag.to_vec();
        bytes.extend_from_slice(kind);
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(value);
        bytes
    };
    let private = [0xe1, 0x7f, 0x10, 0x10];
    let nested = element([0x08, 0x00, 0x40, 0x11], b"SQ", u32::MAX, b"\xfe\xff\x00\xe0\xff\xff\xff\xff");
    let frames = |count: usize, item: &[u8]| {
        let mut items = Vec::new();
        for _ in 0..count {
            items.extend_from_slice(b"\xfe\xff\x00\xe0");
            items.extend_from_slice(&(item.len() as u32).to_le_bytes());
            items.extend_from_slice(item);
        }
        element([0x00, 0x52, 0x30, 0x92], b"SQ", items.len() as u32, &items)
    };
    let fragments = |count: usize| {
        let mut value = b"\xfe\xff\x00\xe0\0\0\0\0".to_vec();
        for _ in 0..count {
            value.extend_from_slice(b"\xfe\xff\x00\xe0\0\0\0\0");
        }
        value.extend_from_slice(b"\xfe\xff\xdd\xe0\0\0\0\0");
        element([0xe0, 0x7f, 0x10, 0x00], b"OB", u32::MAX, &value)
    };
    let hostile: [(&str, Vec<u8>, &str); 9] = [
        ("a text of 4 MB", element(private, b"UT", 4 << 20, &vec![b'a'; 4 << 20]), ""),
        ("half a million elements", element(private, b"UT", 2, b"aa").repeat(500_000), ""),
        ("a claim of 4 GB", element(private, b"UT", u32::MAX - 1, b""), "4294967294 bytes"),
        ("31 sequences", nested.repeat(31), "cut off within a sequence"),
        ("100,000 sequences", nested.repeat(100_000), "nested deeper than 32"),
        ("100,000 frames of nothing", frames(100_000, b""), "positions of 100000 frames are given"),
        ("a million pieces", fragments(1_000_000), "pieces"),
        (
            "a description of 1 MB",
            element([0x08, 0x00, 0x3e, 0x10], b"UT", 1 << 20, &vec![b'x'; 1 << 20]),
            "",
        ),
        (
            "a place of 1 MB",
            element([0x20, 0x00, 0x32, 0x00], b"UT", 1 << 20, &vec![b'1'; 1 << 20]),
            "at most 512",
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.dcm");
    let limit = Bytes::mib(1);
    for (what, bytes, told) in hostile {
        // The slice itself is whole, before or behind.
        let whole = match what {
            "a million pieces" => [before.clone(), bytes].concat(),
            "100,000 frames of nothing" => [before.clone(), bytes, pixels.clone()].concat(),
            _ => [before.clone(), pixels.clone(), bytes].concat(),
        };
        fs::write(&path, whole).unwrap();
        match measured(dir.path(), limit) {
            Ok(()) => assert!(told.is_empty(), "{what}"),
            Err(DicomError::OverBudget(error)) => {
                assert!(what.contains("00,000 frames") || what.contains("million pieces"), "{what}: {error}");
            }
            Err(error) => assert!(!told.is_empty() && error.to_string().contains(told), "{what}: {error}"),
        }
    }
}

/// A few bytes of a header of JPEG 2000 ask for layers of each of the smallest blocks, which are there from the beginning.
#[test]
fn layers_that_are_only_claimed_are_reserved_before_they_are_made() {
    let _one = ONE.lock().unwrap_or_else(|lock| lock.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(oracle("compressed/jpeg_2000/0.dcm")).unwrap();
    let style = bytes.windows(2).position(|marker| marker == b"\xff\x52").unwrap();
    // 8192 layers, of blocks of 4 by 4.
    bytes[style + 6..style + 8].copy_from_slice(&[0x20, 0]);
    bytes[style + 10..style + 12].copy_from_slice(&[0, 0]);
    fs::write(dir.path().join("0.dcm"), bytes).unwrap();
    let refused = measured(dir.path(), Bytes::mib(64)).unwrap_err();
    assert!(matches!(refused, DicomError::OverBudget(_)), "{refused}");
    // Where there is room they are made, and are no more than that; its data is of other blocks.
    let told = measured(dir.path(), Bytes(4 << 30)).unwrap_err().to_string();
    assert!(told.contains("0.dcm"), "{told}");
}

/// A folder of many files that are no slices: their names alone take more than the limit has.
#[test]
fn names_of_files_are_reserved_before_they_are_held() {
    let _one = ONE.lock().unwrap_or_else(|lock| lock.into_inner());
    let dir = tempfile::tempdir().unwrap();
    for number in 0..4000 {
        fs::write(dir.path().join(format!("{number:04}{}", "a".repeat(100))), "").unwrap();
    }
    fs::copy(oracle("short/00.dcm"), dir.path().join("slice.dcm")).unwrap();
    assert!(plimsoll_dicom::has_dicom(dir.path()).unwrap());
    let refused = measured(dir.path(), Bytes(400 << 10)).unwrap_err();
    assert!(refused.to_string().contains("names of files"), "{refused}");
    measured(dir.path(), Bytes::mib(4)).unwrap();
}

/// Fourteen bytes make a part of a tile, of which the decoder keeps some more.
#[test]
fn parts_of_tiles_that_are_empty_are_reserved_before_they_are_kept() {
    let _one = ONE.lock().unwrap_or_else(|lock| lock.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(oracle("compressed/jpeg_2000/0.dcm")).unwrap();
    let start = whole.windows(4).position(|found| found == b"\xff\x4f\xff\x51").unwrap();
    let length = u32::from_le_bytes(whole[start - 4..start].try_into().unwrap());
    let part = start + whole[start..].windows(2).position(|found| found == b"\xff\x90").unwrap();
    let empty = b"\xff\x90\x00\x0a\x00\x00\x00\x00\x00\x0e\x00\x00\xff\x93";
    let count = 100_000;
    let longer = length + (count * empty.len()) as u32;
    let parts = empty.repeat(count);
    let bytes =
        [&whole[..start - 4], &longer.to_le_bytes(), &whole[start..part], &parts, &whole[part..]].concat();
    fs::write(dir.path().join("0.dcm"), bytes).unwrap();
    let refused = measured(dir.path(), Bytes::mib(16)).unwrap_err();
    assert!(matches!(refused, DicomError::OverBudget(_)), "{refused}");
    // Where there is room they are kept, and are no more than that; whether the decoder reads on behind them is its own.
    let _ = measured(dir.path(), Bytes::mib(256));
}
