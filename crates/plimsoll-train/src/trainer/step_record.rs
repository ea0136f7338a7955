//! The numbers of a step that all ranks learn, so that all decide alike: losses, cases, and sums of squares of gradients.

use plimsoll_memory::{Bytes, Reservation};
use plimsoll_nn::{RankPlace, TrainedTensor, Training, trained_tensors};
use plimsoll_ranks::RanksError;
use plimsoll_run::PartSums;

use crate::RunPrograms;
use crate::ranks::Ranks;

/// The bytes of a number.
const NUMBER: usize = size_of::<f64>();

/// The numbers of a rank's record, which is equally long on all ranks.
#[derive(Clone, Copy)]
pub(crate) struct RecordShape {
    place: RankPlace,
    /// Samples and micro-batches of a shard.
    shard_batch: usize,
    in_shard: usize,
    /// Shards of a rank.
    rounds: usize,
    /// The most parts of a loss.
    parts: usize,
    /// The most tensors that a rank owns.
    tensors: usize,
}

impl RecordShape {
    pub(super) fn new(training: &Training, programs: &RunPrograms) -> RecordShape {
        let place = programs.place();
        RecordShape::with_tensors(
            training,
            &trained_tensors(&programs[programs.fullest()], place.ranks),
            place,
        )
    }

    /// The numbers of a training of tensors with their owners.
    pub(crate) fn with_tensors(
        training: &Training,
        tensors: &[TrainedTensor],
        place: RankPlace,
    ) -> RecordShape {
        let mut owned = vec![0; place.ranks];
        for tensor in tensors {
            owned[tensor.owner] += 1;
        }
        RecordShape {
            place,
            shard_batch: training.shard_batch(),
            in_shard: training.shard_accumulation(),
            rounds: training.shards / place.ranks,
            parts: training.loss.part_count(),
            tensors: owned.into_iter().max().unwrap_or(0),
        }
    }

    /// The micro-batches of a rank.
    fn micro_batches(&self) -> usize {
        self.rounds * self.in_shard
    }

    /// The place of the cases, behind a loss and its parts for each micro-batch.
    fn cases(&self) -> usize {
        self.micro_batches() * (1 + self.parts)
    }

    /// The place of the squares, behind the cases.
    fn squares(&self) -> usize {
        self.cases() + self.rounds * self.shard_batch
    }

    /// The numbers of a record.
    fn len(&self) -> usize {
        self.squares() + self.tensors
    }

    /// The bytes of a record.
    pub(crate) fn record_bytes(&self) -> usize {
        self.len() * NUMBER
    }

    /// The rank and the place in its record of something of which a shard has `of_shard`.
    fn find(&self, number: usize, of_shard: usize) -> (usize, usize) {
        let (shard, within) = (number / of_shard, number % of_shard);
        let RankPlace { ranks, .. } = self.place;
        (shard % ranks, shard / ranks * of_shard + within)
    }
}

/// The numbers of a step by all ranks, each as 8 bytes.
pub(super) struct StepRecord {
    shape: RecordShape,
    own: Vec<u8>,
    /// The records of all ranks in their order.
    all: Vec<u8>,
    _memory: Reservation,
}

impl StepRecord {
    /// The memory of a record, of all records, and of their copies in messages.
    pub(super) fn bytes(shape: &RecordShape) -> Bytes {
        let record = shape.record_bytes();
        Bytes::from_len(record + 3 * record * shape.place.ranks)
    }

    pub(super) fn new(shape: RecordShape, memory: Reservation) -> StepRecord {
        let own = vec![0; shape.record_bytes()];
        StepRecord { shape, own, all: Vec::new(), _memory: memory }
    }

    fn set(&mut self, place: usize, number: [u8; NUMBER]) {
        self.own[place * NUMBER..][..NUMBER].copy_from_slice(&number);
    }

    fn get(&self, rank: usize, place: usize) -> [u8; NUMBER] {
        let mut number = [0; NUMBER];
        number.copy_from_slice(&self.all[(rank * self.shape.len() + place) * NUMBER..][..NUMBER]);
        number
    }

    fn number(&self, rank: usize, place: usize) -> f64 {
        f64::from_le_bytes(self.get(rank, place))
    }

    /// Begins a step with the cases of this rank's samples.
    pub(super) fn begin(&mut self, cases: &[usize]) {
        self.own.fill(0);
        for (sample, case) in cases.iter().enumerate() {
            self.set(self.shape.cases() + sample, (*case as u64).to_le_bytes());
        }
    }

    /// The loss of one of this rank's micro-batches, with its parts.
    pub(super) fn set_losses(&mut self, at: usize, loss: f32, parts: &[f32]) {
        let first = at * (1 + self.shape.parts);
        self.set(first, f64::from(loss).to_le_bytes());
        for (part, value) in parts.iter().enumerate() {
            self.set(first + 1 + part, f64::from(*value).to_le_bytes());
        }
    }

    /// The sums of squares of the tensors that this rank owns.
    pub(super) fn set_squares(&mut self, squares: &[f64]) {
        for (tensor, squares) in squares.iter().enumerate() {
            self.set(self.shape.squares() + tensor, squares.to_le_bytes());
        }
    }

    /// Exchanges the records of all ranks.
    pub(super) fn gather(&mut self, ranks: &mut Ranks<'_>) -> Result<(), RanksError> {
        self.all = ranks.all_gather(&self.own)?;
        Ok(())
    }

    /// The mean loss of all micro-batches in their order. The parts of each, which are these of the loss, are added to `sums`.
    pub(super) fn loss(&self, which: &[usize], sums: &mut PartSums) -> f32 {
        let RecordShape { place, in_shard, parts, .. } = self.shape;
        let count = self.shape.micro_batches() * place.ranks;
        let mut loss = 0.0;
        for number in 0..count {
            let (rank, at) = self.shape.find(number, in_shard);
            let first = at * (1 + parts);
            // Exact: it was an f32.
            loss += self.number(rank, first) as f32 / count as f32;
            for (value, part) in which.iter().enumerate() {
                sums[*part].0 += self.number(rank, first + 1 + value);
                sums[*part].1 += 1;
            }
        }
        loss
    }

    /// The cases of all samples in their order.
    pub(super) fn cases(&self) -> Vec<usize> {
        let RecordShape { place, shard_batch, rounds, .. } = self.shape;
        let case = |number: usize| {
            let (rank, at) = self.shape.find(number, shard_batch);
            // The number was a `usize`.
            u64::from_le_bytes(self.get(rank, self.shape.cases() + at)) as usize
        };
        (0..rounds * shard_batch * place.ranks).map(case).collect()
    }

    /// The sum of the squares of all gradients, tensor by tensor.
    pub(super) fn squares(&self, tensors: &[TrainedTensor]) -> f64 {
        let mut next = vec![self.shape.squares(); self.shape.place.ranks];
        let squares = tensors.iter().map(|tensor| {
            let place = next[tensor.owner];
            next[tensor.owner] += 1;
            self.number(tensor.owner, place)
        });
        squares.fold(0.0, |sum, squares| sum + squares)
    }
}
