//! Convolutions and transposed convolutions on tensor cores.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{Conv, ConvTranspose};
use plimsoll_plan::Unsupported;

use super::WARPS;
use super::packing::{MultipliedBy, Weights, pack};
use super::source::{Chunks, Source, SourceParameters, parameters};
use super::tiling::{Axis, CHUNK, MULTIPROCESSORS, ROW, Tiling, chunks};
use crate::Architecture;
use crate::architecture::Generation;
use crate::device::Effort;
use crate::lower::{Context, Operand, Work, address_or_null, product, start_or_null};

/// Places and channels of a tile, and the voxels of its box, for each of which there is a kernel.
struct Tile {
    kernel: &'static str,
    by: MultipliedBy,
    rows: usize,
    columns: usize,
    most_voxels: usize,
}

const fn by_warps(kernel: &'static str, [rows, columns]: [usize; 2], most_voxels: usize) -> Tile {
    Tile { kernel, by: MultipliedBy::Warps, rows, columns, most_voxels }
}

const fn by_groups(kernel: &'static str, [rows, columns]: [usize; 2], most_voxels: usize) -> Tile {
    Tile { kernel, by: MultipliedBy::WarpGroups, rows, columns, most_voxels }
}

/// The kernels. Wide tiles take the least from memory; smaller ones are for few places, few of which would be in use, and for strides, whose
/// boxes are large.
const TILES: [Tile; 7] = [
    by_warps("tensor_conv_256x32", [32, 32], 640),
    by_warps("tensor_conv_128x64", [16, 64], 640),
    by_warps("tensor_conv_64x64", [8, 64], 768),
    by_warps("tensor_conv_64x32", [8, 32], 768),
    by_groups("warpgroup_conv_256x64", [32, 64], 636),
    by_groups("warpgroup_conv_128x64", [16, 64], 636),
    by_groups("warpgroup_conv_64x64", [8, 64], 636),
];

/// The names of the tiles that convolutions may take on cards of an architecture: places and channels of a block, and what multiplies them.
pub(crate) fn tiles(architecture: Architecture) -> impl Iterator<Item = &'static str> {
    TILES.iter().filter(move |tile| tile.runs_on(architecture)).map(|tile| tile.kernel)
}

/// The time of products by warp groups, in eighths of the time by warps: by the rates of [`Architecture`].
const GROUP_EIGHTHS: usize = 5;

/// The least channels of a result for which warp groups multiply: all columns of their tiles.
const LEAST_COLUMNS: usize = 64;

/// The least taps for which they do: as many are multiplied between two barriers.
const LEAST_TAPS: usize = 2;

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
}

/// Taps that warp groups multiply between two barriers, `TAPS_AT_ONCE` of the kernels.
const TAPS_AT_ONCE: usize = 2;

/// Blocks for which a large card has room enough that each multiprocessor copies for one while it multiplies for another: fewer take as long
/// as these.
const BLOCKS_AT_ONCE: usize = 2 * MULTIPROCESSORS;

/// Multiply-adds that a multiprocessor does in the time in which 32 bytes come from the second-level cache, about: an A100 does 1024 in
/// a cycle, in which its cache gives each 48 bytes.
const PRODUCTS_PER_VOXEL: usize = 680;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TensorConvParameters {
    sources: SourceParameters,
    weights: u64,
    bias: u64,
    y: u64,
    chunks: u32,
    outputs: u32,
    result: [u32; 3],
    spread: [u32; 3],
    offset: [u32; 3],
    tiling: Tiling,
}

/// The results that a launch computes: those at an offset and a step along each axis.
#[derive(Clone, Copy)]
struct Results {
    offset: [usize; 3],
    step: [usize; 3],
}

/// One launch: some results of a convolution, with the weights that these see.
struct Part {
    axes: [Axis; 3],
    weights: Weights,
    results: Results,
    /// `true` if sources are rounded when they are staged, which warp groups do not.
    rounds: bool,
}

/// The kernel and the tiles that are likely the fastest, of those with the lowest rank that fit; none if none fit. Weights are left out: in all
/// kernels a block loads them once for each of its warps or once for all, from the first-level cache or from the second.
fn fastest(
    cx: &Context<'_>,
    part: &Part,
    dtype: DType,
    batch: usize,
    rank: impl Fn(&'static str) -> usize,
) -> Option<(&'static Tile, Tiling)> {
    let time = |tile: &Tile, tiling: &Tiling| {
        let blocks = tiling.tiles().saturating_mul(batch);
        let blocks = blocks.saturating_mul((part.weights.columns as usize).div_ceil(tile.columns));
        let products = tile.rows * ROW * tile.columns * CHUNK * tiling.taps();
        let products = match tile.by {
            MultipliedBy::Warps => products,
            MultipliedBy::WarpGroups => products / 8 * GROUP_EIGHTHS,
        };
        let block = products.saturating_add(tiling.voxels() * PRODUCTS_PER_VOXEL);
        blocks.max(BLOCKS_AT_ONCE).saturating_mul(block)
    };
    let ways = TILES.iter().flat_map(|tile| {
        let tilings = Tiling::all(cx, &part.axes, tile.rows, tile.most_voxels);
        tilings.into_iter().map(move |tiling| (tile, tiling))
    });
    ways.filter(|(tile, tiling)| tile.takes(cx, part, dtype, tiling))
        .min_by_key(|(tile, tiling)| (rank(tile.kernel), time(tile, tiling)))
}

/// Chooses the requested tile if it fits, else the one in the table, else the one that is probably the fastest; none if
/// no tile fits.
fn choose(cx: &Context<'_>, part: &Part, dtype: DType, batch: usize) -> Option<(&'static Tile, Tiling)> {
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
    let axes = |of: fn(&Axis) -> usize| {
        let [d, h, w] = [0, 1, 2].map(|axis| of(&part.axes[axis]));
        format!("{d}x{h}x{w}")
    };
    let (taps, stride, places) = (axes(|axis| axis.taps), axes(|axis| axis.stride), axes(|axis| axis.places));
    let (chunks, outputs) = (chunks(&part.weights.channels, dtype), part.weights.columns);
    format!("{architecture},{},{taps},{stride},{places},{batch},{chunks},{outputs},", dtype.bytes())
}

/// Tiles by shapes, see the head of the file.
const TABLE: &str = include_str!("tiles.csv");

/// The digest of that table.
pub(crate) fn tiles_digest() -> u64 {
    plimsoll_memory::fnv1a(TABLE.as_bytes())
}

/// The tile that the table has for a part.
fn listed(key: &str) -> Option<&'static str> {
    TABLE.lines().find_map(|line| line.strip_prefix(key)?.split(',').next())
}

/// The operands of a convolution.
struct Operands<'a> {
    sources: &'a [Source<'a>],
    /// The type of the numbers that are multiplied.
    multiplied: DType,
    bias: Option<&'a Operand<'a>>,
    y: &'a Operand<'a>,
}

/// The effort of some blocks of a tile. Loops: over chunks, over pieces that are copied and that are changed afterwards, over the taps of chunks, of which warp
/// groups take several at once, over pieces that are staged number by number, and over rows of taps.
fn effort(tile: &Tile, tiling: &Tiling, blocks: usize, chunks: Chunks) -> Effort {
    let turns = |factors: &[usize]| product(&[&[blocks], factors].concat());
    let steps = match tile.by {
        MultipliedBy::Warps => tiling.taps(),
        MultipliedBy::WarpGroups => tiling.taps().div_ceil(TAPS_AT_ONCE),
    };
    let staged = tiling.staging_turns();
    let loops = [
        turns(&[WARPS, chunks.count()]),
        turns(&[chunks.copied, staged]),
        turns(&[chunks.changed, staged]),
        turns(&[WARPS, chunks.count(), steps]),
        turns(&[chunks.by_number, staged]),
        turns(&[WARPS, chunks.count(), tiling.tap_rows()]),
        0,
    ];
    let flops = turns(&[2, tile.rows * ROW, tile.columns, CHUNK * chunks.count(), tiling.taps()]);
    match tile.by {
        MultipliedBy::Warps => Effort { loops, tensor_flops: flops, ..Effort::default() },
        MultipliedBy::WarpGroups => Effort { loops, group_flops: flops, ..Effort::default() },
    }
}

/// Launches the parts of a convolution; nothing if there is one that tiles do not fit.
fn launch(cx: &Context<'_>, of: &Operands<'_>, parts: &[Part]) -> Result<Option<Work>, Unsupported> {
    let dtype = of.multiplied;
    let (sources, of_sources) = parameters(cx, of.sources, dtype)?;
    let shape = &of.y.info.shape;
    cx.elements(of.y)?;
    let mut work = Work::new(cx);
    for part in parts {
        let Some((tile, tiling)) = choose(cx, part, dtype, shape.batch()) else { return Ok(None) };
        // Where no tap meets a place there is nothing but the bias.
        let empty = tiling.taps() == 0;
        let packed = match empty {
            true => None,
            false => Some(pack(&mut work, cx, dtype, &part.weights, tile.columns, tile.by)?),
        };
        let chunks = if empty { 0 } else { chunks(&sources.channels, dtype) };
        let parameters = TensorConvParameters {
            sources,
            weights: start_or_null(packed),
            bias: address_or_null(of.bias),
            y: of.y.address(),
            chunks: cx.count(&[chunks])?,
            outputs: part.weights.columns,
            result: cx.axes(shape.spatial())?,
            spread: cx.axes(part.results.step)?,
            offset: cx.axes(part.results.offset)?,
            tiling,
        };
        let mut reads = of_sources.clone();
        reads.extend(packed);
        reads.extend(of.bias.map(|bias| bias.at));
        let columns = (part.weights.columns as usize).div_ceil(tile.columns);
        let blocks = tiling.tiles().saturating_mul(shape.batch());
        let grid = [cx.count(&[blocks])?, cx.count(&[columns])?];
        work.blocks(
            cx.kernel(&format!("{}_{dtype}", tile.kernel), &[of.y])?,
            grid,
            &parameters,
            &reads,
            &[of.y.at],
        )?;
        let blocks = blocks.saturating_mul(columns);
        let chunks = if empty { Chunks::default() } else { Chunks::new(of.sources, dtype) };
        work.effort(effort(tile, &tiling, blocks, chunks))?;
    }
    Ok(Some(work))
}

/// A convolution; nothing if no tiles fit.
///
/// # Errors
/// Returns the errors of the plain kernels.
pub(super) fn conv<'a>(
    op: &Conv,
    from: &[Source<'a>],
    rest: &[Operand<'a>],
    multiplied: DType,
    cx: &Context<'a>,
) -> Result<Option<Work>, Unsupported> {
    let (weights, y) = (&rest[0], cx.output(0));
    cx.elements(weights)?;
    let channels = parameters(cx, from, multiplied)?.0.channels;
    let (window, shape) = (&op.window, &weights.info.shape);
    let (input, output) = (from[0].map.info.shape.spatial(), y.info.shape.spatial());
    let mut axes = [0, 1, 2].map(|axis| Axis {
        places: output[axis],
        taps: window.kernel[axis],
        input: input[axis],
        first: 0,
        stride: window.stride[axis],
    });
    for (axis, padding) in axes.iter_mut().zip(window.padding) {
        axis.first = -i64::from(cx.count(&[padding])?);
    }
    let columns = cx.count(&[shape.dim(0)])?;
    let kernel = cx.axes(window.kernel)?;
    let weights = Weights {
        at: weights.at,
        channels,
        columns,
        kernel,
        first_tap: [0; 3],
        tap_step: [1; 3],
        taps: kernel,
        tap_stride: cx.count(&[shape.dim(0), shape.dim(1)])?,
        row_stride: columns,
        column_stride: 1,
        first: 0,
    };
    let results = Results { offset: [0; 3], step: [1; 3] };
    let rounds = from.iter().any(|source| source.map.info.dtype != multiplied);
    let operands = Operands { sources: from, multiplied, bias: rest.get(1), y };
    launch(cx, &operands, &[Part { axes, weights, results, rounds }])
}

/// The results of one remainder by the stride along an axis, and the taps that meet them: results x of x = s·i + r see, under the
/// taps k for which s divides r + p − k, the places i + (r + p − k)/s. These are in succession where k falls, by s.
struct Remainder {
    axis: Axis,
    first_tap: usize,
}

/// The results whose place divided by the stride leaves `r`, along an axis of `result` places of the result and `source` of the
/// source.
fn remainder(
    result: usize,
    source: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    r: usize,
) -> Remainder {
    let least = (r + padding) % stride;
    let taps = kernel.saturating_sub(least).div_ceil(stride);
    let last = ((r + padding) / stride) as i64;
    Remainder {
        axis: Axis {
            places: (result - r).div_ceil(stride),
            taps,
            input: source,
            first: last - taps.saturating_sub(1) as i64,
            stride: 1,
        },
        first_tap: least + taps.saturating_sub(1) * stride,
    }
}

/// Launches that a transposed convolution is worth: one for each remainder by the stride.
const MOST_REMAINDERS: usize = 27;

/// A transposed convolution; nothing if no tiles fit.
///
/// # Errors
/// Returns the errors of the plain kernels.
pub(super) fn conv_transpose<'a>(
    op: &ConvTranspose,
    from: &[Source<'a>],
    rest: &[Operand<'a>],
    multiplied: DType,
    cx: &Context<'a>,
) -> Result<Option<Work>, Unsupported> {
    let (source, weights, x) = (&from[0].map, &rest[0], cx.output(0));
    cx.elements(weights)?;
    let channels = parameters(cx, from, multiplied)?.0.channels;
    let (window, shape) = (&op.window, &weights.info.shape);
    let (result, places) = (x.info.shape.spatial(), source.info.shape.spatial());
    for axis in 0..3 {
        cx.count(&[window.padding[axis].saturating_add(window.stride[axis])])?;
    }
    // Results that are fewer than the stride have no more remainders than results.
    let remainders = [0, 1, 2].map(|axis| window.stride[axis].min(result[axis]));
    if remainders.iter().fold(1usize, |all, some| all.saturating_mul(*some)) > MOST_REMAINDERS {
        return Ok(None);
    }
    let kernel = cx.axes(window.kernel)?;
    let mut steps = [0; 3];
    for (step, stride) in steps.iter_mut().zip(cx.axes(window.stride)?) {
        *step = -i32::try_from(stride).unwrap_or(i32::MAX);
    }
    let outputs = cx.count(&[shape.dim(0)])?;
    let rounds = source.info.dtype != multiplied;
    let mut parts = Vec::new();
    for number in 0..remainders.iter().product() {
        let [d, h, w] = remainders;
        let offset = [number / w / h % d, number / w % h, number % w];
        let along = [0, 1, 2].map(|axis| {
            let [kernel, stride, padding] = [window.kernel, window.stride, window.padding].map(|of| of[axis]);
            remainder(result[axis], places[axis], kernel, stride, padding, offset[axis])
        });
        let axes = [along[0].axis, along[1].axis, along[2].axis];
        let weights = Weights {
            at: weights.at,
            channels,
            columns: cx.count(&[op.channels])?,
            kernel,
            first_tap: cx.axes([along[0].first_tap, along[1].first_tap, along[2].first_tap])?,
            tap_step: steps,
            taps: cx.axes([axes[0].taps, axes[1].taps, axes[2].taps])?,
            tap_stride: cx.count(&[shape.dim(0), shape.dim(1)])?,
            row_stride: 1,
            column_stride: outputs,
            first: cx.count(&[op.first_channel, shape.dim(0)])?,
        };
        parts.push(Part { axes, weights, results: Results { offset, step: window.stride }, rounds });
    }
    launch(cx, &Operands { sources: from, multiplied, bias: rest.get(1), y: x }, &parts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::architecture::{TENSOR_BY_GROUPS, TENSOR_HOPPER};
    use crate::lower::Stretch;

    #[test]
    fn tiles_are_chosen_by_the_rates_that_times_are_predicted_with() {
        assert_eq!(GROUP_EIGHTHS as f64 / 8.0, TENSOR_HOPPER / TENSOR_BY_GROUPS);
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
        let results = Results { offset: [0; 3], step: [1; 3] };
        assert_eq!(fields[1], "2");
        (fields[0].parse().unwrap(), Part { axes, weights, results, rounds: false }, DType::Bf16, batch)
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
            assert_eq!(choose(&cx, &part, dtype, batch).unwrap().0.kernel, fields[8], "{line}");
            let predicted = fastest(&cx, &part, dtype, batch, |_| 0).unwrap().0.kernel;
            match fields[9] {
                "predicted" => assert_eq!(fields[8], predicted, "{line}"),
                source => assert_eq!(source, "measured", "{line}"),
            }
        }
        assert!(keys.len() > 30);
    }
}
