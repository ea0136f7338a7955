//! Whole runs on a card, which is an emulator: a loader, steps, checkpoints, validation and predictions, below two limits.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "card/ahead.rs"]
mod ahead;
#[path = "card/shards.rs"]
mod shards;
#[path = "card/site.rs"]
mod site;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[cfg(unix)]
use conformance::emulator::beside_ranks;
use conformance::emulator::{Blocks, Emulator, RECORDINGS, backend_within, within};
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_cuda::{Architecture, RecordingRoom};
use plimsoll_graph::DType;
use plimsoll_graph::ops::{Component, CrossEntropy, Loss};
use plimsoll_infer::{HostSums, PredictOptions, RingStorage, Summed, forward_program};
use plimsoll_memory::Bytes;
use plimsoll_models::{Model, SegmentationModel};
#[cfg(unix)]
use plimsoll_nccl_stub::{HostLanes, Stub};
use plimsoll_nn::{RankPlace, names};
use plimsoll_plan::{Backend, Plans};
#[cfg(unix)]
use plimsoll_ranks::{LaneSizes, NcclOptions, open_nccl, thread_ranks};
use plimsoll_run::{CheckpointKind, EpochRecord, LossScale, Machine, Precision, RunRecord, StopReason};
use plimsoll_train::{Planning, plan_run_allowing};

use crate::site::{Part, RAM, Site, VRAM};

#[cfg(unix)]
#[test]
fn two_ranks_with_a_card_each_write_the_bytes_of_one_through_nccl() {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);
    let site = Site::changed(|settings| settings.shards = Some(2));
    site.train("one", &backend_within(VRAM), false, None);
    let (stub, held) = (Stub::new(), Arc::default());
    let channels = Bytes::from_len(LaneSizes::new(2).total());
    let one = |rank| {
        let lanes = Box::new(HostLanes::new(LaneSizes::new(2), &held));
        let options = NcclOptions { patience: PATIENCE, least: 0 };
        let opened = open_nccl(Box::new(rank), stub.load().unwrap(), lanes, options);
        let mut communicator = opened.map_err(|failure| failure.error).unwrap();
        let card = Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending);
        let backend = beside_ranks(card, VRAM, channels);
        let part = Part { name: "two", resume: false, stop_after: None };
        site.train_rank(part, &backend, communicator.as_mut()).0
    };
    let records: Vec<RunRecord> = std::thread::scope(|scope| {
        let one = &one;
        let ranks = thread_ranks(2, PATIENCE).into_iter().map(|rank| scope.spawn(move || one(rank)));
        let threads: Vec<_> = ranks.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(site.checkpoint("one") == site.checkpoint("two"), "parameters differ");
    for record in records {
        let device = record.device.unwrap();
        assert!(device.planned.iter().any(|part| part.name == "ranks" && part.bytes == channels));
        assert!(device.used_bytes.unwrap() <= device.planned_bytes && device.planned_bytes <= VRAM);
    }
    assert_eq!(held.load(Ordering::SeqCst), 0, "buffers on cards");
}

#[test]
fn a_run_on_a_card_comes_to_the_processors_numbers_and_to_the_same_bits_however_often_it_is_stopped() {
    let site = Site::new();
    let cpu = CpuBackend::new(CpuOptions::new(1)).unwrap();
    let (_, on_cpu) = site.train("cpu", &cpu, false, None);
    let card = backend_within(VRAM);
    let (record, seen) = site.train("whole", &card, false, None);
    assert_eq!(record.ended, StopReason::Finished);
    assert_eq!(record.engine, "CUDA, sm_80");
    // Six steps and two validations.
    assert_eq!(seen.losses.len(), 8);
    for (ours, expected) in seen.losses.iter().zip(&on_cpu.losses) {
        assert!((ours / expected - 1.0).abs() < 1e-4, "{:?}, on the CPU {:?}", seen.losses, on_cpu.losses);
    }
    // The planned memory of the card is what the card reports, except for recordings and for the arena, which is not in host memory.
    let device = record.device.as_ref().unwrap();
    assert_eq!(device.vram_budget_bytes, VRAM);
    let unrecorded = device.planned_bytes - device.used_bytes.unwrap();
    assert!(device.used_bytes.unwrap() <= device.planned_bytes && unrecorded < RECORDINGS, "{unrecorded}");
    assert!(record.arena_used_bytes <= record.arena_bytes && record.arena_used_bytes > Bytes::ZERO);
    assert!(record.planned.iter().all(|part| part.name != "arena"));
    let held = |name: &str| record.held.iter().find(|held| held.holder == name).map(|held| held.peak);
    let planned = |name: &str| record.planned.iter().find(|part| part.name == name).map(|part| part.bytes);
    assert_eq!((held("arena"), held("staging")), (None, planned("staging")));
    assert!(planned("staging") > Some(Bytes::ZERO));

    // The state of the card is among the events without the values that it does not report; a processor reports none.
    let samples = |name: &str| -> Vec<serde_json::Value> {
        let events = fs::read_to_string(site.run(name).join("fold_0/events.jsonl")).unwrap();
        let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        events.filter(|event| event["op_seconds"].is_object()).collect()
    };
    assert!(!samples("whole").is_empty());
    for sample in samples("whole") {
        let state = sample["device_state"].as_object().unwrap();
        assert!(state["used_bytes"].as_u64().unwrap() > 0 && state["busy_percent"] == 100, "{state:?}");
        assert!(!state.contains_key("temperature_celsius"), "{state:?}");
    }
    assert!(samples("cpu").iter().all(|sample| sample.get("device_state").is_none()));

    // Stopped within the first epoch and within the second.
    let (stopped, _) = site.train("stopped", &card, false, Some(2));
    assert_eq!((stopped.ended, stopped.steps), (StopReason::Signal, 2));
    site.train("stopped", &card, true, Some(5));
    let (resumed, seen) = site.train("stopped", &card, true, None);
    assert_eq!((resumed.ended, resumed.steps), (StopReason::Finished, 6));
    assert_eq!(
        seen.warnings.iter().filter(|what| what.contains("started on")).count(),
        0,
        "{:?}",
        seen.warnings
    );
    assert!(site.checkpoint("whole") == site.checkpoint("stopped"), "other bytes after a stop");

    // Resuming on another device is reported.
    site.train("moved", &card, false, Some(4));
    let (moved, seen) = site.train("moved", &cpu, true, None);
    assert_eq!(moved.ended, StopReason::Finished);
    let says = |what: &String| {
        what.contains("started on CUDA, sm_80, kernels ") && what.contains(" and resumes on CPU")
    };
    let said = seen.warnings.iter().any(says);
    assert!(said, "{:?}", seen.warnings);

    // Labels are the processor's, but where two classes are as likely to the last bits.
    let ours = site.predict("whole", Arc::new(card), None);
    let expected = site.predict("whole", Arc::new(cpu), None);
    assert!(ours.len() > 4000 && ours.len() == expected.len());
    let off = ours.iter().zip(&expected).filter(|(ours, expected)| ours != expected).count();
    assert!(off * 1000 <= ours.len(), "{off} of {} labels are others", ours.len());
}

#[test]
fn a_run_on_regions_comes_to_the_processors_numbers_and_to_the_same_bits_after_a_stop() {
    let description = r#"{
        "channel_names": {"0": "phantom"}, "file_ending": ".nii.gz", "numTraining": 3,
        "labels": {"background": 0, "whole": [1, 2], "vessel": 1}, "regions_class_order": [2, 1]
    }"#;
    let site = Site::described(Some(description), |_| ());
    assert!(site.config.training.loss.regions.is_some());
    let cpu = CpuBackend::new(CpuOptions::new(1)).unwrap();
    let (_, on_cpu) = site.train("cpu", &cpu, false, None);
    let card = backend_within(VRAM);
    let (record, seen) = site.train("whole", &card, false, None);
    assert_eq!((record.ended, seen.losses.len()), (StopReason::Finished, 8));
    for (ours, expected) in seen.losses.iter().zip(&on_cpu.losses) {
        assert!((ours / expected - 1.0).abs() < 1e-4, "{:?}, on the CPU {:?}", seen.losses, on_cpu.losses);
    }
    // Counts of right and wrong voxels, which the Dice of each region follows from.
    let dice = |name: &str| {
        let metrics = fs::read_to_string(site.run(name).join("fold_0/metrics.jsonl")).unwrap();
        let last: EpochRecord = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
        last.pseudo_dice.into_iter().map(|dice| dice.unwrap()).collect::<Vec<_>>()
    };
    let (ours, expected) = (dice("whole"), dice("cpu"));
    assert_eq!(ours.len(), 2);
    assert!(ours.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-2), "{ours:?}, {expected:?}");
    site.train("stopped", &card, false, Some(2));
    site.train("stopped", &card, true, None);
    assert!(site.checkpoint("whole") == site.checkpoint("stopped"), "other bytes after a stop");
}

#[test]
fn programs_that_are_replayed_as_one_launch_come_to_the_bits_of_kernels_launched_one_by_one() {
    let site = Site::new();
    let card = || Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending);
    let recording = card();
    let done = recording.done();
    let (recorded, of_recorded) = site.train("recorded", &within(recording, VRAM), false, None);
    // The first two of six steps are launched one by one.
    let counted = done.replays();
    assert!(counted >= 4, "{counted} replays");
    let single = card().recording(RecordingRoom { recordings: 0, launches: 0 });
    let done = single.done();
    let (single, of_single) = site.train("single", &within(single, VRAM), false, None);
    assert_eq!(done.replays(), 0);
    assert_eq!((recorded.steps, single.steps), (6, 6));
    assert_eq!(of_recorded.losses, of_single.losses);
    assert!(
        site.checkpoint("recorded") == site.checkpoint("single"),
        "other bytes where launches are replayed"
    );
    // Both count all runs of each kind of kernel, and one holds what it has recorded.
    let runs = |record: &RunRecord| {
        let mut runs: Vec<_> = record.ops.iter().map(|op| (op.op.clone(), op.runs)).collect();
        runs.sort();
        runs
    };
    assert_eq!(runs(&recorded), runs(&single));
    let used = |record: &RunRecord| record.device.as_ref().unwrap().used_bytes.unwrap();
    assert!(used(&recorded) > used(&single));
    assert_eq!(used(&single) + RECORDINGS, single.device.as_ref().unwrap().planned_bytes);
}

#[test]
fn logits_that_are_summed_on_the_card_come_to_the_bits_of_those_that_are_copied_for_every_window() {
    let site = Site::new();
    let card = || Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending);
    site.train("run", &within(card(), VRAM), false, None);
    for (ring, step, mirror, summed) in [
        (RingStorage::F32, 0.75, false, Summed::Logits),
        (RingStorage::F16, 1.0, true, Summed::Logits),
        (RingStorage::F32, 1.0, true, Summed::Features),
    ] {
        let of_run = PredictOptions::new(step, mirror, 1);
        let options = PredictOptions { ring: Some(ring), summed: Some(summed), ..of_run };
        let high = card();
        let done = high.done();
        let (labels, of_classes, plan) = site.predict_as("run", Arc::new(within(high, VRAM)), options);
        assert!(plan.device_logits_bytes > Bytes::ZERO && plan.host_sums.is_none(), "{plan:?}");
        let on_card = done.downloaded();
        if !mirror {
            // Three windows at once are summed one by one, the last ones of a row among samples that are passed over.
            let at_once = PredictOptions { window_batch: 3, ..options };
            let (of_batch, batch_classes, batch) =
                site.predict_as("run", Arc::new(within(card(), VRAM)), at_once);
            assert!(batch.device_logits_bytes == plan.device_logits_bytes && batch.host_sums.is_none());
            // Both are whole pages of the device.
            assert!(batch.arena_bytes > plan.arena_bytes, "{batch:?}");
            assert!(labels == of_batch && of_classes == batch_classes, "other bits of three windows at once");
        }
        // The limit of its memory for sums in f32.
        let in_f32 = plan.f32_ring_vram_bytes.unwrap();
        match ring {
            RingStorage::F32 => assert_eq!(in_f32, plan.device_bytes.unwrap()),
            // Both may be whole pages of the same number; of this process's memory they are not.
            RingStorage::F16 => {
                let more = plan.f32_ring_ram_bytes > plan.minimum_ram_bytes;
                assert!(in_f32 >= plan.device_bytes.unwrap() && more, "{plan:?}");
            }
        }
        // A limit with room for the arena, and for nothing beside it.
        let low = card();
        let (done, limit) = (low.done(), plan.device_bytes.unwrap() - Bytes(1));
        let (expected, expected_classes, here) =
            site.predict_as("run", Arc::new(within(low, limit)), options);
        assert_eq!(here.host_sums, Some(HostSums::NoRoom { vram_bytes: plan.device_bytes.unwrap() }));
        assert_eq!(here.device_bytes.unwrap() + plan.device_logits_bytes, plan.device_bytes.unwrap());
        assert!(labels == expected && of_classes == expected_classes, "other bits in {ring}");
        assert!(labels.iter().any(|label| *label != 0), "there is nothing to compare");
        // Each plane is copied once, and a word for each look at a window; without, all that is summed of each look.
        let of_each = plan.windows * plan.looks * 512 * 4;
        assert_eq!((plan.summed, done.downloaded() % of_each), (summed, 0));
        assert_eq!(done.downloaded() / of_each == 2, summed == Summed::Logits, "there are two classes");
        println!("{ring}: {on_card} bytes are copied, not {}", done.downloaded());
        assert!(on_card < done.downloaded() / 2, "{on_card} of {}", done.downloaded());
        // This process holds less than whole planes: two planes and a copy of the window's logits.
        assert!(plan.logits_bytes < here.logits_bytes, "{} and {}", plan.logits_bytes, here.logits_bytes);
    }
}

#[test]
fn two_folds_at_once_on_one_card_keep_to_its_limit_and_come_to_the_bytes_of_one_alone() {
    let site = Site::new();
    site.train("alone", &backend_within(VRAM), false, None);
    let whole = backend_within(VRAM);
    let part = whole.shared_by(2).unwrap();
    let train = |name: &'static str| {
        let (site, part) = (&site, &part);
        move || site.train(name, &**part, false, None).0
    };
    let records = std::thread::scope(|scope| {
        [scope.spawn(train("first")), scope.spawn(train("second"))].map(|fold| fold.join().unwrap())
    });
    for (record, name) in records.iter().zip(["first", "second"]) {
        let device = record.device.as_ref().unwrap();
        assert!(device.planned_bytes <= part.device_memory().unwrap().limit(), "{device:?}");
        assert!(site.checkpoint(name) == site.checkpoint("alone"), "other bytes in the {name} fold");
    }
}

#[test]
fn a_limit_of_the_card_that_is_too_low_is_refused_with_the_least_that_does() {
    let site = Site::new();
    let high = site.plan(&backend_within(VRAM), RankPlace::ALONE).numbers;
    let least = high.device.as_ref().unwrap().minimum_vram_bytes;
    let low = site.plan(&backend_within(least - Bytes(1)), RankPlace::ALONE).numbers;
    assert!(!low.feasible);
    let refused = low.check().unwrap_err();
    let hint = refused.remedy().unwrap();
    assert!(refused.to_string().contains(&format!("{least} of the memory of CUDA, sm_80")), "{refused}");
    assert!(hint.contains(&format!("‹vram={}MiB›", least.0.div_ceil(1 << 20))), "{hint}");
    let enough = site.plan(&backend_within(least), RankPlace::ALONE).numbers;
    assert!(enough.feasible && enough.device.unwrap().total_bytes <= least);
}

/// A loss so large that gradients of the first steps are more than halves hold.
fn in_halves(weight: f32) -> Site {
    Site::changed(|settings| {
        let cross_entropy = CrossEntropy { weight, ..CrossEntropy::default() };
        let components = vec![Component::CrossEntropy(cross_entropy)];
        settings.loss = Some(Loss::new(components).into());
        settings.precision = Some(Precision::F16);
        settings.iterations_per_epoch = Some(4);
    })
}

#[test]
fn a_run_in_halves_comes_to_the_numbers_of_single_precision() {
    let site = in_halves(1.0);
    let card = backend_within(VRAM);
    let (record, seen) = site.train("halves", &card, false, None);
    assert_eq!((record.ended, record.steps), (StopReason::Finished, 8));
    assert_eq!(site.loss_scales("halves")[1], LossScale { good_steps: 8, ..LossScale::default() });
    let mut single = in_halves(1.0);
    single.settings.precision = Some(Precision::F32);
    single.config.training.precision = DType::F32;
    let (_, expected) = single.train("single", &card, false, None);
    assert_eq!(seen.losses.len(), 10);
    for (ours, expected) in seen.losses.iter().zip(&expected.losses) {
        assert!((ours / expected - 1.0).abs() < 2e-2, "{:?}, in f32 {:?}", seen.losses, expected);
    }
    // A model that was trained in halves predicts on the processor, which stores it as f32.
    let cpu = CpuBackend::new(CpuOptions::new(1)).unwrap();
    let card: Arc<dyn Backend> = Arc::new(card);
    let expected = site.predict("halves", Arc::new(cpu.clone()), None);
    // Where they are requested, halves hold the logits of windows as well, which the processor refuses.
    for asked in [None, Some(DType::F16)] {
        let ours = site.predict("halves", Arc::clone(&card), asked);
        let off = ours.iter().zip(&expected).filter(|(ours, expected)| ours != expected).count();
        assert!(ours.len() > 4000 && off * 100 <= ours.len(), "{off} of {} labels are others", ours.len());
    }
    let model = Model::open(&site.run("halves"), CheckpointKind::Final).unwrap();
    let model: SegmentationModel = model.try_into().unwrap();
    let options = PredictOptions { precision: Some(DType::F16), ..PredictOptions::new(0.75, false, 1) };
    let program = forward_program(&model, &options, &*card).unwrap();
    assert_eq!(program.tensor(program.find(names::LOGITS).unwrap()).dtype, DType::F16);
    let refused = forward_program(&model, &options, &cpu).unwrap_err();
    assert!(refused.to_string().contains("stored as f16"), "{refused}");
    // But no processor trains in them.
    let (machine, facts) =
        (Machine { limit: RAM, threads: 1, loader_threads: 1 }, site.data.facts(&site.config, &site.fold));
    let plans = Plans::default();
    let planning = Planning::unobserved(&plans, None);
    let refused = plan_run_allowing(&[], &site.config, false, machine, &cpu, facts.unwrap(), planning);
    let refused = refused.err().unwrap();
    assert!(refused.to_string().contains("stored as f16"), "{refused}");
    assert!(refused.remedy().unwrap().contains("‹precision=bf16›"), "{refused}");
}

#[test]
fn gradients_that_overflow_skip_the_step_and_halve_the_scale_and_a_stop_in_between_changes_no_bit() {
    let site = in_halves(1e3);
    let card = backend_within(VRAM);
    let (record, seen) = site.train("whole", &card, false, None);
    assert_eq!((record.ended, record.steps, record.skipped_steps), (StopReason::Finished, 8, 0));
    let scales = site.loss_scales("whole");
    let last = scales[1];
    println!("{scales:?}, losses {:?}", seen.losses);
    // Each overflow has halved it, and no step that has overflown was reported.
    assert!(last.skipped_steps > 1 && last.skipped_steps < 7, "{scales:?}");
    assert_eq!(last.scale, 65536.0 * 0.5_f32.powi(last.skipped_steps as i32));
    assert_eq!(seen.losses.len() as u64, 8 - last.skipped_steps + 2);
    assert!(
        seen.losses.iter().all(|loss| loss.is_finite()) && seen.warnings.is_empty(),
        "{:?}",
        seen.warnings
    );
    // Stopped behind the first step that was taken, by when the scale is not the first one.
    let stopped = seen.steps[0];
    assert!(stopped > 1, "{:?}", seen.steps);
    let (record, _) = site.train("stopped", &card, false, Some(stopped));
    assert_eq!((record.ended, record.steps), (StopReason::Signal, stopped));
    let (resumed, _) = site.train("stopped", &card, true, None);
    assert_eq!((resumed.ended, resumed.steps), (StopReason::Finished, 8));
    assert_eq!(site.loss_scales("stopped"), scales);
    assert!(site.checkpoint("whole") == site.checkpoint("stopped"), "other bytes after a stop");
}
