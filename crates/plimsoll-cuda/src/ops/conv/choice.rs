//! The kernel of a convolution on tensor cores, its tiles, and the parts of its sums.
//!
//! Blocks that are too few for a card's multiprocessors divide the chunks of the sources among them: each sums a part of them, and a second launch adds the parts
//! up in their order. All is chosen by shapes and the architecture alone, so that fused and separate operations have the same bits.

use plimsoll_graph::DType;
use plimsoll_plan::Rates;

use super::WARPS;
use super::packing::MultipliedBy;
use super::tensor::Part;
use super::tiling::{CHUNK, ROW, Tiling, chunks};
use crate::Architecture;
use crate::architecture::{GROUP_RATE, Generation, LAUNCH, TENSOR_RATE};
use crate::lower::Context;
use crate::predict::{INSTRUCTION_RATE, SHARED_RATE};

/// Instructions of a warp by `counts.csv`, of kernels that multiply bf16: for a chunk of the sources, for a turn of its staging, and for a tap, or for the taps that
/// warp groups multiply at once.
#[derive(Clone, Copy, Debug)]
struct Instructions {
    chunk: f64,
    turn: f64,
    tap: f64,
}

/// Places and channels of a tile, and the voxels of its box, for each of which there is a kernel.
pub(super) struct Tile {
    pub(super) kernel: &'static str,
    pub(super) by: MultipliedBy,
    pub(super) rows: usize,
    pub(super) columns: usize,
    most_voxels: usize,
    instructions: Instructions,
}

const fn by_warps(
    kernel: &'static str,
    [rows, columns]: [usize; 2],
    most_voxels: usize,
    [chunk, turn, tap]: [f64; 3],
) -> Tile {
    let instructions = Instructions { chunk, turn, tap };
    Tile { kernel, by: MultipliedBy::Warps, rows, columns, most_voxels, instructions }
}

const fn by_groups(
    kernel: &'static str,
    [rows, columns]: [usize; 2],
    most_voxels: usize,
    [chunk, turn, tap]: [f64; 3],
) -> Tile {
    let instructions = Instructions { chunk, turn, tap };
    Tile { kernel, by: MultipliedBy::WarpGroups, rows, columns, most_voxels, instructions }
}

/// The kernels. Wide tiles take the least from memory; smaller ones are for few places, few of which would be in use, and for strides, whose
/// boxes are large.
const TILES: [Tile; 7] = [
    by_warps("tensor_conv_256x32", [32, 32], 640, [157.0, 32.0, 76.0]),
    by_warps("tensor_conv_128x64", [16, 64], 640, [131.0, 21.0, 80.0]),
    by_warps("tensor_conv_64x64", [8, 64], 768, [102.0, 46.0, 62.0]),
    by_warps("tensor_conv_64x32", [8, 32], 768, [104.0, 43.0, 46.0]),
    by_groups("warpgroup_conv_256x64", [32, 64], 636, [0.0, 74.0, 199.0]),
    by_groups("warpgroup_conv_128x64", [16, 64], 636, [0.0, 88.0, 159.0]),
    by_groups("warpgroup_conv_64x64", [8, 64], 636, [91.0, 51.0, 142.0]),
];

/// The names of the tiles that convolutions may take on cards of an architecture: places and channels of a block, and what multiplies them.
pub(crate) fn tiles(architecture: Architecture) -> impl Iterator<Item = &'static str> {
    TILES.iter().filter(move |tile| tile.runs_on(architecture)).map(|tile| tile.kernel)
}

/// The least channels of a result for which warp groups multiply: all columns of their tiles.
const LEAST_COLUMNS: usize = 64;

/// The least taps for which they do: as many are multiplied between two barriers.
const LEAST_TAPS: usize = 2;

/// Taps that warp groups multiply between two barriers, `TAPS_AT_ONCE` of the kernels.
const TAPS_AT_ONCE: usize = 2;

impl Tile {
    fn runs_on(&self, architecture: Architecture) -> bool {
        self.by == MultipliedBy::Warps || architecture.generation() == Generation::Hopper
    }

    /// Returns `true` if it can compute a part of a convolution of volumes of a type, with this arrangement of places.
    fn takes(&self, cx: &Context<'_>, part: &Part, dtype: DType, tiling: &Tiling) -> bool {
        let by_groups = dtype != DType::F32
            && !part.rounds
            && part.weights.columns as usize >= LEAST_COLUMNS
            && tiling.taps() >= LEAST_TAPS
            && tiling.rows_are_matrices();
        self.runs_on(cx.architecture) && (self.by == MultipliedBy::Warps || by_groups)
    }

    /// Turns of the loop over taps, for a chunk.
    pub(super) fn steps(&self, tiling: &Tiling) -> usize {
        match self.by {
            MultipliedBy::Warps => tiling.taps(),
            MultipliedBy::WarpGroups => tiling.taps().div_ceil(TAPS_AT_ONCE),
        }
    }

    /// The instructions of a block for a chunk that is staged as it is stored.
    fn instructions(&self, tiling: &Tiling) -> f64 {
        let Instructions { chunk, turn, tap } = self.instructions;
        let warps = WARPS as f64;
        warps * (chunk + tap * self.steps(tiling) as f64) + turn * tiling.staging_turns() as f64
    }
}

/// A way to compute a part of a convolution.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) tile: &'static Tile,
    pub(super) tiling: Tiling,
    /// Parts of the sums, each of a block of its own.
    pub(super) parts: usize,
    /// Chunks of a part; the last one may have fewer.
    pub(super) length: usize,
}

/// The most parts of a sum. Each is written and read again.
const MOST_PARTS: usize = 16;

/// The least chunks that are divided: where there are fewer, the second launch takes as long as is saved.
const LEAST_CHUNKS: usize = 8;

/// Blocks of a multiprocessor that take as long as one: one copies while another multiplies, and a warp waits for its own instructions as long as for others'.
const BLOCKS_AT_ONCE: usize = 2;

/// Instructions of a warp before and after its chunks.
const INSTRUCTIONS_OF_WARP: f64 = 300.0;

/// Passes over shared memory that take as long as a voxel of a box from the second-level cache, about: that of an A100 gives a multiprocessor 48 bytes in a cycle.
const PASSES_OF_VOXEL: f64 = 0.6;

/// Bytes that are written and read for a number of a part.
const BYTES_OF_PART: usize = 8;

/// The work of a launch, and the rates of the card.
struct Problem<'a> {
    part: &'a Part,
    batch: usize,
    chunks: usize,
    multiprocessors: usize,
    rates: Rates,
}

impl Problem<'_> {
    fn rate(&self, name: &str) -> f64 {
        self.rates.kernels.get(name).copied().unwrap_or(f64::INFINITY)
    }

    /// The predicted seconds of a choice. Weights are left out: in all kernels a block loads them once for each of its warps or once for all, from the first-level cache or
    /// from the second.
    fn seconds(&self, choice: &Choice) -> f64 {
        let Choice { tile, tiling, parts, length } = choice;
        let columns = self.part.weights.columns as usize;
        let blocks = tiling.tiles().saturating_mul(self.batch);
        let blocks = blocks.saturating_mul(columns.div_ceil(tile.columns)).saturating_mul(*parts);
        let of_one = blocks.div_ceil(self.multiprocessors).max(BLOCKS_AT_ONCE) as f64;
        let flops = (2 * tile.rows * ROW * tile.columns * CHUNK * tiling.taps()) as f64;
        let products = match tile.by {
            MultipliedBy::Warps => flops / self.rate(TENSOR_RATE),
            MultipliedBy::WarpGroups => flops / self.rate(GROUP_RATE),
        };
        let issued = tile.instructions(tiling) / self.rate(INSTRUCTION_RATE);
        let staged = tiling.voxels() as f64 * PASSES_OF_VOXEL / self.rate(SHARED_RATE);
        let around = INSTRUCTIONS_OF_WARP * WARPS as f64 / self.rate(INSTRUCTION_RATE);
        let block = (products.max(issued) + staged) * *length as f64 + around;
        // Rates are those of all multiprocessors.
        of_one * self.multiprocessors as f64 * block + self.seconds_of_sums(*parts)
    }

    /// The predicted seconds in which parts are added up.
    fn seconds_of_sums(&self, parts: usize) -> f64 {
        if parts == 1 {
            return 0.0;
        }
        let places = self.part.axes.iter().fold(self.batch, |all, axis| all.saturating_mul(axis.places));
        let numbers = places.saturating_mul(self.part.weights.columns as usize).saturating_mul(parts);
        LAUNCH + numbers.saturating_mul(BYTES_OF_PART) as f64 / self.rates.bytes
    }

    /// All divisions of the chunks, by parts and their chunks.
    fn divisions(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let chunks = self.chunks;
        let divides = self.part.divides && chunks >= LEAST_CHUNKS;
        let most = if divides { chunks.min(MOST_PARTS) } else { 1 };
        (1..=most)
            .map(move |parts| (parts, chunks.div_ceil(parts)))
            .filter(move |(parts, length)| *parts == 1 || chunks.div_ceil(*length) == *parts)
    }
}

/// The choice that is likely the fastest, of those with the lowest rank that fit; none if none fit.
fn fastest(
    cx: &Context<'_>,
    part: &Part,
    dtype: DType,
    batch: usize,
    rank: impl Fn(&'static str) -> usize,
) -> Option<Choice> {
    let architecture = cx.architecture;
    let problem = Problem {
        part,
        batch,
        chunks: chunks(&part.weights.channels, dtype),
        multiprocessors: architecture.multiprocessors(),
        rates: architecture.rates(),
    };
    let ways = TILES.iter().flat_map(|tile| {
        let tilings = Tiling::all(cx, &part.axes, tile.rows, tile.most_voxels);
        tilings.into_iter().map(move |tiling| (tile, tiling))
    });
    let ways = ways.filter(|(tile, tiling)| tile.takes(cx, part, dtype, tiling));
    let choices = ways.flat_map(|(tile, tiling)| {
        problem.divisions().map(move |(parts, length)| Choice { tile, tiling, parts, length })
    });
    let timed = choices.map(|choice| (rank(choice.tile.kernel), problem.seconds(&choice), choice));
    let fastest = timed.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    fastest.map(|(_, _, choice)| choice)
}

/// Chooses the requested tile if it fits, else the one in the table, else the one that is probably the fastest; none if
/// no tile fits.
pub(super) fn choose(cx: &Context<'_>, part: &Part, dtype: DType, batch: usize) -> Option<Choice> {
    let asked = cx.architecture.tile();
    let listed = listed(&key(cx.architecture, part, dtype, batch));
    let rank = |kernel| {
        if asked == Some(kernel) {
            0
        } else if listed == Some(kernel) {
            1
        } else {
            2
        }
    };
    fastest(cx, part, dtype, batch, rank)
}

/// Returns the key of a part of a convolution in the table of tiles.
fn key(architecture: Architecture, part: &Part, dtype: DType, batch: usize) -> String {
    let axes = |of: fn(&super::tiling::Axis) -> usize| {
        let [d, h, w] = [0, 1, 2].map(|axis| of(&part.axes[axis]));
        format!("{d}x{h}x{w}")
    };
    let (taps, stride, places) = (axes(|axis| axis.taps), axes(|axis| axis.stride), axes(|axis| axis.places));
    let (chunks, outputs) = (chunks(&part.weights.channels, dtype), part.weights.columns);
    format!("{architecture},{},{taps},{stride},{places},{batch},{chunks},{outputs},", dtype.bytes())
}

/// Tiles by shapes, see the head of the file.
const TABLE: &str = include_str!("tiles.csv");

/// The digest of that table and of all other numbers that choices follow from.
pub(crate) fn tiles_digest(architecture: Architecture) -> u64 {
    let tiles = TILES.map(|tile| tile.instructions);
    let limits = [MOST_PARTS, LEAST_CHUNKS, BLOCKS_AT_ONCE, BYTES_OF_PART];
    let shares = [INSTRUCTIONS_OF_WARP, PASSES_OF_VOXEL];
    let all = format!("{TABLE}{tiles:?}{limits:?}{shares:?}{:?}", architecture.rates());
    plimsoll_memory::fnv1a(all.as_bytes())
}

/// The tile that the table has for a part.
fn listed(key: &str) -> Option<&'static str> {
    TABLE.lines().find_map(|line| line.strip_prefix(key)?.split(',').next())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::Launch;
    use crate::counts::counted;
    use crate::device::Effort;
    use crate::lower::Stretch;
    use crate::ops::conv::packing::Weights;
    use crate::ops::conv::source::Chunks;
    use crate::ops::conv::tensor::effort;
    use crate::ops::conv::tiling::Axis;

    /// A kernel's counts for a block of one chunk of 27 taps and 23 turns of staging.
    #[test]
    fn the_instructions_of_tiles_are_those_that_were_counted() {
        for tile in &TILES {
            let architecture: Architecture =
                if tile.by == MultipliedBy::Warps { "sm_80" } else { "sm_90" }.parse().unwrap();
            let cx = Context { name: "conv", architecture, inputs: vec![], outputs: vec![], scratch: 0 };
            let axis = Axis { places: 32, taps: 3, input: 32, first: -1, stride: 1 };
            for tiling in Tiling::all(&cx, &[axis; 3], tile.rows, tile.most_voxels) {
                let choice = Choice { tile, tiling, parts: 1, length: 1 };
                let chunks = Chunks { copied: 4, ..Chunks::default() };
                let launch = |chunks: Chunks| Launch {
                    kernel: format!("{}_bf16_bf16", tile.kernel),
                    grid: [1; 3],
                    block: [128, 1, 1],
                    parameters: vec![],
                    first_thread: None,
                    reads: vec![],
                    writes: vec![],
                    effort: Effort { warps: WARPS as u64, ..effort(&choice, 1, chunks) },
                };
                let of = |chunks| counted(architecture, &launch(chunks)).unwrap().instructions;
                let found = 4.0 * tile.instructions(&tiling) / (of(chunks) - of(Chunks::default()));
                assert!((found - 1.0).abs() < 0.15, "{}: {found}", tile.kernel);
            }
        }
    }

    /// Parses the fields of a line of the table. Their key must equal the line's.
    fn part(fields: &[&str]) -> (Architecture, Part, DType, usize) {
        let numbers = |field: &str| field.split('x').map(|n| n.parse().unwrap()).collect::<Vec<usize>>();
        let [taps, stride, places] = [2, 3, 4].map(|at| numbers(fields[at]));
        let axes = [0, 1, 2].map(|axis| Axis {
            places: places[axis],
            taps: taps[axis],
            input: places[axis] * stride[axis],
            first: -(taps[axis] as i64 / 2),
            stride: stride[axis],
        });
        let [batch, chunks, outputs] = [5, 6, 7].map(|at| fields[at].parse::<usize>().unwrap());
        let taps = [0, 1, 2].map(|axis| taps[axis] as u32);
        let weights = Weights {
            at: Stretch::new(0, 0),
            channels: [(chunks * CHUNK) as u32, 0, 0, 0],
            columns: outputs as u32,
            kernel: taps,
            first_tap: [0; 3],
            tap_step: [1; 3],
            taps,
            tap_stride: 1,
            row_stride: 1,
            column_stride: 1,
            first: 0,
        };
        assert_eq!(fields[1], "2");
        (fields[0].parse().unwrap(), Part::whole(axes, weights), DType::Bf16, batch)
    }

    /// A line is there once, names a tile that fits, and agrees with the prediction unless it was measured.
    #[test]
    fn the_table_has_tiles_that_fit_those_predicted_or_measured() {
        let mut keys = std::collections::BTreeSet::new();
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            let (architecture, part, dtype, batch) = part(&fields);
            let key = key(architecture, &part, dtype, batch);
            assert!(line.starts_with(&key) && keys.insert(key.clone()), "{line}");
            let cx = Context { name: "conv", architecture, inputs: vec![], outputs: vec![], scratch: 0 };
            assert_eq!(listed(&key), Some(fields[8]));
            assert_eq!(choose(&cx, &part, dtype, batch).unwrap().tile.kernel, fields[8], "{line}");
            let predicted = fastest(&cx, &part, dtype, batch, |_| 0).unwrap().tile.kernel;
            match fields[9] {
                "predicted" => assert_eq!(fields[8], predicted, "{line}"),
                source => assert_eq!(source, "measured", "{line}"),
            }
        }
        assert!(keys.len() > 30);
    }
}
