//! The layouts that the interpreter has, and with which kernels are tested, beside those of NVIDIA's CuTe: `oracles/fragment_layouts.py`.
//!
//! `tensor.rs` and `warpgroup.rs` show that the interpreter has the layouts of their formulas; here these formulas are compared with CuTe's tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::tensor::layouts;
use crate::warpgroup::{Layout, row_place, sum_place};

/// For each thread and each of its values the place in a matrix: `row + rows * column`.
type Table = Vec<Vec<usize>>;

#[derive(Deserialize)]
struct Product {
    shape: [usize; 3],
    a: Table,
    b: Option<Table>,
    c: Table,
}

/// Extents with their strides in bytes, the fastest first.
type Mode = Vec<(Option<usize>, Stride)>;

#[derive(Deserialize)]
#[serde(untagged)]
enum Stride {
    Bytes(usize),
    Field(String),
}

#[derive(Deserialize)]
struct CoreMatrices {
    lines: Mode,
    terms: Mode,
}

#[derive(Deserialize)]
struct Oracle {
    quad_lanes: Vec<usize>,
    products: BTreeMap<String, Product>,
    group_products: BTreeMap<String, Product>,
    loads: BTreeMap<String, Table>,
    descriptor: BTreeMap<String, [u32; 2]>,
    core_matrices: BTreeMap<String, CoreMatrices>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn oracle() -> Oracle {
    let text = fs::read_to_string(root().join("oracles/fragment_layouts.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A formula: which product, row and column an element of a lane belongs to.
type Formula = fn(usize, usize) -> (usize, usize, usize);

/// The formulas of A, B and the sums of each instruction.
fn formulas(instruction: &str) -> [Formula; 3] {
    use layouts::*;
    match instruction {
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32" => [a_rows_m8n8k4, b_columns_m8n8k4, f32_m8n8k4],
        "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32" => [a_columns_m8n8k4, b_rows_m8n8k4, f32_m8n8k4],
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" => [a_m16n8k8, b_m16n8k8, sums],
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        | "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" => [a_m16n8k16, b_m16n8k16, sums],
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" => [a_tf32, b_tf32, sums],
        other => panic!("no formula for {other}"),
    }
}

#[test]
fn fragments_of_warps_lie_as_cute_has_them() {
    let oracle = oracle();
    for (instruction, product) in &oracle.products {
        let [a, b, c] = formulas(instruction);
        let [m, n, _] = product.shape;
        // On Volta CuTe describes one product of four, by the lanes that have it.
        let is_quad = product.a.len() == oracle.quad_lanes.len();
        let quads = if is_quad { 4 } else { 1 };
        for quad in 0..quads {
            let lane = |thread: usize| if is_quad { oracle.quad_lanes[thread] + 4 * quad } else { thread };
            let compare = |table: &Table, place: &dyn Fn(usize, usize) -> (usize, usize)| {
                for (thread, values) in table.iter().enumerate() {
                    for (i, expected) in values.iter().enumerate() {
                        let (of, found) = place(lane(thread), i);
                        assert_eq!(
                            (of, found),
                            (quad, *expected),
                            "{instruction}: thread {thread}, value {i}"
                        );
                    }
                }
            };
            let by_rows = |(of, row, column): (usize, usize, usize), rows: usize| (of, row + rows * column);
            compare(&product.a, &|lane, i| by_rows(a(lane, i), m));
            compare(product.b.as_ref().unwrap(), &|lane, i| {
                let (of, term, column) = b(lane, i);
                (of, column + n * term)
            });
            compare(&product.c, &|lane, i| by_rows(c(lane, i), m));
        }
    }
}

#[test]
fn fragments_of_warp_groups_lie_as_cute_has_them() {
    for (instruction, product) in &oracle().group_products {
        let [m, ..] = product.shape;
        for (table, place) in [(&product.a, row_place as fn(usize, usize) -> _), (&product.c, sum_place)] {
            assert_eq!(table.len(), 128);
            for (thread, values) in table.iter().enumerate() {
                for (i, expected) in values.iter().enumerate() {
                    let (row, column) = place(thread, i);
                    assert_eq!(row + m * column, *expected, "{instruction}: thread {thread}, value {i}");
                }
            }
        }
    }
}

#[test]
fn lanes_get_of_loaded_matrices_what_cute_gives_them() {
    for (instruction, table) in &oracle().loads {
        for (lane, bits) in table.iter().enumerate() {
            for (i, bits) in bits.iter().enumerate() {
                // Lane 4r + c/2 holds (r, c) in half c mod 2; transposed, the lane of (c, r).
                let (r, c) = (lane / 4, lane % 4 * 2 + i % 2);
                let (row, column) = if instruction.contains(".trans") { (c, r) } else { (r, c) };
                let expected = 128 * (8 * (i / 2) + row) + 16 * column;
                assert_eq!(*bits, expected, "{instruction}: lane {lane}, number {i}");
            }
        }
    }
}

/// The offset of a coordinate in bytes.
fn offset(mode: &Mode, coordinate: usize, fields: &BTreeMap<&str, usize>) -> usize {
    let (mut rest, mut sum) = (coordinate, 0);
    for (extent, stride) in mode {
        let stride = match stride {
            Stride::Bytes(bytes) => *bytes,
            Stride::Field(name) => fields[name.as_str()],
        };
        let at = extent.map_or(rest, |extent| rest % extent);
        (rest, sum) = ((rest - at) / extent.unwrap_or(1).max(1), sum + at * stride);
    }
    sum
}

#[test]
fn descriptors_describe_the_core_matrices_that_cute_describes() {
    let oracle = oracle();
    let (start, leading, stride) = (208, 1616, 160);
    let fields = BTreeMap::from([
        ("start_address", start),
        ("leading_byte_offset", leading),
        ("stride_byte_offset", stride),
        ("base_offset", 0),
        ("layout_type", 0),
    ]);
    for (major, transposed) in [("k", false), ("mn", true)] {
        let layout = Layout { start, leading, stride, transposed };
        let expected = fields.iter().fold(0u64, |all, (name, bytes)| {
            let [first, bits] = oracle.descriptor[*name];
            let value = *bytes as u64 / 16;
            assert!(value < 1 << bits, "{name}");
            all | value << first
        });
        assert_eq!(layout.descriptor() as u64, expected);
        assert_eq!(oracle.descriptor.len(), fields.len());
        let CoreMatrices { lines, terms } = &oracle.core_matrices[major];
        for line in 0..64 {
            for term in 0..16 {
                let bytes = start + offset(lines, line, &fields) + offset(terms, term, &fields);
                assert_eq!(layout.place(line, term), bytes, "{major}: line {line}, term {term}");
            }
        }
    }
}

/// So that no kernel has a fragment that is not compared.
#[test]
fn every_product_and_load_of_the_kernels_is_compared() {
    let oracle = oracle();
    let known: BTreeSet<&str> = oracle
        .products
        .keys()
        .chain(oracle.group_products.keys())
        .chain(oracle.loads.keys())
        .map(String::as_str)
        .collect();
    let mut seen = BTreeSet::new();
    for piece in ["kernels", "tensor70", "tensor75", "tensor80", "tensor90"] {
        let path = root().join(format!("crates/plimsoll-cuda/kernels/{piece}.ptx"));
        let text = fs::read_to_string(path).unwrap();
        for word in text.split_ascii_whitespace() {
            if ["mma.sync", "ldmatrix", "wgmma.mma_async", "stmatrix", "movmatrix"]
                .iter()
                .any(|start| word.starts_with(start))
            {
                assert!(known.contains(word), "{piece}.ptx has {word}");
                seen.insert(word.to_string());
            }
        }
    }
    assert_eq!(seen.len(), known.len(), "{seen:?}");
}
