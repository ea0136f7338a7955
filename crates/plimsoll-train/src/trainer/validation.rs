//! The end of an epoch: validation, its numbers, the best checkpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use plimsoll_memory::resident;
use plimsoll_nn::{Goal, RankPlace};
use plimsoll_plan::{HostSlice, HostSliceMut};
use plimsoll_run::{CheckpointKind, ClassScores, EpochCost, EpochRecord, Event, LossPart, PartSums, Task};

use super::class_scores::Tally;
use super::step::scalar;
use super::validated_batch::ValidatedBatch;
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

impl Run<'_> {
    /// Validates and records the epoch; `None` if it was stopped before that.
    pub(super) fn end_epoch(
        &mut self,
        epoch_start: Instant,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Option<EpochRecord>, TrainError> {
        let start = Instant::now();
        let validated = self.validate(stop, observer)?;
        if let Some(shards) = &self.shards {
            shards.restore_parameters(&mut *self.engine, &mut self.ranks)?;
        }
        let Some(Validated { loss, parts, pseudo_dice, classification }) = validated else {
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
        if let Some(journal) = &mut self.journal {
            journal.append(&record)?;
        }
        let resident = resident().ok();
        let cost = EpochCost {
            epoch: record.epoch,
            seconds: epoch_start.elapsed().as_secs_f64(),
            validation_seconds: start.elapsed().as_secs_f64(),
            resident_bytes: resident.map(|resident| resident.now.0),
            peak_resident_bytes: resident.filter(|_| self.siblings.is_none()).map(|resident| resident.peak.0),
            ram_budget_bytes: Some(self.planned.numbers.ram_budget_bytes.0),
        };
        self.say(Event::Epoch(cost))?;
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
        let training = &self.specification.config.training;
        let classes = training.net.classes();
        let samples = self.specification.config.validated(&self.specification.cases);
        let at_a_time = training.validation_batch();
        let mut totals = vec![0.0f64; classes * 3];
        let mut parts = vec![(0.0, 0); training.loss.part_count()];
        let mut tally = match (&self.specification.config.task, self.tensors.logits) {
            (Task::Classification(task), Some(_)) => Some(Tally::new(task)),
            _ => None,
        };
        if let Some(shards) = &self.shards {
            shards.share_validated(&mut *self.engine, &mut self.ranks)?;
        }
        let which = self.tensors.validate.parts.1.clone();
        let mut batch = ValidatedBatch::new(which.len(), classes, at_a_time);
        let mut loss = 0.0;
        let rounds = samples / at_a_time as u64;
        let RankPlace { rank, ranks } = self.ranks.place();
        for first in (0..rounds).step_by(ranks) {
            batch.stop = stop.load(Ordering::Relaxed);
            let own = first + rank as u64;
            batch.is_done = own < rounds && !batch.stop;
            if batch.is_done {
                self.validate_batch(own, &mut batch)?;
            }
            // Batches are added in their order on every rank.
            let all = self.ranks.all_gather(&batch.to_bytes())?;
            let mut is_stopped = false;
            for numbers in all.chunks_exact(all.len() / ranks) {
                batch.read(numbers);
                is_stopped |= batch.stop;
                if !batch.is_done {
                    continue;
                }
                loss += f64::from(batch.loss);
                for (part, value) in which.iter().zip(&batch.parts) {
                    parts[*part].0 += f64::from(*value);
                    parts[*part].1 += 1;
                }
                if let Some(tally) = &mut tally {
                    for (case, logits) in batch.cases.iter().zip(batch.logits.chunks_exact(classes)) {
                        tally.add(self.source.labels(*case), logits);
                    }
                }
                for (total, count) in totals.iter_mut().zip(&batch.counts) {
                    *total += count;
                }
            }
            if is_stopped {
                return Ok(None);
            }
            let done = (first + ranks as u64).min(rounds);
            observer.validating(done * at_a_time as u64, samples);
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
            classification: tally.and_then(|tally| tally.scores()),
        }))
    }

    /// Validates one batch.
    fn validate_batch(&mut self, number: u64, numbers: &mut ValidatedBatch) -> Result<(), TrainError> {
        let (tensors, engine) = (&self.tensors.validate, &mut *self.engine);
        let program = tensors.pass.program;
        let batch = self.validation.load(number)?;
        engine.write(program, tensors.pass.image, HostSlice::F32(batch.images()))?;
        engine.write(program, tensors.pass.labels, HostSlice::U8(batch.labels()))?;
        if let Some(input) = tensors.shift {
            engine.write(program, input, HostSlice::F32(batch.shifts()))?;
        }
        for (map, input) in &tensors.targets {
            engine.write(program, *input, HostSlice::F32(batch.target(*map)))?;
        }
        engine.run(program)?;
        numbers.loss = scalar(engine, program, tensors.loss)?;
        engine.read(program, tensors.parts.0, HostSliceMut::F32(&mut numbers.parts))?;
        engine.read(program, self.tensors.counts, HostSliceMut::F64(&mut numbers.counts))?;
        if let Some(logits) = self.tensors.logits {
            engine.read(program, logits, HostSliceMut::F32(&mut numbers.logits))?;
        }
        numbers.cases.copy_from_slice(batch.cases());
        Ok(())
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
