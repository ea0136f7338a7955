//! The end of an epoch: validation, its numbers, the best checkpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use plimsoll_memory::resident;
use plimsoll_nn::Goal;
use plimsoll_plan::{HostSlice, HostSliceMut};
use plimsoll_run::{CheckpointKind, ClassScores, EpochCost, EpochRecord, Event, LossPart, PartSums, Task};

use super::class_scores::Tally;
use super::step::add_parts;
use super::{Observer, Run};
use crate::TrainError;

/// The results of a validation.
struct Validated {
    loss: Option<f64>,
    parts: Vec<LossPart>,
    /// Dice of each class but the background, or of each region; of volumes alone.
    pseudo_dice: Vec<Option<f64>>,
    /// The scores of images; `None` for volumes.
    classification: Option<ClassScores>,
}

impl Run {
    /// Validates and records the epoch; `None` if it was stopped before that.
    pub(super) fn end_epoch(
        &mut self,
        epoch_start: Instant,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Option<EpochRecord>, TrainError> {
        let start = Instant::now();
        let Some(Validated { loss, parts, pseudo_dice, classification }) = self.validate(stop, observer)?
        else {
            return Ok(None);
        };
        let scored: Vec<f64> = pseudo_dice.iter().flatten().copied().collect();
        let mean = (!scored.is_empty()).then(|| scored.iter().sum::<f64>() / scored.len() as f64);
        let ema = match (self.progress.ema, mean) {
            (Some(ema), Some(mean)) => Some(0.9 * ema + 0.1 * mean),
            (known, new) => new.or(known),
        };
        self.progress.ema = ema;
        let (sum, count) = self.progress.epoch_loss;
        let record = EpochRecord {
            epoch: self.progress.validated,
            steps: self.progress.steps,
            learning_rate: self.learning_rate(self.progress.steps - 1),
            train_loss: (count > 0).then(|| sum / count as f64),
            validation_loss: loss,
            train_loss_parts: self.means(&self.progress.epoch_parts),
            validation_loss_parts: parts,
            pseudo_dice,
            mean_pseudo_dice: mean,
            ema_pseudo_dice: ema,
            classification,
            skipped_steps: self.progress.skipped.0,
            loss_scale: self.scales_loss().then_some(self.progress.loss_scale),
        };
        self.journal.append(&record)?;
        let resident = resident().ok();
        let cost = EpochCost {
            epoch: record.epoch,
            seconds: epoch_start.elapsed().as_secs_f64(),
            validation_seconds: start.elapsed().as_secs_f64(),
            resident_bytes: resident.map(|resident| resident.now.0),
            peak_resident_bytes: resident.filter(|_| self.siblings.is_none()).map(|resident| resident.peak.0),
            ram_budget_bytes: Some(self.planned.numbers.ram_budget_bytes.0),
        };
        self.events.say(Event::Epoch(cost))?;
        self.sample(observer)?;
        self.progress.epoch_loss = (0.0, 0);
        self.progress.epoch_parts.fill((0.0, 0));
        let score = self.config().task.usual_score().value(&record);
        if let Some(score) = score {
            self.config().schedule.clone().observe(&mut self.progress.plateau, Goal::Highest, score);
        }
        self.progress.validated += 1;
        if score > self.progress.best {
            self.progress.best = score;
            self.write(CheckpointKind::Best, observer)?;
        }
        observer.epoch(&record, &cost);
        Ok(Some(record))
    }

    /// The mean loss of the validated samples with its parts, and the Dice of each foreground class over all their voxels; `None` if it
    /// was stopped.
    fn validate(
        &mut self,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Option<Validated>, TrainError> {
        let validate = self.tensors.validate.program;
        let training = &self.specification.config.training;
        let classes = training.net.classes();
        let samples = self.specification.config.validated(&self.specification.cases);
        let at_a_time = training.validation_batch() as u64;
        let mut counts = vec![0.0f64; classes * 3];
        let mut totals = vec![0.0f64; classes * 3];
        let mut parts = vec![(0.0, 0); training.loss.part_count()];
        let mut logits = vec![0.0; classes * at_a_time as usize];
        let mut tally = match (&self.specification.config.task, self.tensors.logits) {
            (Task::Classification(task), Some(logits)) => Some((logits, Tally::new(task))),
            _ => None,
        };
        let mut loss = 0.0;
        let rounds = samples / at_a_time;
        for round in 0..rounds {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let batch = self.validation.load(round)?;
            let tensors = &self.tensors.validate;
            self.engine.write(validate, tensors.image, HostSlice::F32(batch.images()))?;
            self.engine.write(validate, tensors.labels, HostSlice::U8(batch.labels()))?;
            if let Some(input) = tensors.shift {
                self.engine.write(validate, input, HostSlice::F32(batch.shifts()))?;
            }
            for (map, input) in &tensors.targets {
                self.engine.write(validate, *input, HostSlice::F32(batch.target(*map)))?;
            }
            self.engine.run(validate)?;
            let mut one = [0.0];
            self.engine.read(validate, tensors.loss, HostSliceMut::F32(&mut one))?;
            add_parts(&*self.engine, tensors, &mut self.parts, &mut parts)?;
            self.engine.read(validate, self.tensors.counts, HostSliceMut::F64(&mut counts))?;
            loss += f64::from(one[0]);
            if let Some((tensor, tally)) = &mut tally {
                self.engine.read(validate, *tensor, HostSliceMut::F32(&mut logits))?;
                for (case, logits) in batch.cases().iter().zip(logits.chunks_exact(classes)) {
                    tally.add(self.source.labels(*case), logits);
                }
            }
            for (total, count) in totals.iter_mut().zip(&counts) {
                *total += count;
            }
            observer.validating((round + 1) * at_a_time, samples);
        }
        // Regions have no background among them.
        let background = usize::from(self.config().training.loss.regions.is_none());
        let dice = totals.chunks_exact(3).skip(background).map(|class| {
            let denominator = 2.0 * class[0] + class[1] + class[2];
            (denominator > 0.0).then(|| 2.0 * class[0] / denominator)
        });
        let mean = loss / rounds as f64;
        Ok(Some(Validated {
            loss: mean.is_finite().then_some(mean),
            parts: self.means(&parts),
            pseudo_dice: if tally.is_some() { Vec::new() } else { dice.collect() },
            classification: tally.and_then(|(_, tally)| tally.scores()),
        }))
    }

    /// The means of the parts of the loss that there were and that are numbers.
    fn means(&self, sums: &PartSums) -> Vec<LossPart> {
        let objective = &self.config().training.loss;
        let there = sums.iter().enumerate().filter(|(_, (sum, count))| *count > 0 && sum.is_finite());
        let mean = |(part, (sum, count)): (usize, &(f64, u64))| LossPart {
            name: objective.part_name(part),
            value: sum / *count as f64,
        };
        there.map(mean).collect()
    }
}
