//! The kernels on a GPU: every case, whatever it costs. Without a driver or a GPU these tests are reported as ignored, with the reason:
//! `cargo test --release -p conformance --test on_card -- --nocapture`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "cuda_tensor/layers.rs"]
mod layers;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use conformance::{Case, cases, engine_for, expected, run};
use layers::{ALL, Direction, layer};
use libtest_mimic::{Arguments, Trial};
use plimsoll_cuda::{CudaBackend, DeviceError, Driver};
use plimsoll_graph::{DType, Role, Window};
use plimsoll_plan::{Backend, HostSlice, HostSliceMut, Options, ProgramId};

/// The tolerances of the CPU, `tests/cpu.rs`.
const F32: f64 = 5e-6;
const BF16: f64 = 1.5e-2;
const F16: f64 = 3e-3;

/// The number of the GPU to use, the first one where it is not set.
const DEVICE: &str = "PLIMSOLL_TEST_DEVICE";

/// The tests, by name.
const TESTS: [(&str, fn()); 8] = [
    (
        "fragments_lie_in_the_lanes_that_kernels_take_them_from_on_a_card",
        fragments_lie_in_the_lanes_that_kernels_take_them_from_on_a_card,
    ),
    (
        "fragments_and_descriptors_of_each_tile_are_those_of_a_card",
        fragments_and_descriptors_of_each_tile_are_those_of_a_card,
    ),
    ("tiles_are_timed_on_a_card", tiles_are_timed_on_a_card),
    ("convolutions_agree_with_the_definitions_on_a_card", || check_all(cases::all_convolutions)),
    ("maps_and_losses_agree_with_the_definitions_on_a_card", || check_all(cases::all_of_maps)),
    ("gates_positions_and_attention_agree_with_the_definitions_on_a_card", || {
        check_all(cases::attention_networks)
    }),
    ("all_other_ops_agree_with_the_definitions_on_a_card", || check_all(other_ops)),
    ("a_step_whose_numbers_went_wrong_leaves_everything_as_it_was_on_a_card", || {
        conformance::check_guards(&card())
    }),
];

fn main() -> ExitCode {
    let missing = driver().as_ref().err();
    let trials = TESTS.map(|(name, test)| {
        let trial = Trial::test(name, move || {
            test();
            Ok(())
        });
        trial.with_ignored_flag(missing.is_some()).with_kind(missing.cloned().unwrap_or_default())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// Returns the driver of the GPU, or the reason why there is none. All tests share one: its lock keeps a test from allocating while another
/// records.
fn driver() -> &'static Result<Arc<Driver>, String> {
    static DRIVER: OnceLock<Result<Arc<Driver>, String>> = OnceLock::new();
    DRIVER.get_or_init(find_card)
}

/// Returns a backend that fills memory with NaN before it is written.
fn card() -> CudaBackend {
    timed_card().poisoned()
}

/// Returns a backend that does not, for measurements of time.
fn timed_card() -> CudaBackend {
    let driver = driver().as_ref().unwrap_or_else(|missing| panic!("{missing}"));
    println!("on {}", driver.name());
    CudaBackend::new(driver.clone())
}

/// Finds the GPU, or returns the reason if there is no driver or no GPU. Any other error fails all tests.
fn find_card() -> Result<Arc<Driver>, String> {
    let ordinal = std::env::var(DEVICE).map_or(0, |number| {
        number.parse().unwrap_or_else(|_| panic!("{DEVICE} is `{number}`, which is no number of a GPU"))
    });
    match Driver::find(ordinal) {
        Ok(driver) => Ok(Arc::new(driver)),
        Err(why @ (DeviceError::NoDriver | DeviceError::NoDevice { found: 0, .. })) => Err(why.to_string()),
        Err(why) => panic!("{why}: {:?}; {}", why.source(), why.remedy()),
    }
}

fn bits(found: &BTreeMap<String, Vec<f64>>) -> BTreeMap<&str, Vec<u64>> {
    found.iter().map(|(name, values)| (&name[..], values.iter().map(|x| x.to_bits()).collect())).collect()
}

/// Checks the numbers of a case, and that another run, other places and recomputation give the same bits.
fn check(backend: &CudaBackend, case: &Case, expected: &BTreeMap<String, Vec<f64>>, tolerance: f64) {
    let first = run(backend, case, Options::default());
    conformance::compare(case, expected, &first, tolerance);
    let apart = Options { reuse: false, ..Options::default() };
    for options in [Options::default(), apart, Options { budget: Some(0), ..Options::default() }] {
        assert!(bits(&first) == bits(&run(backend, case, options)), "{}: other bits", case.name);
    }
}

fn check_all(of: fn(DType) -> Vec<Case>) {
    let backend = card();
    for (precision, tolerance) in [(DType::F32, F32), (DType::Bf16, BF16), (DType::F16, F16)] {
        let cases = of(precision);
        cases.iter().for_each(|case| check(&backend, case, &expected(case), tolerance));
        // `benches/gpu/lease.sh` counts them.
        println!("{} cases in {precision}: they agree", cases.len());
    }
    // Only cards since Ampere round f32 to tf32, which has as many bits as f16.
    let Ok(rounding) = backend.with_tf32_products() else { return };
    let cases = of(DType::F32);
    for case in &cases {
        let found = run(&*rounding, case, Options::default());
        conformance::compare(case, &expected(case), &found, F16);
    }
    println!("{} cases in tf32: they agree", cases.len());
}

/// Each kernel that multiplies fragments, by itself: where a lane of a card has other elements of a matrix than the kernel takes it to have,
/// all results are others. On cards without such instructions for a type, plain kernels run.
fn fragments_lie_in_the_lanes_that_kernels_take_them_from_on_a_card() {
    let backend = card();
    for (stored, tolerance) in [(DType::Bf16, BF16), (DType::F16, F16)] {
        for direction in ALL {
            let what = match direction {
                Direction::Forward => "forward",
                Direction::Source => "gradient of sources",
                Direction::Weights => "gradient of weights",
            };
            // More than a tile along each axis, and channels that fill none.
            let layer = layer(Window::same([3; 3], [1; 3]), 1, [5, 9, 11], &[17], 40);
            let case = layer.case(&[direction], stored, stored);
            check(&backend, &case, &expected(&case), tolerance);
            println!("fragments of {stored}, {what}: they agree");
        }
    }
}

/// The same of each tile that the card's kernels have, whichever would be taken: products by warp groups read descriptors, too.
fn fragments_and_descriptors_of_each_tile_are_those_of_a_card() {
    let backend = card();
    for (stored, tolerance) in [(DType::Bf16, BF16), (DType::F16, F16)] {
        let same = Window::same([3; 3], [1; 3]);
        let forward = layer(same, 1, [5, 9, 11], &[17], 72).case(&[Direction::Forward], stored, stored);
        let source = layer(same, 1, [5, 9, 11], &[72], 17).case(&[Direction::Source], stored, stored);
        let cases = [forward, source].map(|case| (expected(&case), case));
        for tile in backend.tiles() {
            let with_tile = backend.with_tile(tile).unwrap();
            cases.iter().for_each(|(expected, case)| check(&with_tile, case, expected, tolerance));
            println!("fragments of {stored}, {tile}: they agree");
        }
    }
}

/// Milliseconds of a run of a case with one output; the weights are packed in each.
fn milliseconds(backend: &CudaBackend, case: &Case) -> f64 {
    const RUNS: u32 = 10;
    let mut engine = engine_for(backend, std::slice::from_ref(&case.program), Options::default()).unwrap();
    let id = ProgramId::new(0);
    let tensors = || case.program.ids().map(|tensor| (tensor, case.program.tensor(tensor)));
    for (tensor, info) in tensors().filter(|(_, info)| info.role == Role::Input) {
        let numbers: Vec<f32> =
            (0..info.shape.count()).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect();
        engine.write(id, tensor, HostSlice::F32(&numbers)).unwrap();
    }
    let (result, _) = tensors().find(|(_, info)| info.role == Role::Output).unwrap();
    // A number is there when all runs before it are over.
    let mut run = |runs: u32| {
        let start = Instant::now();
        (0..runs).for_each(|_| engine.run(id).unwrap());
        engine.read_from(id, result, 0, HostSliceMut::F32(&mut [0.0])).unwrap();
        start.elapsed()
    };
    run(3);
    1e3 * run(RUNS + 1).saturating_sub(run(1)).as_secs_f64() / f64::from(RUNS)
}

/// The time of each tile for the layers of a DynUNet at 96³: a line of JSON each, with the fields of the table in
/// `ops/conv/tiles.csv`.
fn tiles_are_timed_on_a_card() {
    let backend = timed_card();
    let architecture = backend.identity();
    let architecture = architecture.split(", ").nth(1).unwrap();
    let layers: [(usize, &[usize], usize); 9] = [
        (96, &[32], 32),
        (96, &[64], 32),
        (48, &[64], 64),
        (48, &[128], 64),
        (24, &[128], 128),
        (24, &[256], 128),
        (12, &[256], 256),
        (12, &[512], 256),
        (6, &[320], 320),
    ];
    for (extent, channels, outputs) in layers {
        let layer = layer(Window::same([3; 3], [1; 3]), 1, [extent; 3], channels, outputs);
        let case = layer.case(&[Direction::Forward], DType::Bf16, DType::Bf16);
        // Warp groups multiply for 64 channels and more.
        let tiles = backend.tiles().filter(|tile| outputs >= 64 || !tile.starts_with("warpgroup"));
        let lines = tiles.map(|tile| {
            let milliseconds = milliseconds(&backend.with_tile(tile).unwrap(), &case);
            let chunks = channels[0].div_ceil(16);
            format!(
                "{{\"architecture\": \"{architecture}\", \"bytes\": 2, \"taps\": \"3x3x3\", \"stride\": \"1x1x1\", \
                 \"places\": \"{extent}x{extent}x{extent}\", \"batch\": 1, \"chunks\": {chunks}, \"outputs\": {outputs}, \
                 \"tile\": \"{tile}\", \"milliseconds\": {milliseconds:.4}}}"
            )
        });
        // Of a layer all or none, whenever this is cut off: the fastest of some tiles is not the fastest.
        println!("{}", lines.collect::<Vec<String>>().join("\n"));
    }
}

fn other_ops(precision: DType) -> Vec<Case> {
    match precision {
        DType::F32 => cases::all_others().into_iter().chain(cases::long_sums()).collect(),
        _ => Vec::new(),
    }
}
