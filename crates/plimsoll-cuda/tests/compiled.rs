//! The PTX that is built in is compiled from the sources beside it.
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
        "the kernels have changed since the PTX was made of them; the head of kernels/compile.py says how to compile them"
    );
}

/// NVIDIA's assembler reported these resources of the kernels; it does not run here.
#[test]
fn the_tables_are_of_the_ptx_and_kernels_with_tensor_cores_spill_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let table = fs::read_to_string(folder.join("resources.csv")).unwrap();
    let mut lines = table.lines();
    let mut hash = Fnv1a::default();
    let pieces = ["kernels.ptx", "tensor70.ptx", "tensor75.ptx", "tensor80.ptx", "tensor90.ptx"];
    pieces.iter().for_each(|name| hash.update(&fs::read(folder.join(name)).unwrap()));
    assert_eq!(
        lines.next().unwrap(),
        format!("# {:016x}", hash.finish()),
        "the PTX has changed since resources.csv was made: kernels/compile.py makes both"
    );
    let counts = fs::read_to_string(folder.join("counts.csv")).unwrap();
    assert_eq!(
        counts.lines().next().unwrap(),
        format!("# {:016x}", hash.finish()),
        "the PTX has changed since counts.csv was made, by `write_the_table_of_counts` of `conformance`"
    );
    // Blocks enough that some copy while others multiply: of one stage of 24 to 31 KiB, two are all that a multiprocessor of Turing holds, which has two thirds of the shared memory of one of Volta.
    for (architecture, file, most_shared, least_blocks) in [
        ("sm_70", "tensor70.ptx", 32 * 1024, 3),
        ("sm_75", "tensor75.ptx", 32 * 1024, 2),
        ("sm_80", "tensor80.ptx", 48 * 1024, 3),
        ("sm_90", "tensor80.ptx", 48 * 1024, 3),
        // The largest tiles have twice as many sums, so that there are registers for two or three.
        ("sm_90", "tensor90.ptx", 48 * 1024, 2),
    ] {
        let ptx = fs::read_to_string(folder.join(file)).unwrap();
        let kernels: BTreeSet<&str> =
            ptx.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('(')).collect();
        let rows = lines.clone().map(|line| line.split(',').collect::<Vec<&str>>());
        let rows: Vec<_> = rows.filter(|row| row[0] == architecture && kernels.contains(row[1])).collect();
        assert_eq!(rows.len(), kernels.len(), "{architecture}");
        for row in rows {
            let [spilled, shared, blocks] =
                [3, 4, 5].map(|column: usize| row[column].parse::<usize>().unwrap());
            assert_eq!(spilled, 0, "{row:?}");
            // A kernel may have 48 KiB without asking the driver for more.
            assert!(shared <= most_shared && blocks >= least_blocks, "{row:?}");
        }
    }
}
