//! `plimsoll bench kernels`: each pass of a convolution by itself.

use plimsoll_cpu::{CpuEngine, CpuLayout, CpuOptions, fma_peak};
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad, Load};
use plimsoll_graph::{DType, GraphError, Kind, Program, Role, Shape, Side, Window};
use plimsoll_memory::{Budget, Bytes, System, limits};
use plimsoll_plan::{Engine, HostSlice, Options, plan};
use serde::Serialize;

use crate::args::BenchKernels;
use crate::failure::Outcome;
use crate::report::{Table, json};

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

/// The layers of U-Nets, and some odd ones; then those of a ResNeXt in two dimensions.
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
    let stem = Window { kernel: [1, 7, 7], stride: [1, 2, 2], padding: [0, 3, 3] };
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
    let mut program = Program::new("layer", precision);
    let output = layer.window.output(layer.extent).unwrap_or(layer.extent);
    let from = if layer.channels < 8 { Side::Image } else { Side::Features };
    let (x_kind, x_type) = match from {
        Side::Image => (Kind::Image, DType::F32),
        Side::Features => (Kind::Features, precision),
    };
    let x = program.input("x", Shape::volume(layer.batch, layer.channels, layer.extent), x_kind);
    let dy = program.input("dy", Shape::volume(layer.batch, layer.features, output), Kind::Features);
    program.tensors[x.index()].dtype = x_type;
    program.tensors[dy.index()].dtype = precision;
    let [d, h, w] = layer.window.kernel;
    let kind = Kind::Weights { sources: vec![layer.channels], from, to: Side::Features };
    let weights =
        program.input("weights", Shape(vec![layer.features, layer.channels / layer.groups, d, h, w]), kind);
    let conv = Conv::new(layer.window, 1, false, Side::Features).grouped(layer.groups);
    let y = program.push(conv, &[x, weights])?[0];
    program.mark_output(y, FORWARD);
    if from == Side::Features {
        let back = ConvTranspose {
            window: layer.window,
            groups: layer.groups,
            load: Load::Plain,
            first_channel: 0,
            channels: layer.channels,
            output: layer.extent,
            to: Side::Features,
            bias: false,
            accumulate: false,
        };
        let dx = program.push(back, &[dy, weights])?[0];
        program.mark_output(dx, DATA_GRADIENT);
    }
    let grad = ConvWeightGrad {
        window: layer.window,
        groups: layer.groups,
        loads: vec![Load::Plain],
        result_load: Load::Plain,
        from,
        to: Side::Features,
    };
    let dw = program.push(grad, &[x, dy])?[0];
    program.mark_output(dw, WEIGHT_GRADIENT);
    Ok(program)
}

const FORWARD: &str = "forward";
const DATA_GRADIENT: &str = "data gradient";
const WEIGHT_GRADIENT: &str = "weight gradient";

/// Measures the passes of all layers: the best of some runs, as the peak is.
pub fn run(args: &BenchKernels, as_json: bool) -> Outcome {
    let threads = args.threads.count();
    let layout = CpuLayout::new(threads);
    let budget = Budget::new(limits(&System::default(), None).line);
    let peak = fma_peak(threads)?;
    let mut rows = Vec::new();
    let flat = |layer: &Layer| layer.extent[0] == 1;
    for layer in layers().into_iter().filter(|layer| args.axes.is_none_or(|axes| flat(layer) == (axes == 2)))
    {
        let program = program(&layer, args.precision.into())?;
        let plan = plan(std::slice::from_ref(&program), &layout, Options::default())?;
        let arena = budget.reserve("arena", Bytes::of(plan.arena_bytes.next_multiple_of(4096)))?;
        let mut engine = CpuEngine::new(plan, arena, CpuOptions::new(threads))?;
        for id in program.with_role(Role::Input) {
            let count = program.shape(id).count();
            let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin()).collect();
            engine.write(0, id, HostSlice::F32(&values));
        }
        (0..=args.rounds.max(1)).for_each(|_| engine.run(0));
        for (node, (_, best)) in program.nodes.iter().zip(engine.least_times(0)) {
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
        "multiply-add peak of {threads} threads: {:.0} GFLOP/s; operations are those of a direct convolution, of which some \
         kernels need half",
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
