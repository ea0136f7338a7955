//! The numbers of one validated batch, which its rank passes to all others.

use plimsoll_memory::Bytes;
use plimsoll_nn::Training;

use crate::RunPrograms;

/// The bytes of a number.
const NUMBER: usize = size_of::<f64>();

/// The numbers of a validated batch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValidatedBatch {
    /// `true` if the rank was asked to stop.
    pub(super) stop: bool,
    /// `true` if the rank has validated a batch; the other numbers mean nothing otherwise.
    pub(super) is_done: bool,
    pub(super) loss: f32,
    pub(super) parts: Vec<f32>,
    pub(super) counts: Vec<f64>,
    /// The outputs for images; outputs for volumes are not read.
    pub(super) logits: Vec<f32>,
    pub(super) cases: Vec<usize>,
}

impl ValidatedBatch {
    /// The memory of a batch as numbers and as bytes, and of the bytes of all ranks and their copies in messages.
    pub(super) fn bytes(training: &Training, programs: &RunPrograms) -> Bytes {
        let parts = training.loss.parts(&training.loss.validation()).len();
        let batch = ValidatedBatch::new(parts, training.net.classes(), training.validation_batch());
        let one = batch.len() * NUMBER;
        Bytes::from_len(2 * one + 3 * one * programs.place().ranks)
    }

    /// The number of numbers.
    fn len(&self) -> usize {
        let single = self.parts.len() + self.logits.len() + 1;
        2 + self.cases.len() + single + self.counts.len()
    }

    /// Room for the numbers of a batch of `samples` samples.
    pub(super) fn new(parts: usize, classes: usize, samples: usize) -> ValidatedBatch {
        ValidatedBatch {
            stop: false,
            is_done: false,
            loss: 0.0,
            parts: vec![0.0; parts],
            counts: vec![0.0; 3 * classes],
            logits: vec![0.0; classes * samples],
            cases: vec![0; samples],
        }
    }

    /// The numbers as bytes. Batches of one run have the same number of bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let flags = [u64::from(self.stop), u64::from(self.is_done)];
        let single = self.parts.iter().chain(&self.logits).chain([&self.loss]).map(|value| f64::from(*value));
        let numbers = single.chain(self.counts.iter().copied()).map(f64::to_bits);
        let cases = self.cases.iter().map(|case| *case as u64);
        flags.into_iter().chain(cases).chain(numbers).flat_map(u64::to_le_bytes).collect()
    }

    /// Takes the numbers of [`to_bytes`](Self::to_bytes) of a batch of the same run.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut words = bytes.as_chunks::<NUMBER>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut flag = || words.next() == Some(1);
        (self.stop, self.is_done) = (flag(), flag());
        for (case, word) in self.cases.iter_mut().zip(&mut words) {
            // It was a `usize`.
            *case = word as usize;
        }
        let single = self.parts.iter_mut().chain(&mut self.logits).chain([&mut self.loss]);
        for (value, word) in single.zip(&mut words) {
            // Exact: it was an f32.
            *value = f64::from_bits(word) as f32;
        }
        for (count, word) in self.counts.iter_mut().zip(words) {
            *count = f64::from_bits(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_arrive_as_they_were_sent() {
        let sent = ValidatedBatch {
            stop: false,
            is_done: true,
            loss: 0.1,
            parts: vec![f32::MIN_POSITIVE, 3.0],
            counts: vec![1.0, 2.0, 1e300],
            logits: vec![-0.5, f32::MAX],
            cases: vec![7, usize::MAX],
        };
        let mut received = ValidatedBatch::new(2, 1, 2);
        assert_eq!(received.to_bytes().len(), sent.to_bytes().len());
        assert_eq!(received.to_bytes().len(), sent.len() * NUMBER);
        received.read(&sent.to_bytes());
        assert_eq!(received, sent);
    }
}
