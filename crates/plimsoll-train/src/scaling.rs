//! The time of a step of several ranks, predicted from the messages that it sends.
//!
//! The messages are counted by the functions that choose them for sending. Their time follows LogGP (Alexandrov, Ionescu, Schauser and Scheiman,
//! *LogGP: incorporating long messages into the LogP model*, SPAA 1995): a message of b bytes takes L + 2o + b·G. Gradients leave as soon as they are
//! computed, while the backward pass goes on; parameters are passed on after the update, and their time is added. The host's work on messages,
//! such as the addition of gradients and copies from a device, is not counted.

use plimsoll_graph::{Program, Role};
use plimsoll_memory::Bytes;
use plimsoll_nn::{RankPlace, TrainedTensor, Training, names, trained_tensors};
use plimsoll_ranks::Traffic;
use serde::Serialize;

use crate::PlannedRun;
use crate::gradient_sums::{gradient_division, gradient_traffic, ready_shares};
use crate::link::Link;
use crate::ranks::{WISHES_BYTES, ring_window};
use crate::ring::ring_traffic;
use crate::stream::Division;
use crate::trainer::RecordShape;

/// The least gain of more ranks that is worth them: a step must take at most this share of the time.
const WORTHWHILE: f64 = 0.9;
/// Folds at once are proposed if they take at most this share of the time.
const EARLIER: f64 = 0.99;

/// The messages of a step that `ranks` ranks compute.
pub struct StepExchange {
    ranks: usize,
    /// The shards of a rank.
    rounds: usize,
    /// The micro-batches of a shard.
    in_shard: usize,
    record_bytes: usize,
    /// The sums of a shard that the loss over the batch is made of; 0 if it is made of none.
    sums_bytes: usize,
    tensors: Vec<TrainedTensor>,
    division: Division,
    /// The share of a micro-batch's operations after which each message to the largest owner is computed.
    ready: Vec<f64>,
}

/// The seconds of the communication of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepSeconds {
    /// Gradients of shards go to the owners of the tensors.
    pub gradients: f64,
    /// Losses, cases, sums of squares, sums of the batch and wishes go to all ranks.
    pub records: f64,
    /// Updated parameters go from their owners around the ring.
    pub parameters: f64,
}

impl StepSeconds {
    /// The seconds of all communication.
    pub fn total(&self) -> f64 {
        self.gradients + self.records + self.parameters
    }
}

impl StepExchange {
    /// The messages of a training whose program `gradients` accumulates the gradients of a shard. The number of ranks divides the shards.
    pub fn new(training: &Training, gradients: &Program, ranks: usize) -> StepExchange {
        let tensors = trained_tensors(gradients, ranks);
        let shape = RecordShape::with_tensors(training, &tensors, RankPlace { rank: 0, ranks });
        let division = gradient_division(&tensors, ranks);
        StepExchange {
            ranks,
            rounds: training.shards / ranks,
            in_shard: training.shard_accumulation(),
            record_bytes: shape.record_bytes(),
            sums_bytes: batch_sums_bytes(gradients),
            ready: ready_shares(gradients, &tensors, &division, division.largest()),
            division,
            tensors,
        }
    }

    /// The rank with the most moments and sums of gradients.
    pub fn largest_owner(&self) -> usize {
        self.division.largest()
    }

    /// The number of tensors that are trained; no more ranks than these can train together.
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// The messages of each rank in a step that is not refused.
    pub fn traffic(&self) -> Vec<Traffic> {
        let mut all: Vec<Traffic> =
            gradient_traffic(&self.division).into_iter().map(|round| round * self.rounds).collect();
        for (rank, all) in all.iter_mut().enumerate() {
            let gathered = |bytes: usize| Traffic::of_all_gather(rank, self.ranks, bytes);
            for bytes in [self.record_bytes, WISHES_BYTES] {
                *all += gathered(bytes);
            }
            if self.sums_bytes > 0 {
                *all += gathered(self.sums_bytes) * self.rounds;
            }
            *all += ring_traffic(rank, &self.division);
        }
        all
    }

    /// The time of these messages.
    pub fn seconds(&self, link: Link) -> StepSeconds {
        if self.ranks == 1 {
            return StepSeconds::default();
        }
        let gathered = [(1, self.record_bytes), (1, WISHES_BYTES), (self.rounds, self.sums_bytes)];
        let records = gathered.iter().filter(|(_, bytes)| *bytes > 0);
        StepSeconds {
            gradients: self.rounds as f64 * gradient_seconds(&self.division, link),
            records: records
                .map(|(times, bytes)| *times as f64 * all_gather_seconds(self.ranks, *bytes, link))
                .sum(),
            parameters: ring_seconds(&self.division, link),
        }
    }

    /// The time by which communication prolongs a step that computes for some seconds.
    pub fn added_seconds(&self, link: Link, computing: f64) -> f64 {
        let StepSeconds { gradients, records, parameters } = self.seconds(link);
        let rounds = self.rounds as f64;
        // Gradients leave with the last micro-batch of each shard.
        let micro_batch = computing / (rounds * self.in_shard as f64);
        rounds * self.late_seconds(gradients / rounds, micro_batch) + records + parameters
    }

    /// The time from the end of a micro-batch until its gradients are at the largest owner. A micro-batch computes for some seconds, and its gradients
    /// are under way for some, message after message, each as soon as it is computed.
    fn late_seconds(&self, gradients: f64, micro_batch: f64) -> f64 {
        let owner = self.division.largest();
        let all = self.division.elements(owner) as f64;
        let end = self.ready.iter().enumerate().fold(0.0, |end: f64, (message, share)| {
            let part = self.division.stretch(owner, message).len() as f64 / all;
            end.max(share * micro_batch) + part * gradients
        });
        (end - micro_batch).max(0.0)
    }
}

/// The bytes of the sums of a shard that a program of gradients reads the totals of.
fn batch_sums_bytes(gradients: &Program) -> usize {
    let inputs = (0..).map_while(|head| gradients.find(&names::batch_sums(head)));
    let of_sample = inputs.map(|input| {
        let shape = gradients.shape(input);
        shape.count() / shape.dim(0)
    });
    of_sample.sum::<usize>() * size_of::<f64>()
}

/// The time until all ranks have `bytes` bytes of each: the first receives them, and passes all on along a binomial tree.
fn all_gather_seconds(ranks: usize, bytes: usize, link: Link) -> f64 {
    let gathered = Traffic::of_gather(0, ranks, 0, bytes).received;
    let levels = ranks.next_power_of_two().trailing_zeros();
    let level = link.message_seconds((ranks * bytes) as u64);
    link.messages_seconds(gathered.count, gathered.bytes) + f64::from(levels) * level
}

/// The time of the gradients of one shard of each rank. All ranks send and receive at once, and wait for the owner of the most elements, which receives
/// each of its messages from all others.
fn gradient_seconds(division: &Division, link: Link) -> f64 {
    let busiest = gradient_traffic(division)[division.largest()].received;
    // Latencies of messages that are in flight at the same time pass together.
    let at_once = ring_window(division.ranks()) as u64;
    link.messages_seconds(busiest.count, busiest.bytes)
        + busiest.count.div_ceil(at_once).saturating_sub(1) as f64 * link.latency_seconds
}

/// The time until the values of all ranks have gone around the ring. All links work at once, so the busiest link decides, and the last message passes
/// R − 2 ranks before its last hop.
fn ring_seconds(division: &Division, link: Link) -> f64 {
    let ranks = division.ranks();
    let all = (0..ranks).map(|rank| ring_traffic(rank, division).sent);
    let seconds = all.map(|sent| {
        let at_once = ring_window(ranks) as u64;
        link.messages_seconds(sent.count, sent.bytes)
            + sent.count.div_ceil(at_once).saturating_sub(1) as f64 * link.latency_seconds
    });
    let last = division.stretch(division.largest(), division.longest().saturating_sub(1)).len();
    let hop = link.message_seconds((last * size_of::<f32>()) as u64);
    seconds.fold(0.0, f64::max) + (ranks - 2) as f64 * hop
}

/// The memory and the time of a training by some number of ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankCost {
    /// The number of ranks.
    pub ranks: usize,
    /// The samples of a rank in a step.
    pub samples: usize,
    /// `true` if the rank with the most moments is within its limits.
    pub fits: bool,
    /// The planned memory of that rank, its cache included.
    pub total_bytes: Bytes,
    /// The moments and averages of that rank, which are divided among the ranks.
    pub state_bytes: Bytes,
    /// The least limit for that rank.
    pub minimum_ram_bytes: Bytes,
    /// The least limit of the memory of its device; `None` on the processor.
    pub minimum_vram_bytes: Option<Bytes>,
    /// The most bytes that a rank sends in a step.
    pub sent_bytes_per_step: Bytes,
    /// The most bytes that a rank receives in a step.
    pub received_bytes_per_step: Bytes,
    /// The predicted time of the kernels of a rank in a step.
    pub compute_seconds_per_step: f64,
    /// The predicted time by which communication prolongs a step: without the gradients that leave during the backward pass.
    pub communication_seconds_per_step: f64,
    /// Both together.
    pub predicted_seconds_per_step: f64,
    /// The speed of each rank relative to the speed of a rank of the smallest number that fits; `None` if this number does not fit, because its time
    /// is then not by the measured rates of the machine.
    pub efficiency: Option<f64>,
}

impl RankCost {
    /// The cost of a run that is planned for one of its ranks.
    pub fn new(planned: &PlannedRun, link: Link) -> RankCost {
        let (programs, training) = (&planned.programs, &planned.config.training);
        let ranks = programs.place().ranks;
        let exchange = StepExchange::new(training, &programs[programs.fullest()], ranks);
        let traffic = exchange.traffic();
        let most = |bytes: fn(&Traffic) -> u64| Bytes(traffic.iter().map(bytes).max().unwrap_or(0));
        let numbers = &planned.numbers;
        let computing = numbers.predicted_seconds_per_step;
        let communication = exchange.added_seconds(link, computing);
        RankCost {
            ranks,
            samples: training.batch / ranks,
            fits: numbers.feasible,
            total_bytes: numbers.total_bytes,
            state_bytes: state_bytes(&programs[programs.updating()]),
            minimum_ram_bytes: numbers.minimum_ram_bytes,
            minimum_vram_bytes: numbers.device.as_ref().map(|device| device.minimum_vram_bytes),
            sent_bytes_per_step: most(|traffic| traffic.sent.bytes),
            received_bytes_per_step: most(|traffic| traffic.received.bytes),
            compute_seconds_per_step: computing,
            communication_seconds_per_step: communication,
            predicted_seconds_per_step: computing + communication,
            efficiency: None,
        }
    }
}

/// The bytes of moments and averages of the program that updates them.
fn state_bytes(updating: &Program) -> Bytes {
    let states = updating.with_role(Role::State).map(|id| updating.shape(id).count());
    Bytes::from_len(states.sum::<usize>() * size_of::<f32>())
}

/// A training by more and more ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankScaling {
    /// The network of a rank.
    pub link: Link,
    /// The samples of a step.
    pub batch_size: usize,
    /// The equal parts of the batch, which are divided among the ranks.
    pub shards: usize,
    /// The costs by the number of ranks, from one on.
    pub costs: Vec<RankCost>,
    /// The number of ranks beyond which the next larger one shortens a step by less than 10 %; `None` if no number fits the limits.
    pub useful_ranks: Option<usize>,
    /// The division of the ranks among folds that finishes all of them earlier than one fold after the other on all ranks.
    pub folds_at_once: Option<FoldsAtOnce>,
}

/// Several folds that are trained at the same time, each by a part of the ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoldsAtOnce {
    /// The number of folds.
    pub folds: usize,
    /// The folds that are trained at the same time.
    pub at_once: usize,
    /// The ranks of each.
    pub ranks_each: usize,
    /// The predicted time of one step of every fold.
    pub predicted_seconds: f64,
    /// The same if one fold after the other is trained by all ranks.
    pub one_by_one_seconds: f64,
}

impl RankScaling {
    /// Compares the costs of a training with `folds` folds, which are sorted by the number of ranks, one rank first.
    pub fn new(training: &Training, link: Link, folds: usize, mut costs: Vec<RankCost>) -> RankScaling {
        let work = |cost: &RankCost| cost.ranks as f64 * cost.predicted_seconds_per_step;
        let least = costs.iter().find(|cost| cost.fits).map(work);
        for cost in &mut costs {
            cost.efficiency = least.filter(|_| cost.fits).map(|least| least / work(cost));
        }
        let possible: Vec<&RankCost> = costs.iter().filter(|cost| cost.fits).collect();
        let is_enough = |pair: &&[&RankCost]| {
            pair[1].predicted_seconds_per_step > WORTHWHILE * pair[0].predicted_seconds_per_step
        };
        let enough = possible.windows(2).find(is_enough).map(|pair| pair[0]);
        let useful_ranks = enough.or(possible.last().copied()).map(|cost| cost.ranks);
        let folds_at_once = folds_at_once(folds, &possible);
        RankScaling {
            link,
            batch_size: training.batch,
            shards: training.shards,
            costs,
            useful_ranks,
            folds_at_once,
        }
    }
}

/// The division of the most ranks among folds that finishes all folds first, if it is not that into one group.
fn folds_at_once(folds: usize, costs: &[&RankCost]) -> Option<FoldsAtOnce> {
    let all = costs.last()?;
    let one_by_one_seconds = folds as f64 * all.predicted_seconds_per_step;
    let division = |cost: &&RankCost| {
        let at_once = (all.ranks / cost.ranks).min(folds).max(1);
        let predicted_seconds = folds.div_ceil(at_once) as f64 * cost.predicted_seconds_per_step;
        FoldsAtOnce { folds, at_once, ranks_each: cost.ranks, predicted_seconds, one_by_one_seconds }
    };
    let divisions = costs.iter().map(division).filter(|division| division.at_once > 1);
    divisions
        .min_by(|a, b| a.predicted_seconds.total_cmp(&b.predicted_seconds))
        .filter(|best| best.predicted_seconds < EARLIER * one_by_one_seconds)
}
