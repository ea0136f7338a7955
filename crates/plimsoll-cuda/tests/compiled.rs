//! That the PTX which is built in is that of the sources beside it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, iter};

use plimsoll_memory::Fnv1a;

#[test]
fn the_ptx_is_compiled_from_the_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let sources: BTreeSet<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu" || extension == "cuh"))
        .collect();
    let mut hash = Fnv1a::default();
    for path in iter::once(folder.join("compile.py")).chain(sources) {
        let name = path.file_name().unwrap().to_str().unwrap();
        for bytes in [name.as_bytes(), b"\0", &fs::read(&path).unwrap(), b"\0"] {
            hash.update(bytes);
        }
    }
    let key = fs::read_to_string(folder.join("kernels.key")).unwrap();
    assert_eq!(
        key.trim(),
        format!("{:016x}", hash.finish()),
        "the kernels have changed since kernels.ptx was made of them; the head of kernels/compile.py says how to compile them"
    );
}
