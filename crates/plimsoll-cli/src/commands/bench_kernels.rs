//! `plimsoll bench kernels`: each pass of a convolution by itself.

use plimsoll::backend::{DeviceName, multiply_add_peak};
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{DType, GraphError, Kind, Program, Role, Shape, Window};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_plan::{HostSlice, Options, plan};
use serde::Serialize;

use super::bench_step::ONLY;
use crate::args::BenchKernels;
use crate::failure::Outcome;
use crate::report::{Table, json};
use crate::terminal::observed;

/// A convolution.
struct Layer {
    batch: usize,
    channels: usize,
    features: usize,
    groups: usize,
    extent: [usize; 3],
    window: Window,
}

#[derive(Serialize)]
struct Row {
    batch: usize,
    channels: usize,
    features: usize,
    groups: usize,
    extent: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    pass: String,
    milliseconds: f64,
    /// By the operations of a direct convolution.
    gflops: f64,
    /// The same; above one where the kernel needs fewer.
    fraction_of_peak: f64,
}

/// The layers of U-Nets and some odd ones, then layers of a ResNeXt in two dimensions.
fn layers() -> Vec<Layer> {
    let layer = |channels, features, edge, window| Layer {
        batch: 1,
        channels,
        features,
        groups: 1,
        extent: [edge; 3],
        window,
    };
    let flat = |channels, features, groups, edge, window| Layer {
        batch: 8,
        channels,
        features,
        groups,
        extent: [1, edge, edge],
        window,
    };
    let same_flat = Window::same([1, 3, 3], [1; 3]);
    let stem = Window::new([1, 7, 7], [1, 2, 2], [0, 3, 3]);
    let same = Window::same([3; 3], [1; 3]);
    vec![
        layer(1, 32, 64, same),
        layer(32, 32, 64, same),
        layer(64, 32, 64, same),
        layer(32, 64, 64, Window::same([3; 3], [2; 3])),
        layer(64, 64, 32, same),
        layer(128, 128, 32, same),
        layer(128, 128, 16, same),
        layer(256, 256, 8, same),
        layer(320, 320, 4, same),
        layer(32, 32, 64, Window::same([1, 3, 3], [1; 3])),
        layer(32, 32, 64, Window::point()),
        layer(32, 64, 64, Window::blocks([2; 3])),
        flat(3, 64, 1, 224, stem),
        flat(128, 128, 32, 56, same_flat),
        flat(256, 256, 32, 28, same_flat),
        flat(512, 512, 32, 14, same_flat),
        flat(1024, 1024, 32, 7, same_flat),
        flat(256, 256, 32, 56, Window::same([1, 3, 3], [1, 2, 2])),
        flat(128, 128, 128, 56, same_flat),
    ]
}

/// The passes of a layer, as a program.
fn program(layer: &Layer, precision: DType) -> Result<Program, GraphError> {
    let mut program = Program::new("layer");
    let output = layer.window.output(layer.extent).unwrap_or(layer.extent);
    // An image has few channels, no gradient, and the precision that it was read in.
    let is_image = layer.channels < 8;
    let x_type = if is_image { DType::F32 } else { precision };
    let x = program.input("x", Shape::volume(layer.batch, layer.channels, layer.extent), Kind::Volume);
    let dy = program.input("dy", Shape::volume(layer.batch, layer.features, output), Kind::Volume);
    program.tensors[x.index()].dtype = x_type;
    program.tensors[dy.index()].dtype = precision;
    let [d, h, w] = layer.window.kernel;
    let weights = Shape(vec![layer.features, layer.channels / layer.groups, d, h, w]);
    let weights = program.input("weights", weights, Kind::Weights);
    let conv = Conv::new(layer.window, false, precision).grouped(layer.groups);
    let y = program.push(conv, &[x, weights])?[0];
    program.mark_output(y, FORWARD);
    if !is_image {
        let back = ConvTranspose {
            window: layer.window,
            groups: layer.groups,
            first_channel: 0,
            channels: layer.channels,
            output: layer.extent,
            bias: false,
            dtype: precision,
        };
        let dx = program.push(back, &[dy, weights])?[0];
        program.mark_output(dx, DATA_GRADIENT);
    }
    let dw = program.push(ConvWeightGrad { window: layer.window, groups: layer.groups }, &[x, dy])?[0];
    program.mark_output(dw, WEIGHT_GRADIENT);
    Ok(program)
}

const FORWARD: &str = "forward";
const DATA_GRADIENT: &str = "data gradient";
const WEIGHT_GRADIENT: &str = "weight gradient";

/// Measures the passes of all layers: the best of some runs, as the peak is.
pub fn run(args: &BenchKernels, as_json: bool) -> Outcome {
    let threads = args.threads.count();
    let backend = args.precision.on(DeviceName::Cpu.open(threads, None)?)?;
    let budget = Budget::new(observed(as_json).limits(None).limit);
    let peak = multiply_add_peak(threads)?;
    let mut rows = Vec::new();
    let flat = |layer: &Layer| layer.extent[0] == 1;
    for layer in layers().into_iter().filter(|layer| args.axes.is_none_or(|axes| flat(layer) == (axes == 2)))
    {
        let program = program(&layer, args.precision.into())?;
        let plan = plan(std::slice::from_ref(&program), &*backend, Options::default())?;
        let arena = budget.reserve("arena", Bytes::from_len(plan.arena_bytes.next_multiple_of(4096)))?;
        let mut engine = backend.engine(plan, arena)?;
        for id in program.with_role(Role::Input) {
            let count = program.shape(id).count();
            let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin()).collect();
            engine.write(ONLY, id, HostSlice::F32(&values))?;
        }
        for _ in 0..=args.rounds.max(1) {
            engine.run(ONLY)?;
        }
        for (node, time) in program.nodes.iter().zip(engine.least_times(ONLY)) {
            let best = time.seconds;
            let name = &program.tensor(node.outputs[0]).name;
            let flops = program.cost(node).flops as f64;
            rows.push(Row {
                batch: layer.batch,
                channels: layer.channels,
                groups: layer.groups,
                features: layer.features,
                extent: layer.extent,
                kernel: layer.window.kernel,
                stride: layer.window.stride,
                pass: name.clone(),
                milliseconds: best * 1e3,
                gflops: flops / best / 1e9,
                fraction_of_peak: flops / best / peak,
            });
        }
    }
    if as_json {
        return json(&rows);
    }
    println!(
        "multiply-add peak of {threads} threads: {:.0} GFLOP/s; operations are counted for a direct convolution; some kernels need half \
         as many or fewer",
        peak / 1e9
    );
    let mut table = Table::new([
        "channels",
        "groups",
        "extent",
        "kernel",
        "stride",
        "pass",
        "ms",
        "GFLOP/s",
        "of the peak",
    ]);
    let triple = |[d, h, w]: [usize; 3]| format!("{d}×{h}×{w}");
    for row in rows {
        table.row([
            format!("{} → {}", row.channels, row.features),
            row.groups.to_string(),
            format!("{} of {}", row.batch, triple(row.extent)),
            triple(row.kernel),
            triple(row.stride),
            row.pass,
            format!("{:.2}", row.milliseconds),
            format!("{:.0}", row.gflops),
            format!("{:.0} %", 100.0 * row.fraction_of_peak),
        ]);
    }
    table.print();
    Ok(())
}
