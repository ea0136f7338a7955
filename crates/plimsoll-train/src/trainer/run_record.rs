//! The record of a run: planned and used memory, times.

use plimsoll_memory::{HeapUse, HolderUse, heap_use, mapped_files, resident};
use plimsoll_plan::arena_memory;
use plimsoll_run::{DeviceRecord, RunRecord, StopReason};

use super::Run;

impl Run<'_> {
    /// The memory that each planned part really took.
    fn held(&self) -> Vec<HolderUse> {
        let mut held = self.reserved();
        if let Ok(code) = mapped_files() {
            held.push(HolderUse { holder: "code".into(), now: code.resident, peak: code.resident });
        }
        if let Some(heap) = self.heap() {
            held.push(HolderUse { holder: "heap".into(), now: heap.now, peak: heap.peak });
        }
        held
    }

    /// The reservations of the budget, and the filled part of the cache.
    pub(super) fn reserved(&self) -> Vec<HolderUse> {
        let mut held = self.budget.holders();
        // An allowance is not what was held.
        held.retain(|held| held.holder != "overhead");
        let cache = self.source.cache();
        for held in held.iter_mut().filter(|held| held.holder == "cache") {
            (held.now, held.peak) = (cache.now, cache.peak);
        }
        held
    }

    /// The heap; unknown if several folds share the process.
    pub(super) fn heap(&self) -> Option<HeapUse> {
        self.siblings.is_none().then(heap_use)
    }

    pub(super) fn record(&mut self, why: StopReason) -> RunRecord {
        let seconds_per_step = upper_median(&mut self.seconds);
        let numbers = &self.planned.numbers;
        RunRecord {
            ram_budget_bytes: numbers.ram_budget_bytes,
            planned_bytes: numbers.total_bytes,
            peak_rss_bytes: resident().ok().filter(|_| self.siblings.is_none()).map(|resident| resident.peak),
            planning_peak_rss_bytes: self.planning_peak,
            device: numbers.device.as_ref().map(|device| DeviceRecord {
                vram_budget_bytes: device.vram_budget_bytes,
                planned_bytes: device.total_bytes,
                used_bytes: self
                    .engine
                    .device_bytes()
                    .map(|bytes| device.driver.context + device.driver.ranks + bytes),
                planned: numbers.device_parts(),
            }),
            arena_bytes: numbers.arena_bytes,
            arena_used_bytes: arena_memory(&*self.planned.backend, self.engine.used_bytes()),
            heap_allocations_in_steps: self.allocations,
            steps: self.progress.steps,
            skipped_steps: self.progress.skipped.0,
            seconds_per_step,
            predicted_seconds_per_step: numbers.predicted_seconds_per_step,
            finished: matches!(why, StopReason::Finished | StopReason::Early),
            ended: why,
            planned: numbers.parts(),
            held: self.held(),
            heap: self.heap(),
            cache: self.source.cache().into(),
            engine: self.engine.plan().backend().into(),
            ops: self.engine.times(),
            batches: self.source.times(),
            waiting_seconds: self.waiting.as_secs_f64(),
            ema_pseudo_dice: self.progress.ema,
            identity: self.identity,
            specification: self.specification.clone(),
        }
    }
}

/// Sorts numbers and returns the middle one, the upper of two, or `None` if there are none.
pub(super) fn upper_median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}
