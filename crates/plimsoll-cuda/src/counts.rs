//! Instructions of kernels and their passes over shared memory, as the emulator counts them.
//!
//! Each is the sum of a number for every warp and one for every turn of each of the kernel's loops. The table is made by the test `counts` of `conformance`, which
//! runs every kernel in several shapes and solves for these numbers.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::architecture::Generation;
use crate::device::LOOPS;
use crate::pieces::{counts, resources};
use crate::{Architecture, Launch};

/// The counts of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    /// Instructions of warps.
    pub(crate) instructions: f64,
    /// Passes over shared memory, of 128 bytes at most.
    pub(crate) passes: f64,
    /// Blocks that a multiprocessor holds at once.
    pub(crate) blocks: u32,
}

/// Numbers for a warp and for a turn of each loop.
type Line = [f64; 1 + LOOPS];

/// A kernel's line of the table.
#[derive(Clone, Copy)]
struct OfKernel {
    instructions: Line,
    passes: Line,
}

#[derive(Default)]
struct Tables {
    /// By the piece of PTX and the kernel.
    counts: BTreeMap<(String, String), OfKernel>,
    /// By architecture and kernel.
    blocks: BTreeMap<(String, String), u32>,
}

fn numbers(fields: &[&str]) -> Option<Vec<f64>> {
    fields.iter().map(|field| field.parse().ok()).collect()
}

impl Tables {
    /// Parses the tables. Their form is checked by tests, so that a line of another form is left out.
    fn new(counts: &str, resources: &str) -> Tables {
        let key = |fields: &[&str]| Some((fields.first()?.to_string(), fields.get(1)?.to_string()));
        let lines = |text: &str| -> Vec<Vec<String>> {
            let rows = text.lines().filter(|line| !line.starts_with('#'));
            rows.map(|line| line.split(',').map(str::to_string).collect()).collect()
        };
        let mut tables = Tables::default();
        for line in lines(counts) {
            let fields: Vec<&str> = line.iter().map(String::as_str).collect();
            let all = fields.get(2..).and_then(numbers).filter(|all| all.len() == 2 * (1 + LOOPS));
            if let (Some(key), Some(all)) = (key(&fields), all) {
                let (instructions, passes) = all.split_at(1 + LOOPS);
                let line = |of: &[f64]| -> Line { std::array::from_fn(|at| of[at]) };
                let of = OfKernel { instructions: line(instructions), passes: line(passes) };
                tables.counts.insert(key, of);
            }
        }
        for line in lines(resources) {
            let fields: Vec<&str> = line.iter().map(String::as_str).collect();
            let blocks = fields.get(5).and_then(|blocks| blocks.parse().ok());
            if let (Some(key), Some(blocks)) = (key(&fields), blocks) {
                tables.blocks.insert(key, blocks);
            }
        }
        tables
    }

    fn built_in() -> &'static Tables {
        static TABLES: OnceLock<Tables> = OnceLock::new();
        TABLES.get_or_init(|| match (counts(), resources()) {
            (Ok(counts), Ok(resources)) => Tables::new(&counts, &resources),
            // Without memory for them times are predicted without counts.
            _ => Tables::default(),
        })
    }
}

/// The names of the pieces of PTX in which the kernels of an architecture are, the newest first, as the table of counts has them.
fn pieces(generation: Generation) -> &'static [&'static str] {
    match generation {
        Generation::Volta => &["7.0", "all"],
        Generation::Turing => &["7.5", "all"],
        Generation::Ampere => &["8.0", "all"],
        Generation::Hopper => &["9.0", "8.0", "all"],
    }
}

/// The architecture in the table of resources that is the closest to one.
fn assembled(generation: Generation) -> &'static str {
    match generation {
        Generation::Volta => "sm_70",
        Generation::Turing => "sm_75",
        Generation::Ampere => "sm_80",
        Generation::Hopper => "sm_90",
    }
}

/// Returns the counts of a launch, or `None` if its kernel was not counted.
pub(crate) fn counted(architecture: Architecture, launch: &Launch) -> Option<Counted> {
    let tables = Tables::built_in();
    let generation = architecture.generation();
    let find = |piece: &&str| tables.counts.get(&(piece.to_string(), launch.kernel().to_string()));
    let of = pieces(generation).iter().find_map(find)?;
    let turns = launch.effort().loops.map(|turns| turns as f64);
    let sum = |line: &Line| {
        let loops = line[1..].iter().zip(turns).map(|(each, turns)| each * turns);
        line[0] * launch.effort().warps as f64 + loops.sum::<f64>()
    };
    let key = (assembled(generation).to_string(), launch.kernel().to_string());
    let blocks = tables.blocks.get(&key).copied().unwrap_or(1);
    Some(Counted { instructions: sum(&of.instructions), passes: sum(&of.passes), blocks })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read_and_every_counted_kernel_has_its_resident_blocks() {
        let tables = Tables::built_in();
        // Below a digest and a line of names.
        let lines = |text: String| text.lines().count() - 2;
        assert_eq!(tables.counts.len(), lines(counts().unwrap()));
        assert_eq!(tables.blocks.len(), lines(resources().unwrap()));
        let all = [Generation::Volta, Generation::Turing, Generation::Ampere, Generation::Hopper];
        for generation in all {
            let own = tables.counts.keys().filter(|(piece, _)| pieces(generation).contains(&piece.as_str()));
            for (_, kernel) in own {
                let key = (assembled(generation).to_string(), kernel.clone());
                assert!(tables.blocks.get(&key).is_some_and(|blocks| *blocks > 0), "{key:?}");
            }
        }
    }
}
