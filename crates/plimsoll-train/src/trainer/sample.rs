//! Samples of a run's memory and time, for observers.

use plimsoll_memory::resident;
use plimsoll_run::{Event, RunError, Sample, SystemSample};

use super::{Observer, Run};

impl Run<'_> {
    /// Writes down what the process holds now, and tells it.
    pub(super) fn sample(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        let sample = self.take_sample();
        observer.sample(&sample);
        self.say(Event::Sample(Box::new(sample)))
    }

    fn take_sample(&self) -> Sample {
        let resident = resident().ok();
        let mut held_bytes: std::collections::BTreeMap<_, _> =
            self.reserved().into_iter().map(|held| (held.holder, held.now)).collect();
        if let Some(heap) = self.heap() {
            held_bytes.insert("heap".into(), heap.now);
        }
        let making = self.source.times();
        Sample {
            steps: self.progress.steps,
            resident_bytes: resident.map(|resident| resident.now),
            peak_resident_bytes: resident.map(|resident| resident.peak),
            held_bytes,
            device_bytes: self.engine.device_bytes(),
            device_state: self.engine.device_state(),
            op_seconds: self.engine.times().into_iter().map(|time| (time.op, time.seconds)).collect(),
            batch_seconds: making.patch_seconds + making.map_seconds,
            waiting_seconds: self.waiting.as_secs_f64(),
            system: SystemSample::take(self.folder.path()),
        }
    }
}
