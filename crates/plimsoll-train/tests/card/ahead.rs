//! Batches that are copied while a step runs, and steps that begin before the last one has ended.

use std::sync::atomic::{AtomicUsize, Ordering};

use conformance::emulator::{Altered, Blocks, Done, Emulator, within};
use plimsoll_cuda::{Architecture, CudaBackend};
use plimsoll_run::{BadNumbers, Settings};

use super::*;

/// A card with a limit, and the work that it has done.
fn card(limit: Bytes) -> (CudaBackend, Done) {
    let emulator = Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending);
    let done = emulator.done();
    (within(emulator, limit), done)
}

/// The memory of the card that the plan has for the next batch.
fn planned_ahead(site: &Site, limit: Bytes) -> Bytes {
    let planned = site.plan(&card(limit).0, RankPlace { rank: 0, ranks: 1 });
    let ahead = planned.numbers.device.as_ref().unwrap().ahead_bytes;
    let part = planned.numbers.device_parts().into_iter().find(|part| part.name == "next batch");
    assert_eq!(part.map_or(Bytes::ZERO, |part| part.bytes), ahead);
    ahead
}

/// The largest limit that has no room for the next batch beside the same arena.
fn without_room(site: &Site) -> Bytes {
    let planned = site.plan(&card(VRAM).0, RankPlace { rank: 0, ranks: 1 }).numbers;
    let device = planned.device.unwrap();
    let limit = device.total_bytes - device.ahead_bytes;
    assert_eq!(planned_ahead(site, limit), Bytes::ZERO);
    limit
}

/// One epoch of a run whose steps may go wrong.
fn site(bad_numbers: BadNumbers, change: impl FnOnce(&mut Settings)) -> Site {
    Site::changed(|settings| {
        settings.bad_numbers = Some(bad_numbers);
        settings.iterations_per_epoch = Some(7);
        settings.epochs = Some(1);
        change(settings);
    })
}

#[test]
fn a_batch_is_copied_while_the_step_before_it_runs_and_no_bit_depends_on_it() {
    let site = site(BadNumbers::Stop, |_| ());
    assert_eq!(planned_ahead(&site, VRAM), Bytes::mib(2));
    let (ahead, done) = card(VRAM);
    let (record, seen) = site.train("ahead", &ahead, false, None);
    // The first two steps are measured, launch by launch; behind the others there is a batch of at least an image and labels each, except for the last.
    assert!(done.overlapped_copies() >= 2 * 3, "{} copies", done.overlapped_copies());
    // The first bad step would end the run, and so its numbers are read before the next one is committed, whose gradients are under way by then. Of seven steps, the
    // first two are measured, and behind the last there is none.
    assert!(done.outpaced_results() >= 4, "{} results", done.outpaced_results());
    let device = record.device.as_ref().unwrap();
    assert!(device.used_bytes.unwrap() <= device.planned_bytes, "{device:?}");

    let (waiting, done) = card(without_room(&site));
    let (_, expected) = site.train("waiting", &waiting, false, None);
    assert_eq!((done.overlapped_copies(), done.outpaced_results()), (0, 0));
    assert_eq!(seen.losses, expected.losses);
    assert!(
        site.checkpoint("ahead") == site.checkpoint("waiting"),
        "other bytes where batches are copied ahead"
    );
}

#[test]
fn a_step_begins_before_the_last_one_was_read_if_a_bad_one_cannot_end_the_run() {
    let site = site(BadNumbers::Skip { limit: 10 }, |_| ());
    let (ahead, done) = card(VRAM);
    let (record, seen) = site.train("ahead", &ahead, false, None);
    // Of seven steps, the first is waited for, and behind the last there is none.
    assert!(done.outpaced_results() >= 4, "{} results", done.outpaced_results());
    let (waiting, done) = card(without_room(&site));
    let (expected_record, expected) = site.train("waiting", &waiting, false, None);
    assert_eq!(done.outpaced_results(), 0);
    assert_eq!((&seen.losses, &seen.steps), (&expected.losses, &expected.steps));
    assert!(
        site.checkpoint("ahead") == site.checkpoint("waiting"),
        "other bytes where steps are not waited for"
    );
    // All runs are counted, those that were not measured as well.
    let runs = |record: &RunRecord| record.ops.iter().map(|op| op.runs).sum::<u64>();
    assert_eq!(runs(&record), runs(&expected_record));

    // A stop lets the step end that has begun, and changes no bit.
    let (stopped, _) = site.train("stopped", &card(VRAM).0, false, Some(3));
    assert_eq!(stopped.ended, StopReason::Signal);
    assert!((3..=4).contains(&stopped.steps), "{} steps", stopped.steps);
    let (resumed, _) = site.train("stopped", &card(VRAM).0, true, None);
    assert_eq!((resumed.ended, resumed.steps), (StopReason::Finished, 7));
    assert!(site.checkpoint("stopped") == site.checkpoint("waiting"), "other bytes after a stop");
}

/// The step whose norm is not a number, and it alone, in the next test.
const BAD_STEP: usize = 4;

/// Norms that were computed, of runs one after the other.
static NORMS: AtomicUsize = AtomicUsize::new(0);

/// Makes a norm a NaN on the card: in the place of the kernel that computes it, one that fills.
fn spoil(launch: &mut Altered) {
    if launch.kernel != "grad_norm" || NORMS.fetch_add(1, Ordering::SeqCst) + 1 != BAD_STEP {
        return;
    }
    // The third address of that kernel; then one number, and its value.
    let mut parameters = launch.parameters[16..24].to_vec();
    parameters.extend(1u32.to_le_bytes());
    parameters.extend(f32::NAN.to_le_bytes());
    (launch.kernel, launch.parameters) = ("fill".into(), parameters);
}

#[test]
fn a_step_that_stops_the_run_leaves_the_weights_before_it_though_the_next_one_has_begun() {
    let site = site(BadNumbers::Stop, |_| ());
    let trained = |name: &str, limit: Bytes| {
        NORMS.store(0, Ordering::SeqCst);
        let emulator = Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending).altered(spoil);
        let done = emulator.done();
        let part = Part { name, resume: false, stop_after: None };
        let card = within(emulator, limit);
        let (ended, seen) = site.try_train_rank(part, &card, &mut plimsoll_ranks::alone());
        let file = site.run(name).join("fold_0/checkpoint_latest.safetensors");
        let error = ended.err().unwrap().to_string();
        (error, seen.losses, fs::read(file).unwrap(), done.outpaced_results())
    };
    let (ahead, waiting) = (trained("ahead", VRAM), trained("waiting", without_room(&site)));
    assert!(ahead.0.contains("step 4"), "{}", ahead.0);
    // The step behind the bad one has begun, and its norm would be a number.
    assert!(ahead.3 >= 2 && waiting.3 == 0, "{} and {} results", ahead.3, waiting.3);
    assert_eq!((&ahead.0, &ahead.1), (&waiting.0, &waiting.1));
    assert_eq!(ahead.1.len(), BAD_STEP - 1);
    assert!(ahead.2 == waiting.2, "other bytes after the step that stops the run");
    // From the same checkpoint the run continues without the fault.
    let (record, _) = site.train("ahead", &card(VRAM).0, true, None);
    assert_eq!(record.steps, 7);
}

#[test]
fn bad_steps_are_skipped_and_counted_the_same_whether_the_next_one_has_begun_or_not() {
    // The first step makes weights so large that no step after it has numbers.
    for (limit, is_error) in [(10, false), (3, true)] {
        let site = site(BadNumbers::Skip { limit }, |settings| settings.learning_rate = Some(1e10));
        let trained = |name: &str, limit: Bytes| {
            let part = Part { name, resume: false, stop_after: None };
            let (ended, seen) = site.try_train_rank(part, &card(limit).0, &mut plimsoll_ranks::alone());
            let kind = if is_error { "latest" } else { "final" };
            let file = site.run(name).join(format!("fold_0/checkpoint_{kind}.safetensors"));
            let ended = ended.map(|record| (record.steps, record.skipped_steps));
            (ended.map_err(|error| error.to_string()), seen.steps, seen.warnings, fs::read(file).unwrap())
        };
        let (ahead, waiting) = (trained("ahead", VRAM), trained("waiting", without_room(&site)));
        assert_eq!(ahead.0.is_err(), is_error, "{:?}", ahead.0);
        assert!(!ahead.2.is_empty(), "no step was skipped");
        assert_eq!((&ahead.0, &ahead.1, &ahead.2), (&waiting.0, &waiting.1, &waiting.2));
        assert!(ahead.3 == waiting.3, "other bytes after {limit} skipped steps at most");
    }
}

#[test]
fn a_run_that_rolls_back_drops_the_step_that_has_begun() {
    let site = site(BadNumbers::Rollback { limit: 2 }, |settings| settings.learning_rate = Some(1e10));
    let trained = |name: &str, limit: Bytes| {
        let part = Part { name, resume: false, stop_after: None };
        let (ended, seen) = site.try_train_rank(part, &card(limit).0, &mut plimsoll_ranks::alone());
        let file = site.run(name).join("fold_0/checkpoint_latest.safetensors");
        (ended.err().map(|error| error.to_string()), seen.losses, seen.warnings, fs::read(file).unwrap())
    };
    let (ahead, waiting) = (trained("ahead", VRAM), trained("waiting", without_room(&site)));
    assert!(ahead.0.is_some() && ahead.2.len() == 2, "{:?}, {:?}", ahead.0, ahead.2);
    assert_eq!((&ahead.0, &ahead.1, &ahead.2), (&waiting.0, &waiting.1, &waiting.2));
    assert!(ahead.3 == waiting.3, "other bytes after rolling back");
}

#[test]
fn halves_are_copied_ahead_and_each_step_waits_for_the_scale_of_the_loss() {
    let mut site = in_halves(1e3);
    site.settings.bad_numbers = Some(BadNumbers::Skip { limit: 10 });
    site.config.bad_numbers = BadNumbers::Skip { limit: 10 };
    let (ahead, done) = card(VRAM);
    let (_, seen) = site.train("ahead", &ahead, false, None);
    assert!(done.overlapped_copies() > 0 && done.outpaced_results() == 0);
    let (_, expected) = site.train("waiting", &card(without_room(&site)).0, false, None);
    assert_eq!((&seen.losses, &seen.steps), (&expected.losses, &expected.steps));
    assert_eq!(site.loss_scales("ahead"), site.loss_scales("waiting"));
    assert!(site.checkpoint("ahead") == site.checkpoint("waiting"), "other bytes in halves");
}
