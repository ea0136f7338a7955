//! The gradient of a step: the sum over its shards in their order.
//!
//! A program of gradients adds the micro-batches of a shard in states of the engine, from zero. The sums over the shards are added here, so that
//! they are the same sums wherever the shards are computed: each rank adds the gradients of the tensors that it owns, which the other ranks
//! send. In each round the ranks compute consecutive shards, so that no gradient waits for an earlier one of a later round. Where one process
//! computes all shards and each is one micro-batch, the states of the engine already are these sums.

use std::ops::Range;

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_nn::{RankPlace, TrainedTensor, Training, trained_tensors};
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, ProgramId};
use plimsoll_ranks::{Messages, Traffic};

use crate::ranks::{Ranks, message_elements};
use crate::{RunPrograms, TrainError};

/// Partial sums of squares, which are added in order: the same for every length of a read.
const LANES: usize = 8;

/// The sums of gradients over the shards of a step.
pub(crate) struct GradientSums {
    program: ProgramId,
    rank: usize,
    tensors: Vec<TrainedTensor>,
    waves: Waves,
    /// The sums, `None` if the states of the engine are these sums.
    sums: Option<OwnedSums>,
    /// The sum of squares of each owned tensor's gradient.
    squares: Vec<f64>,
}

/// The sums of the tensors that a rank owns.
struct OwnedSums {
    /// The sums, one tensor after the other.
    values: Mapped<f32>,
    /// The part of this rank in a message.
    own: Mapped<f32>,
}

/// The messages in which gradients go to their owners: in each wave, each rank sends every other rank a stretch of what that rank owns.
pub(crate) struct Waves {
    /// The elements of all tensors that each rank owns.
    owned: Vec<usize>,
    /// The most elements of a message.
    length: usize,
}

impl Waves {
    /// The messages for tensors that `ranks` ranks own.
    pub(crate) fn new(tensors: &[TrainedTensor], ranks: usize) -> Waves {
        let mut owned = vec![0; ranks];
        for tensor in tensors {
            owned[tensor.owner] += tensor.elements;
        }
        Waves { owned, length: message_elements(ranks) }
    }

    /// The number of waves.
    pub(crate) fn count(&self) -> usize {
        self.owned.iter().copied().max().unwrap_or(0).div_ceil(self.length)
    }

    /// The elements of each rank that the others send it in a wave.
    pub(crate) fn stretch(&self, wave: usize, rank: usize) -> Range<usize> {
        let (first, owned) = (wave * self.length, self.owned[rank]);
        first.min(owned)..(first + self.length).min(owned)
    }

    /// The messages of each rank while one shard of each is exchanged.
    pub(crate) fn traffic(&self) -> Vec<Traffic> {
        let others = self.owned.len() as u64 - 1;
        // The messages from one rank to an owner. A stretch without elements is not sent.
        let to = |owned: &usize| Messages {
            count: owned.div_ceil(self.length) as u64,
            bytes: (owned * size_of::<f32>()) as u64,
        };
        let all = self.owned.iter().map(to).fold(Messages::default(), |all, messages| all + messages);
        let of = |owned: &usize| {
            let own = to(owned);
            Traffic {
                sent: Messages { count: all.count - own.count, bytes: all.bytes - own.bytes },
                received: Messages { count: own.count * others, bytes: own.bytes * others },
            }
        };
        self.owned.iter().map(of).collect()
    }

    /// The messages of a wave that the rank with the most elements receives. No rank sends or receives more.
    pub(crate) fn busiest(&self, wave: usize) -> Messages {
        let elements = self.stretch(wave, self.largest_owner()).len();
        Messages::new(self.owned.len() - 1, elements * size_of::<f32>())
    }

    /// The rank that owns the most elements.
    pub(crate) fn largest_owner(&self) -> usize {
        // The first of several.
        let most = (0..self.owned.len()).rev().max_by_key(|rank| self.owned[*rank]);
        most.unwrap_or(0)
    }
}

impl GradientSums {
    /// Returns `true` if the states of the engine are not the sums.
    fn is_needed(training: &Training, place: RankPlace) -> bool {
        place.ranks > 1 || training.shard_accumulation() > 1
    }

    /// The memory of the sums of a training with several shards.
    ///
    /// # Errors
    /// Returns an error if it does not fit the address space.
    pub(crate) fn bytes(training: &Training, programs: &RunPrograms) -> Result<Bytes, MapError> {
        let place = programs.place();
        if !GradientSums::is_needed(training, place) {
            return Ok(Bytes::ZERO);
        }
        let Waves { owned, length } =
            Waves::new(&trained_tensors(&programs[programs.fullest()], place.ranks), place.ranks);
        Ok(Mapped::<f32>::bytes(owned[place.rank])? + Mapped::<f32>::bytes(length)?)
    }

    /// The sums of a training with several shards, reserved from `budget`.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(crate) fn new(
        training: &Training,
        programs: &RunPrograms,
        budget: &Budget,
    ) -> Result<GradientSums, MapError> {
        let (program, place) = (programs.fullest(), programs.place());
        let tensors = trained_tensors(&programs[program], place.ranks);
        let waves = Waves::new(&tensors, place.ranks);
        let sums = match GradientSums::is_needed(training, place) {
            true => Some(OwnedSums {
                values: Mapped::zeroed(budget, "sums", waves.owned[place.rank])?,
                own: Mapped::zeroed(budget, "sums", waves.length)?,
            }),
            false => None,
        };
        let squares = vec![0.0; tensors.iter().filter(|tensor| tensor.owner == place.rank).count()];
        Ok(GradientSums { program, rank: place.rank, tensors, waves, sums, squares })
    }

    /// The trained tensors, each with its owner.
    pub(crate) fn tensors(&self) -> &[TrainedTensor] {
        &self.tensors
    }

    /// The program in which parameters and gradients have the names of [`tensors`](Self::tensors).
    pub(crate) fn program(&self) -> ProgramId {
        self.program
    }

    /// Begins a step.
    pub(crate) fn clear(&mut self) {
        if let Some(sums) = &mut self.sums {
            sums.values.fill(0.0);
        }
    }

    /// Adds the gradients of the next shards in order, of which each rank's engine has accumulated one. `room` has room for the largest tensor.
    pub(crate) fn add_round(
        &mut self,
        engine: &mut dyn Engine,
        ranks: &mut Ranks<'_>,
        room: &mut [f32],
    ) -> Result<(), TrainError> {
        let Some(mut sums) = self.sums.take() else { return Ok(()) };
        for wave in 0..self.waves.count() {
            self.add_wave(wave, &mut sums, engine, ranks)?;
        }
        self.sums = Some(sums);
        // The next shard begins at zero.
        for tensor in &self.tensors {
            let zeros = &mut room[..tensor.elements];
            zeros.fill(0.0);
            engine.write(self.program, tensor.gradient, HostSlice::F32(zeros))?;
        }
        Ok(())
    }

    /// Exchanges one message between each two ranks, of a stretch of the gradients of each owner, and adds the gradients that this rank owns.
    fn add_wave(
        &self,
        wave: usize,
        sums: &mut OwnedSums,
        engine: &dyn Engine,
        ranks: &mut Ranks<'_>,
    ) -> Result<(), TrainError> {
        let (rank, count) = (self.rank, self.waves.owned.len());
        let stretch = |rank: usize| self.waves.stretch(wave, rank);
        let own = stretch(rank);
        let mut exchange = ranks.receive_gradients(own.len())?;
        // Each rank begins with another receiver.
        for peer in (1..count).map(|distance| (rank + distance) % count) {
            let theirs = stretch(peer);
            ranks.send_gradients(&mut exchange, peer, theirs.len(), |values| {
                Ok::<_, TrainError>(self.read(engine, peer, theirs.clone(), values)?)
            })?;
        }
        let part = &mut sums.own[..own.len()];
        self.read(engine, rank, own.clone(), part)?;
        let sums = &mut sums.values[own];
        // The shards of a round in order.
        for peer in 0..count {
            if peer == rank {
                add(sums, part);
            } else if let Some(segment) = ranks.received(&mut exchange, peer)? {
                add(sums, bytemuck::cast_slice(segment.bytes()));
            }
        }
        Ok(ranks.finish(exchange)?)
    }

    /// Reads a stretch of the gradients that a rank owns, which lie one after the other.
    fn read(
        &self,
        engine: &dyn Engine,
        rank: usize,
        stretch: Range<usize>,
        values: &mut [f32],
    ) -> Result<(), EngineError> {
        let (mut start, mut rest) = (0, values);
        for tensor in self.tensors.iter().filter(|tensor| tensor.owner == rank) {
            let end = start + tensor.elements;
            let (first, last) = (stretch.start.max(start), stretch.end.min(end));
            if first < last {
                let (piece, others) = rest.split_at_mut(last - first);
                rest = others;
                engine.read_from(self.program, tensor.gradient, first - start, HostSliceMut::F32(piece))?;
            }
            start = end;
        }
        Ok(())
    }

    /// Gives the engine the gradients of the step that this rank owns, and computes the sums of their squares.
    pub(crate) fn finish(&mut self, engine: &mut dyn Engine, room: &mut [f32]) -> Result<(), EngineError> {
        let mut rest = self.sums.as_ref().map(|sums| &sums.values[..]);
        let own = self.tensors.iter().filter(|tensor| tensor.owner == self.rank);
        for (tensor, squares) in own.zip(&mut self.squares) {
            let gradient = match rest {
                Some(sums) => {
                    let (gradient, others) = sums.split_at(tensor.elements);
                    rest = Some(others);
                    engine.write(self.program, tensor.gradient, HostSlice::F32(gradient))?;
                    gradient
                }
                None => {
                    let gradient = &mut room[..tensor.elements];
                    engine.read(self.program, tensor.gradient, HostSliceMut::F32(gradient))?;
                    gradient
                }
            };
            *squares = sum_of_squares(gradient);
        }
        Ok(())
    }

    /// The sum of squares of each tensor's gradient that this rank owns, in their order.
    pub(crate) fn squares(&self) -> &[f64] {
        &self.squares
    }
}

/// Adds numbers one by one.
fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

fn sum_of_squares(values: &[f32]) -> f64 {
    let mut lanes = [0.0; LANES];
    for chunk in values.chunks(LANES) {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use conformance::{engine_for, noise};
    use plimsoll_cpu::{CpuBackend, CpuOptions};
    use plimsoll_graph::{DType, Role};
    use plimsoll_nn::{DynUNet, Objective, Optimizer, names};
    use plimsoll_plan::Options;

    use super::*;

    fn training() -> Training {
        Training {
            net: DynUNet::new(1, 2, &[4, 8], &[[3; 3]; 2], &[[1; 3], [2; 3]]).into(),
            loss: Objective::default(),
            optimizer: Optimizer::adamw(),
            max_grad_norm: Some(12.0),
            ema: None,
            groups: Vec::new(),
            frozen: Vec::new(),
            patch: [8; 3],
            spacing: [1.0; 3],
            batch: 6,
            shards: 3,
            micro_batch: 1,
            precision: DType::F32,
        }
    }

    /// Runs a micro-batch with some image.
    fn run(engine: &mut dyn Engine, programs: &RunPrograms, number: usize) {
        let (id, program) = (programs.fullest(), &programs[programs.fullest()]);
        let [image, labels] = [names::IMAGE, names::LABELS].map(|name| program.find(name).unwrap());
        let values: Vec<f32> = (0..512).map(|i| noise(number + 1, i) as f32).collect();
        let classes: Vec<u8> = values.iter().map(|value| u8::from(*value > 0.0)).collect();
        engine.write(id, image, HostSlice::F32(&values)).unwrap();
        engine.write(id, labels, HostSlice::U8(&classes)).unwrap();
        engine.run(id).unwrap();
    }

    #[test]
    fn the_gradient_of_a_step_is_the_sum_over_shards_of_sums_over_micro_batches_in_order() {
        let training = training();
        let programs = RunPrograms::new(&training, RankPlace::ALONE).unwrap();
        let id = programs.fullest();
        let backend = CpuBackend::new(CpuOptions::new(1)).unwrap();
        let start = || {
            let mut engine = engine_for(&backend, programs.all(), Options::default()).unwrap();
            for parameter in programs[id].with_role(Role::Parameter) {
                let values = training.net.initial_values(programs[id].tensor(parameter), 5);
                engine.write(id, parameter, HostSlice::F32(&values)).unwrap();
            }
            engine
        };
        let tensors = trained_tensors(&programs[id], 1);
        let gradient = |engine: &dyn Engine, tensor: &TrainedTensor| {
            let mut values = vec![0.0; tensor.elements];
            engine.read(id, tensor.gradient, HostSliceMut::F32(&mut values)).unwrap();
            values
        };
        let mut room = vec![0.0; tensors.iter().map(|tensor| tensor.elements).max().unwrap()];
        let (mut engine, budget) = (start(), Budget::new(Bytes::mib(64)));
        let mut sums = GradientSums::new(&training, &programs, &budget).unwrap();
        assert_eq!(budget.used(), GradientSums::bytes(&training, &programs).unwrap());
        let mut communicator = plimsoll_ranks::alone();
        sums.clear();
        for shard in 0..3 {
            run(&mut *engine, &programs, 2 * shard);
            run(&mut *engine, &programs, 2 * shard + 1);
            sums.add_round(&mut *engine, &mut Ranks::new(&mut communicator), &mut room).unwrap();
        }
        sums.finish(&mut *engine, &mut room).unwrap();

        // By hand, from the gradient of each micro-batch alone.
        let (mut others, mut squares) = (0, 0.0);
        let alone: Vec<Vec<Vec<f32>>> = (0..6)
            .map(|number| {
                let mut engine = start();
                run(&mut *engine, &programs, number);
                tensors.iter().map(|tensor| gradient(&*engine, tensor)).collect()
            })
            .collect();
        for (place, tensor) in tensors.iter().enumerate() {
            let found = gradient(&*engine, tensor);
            for (element, found) in found.iter().enumerate() {
                let of = |number: usize| alone[number][place][element];
                let expected = ((0.0 + (of(0) + of(1))) + (of(2) + of(3))) + (of(4) + of(5));
                assert_eq!(found.to_bits(), expected.to_bits(), "{place}, {element}");
                let in_a_row: f32 = (0..6).map(of).fold(0.0, |sum, value| sum + value);
                others += usize::from(in_a_row.to_bits() != expected.to_bits());
                squares += f64::from(expected).powi(2);
            }
        }
        assert!(others > 100, "the order must matter to be tested");
        assert!((sums.squares().iter().sum::<f64>() / squares - 1.0).abs() < 1e-12);
    }
}
