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

/// The column of the loop over the taps of chunks in the table of counts, in which products by warps are.
const TAPS: usize = 2 + 4;

/// The allowed difference between the instructions of PTX that the emulator counts and the assembled ones. It is 12 % at most.
const TOLERANCE: f64 = 0.15;

/// Counts follow from sums over launches, which are solved for loops; the assembled innermost loop shows whether they are right. Results of another type than the products are
/// not compared: their launches are too alike for that.
#[test]
fn counted_instructions_of_a_product_are_the_assembled_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let rows = |file: &str| -> Vec<Vec<String>> {
        let table = fs::read_to_string(folder.join(file)).unwrap();
        table.lines().skip(2).map(|line| line.split(',').map(str::to_string).collect()).collect()
    };
    let assembled = rows("resources.csv");
    let mut compared = 0;
    for line in rows("counts.csv") {
        let parts: Vec<&str> = line[1].split('_').collect();
        let ["tensor", "conv", tile, multiplied, stored] = parts[..] else { continue };
        let (places, columns) = tile.split_once('x').unwrap();
        let [places, columns] = [places, columns].map(|number| number.parse::<f64>().unwrap());
        // Products of one of four warps in a turn: of 16x8 numbers, on Turing in two halves of the sum; on Volta of 16x16, in four parts of it, each of which is
        // assembled as four instructions.
        let (architecture, products, pieces) = match line[0].as_str() {
            "7.0" => ("sm_70", places / 16.0 * columns / 16.0, 4.0),
            "7.5" => ("sm_75", places / 16.0 * columns / 8.0 / 2.0, 1.0),
            "8.0" => ("sm_80", places / 16.0 * columns / 8.0 / 4.0, 1.0),
            _ => continue,
        };
        if multiplied != stored {
            continue;
        }
        let counted = (line[TAPS].parse::<f64>().unwrap() / products + pieces - 1.0) / pieces;
        let row = assembled.iter().find(|row| row[0] == architecture && row[1] == line[1]).unwrap();
        let ratio = row[9].parse::<f64>().unwrap() / counted;
        println!("{architecture} {}: {counted:.2} counted, {} assembled", line[1], row[9]);
        assert!(
            (ratio - 1.0).abs() < TOLERANCE,
            "{architecture} {}: {counted:.2} counted, {}",
            line[1],
            row[9]
        );
        compared += 1;
    }
    assert!(compared >= 20, "{compared}");
}
