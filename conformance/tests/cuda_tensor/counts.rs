//! Instructions and passes over shared memory that the emulator counts, as sums over warps and turns of loops: the table that predicted times
//! are made of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conformance::emulator::{Blocks, Emulator, Sample, Samples};
use conformance::{Case, cases, run};
use plimsoll_cuda::{Architecture, CudaBackend, Nowhere};
use plimsoll_graph::{DType, Program, Window};
use plimsoll_nn::{Network, NetworkName, Objective, Optimizer, Training};
use plimsoll_plan::{Backend, Options};

use crate::layers::{ALL, Direction, layer};
use crate::staged::normalised;

/// Numbers of a line for instructions, and as many for passes: for a warp, and for a turn of each loop.
const NUMBERS: usize = 8;

/// Kernels whose counts are further from such sums are not in the table: their loops depend on more than shapes.
const MOST_ERROR: f64 = 0.4;

/// Launches with more than this part of the instructions of the largest one are large.
const LARGE: f64 = 8.0;

/// Cases of networks with more operations than this take too long.
const FEW_FLOPS: u64 = 300_000;

fn table() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/plimsoll-cuda/kernels/counts.csv")
}

/// Convolutions of all shapes that the loops of their kernels depend on.
fn convolutions(stored: DType) -> Vec<Case> {
    let same = Window::same([3; 3], [1; 3]);
    let windows = [
        (same, [4, 8, 16]),
        (same, [8, 8, 8]),
        (Window::same([3; 3], [2; 3]), [4, 16, 16]),
        (Window::same([1, 3, 3], [1; 3]), [2, 8, 24]),
        (Window::blocks([2; 3]), [4, 16, 16]),
        (Window::point(), [4, 8, 16]),
    ];
    let mut all = Vec::new();
    for (window, extent) in windows {
        for (channels, outputs) in [(&[32][..], 32), (&[64], 64), (&[16, 32], 64), (&[1], 32), (&[32], 3)] {
            all.push(layer(window, 1, extent, channels, outputs).case(&ALL, stored, stored));
        }
        for (channels, outputs) in [(&[32][..], 32), (&[48, 16], 64)] {
            if stored != DType::F32 {
                all.push(normalised(window, 1, extent, channels, outputs, stored));
            }
        }
    }
    // Sums over several tiles, as of all large volumes.
    for (window, extent) in [
        (same, [8, 32, 32]),
        (Window::point(), [16, 32, 32]),
        (Window::same([1, 3, 3], [1; 3]), [16, 32, 32]),
    ] {
        for (channels, outputs) in [(&[64][..], 64), (&[128], 64)] {
            all.push(layer(window, 1, extent, channels, outputs).case(&[Direction::Weights], stored, stored));
        }
    }
    // Sums that are divided among blocks.
    for (channels, extent) in [(&[160][..], [2, 4, 8]), (&[320], [2, 8, 8])] {
        all.push(layer(same, 1, extent, channels, 32).case(&[Direction::Forward], stored, stored));
    }
    // Results of f32, which logits are, and their gradients.
    all.push(layer(Window::point(), 1, [8, 16, 16], &[32], 3).case(&ALL, stored, DType::F32));
    all.push(layer(Window::point(), 2, [8, 8, 16], &[64], 3).case(&ALL, stored, DType::F32));
    all
}

/// Training steps of small networks, for all that is between convolutions.
fn steps(stored: DType) -> Vec<Case> {
    let small = |name, features: &[usize], patch| {
        let net = Network::reference(name, Some(features)).unwrap();
        Case { depth: 100.0, ..Case::new(format!("{name:?}"), step(net, patch, stored), 2) }
    };
    vec![
        small(NetworkName::DynUNet, &[8, 16], [8, 32, 32]),
        small(NetworkName::DynUNet, &[16, 24, 32], [16, 16, 32]),
    ]
}

/// Attention of several tiles of keys, which cases of few operations do not have.
fn attention(stored: DType) -> Vec<Case> {
    let all = [(66, [4, 4, 6]), (24, [4, 4, 8]), (96, [2, 4, 8]), (66, [4, 8, 8]), (18, [6, 6, 7])];
    all.map(|(head_channels, extent)| cases::rotary_attention(1, head_channels, extent, stored)).into()
}

/// The launches of cases on a backend.
fn sampled(
    cases: &[Case],
    emulator: Emulator,
    change: impl Fn(&CudaBackend) -> Arc<dyn Backend>,
) -> Vec<Sample> {
    let samples = Samples::default();
    let backend = change(&emulator.sampled(&samples).backend());
    for case in cases {
        run(&*backend, case, Options::default());
    }
    drop(backend);
    std::mem::take(&mut *samples.lock().unwrap())
}

fn architecture(capability: (u32, u32)) -> Architecture {
    Architecture::new(capability.0, capability.1).unwrap()
}

/// All launches of all kernels, by the piece of PTX and the kernel.
fn all_samples() -> BTreeMap<(String, String), Vec<Sample>> {
    let mut all: BTreeMap<(String, String), Vec<Sample>> = BTreeMap::new();
    let mut add = |capability: (u32, u32), samples: Vec<Sample>| {
        for sample in samples {
            let piece = if sample.kernel.starts_with("tensor") {
                let (major, minor) = capability.min((8, 0));
                format!("{major}.{minor}")
            } else if sample.kernel.starts_with("warpgroup") {
                "9.0".into()
            } else {
                "all".into()
            };
            all.entry((piece, sample.kernel.clone())).or_default().push(sample);
        }
    };
    for (capability, stored) in [
        ((7, 0), DType::F16),
        ((7, 5), DType::F16),
        ((8, 0), DType::F16),
        ((8, 0), DType::Bf16),
        ((8, 0), DType::F32),
        ((9, 0), DType::F16),
        ((9, 0), DType::Bf16),
    ] {
        let emulator = || Emulator::new(architecture(capability), Blocks::Ascending);
        let tiles: Vec<&str> = emulator().backend().tiles().collect();
        // Warp groups alone: 9.0 shares the others with 8.0.
        let own = |tile: &&&str| capability < (9, 0) || tile.starts_with("warpgroup");
        for tile in tiles.iter().filter(own) {
            println!("{capability:?} {stored} {tile}");
            let mut cases = convolutions(stored);
            if *tile != tiles[0] {
                // Gradients of weights have one kind of tile.
                cases.retain(|case| case.program.nodes.len() > 1);
            }
            let with_tile = |backend: &CudaBackend| -> Arc<dyn Backend> {
                let backend = backend.with_tile(tile).unwrap();
                if stored == DType::F32 { backend.with_tf32_products().unwrap() } else { Arc::new(backend) }
            };
            add(capability, sampled(&cases, emulator(), with_tile));
        }
    }
    // Plain convolutions, and all that are none.
    let plain = |backend: &CudaBackend| -> Arc<dyn Backend> { Arc::new(backend.clone()) };
    let emulator = || Emulator::new(architecture((8, 0)), Blocks::Ascending);
    let mut convolutions = convolutions(DType::F32);
    for window in [Window::same([3; 3], [1; 3]), Window::same([3; 3], [2; 3]), Window::blocks([2; 3])] {
        convolutions.push(layer(window, 1, [8, 16, 32], &[16], 16).case(&ALL, DType::F32, DType::F32));
        convolutions.push(layer(window, 1, [8, 16, 32], &[8, 8], 8).case(&ALL, DType::F32, DType::F32));
    }
    add((8, 0), sampled(&convolutions, emulator(), plain));
    for stored in [DType::F32, DType::Bf16, DType::F16] {
        let mut others = cases::all_of_maps(stored);
        others.extend(cases::attention_networks(stored));
        others.extend(cases::all_others());
        others.extend(cases::networks(stored));
        others.retain(|case| case.program.flops() <= FEW_FLOPS);
        others.extend(steps(stored));
        others.extend(attention(stored));
        add((8, 0), sampled(&others, emulator(), plain));
        // Attention has kernels without tensor cores for Volta, and with them for Turing.
        for capability in [(7, 0), (7, 5)] {
            let emulator = Emulator::new(architecture(capability), Blocks::Ascending);
            add(capability, sampled(&attention(stored), emulator, plain));
        }
    }
    share_loops(&mut all);
    all
}

/// Adds the launches of convolutions that store what they multiply to the launches of the same kernels that store f32: these are too few, and have the same loops.
fn share_loops(all: &mut BTreeMap<(String, String), Vec<Sample>>) {
    let alike = all.iter().filter_map(|((piece, kernel), samples)| {
        let is_conv = kernel.starts_with("tensor_conv_") || kernel.starts_with("warpgroup_conv_");
        let multiplied = ["_bf16", "_f16"].into_iter().filter(|_| is_conv);
        let kernel = multiplied.map(|of| kernel.strip_suffix(of).filter(|rest| rest.ends_with(of)));
        let single = format!("{}_f32", kernel.flatten().next()?);
        Some(((piece.clone(), single), samples.clone()))
    });
    for (key, samples) in alike.collect::<Vec<_>>() {
        all.entry(key).or_default().extend(samples);
    }
}

/// The factors of some sums, none below zero, by least squares of errors, and the largest relative error of large sums.
fn solve(rows: &[([f64; NUMBERS], f64)]) -> ([f64; NUMBERS], f64) {
    let most = rows.iter().map(|(_, sum)| *sum).fold(1.0, f64::max);
    // Small launches count less: threads of a volume's edges, which they have many of, do less.
    let relative = |(terms, sum): &([f64; NUMBERS], f64)| {
        let scale = 1.0 / (sum.max(1.0) * most).sqrt();
        (terms.map(|term| term * scale), sum * scale)
    };
    let (unscaled, rows): (_, Vec<([f64; NUMBERS], f64)>) = (rows, rows.iter().map(relative).collect());
    let over_rows = |of: &dyn Fn(&[f64; NUMBERS], f64) -> f64| -> f64 {
        rows.iter().map(|(terms, sum)| of(terms, *sum)).sum()
    };
    let normal: [[f64; NUMBERS]; NUMBERS] =
        std::array::from_fn(|a| std::array::from_fn(|b| over_rows(&|terms, _| terms[a] * terms[b])));
    let right: [f64; NUMBERS] = std::array::from_fn(|a| over_rows(&|terms, sum| terms[a] * sum));
    let mut factors = [0.0; NUMBERS];
    // One factor after the other (Franc, Hlaváč and Navara 2005, "Sequential coordinate-wise algorithm for the non-negative least squares problem").
    for _ in 0..100_000 {
        for at in (0..NUMBERS).filter(|at| normal[*at][*at] > 0.0) {
            let slope = normal[at].iter().zip(factors).map(|(of, factor)| of * factor).sum::<f64>();
            factors[at] = f64::max(0.0, factors[at] - (slope - right[at]) / normal[at][at]);
        }
    }
    let large = unscaled.iter().filter(|(_, sum)| *sum >= most / LARGE);
    let error =
        |(terms, sum): &([f64; NUMBERS], f64)| (predicted(terms, &factors) / sum.max(1.0) - 1.0).abs();
    (factors, large.map(error).fold(0.0, f64::max))
}

fn predicted(terms: &[f64; NUMBERS], factors: &[f64; NUMBERS]) -> f64 {
    terms.iter().zip(factors).map(|(term, factor)| term * factor).sum()
}

fn terms(sample: &Sample) -> [f64; NUMBERS] {
    std::array::from_fn(|at| match at {
        0 => sample.warps as f64,
        at => sample.loops[at - 1] as f64,
    })
}

/// Passes over shared memory, of 128 bytes or less.
fn passes(sample: &Sample) -> f64 {
    let bytes = sample.counts.shared_bytes_loaded + sample.counts.shared_bytes_stored;
    bytes as f64 / 128.0 + sample.counts.bank_conflicts as f64
}

fn lines(factors: &[f64; NUMBERS]) -> String {
    factors.iter().fold(String::new(), |line, factor| format!("{line},{:.1}", factor + 0.0))
}

#[test]
#[ignore = "takes minutes: it writes the table, after the kernels have changed"]
fn write_the_table_of_counts() {
    // The digest of the PTX, as in the table of resources.
    let resources = std::fs::read_to_string(table().with_file_name("resources.csv")).unwrap();
    let mut table_of = format!("{}\npiece,kernel,", resources.lines().next().unwrap());
    for kind in ["instructions", "passes"] {
        write!(table_of, "{kind} of a warp,").unwrap();
        (1..NUMBERS).for_each(|at| write!(table_of, "of a turn of loop {at},").unwrap());
    }
    table_of.pop();
    table_of.push('\n');
    for ((piece, kernel), samples) in all_samples() {
        let row = |of: &dyn Fn(&Sample) -> f64| -> Vec<([f64; NUMBERS], f64)> {
            samples.iter().map(|sample| (terms(sample), of(sample))).collect()
        };
        let (instructions, error) = solve(&row(&|sample| sample.counts.instructions as f64));
        let (passed, _) = solve(&row(&passes));
        if error > MOST_ERROR {
            println!(
                "{kernel} of {piece}: {:.0} % off in {} launches, left out",
                100.0 * error,
                samples.len()
            );
            continue;
        }
        writeln!(table_of, "{piece},{kernel}{}{}", lines(&instructions), lines(&passed)).unwrap();
    }
    std::fs::write(table(), table_of).unwrap();
}

/// The lines of the table, by the piece of PTX and the kernel: factors of instructions and of passes.
fn known() -> BTreeMap<(String, String), [[f64; NUMBERS]; 2]> {
    let table = std::fs::read_to_string(table()).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let numbers: Vec<f64> = fields[2..].iter().map(|field| field.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 2 * NUMBERS, "{line}");
        let [instructions, passes] = [0, NUMBERS].map(|first| std::array::from_fn(|at| numbers[first + at]));
        ((fields[0].to_string(), fields[1].to_string()), [instructions, passes])
    };
    table.lines().skip(2).map(line).collect()
}

/// Other shapes than those that the table was made of, and deeper sums.
#[test]
fn the_table_has_the_instructions_of_convolutions_of_other_shapes() {
    let known = known();
    for (capability, piece, stored) in [((7, 0), "7.0", DType::F16), ((8, 0), "8.0", DType::Bf16)] {
        let cases = [
            layer(Window::same([3; 3], [1; 3]), 1, [6, 8, 24], &[48], 64).case(&ALL, stored, stored),
            layer(Window::same([3; 3], [2; 3]), 1, [8, 8, 16], &[32], 64).case(&ALL, stored, stored),
            normalised(Window::same([3; 3], [1; 3]), 1, [4, 16, 16], &[32], 32, stored),
        ];
        let emulator = Emulator::new(architecture(capability), Blocks::Ascending);
        let samples = sampled(&cases, emulator, |backend| Arc::new(backend.clone()));
        let of_piece = |sample: &Sample| if sample.kernel.starts_with("tensor") { piece } else { "all" };
        let mut checked = 0;
        for sample in samples.iter().filter(|sample| sample.kernel.starts_with("tensor_")) {
            let [instructions, passed] = known[&(of_piece(sample).to_string(), sample.kernel.clone())];
            let (found, expected) =
                (predicted(&terms(sample), &instructions), sample.counts.instructions as f64);
            assert!((found / expected - 1.0).abs() < 0.15, "{}: {found} of {expected}", sample.kernel);
            // Accesses by some lanes of a warp are counted by their bytes, as parts of a pass.
            let (found, expected) = (predicted(&terms(sample), &passed), passes(sample));
            assert!((found - expected).abs() <= 0.2 * expected, "{}: {found} of {expected}", sample.kernel);
            checked += 1;
        }
        assert!(checked >= 9, "{checked}");
    }
}

/// The program of a training step of two patches.
fn step(net: Network, patch: [usize; 3], precision: DType) -> Program {
    let training = Training {
        net,
        loss: Objective::default(),
        spacing: [1.0; 3],
        optimizer: Optimizer::adamw(),
        max_grad_norm: Some(1.0),
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch,
        batch: 2,
        shards: 1,
        micro_batch: 2,
        precision,
    };
    training.programs().unwrap().gradients[0].clone()
}

/// Goals for a step on two patches of 128³, by the predictions of its nodes. `--nocapture` prints their sums by kind and limit.
#[test]
fn steps_are_predicted_to_take_no_longer_than_their_goals() {
    for (network, name, precision, milliseconds) in [
        (NetworkName::DynUNet, "sm_90", DType::Bf16, 32.0),
        (NetworkName::DynUNet, "sm_80", DType::Bf16, 60.0),
        (NetworkName::DynUNet, "sm_70", DType::F16, 150.0),
        (NetworkName::DynUNet, "sm_75", DType::F16, 350.0),
        (NetworkName::ResidualEncoderUNet, "sm_90", DType::Bf16, 40.0),
        (NetworkName::ResidualEncoderUNet, "sm_80", DType::Bf16, 80.0),
    ] {
        let program = step(Network::reference(network, None).unwrap(), [128; 3], precision);
        let source = Nowhere(name.parse().unwrap());
        let lowered = CudaBackend::new(Arc::new(source)).lower(&[program], true).unwrap();
        let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
        for node in &lowered[0].nodes {
            *kinds.entry(format!("{}, {:?}", node.name, node.bound)).or_default() += node.seconds;
        }
        let all: f64 = kinds.values().sum();
        println!("{network:?} on {name}: {:.2} ms, {kinds:?}", 1e3 * all);
        assert!(1e3 * all <= milliseconds, "{network:?} on {name}: {:.2} ms", 1e3 * all);
    }
}

/// Kernels that follow no such sums: of one block or few, over the classes of a loss, and plain gradients of mixed types, which Volta has for its heads alone.
const UNCOUNTED: [&str; 7] = [
    "composite_loss",
    "composite_loss_slopes",
    "softmax_stats_parts",
    "normalise_grad_means",
    "conv_weight_grad_f16_f32",
    "conv_weight_grad_f32_f16",
    "conv_transpose_f32_f32",
];

#[test]
fn the_kernels_of_training_steps_are_counted() {
    for network in [NetworkName::DynUNet, NetworkName::ResidualEncoderUNet, NetworkName::SwinUnetr] {
        let net = Network::reference(network, None).unwrap();
        for (name, precision) in [
            ("sm_70", DType::F16),
            ("sm_75", DType::F16),
            ("sm_80", DType::Bf16),
            ("sm_90", DType::Bf16),
            ("sm_80", DType::F32),
        ] {
            let program = step(net.clone(), [64; 3], precision);
            let source = Nowhere(name.parse().unwrap());
            let mut uncounted = CudaBackend::new(Arc::new(source)).uncounted(&program).unwrap();
            uncounted.retain(|kernel| !UNCOUNTED.contains(&kernel.as_str()));
            assert!(uncounted.is_empty(), "{network:?} on {name}: {uncounted:?}");
        }
    }
}
