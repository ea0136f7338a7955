//! All heap memory for walking a `.pth` file is reserved: allocations are counted, for pickles that were made to grow
//! and for real files.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod archive;

use std::path::{Path, PathBuf};

use archive::{TENSOR, archive, string};

use plimsoll_memory::{Budget, Bytes, CountingAllocator, forget_heap_peak, heap_use};
use plimsoll_nn::weights::{PytorchFile, WeightError};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Memory outside of the reservations: paths, messages, and the state of the walk before its first opcode.
const BESIDE: Bytes = Bytes(96 << 10);

/// Pickles that need more memory than their length suggests.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let name = b"X\x01\x00\x00\x00a";
    let whole = |inner: &[u8]| [b"\x80\x02}", &name[..], inner, b"s."].concat();
    let mut cases = vec![
        ("nothing", b"\x80\x02}.".to_vec()),
        ("numbers", whole(&[b"(", &b"K\x01".repeat(20_000)[..], b"t"].concat())),
        ("numbers in a list", whole(&[b"](", &b"K\x01".repeat(20_000)[..], b"e"].concat())),
        ("numbers one by one", whole(&[b"]", &b"K\x01a".repeat(20_000)[..]].concat())),
        ("lists of one", whole(&[&b"]".repeat(900)[..], &b"a".repeat(899)[..]].concat())),
        ("many lists of one", whole(&[b"]", &b"]K\x01aa".repeat(5_000)[..]].concat())),
        ("many dicts of one", whole(&[b"]", &b"}K\x01K\x01sa".repeat(5_000)[..]].concat())),
        ("marks", whole(&[&b"(".repeat(20_000)[..], &b"0".repeat(20_000)[..], b"N"].concat())),
        ("memoized", whole(&[b"K\x01", &b"\x94".repeat(20_000)[..]].concat())),
        ("lines", whole(&[b"(", &b"V\xff\xff\xff\xff\xff\xff\xff\xff\n".repeat(3_000)[..], b"l"].concat())),
        ("a long string", whole(&string(300_000))),
    ];
    let doubled = b"q\x00h\x00\x86".repeat(16);
    cases.push(("doubled", whole(&[b"N", &doubled[..]].concat())));
    let lists = b"q\x00]h\x00ah\x00a".repeat(11);
    cases.push(("doubled lists", whole(&[b"]", &lists[..]].concat())));
    let class = [b"c", &[b'c'; 8_000][..], b"\nn\nq\x00", &b"h\x000h\x00".repeat(400)[..], b"N"].concat();
    cases.push(("a long name, often", [&whole(b"N")[..3], &class, b"."].concat()));
    let mut keys = b"(".to_vec();
    for key in 0..3_000u16 {
        keys.extend([b'M', key as u8, (key >> 8) as u8, b'N']);
    }
    cases.push(("keys", whole(&[&keys[..], b"d"].concat())));
    let pairs = b"(K\x01K\x02t".repeat(3_000);
    let ordered = [b"ccollections\nOrderedDict\n(](", &pairs[..], b"etR"].concat();
    cases.push(("an ordered dict at once", whole(&ordered)));
    // Tensors deep below long keys: their names are much longer than the pickle.
    let mut deep = b"\x80\x02".to_vec();
    for _ in 0..20 {
        deep.extend([b"}", &string(200)[..]].concat());
    }
    deep.extend([b"](", TENSOR, b"q\x00", &b"h\x00".repeat(300), b"e", &b"s".repeat(20), b"."].concat());
    cases.push(("tensors under long names", deep));
    // One long text as the key of dicts that are in each other: it is kept once.
    let long = [b"}", &string(4 << 20)[..], b"q\x00", &b"}h\x00".repeat(62), b"N", &b"s".repeat(63)].concat();
    cases.push(("dicts under one long name", [b"\x80\x02", &long[..], b"."].concat()));
    let many = [b"](", &TENSOR.repeat(300)[..], b"e"].concat();
    cases.push(("tensors", whole(&many)));
    let offset = TENSOR.windows(4).position(|bytes| bytes == b"tQK\x00").unwrap() + 4;
    let axes = [b"(", &b"K\x01".repeat(2_000)[..], b"t"].concat();
    let dims = [&TENSOR[..offset], &axes[..], &axes[..], b"\x89NtR"];
    cases.push(("a tensor of two thousand axes", whole(&dims.concat())));
    cases
}

/// The most heap that opening took, what was reserved for it, and whether it opened.
fn opened(path: &Path, limit: Bytes) -> (Bytes, Bytes, Result<Bytes, WeightError>) {
    let budget = Budget::new(limit);
    let before = heap_use().now;
    forget_heap_peak();
    let file = PytorchFile::open(path, &budget);
    let taken = heap_use().peak - before;
    let kept = (heap_use().now - before, budget.used());
    let result = file.map(|_| {
        assert!(kept.0 <= kept.1, "an open file keeps {} and holds {}", kept.0, kept.1);
        kept.1
    });
    assert_eq!(budget.used(), Bytes::ZERO);
    (taken, budget.peak(), result)
}

fn check(what: &str, path: &Path, limit: Bytes) {
    let (taken, reserved, result) = opened(path, limit);
    println!(
        "{what}: {} took {taken}, reserved {reserved}; {}",
        Bytes(std::fs::metadata(path).unwrap().len()),
        result.as_ref().map_or_else(ToString::to_string, |kept| format!("keeps {kept}"))
    );
    assert!(taken <= reserved + BESIDE, "{what}: took {taken}, but only {reserved} were reserved");
}

/// One test, since all heap of the process counts.
#[test]
fn what_walking_a_pickle_takes_is_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pth");
    for (what, pickle) in hostile() {
        std::fs::write(&path, archive(&pickle)).unwrap();
        check(what, &path, Bytes::mib(512));
        check(what, &path, Bytes::mib(1));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut real: Vec<PathBuf> = vec![root.join("oracles/data/unet_nnunet.pth")];
    if let Some(more) = std::env::var_os("PLIMSOLL_PTH") {
        real.extend(std::env::split_paths(&more));
    }
    for path in real {
        check(&path.display().to_string(), &path, Bytes::mib(512));
    }
}
