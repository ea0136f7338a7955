//! Kernels that are broken on purpose, in their PTX or in how they are launched, are found out.

use conformance::{Case, engine_for, expected, read, values, write};
use plimsoll_graph::Window;
use plimsoll_plan::{Backend, EngineError, Options, ProgramId};

use crate::layers::{Direction, layer};
use crate::{AMPERE, AMPERE_TF32, Cores, HOPPER, TURING, VOLTA};
use conformance::emulator::Blocks;

/// Runs a case that is broken somewhere: how far the worst result is off, relative to the largest; or why it did not run to its end.
pub(crate) fn broken(case: &Case, backend: &dyn Backend) -> Result<f64, String> {
    let program = &case.program;
    let mut engine = engine_for(backend, std::slice::from_ref(program), Options::default()).unwrap();
    let id = ProgramId::new(0);
    for (name, array) in values(case) {
        write(&mut *engine, id, program.find(&name).unwrap(), &array.data);
    }
    engine.run(id).map_err(|error: EngineError| {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    })?;
    let mut worst = 0.0_f64;
    for (name, expected) in expected(case) {
        let found = read(&*engine, id, program.find(&name).unwrap());
        let scale = expected.iter().fold(0.0_f64, |scale, x| scale.max(x.abs()));
        let errors = found.iter().zip(&expected).map(|(a, b)| (a - b).abs() / scale);
        worst =
            errors.fold(worst, |worst, error| if error.is_nan() { f64::INFINITY } else { worst.max(error) });
    }
    Ok(worst)
}

/// The last piece of PTX, with tensor cores, edited within the kernels whose names begin so.
fn edited(cores: Cores, kernels: &str, edit: impl Fn(&str) -> String) -> String {
    let pieces: Vec<String> = plimsoll_cuda::ptx(cores.architecture()).map(Result::unwrap).collect();
    let marker = ".visible .entry ";
    let mut parts = pieces[pieces.len() - 1].split(marker);
    let mut text = parts.next().unwrap().to_string();
    let mut changed = false;
    for part in parts {
        let part = if part.starts_with(kernels) {
            let new = edit(part);
            changed |= new != part;
            new
        } else {
            part.to_string()
        };
        text += marker;
        text += &part;
    }
    assert!(changed, "nothing of {kernels} was edited");
    // Those that add parts up and that make tables of angles are needed, too.
    for plain in ["sum_few_parts", "rotary_angles"] {
        let start = pieces[0].find(&format!(".visible .entry {plain}(")).unwrap();
        let end = start + pieces[0][start..].find("\n}").unwrap() + 3;
        text += &pieces[0][start..end];
    }
    text
}

/// The cases that broken kernels are tried on: several chunks and tiles.
fn victims() -> impl Iterator<Item = (Cores, &'static str, Case)> {
    let same = Window::same([3; 3], [1; 3]);
    let forward = layer(same, 2, [5, 9, 9], &[40], 16);
    let weights = layer(same, 2, [13, 33, 17], &[40], 64);
    let by_groups =
        layer(same, 1, [5, 9, 9], &[40], 64).case(&[Direction::Forward], HOPPER.stored, HOPPER.stored);
    // Kernels of one piece of PTX for bf16 and f16 differ in the type that they multiply alone.
    let by_warps = [AMPERE, AMPERE_TF32, TURING, VOLTA].into_iter().flat_map(move |cores| {
        let stored = cores.stored;
        [
            (cores, "tensor_conv_", forward.case(&[Direction::Forward], stored, stored)),
            (cores, "tensor_weight_grad", weights.case(&[Direction::Weights], stored, stored)),
        ]
    });
    by_warps.chain([(HOPPER, "warpgroup_conv_", by_groups)])
}

/// Returns `true` if a kernel is one of those that are broken, and not one that packs weights or adds parts up.
fn is_victim(kernel: &str) -> bool {
    ["tensor_conv_", "tensor_weight_grad", "warpgroup_conv_"].iter().any(|start| kernel.starts_with(start))
}

pub(crate) fn try_edit(
    cores: Cores,
    kernels: &str,
    case: &Case,
    edit: impl Fn(&str) -> String,
) -> Result<f64, String> {
    let text = edited(cores, kernels, edit);
    broken(case, &*cores.backend(cores.emulator(Blocks::Shuffled(3)).with_ptx(&text)))
}

#[test]
fn the_cases_that_broken_kernels_are_tried_on_are_right_with_whole_ones() {
    for (cores, kernels, case) in victims() {
        let error = try_edit(cores, kernels, &case, |text| format!("{text}\n")).unwrap();
        assert!(error < cores.tolerance(), "{}, {kernels}: {error}", cores.architecture());
    }
}

#[test]
fn a_removed_barrier_is_found() {
    for (cores, kernels, case) in victims() {
        let fault = try_edit(cores, kernels, &case, |text| text.replace("bar.sync \t0;", "")).unwrap_err();
        assert!(fault.contains("shared memory"), "{}, {kernels}: {fault}", cores.architecture());
    }
}

/// If a block has one stage, the removed barrier is the one that keeps it from being filled too early, or from being
/// read too early.
#[test]
fn each_of_the_barriers_of_a_single_stage_is_needed() {
    for (cores, kernels, case) in victims().filter(|(cores, ..)| cores.capability < AMPERE.capability) {
        let barrier = "bar.sync \t0;";
        let most = edited(cores, kernels, |text| format!("{text}\n")).matches(barrier).count();
        assert!(most > 0, "{kernels}");
        for removed in 0..2 {
            let edit = |text: &str| {
                let pieces: Vec<&str> = text.split(barrier).collect();
                let joined = pieces.iter().enumerate().map(|(at, piece)| match at {
                    0 => piece.to_string(),
                    at if (at - 1) % 2 == removed => format!("\n{piece}"),
                    _ => format!("{barrier}{piece}"),
                });
                joined.collect()
            };
            let fault = try_edit(cores, kernels, &case, edit).unwrap_err();
            assert!(
                fault.contains("shared memory"),
                "{}, {kernels}, {removed}: {fault}",
                cores.architecture()
            );
        }
    }
}

#[test]
fn a_wait_for_one_group_too_few_is_found() {
    for (cores, kernels, case) in victims().filter(|(cores, ..)| cores.capability >= AMPERE.capability) {
        let edit = |text: &str| text.replace("cp.async.wait_group 0;", "cp.async.wait_group 1;");
        let fault = try_edit(cores, kernels, &case, edit).unwrap_err();
        assert!(fault.contains("cp.async"), "{}, {kernels}: {fault}", cores.architecture());
    }
}

/// The operands of warp groups are not swizzled, so that Hopper is left out.
#[test]
fn a_swizzle_that_differs_gives_wrong_numbers() {
    for (cores, kernels, case) in victims().filter(|(cores, ..)| cores.capability != HOPPER.capability) {
        // Only where it is written: behind a copy's address stands no other exclusive or.
        let edit = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
            let register = |line: &str| line.split(['[', ']']).nth(1).map(str::to_string);
            // Volta, and sums of tf32 over places, load without ldmatrix.
            let volta = cores.capability == VOLTA.capability;
            let loads: &[&str] = if volta { &["ld.shared.v"] } else { &["ldmatrix", "ld.shared.b32"] };
            let matrices: Vec<String> = lines
                .iter()
                .filter(|line| loads.iter().any(|load| line.contains(load)))
                .filter_map(|line| register(line))
                .collect();
            for line in &mut lines {
                let Some(rest) = line.trim().strip_prefix("xor.b32") else { continue };
                let mut operands = rest.trim().trim_end_matches(';').split(", ");
                let (to, from) = (operands.next().unwrap().trim(), operands.nth(1).unwrap());
                if matrices.iter().any(|matrix| matrix == to) {
                    *line = format!("mov.b32 {to}, {from};");
                }
            }
            lines.join("\n") + "\n"
        };
        let error = try_edit(cores, kernels, &case, edit).unwrap();
        assert!(error > 0.05, "{}, {kernels}: {error}", cores.architecture());
    }
}

#[test]
fn a_block_too_far_is_found() {
    for (cores, kernels, case) in victims() {
        let too_far = |launch: &mut conformance::emulator::Altered| {
            if is_victim(&launch.kernel) {
                launch.grid[0] += 1;
            }
        };
        let fault =
            broken(&case, &*cores.backend(cores.emulator(Blocks::Ascending).altered(too_far))).unwrap_err();
        assert!(fault.contains("does not declare"), "{}, {kernels}: {fault}", cores.architecture());
    }
}

#[test]
fn a_read_beyond_what_is_declared_is_found() {
    for (cores, kernels, case) in victims() {
        let smaller = |launch: &mut conformance::emulator::Altered| {
            if is_victim(&launch.kernel) {
                launch.reads[0].end -= 2;
            }
        };
        let fault =
            broken(&case, &*cores.backend(cores.emulator(Blocks::Ascending).altered(smaller))).unwrap_err();
        assert!(fault.contains("does not declare"), "{}, {kernels}: {fault}", cores.architecture());
    }
}

#[test]
fn a_lane_that_stores_nothing_is_found() {
    for (cores, kernels, case) in victims() {
        // The first of the stores of several numbers at once, or of any where there are none.
        let edit = |text: &str| {
            let store = if text.contains("st.global.v") { "st.global.v" } else { "st.global." };
            text.replacen(store, "//", 1)
        };
        // The poisoned results are NaN where nothing was stored, or the sum over parts reads what was never written.
        match try_edit(cores, kernels, &case, edit) {
            Ok(error) => assert!(error.is_infinite(), "{}, {kernels}: {error}", cores.architecture()),
            Err(fault) => {
                assert!(fault.contains("ever written"), "{}, {kernels}: {fault}", cores.architecture())
            }
        }
    }
}

/// Some fences and waits are needed by products of warp groups alone: the absence of each is detected.
#[test]
fn each_fence_and_wait_of_products_by_warp_groups_is_needed() {
    let (cores, kernels, case) = victims().find(|(cores, ..)| cores.capability == HOPPER.capability).unwrap();
    for (removed, told) in [
        ("wgmma.fence.sync.aligned;", "wgmma.fence"),
        ("wgmma.wait_group.sync.aligned 0;", "while a product of"),
        ("wgmma.commit_group.sync.aligned;", "while a product of"),
        ("fence.proxy.async.shared::cta;", "fence.proxy.async"),
    ] {
        let fault = try_edit(cores, kernels, &case, |text| text.replace(removed, "")).unwrap_err();
        assert!(fault.contains(told), "{removed}: {fault}");
    }
}

/// Planes of a box 635 voxels apart and not 636, and columns whose next eight are 256 bytes away and not 128.
#[test]
fn strides_of_descriptors_that_differ_give_wrong_numbers() {
    let (cores, kernels, case) = victims().find(|(cores, ..)| cores.capability == HOPPER.capability).unwrap();
    let other_planes = |text: &str| text.replace(&(636 << 16).to_string(), &(635 << 16).to_string());
    let other_columns = |text: &str| {
        let pairs = text.lines().filter_map(|line| line.trim().strip_prefix("mov.b64 %rd")?.split_once('{'));
        let strides: Vec<String> = pairs
            .filter_map(|(_, pair)| Some(pair.split_once(',')?.1.trim_end_matches("};").to_string()))
            .collect();
        let changed = |line: &str| match line.trim().strip_prefix("mov.u32") {
            Some(rest)
                if rest.ends_with(", 8;")
                    && strides.iter().any(|stride| rest.contains(&format!("{stride},"))) =>
            {
                line.replace(", 8;", ", 16;")
            }
            _ => line.to_string(),
        };
        text.lines().map(changed).collect::<Vec<_>>().join("\n") + "\n"
    };
    let edits: [&dyn Fn(&str) -> String; 2] = [&other_planes, &other_columns];
    for edit in edits {
        match try_edit(cores, kernels, &case, edit) {
            Ok(error) => assert!(error > 0.05, "{error}"),
            // Beyond what was staged.
            Err(fault) => assert!(fault.contains("shared memory"), "{fault}"),
        }
    }
}
