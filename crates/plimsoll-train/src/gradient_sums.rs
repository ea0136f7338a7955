//! The gradient of a step: the sum over its shards in their order.
//!
//! A program of gradients adds the micro-batches of a shard in states of the engine, from zero. The sums over the shards are added here, so that
//! they are the same sums wherever the shards are computed: each rank adds the gradients of the tensors that it owns, which the other ranks
//! [send](crate::exchange) while the program runs. In each round the ranks compute consecutive shards, so that no gradient waits for an earlier
//! one of a later round. Where one process computes all shards and each is one micro-batch, the states of the engine already are these sums.

use plimsoll_graph::{Program, TensorId};
use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_nn::{RankPlace, TrainedTensor, Training, trained_tensors};
use plimsoll_plan::{Engine, EngineError, HostSlice, HostSliceMut, Plan, ProgramId};
use plimsoll_ranks::{Messages, Traffic};

use crate::exchange::Exchange;
use crate::ranks::{Ranks, message_elements};
use crate::stream::{Division, SentTensor, Stream};
use crate::{RunPrograms, TrainError};

/// Partial sums of squares, which are added in order: the same for every length of a read.
const LANES: usize = 8;

/// The sums of gradients over the shards of a step.
pub(crate) struct GradientSums {
    program: ProgramId,
    rank: usize,
    tensors: Vec<TrainedTensor>,
    /// The gradients of each rank's tensors, in the order in which a program computes them.
    streams: Vec<Stream>,
    division: Division,
    /// For each program that has run: the launches after which the messages of each rank are computed.
    ready: Vec<(ProgramId, Vec<Vec<usize>>)>,
    /// The sums, `None` if the states of the engine are these sums.
    sums: Option<OwnedSums>,
    /// The sum of squares of each owned tensor's gradient.
    squares: Vec<f64>,
}

/// The sums of the tensors that a rank owns.
pub(crate) struct OwnedSums {
    /// The sums, in the order of the rank's stream.
    pub(crate) values: Mapped<f32>,
    /// The part of this rank in a message.
    pub(crate) own: Mapped<f32>,
}

/// The division of gradients into messages to their owners.
pub(crate) fn gradient_division(tensors: &[TrainedTensor], ranks: usize) -> Division {
    let mut owned = vec![0; ranks];
    for tensor in tensors {
        owned[tensor.owner] += tensor.elements;
    }
    Division::new(owned, message_elements(ranks))
}

/// The trained tensors in the order in which a program completes their gradients. Each has the number of nodes up to the last that changes its gradient.
fn by_completion<'a>(program: &Program, tensors: &'a [TrainedTensor]) -> Vec<(&'a TrainedTensor, usize)> {
    let nodes = |gradient: TensorId| {
        let last = program.nodes.iter().rposition(|node| node.outputs.contains(&gradient));
        // A gradient that this program does not change is complete before its first node.
        last.map_or(0, |last| last + 1)
    };
    let mut all: Vec<(&TrainedTensor, usize)> =
        tensors.iter().map(|tensor| (tensor, nodes(tensor.gradient))).collect();
    // Stable: tensors that no node changes stay in the program's order.
    all.sort_by_key(|(_, nodes)| *nodes);
    all
}

/// The streams of gradients to their owners. Each is in the order in which the nodes of a program complete them, which is the same on all ranks, whatever
/// their schedules are.
fn gradient_streams(
    program: &Program,
    id: ProgramId,
    tensors: &[TrainedTensor],
    ranks: usize,
) -> Vec<Stream> {
    let sent = |(tensor, _): (&TrainedTensor, usize)| SentTensor {
        program: id,
        tensor: tensor.gradient,
        elements: tensor.elements,
        owner: tensor.owner,
    };
    Stream::by_owner(by_completion(program, tensors).into_iter().map(sent), ranks)
}

/// The share of a program's floating-point operations after which each message with gradients of `owner` is computed.
pub(crate) fn ready_shares(
    program: &Program,
    tensors: &[TrainedTensor],
    division: &Division,
    owner: usize,
) -> Vec<f64> {
    let mut done = vec![0.0];
    for node in &program.nodes {
        done.push(done[done.len() - 1] + program.cost(node).flops as f64);
    }
    let all = done[program.nodes.len()];
    let mut shares = Vec::with_capacity(division.count(owner));
    let mut elements = 0;
    for (tensor, nodes) in by_completion(program, tensors) {
        if tensor.owner != owner {
            continue;
        }
        elements += tensor.elements;
        while shares.len() < division.count(owner) && division.stretch(owner, shares.len()).end <= elements {
            shares.push(if all > 0.0 { done[nodes] / all } else { 0.0 });
        }
    }
    shares
}

/// The number of launches of a program after which each message of each rank is computed: those up to the last that changes one of its gradients.
fn ready_after(plan: &Plan, program: ProgramId, streams: &[Stream], division: &Division) -> Vec<Vec<usize>> {
    let (names, launches) = (plan.program(program), &plan.schedule(program).launches);
    let complete = |sent: SentTensor| {
        // Programs share gradients by name.
        let gradient = names.find(&plan.program(sent.program).tensor(sent.tensor).name);
        let last = gradient.and_then(|id| launches.iter().rposition(|launch| launch.outputs.contains(&id)));
        // A gradient that this program does not change is complete before its first launch.
        last.map_or(0, |last| last + 1)
    };
    let messages = |rank: usize| {
        let message = |message: usize| {
            let pieces = streams[rank].pieces(division.stretch(rank, message));
            pieces.map(|(sent, ..)| complete(sent)).max().unwrap_or(0)
        };
        (0..division.count(rank)).map(message).collect()
    };
    (0..division.ranks()).map(messages).collect()
}

/// The messages of each rank while gradients of one shard of each go to their owners: each rank sends every other what that one owns.
pub(crate) fn gradient_traffic(division: &Division) -> Vec<Traffic> {
    let ranks = division.ranks();
    let others = ranks as u64 - 1;
    // The messages from one rank to an owner.
    let to = |owner: usize| {
        let bytes = (division.elements(owner) * size_of::<f32>()) as u64;
        Messages { count: division.count(owner) as u64, bytes }
    };
    let all = (0..ranks).map(to).fold(Messages::default(), |all, messages| all + messages);
    let rank = |rank: usize| {
        let own = to(rank);
        Traffic {
            sent: Messages { count: all.count - own.count, bytes: all.bytes - own.bytes },
            received: Messages { count: own.count * others, bytes: own.bytes * others },
        }
    };
    (0..ranks).map(rank).collect()
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
        let tensors = trained_tensors(&programs[programs.fullest()], place.ranks);
        let division = gradient_division(&tensors, place.ranks);
        let own = Mapped::<f32>::bytes(division.length())?;
        Ok(Mapped::<f32>::bytes(division.elements(place.rank))? + own)
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
        let streams = gradient_streams(&programs[program], program, &tensors, place.ranks);
        let division = gradient_division(&tensors, place.ranks);
        let sums = match GradientSums::is_needed(training, place) {
            true => Some(OwnedSums {
                values: Mapped::zeroed(budget, "sums", division.elements(place.rank))?,
                own: Mapped::zeroed(budget, "sums", division.length())?,
            }),
            false => None,
        };
        let squares = vec![0.0; tensors.iter().filter(|tensor| tensor.owner == place.rank).count()];
        let ready = Vec::new();
        Ok(GradientSums { program, rank: place.rank, tensors, streams, division, ready, sums, squares })
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

    /// Runs a program of gradients for the last micro-batch of a shard, and adds the gradients of the next shards in order, of which each rank's engine
    /// has accumulated one. Gradients go to their owners while the program computes others.
    pub(crate) fn run_and_add(
        &mut self,
        program: ProgramId,
        engine: &mut dyn Engine,
        ranks: &mut Ranks<'_>,
    ) -> Result<(), TrainError> {
        if ranks.is_alone() {
            engine.run(program)?;
        }
        let Some(sums) = &mut self.sums else { return Ok(()) };
        let (streams, division) = (&self.streams[..], &self.division);
        if ranks.is_alone() {
            for message in 0..division.count(self.rank) {
                let stretch = division.stretch(self.rank, message);
                let own = &mut sums.own[..stretch.len()];
                streams[self.rank].read(engine, stretch.clone(), own)?;
                add(&mut sums.values[stretch], own);
            }
        } else {
            let ready = match self.ready.iter().position(|(known, _)| *known == program) {
                Some(at) => &self.ready[at].1,
                None => {
                    let launches = ready_after(engine.plan(), program, streams, division);
                    self.ready.push((program, launches));
                    &self.ready[self.ready.len() - 1].1
                }
            };
            let mut exchange = Exchange::new(self.rank, streams, division, ready);
            let launches = engine.plan().schedule(program).launches.len();
            exchange.begin(ranks)?;
            for launch in 0..launches {
                engine.run_launches(program, launch..launch + 1)?;
                exchange.progress(launch + 1, engine, sums, ranks)?;
            }
            exchange.finish(launches, engine, sums, ranks)?;
        }
        // The next shard begins at zero.
        for tensor in &self.tensors {
            engine.clear(self.program, tensor.gradient)?;
        }
        Ok(())
    }

    /// Gives the engine the gradients of the step that this rank owns, and computes the sums of their squares.
    pub(crate) fn finish(&mut self, engine: &mut dyn Engine, room: &mut [f32]) -> Result<(), EngineError> {
        let own = self.tensors.iter().filter(|tensor| tensor.owner == self.rank);
        for (tensor, squares) in own.zip(&mut self.squares) {
            let gradient = match &self.sums {
                Some(sums) => {
                    let elements = self.streams[self.rank].elements_of(tensor.gradient);
                    let elements =
                        elements.ok_or_else(|| EngineError::Internal("a gradient is not sent".into()))?;
                    let gradient = &sums.values[elements];
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
pub(crate) fn add(sums: &mut [f32], values: &[f32]) {
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

    /// Writes a micro-batch with some image.
    fn write(engine: &mut dyn Engine, programs: &RunPrograms, number: usize) {
        let (id, program) = (programs.fullest(), &programs[programs.fullest()]);
        let [image, labels] = [names::IMAGE, names::LABELS].map(|name| program.find(name).unwrap());
        let values: Vec<f32> = (0..512).map(|i| noise(number + 1, i) as f32).collect();
        let classes: Vec<u8> = values.iter().map(|value| u8::from(*value > 0.0)).collect();
        engine.write(id, image, HostSlice::F32(&values)).unwrap();
        engine.write(id, labels, HostSlice::U8(&classes)).unwrap();
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
            write(&mut *engine, &programs, 2 * shard);
            engine.run(id).unwrap();
            write(&mut *engine, &programs, 2 * shard + 1);
            sums.run_and_add(id, &mut *engine, &mut Ranks::new(&mut communicator)).unwrap();
        }
        sums.finish(&mut *engine, &mut room).unwrap();

        // By hand, from the gradient of each micro-batch alone.
        let (mut others, mut squares) = (0, 0.0);
        let alone: Vec<Vec<Vec<f32>>> = (0..6)
            .map(|number| {
                let mut engine = start();
                write(&mut *engine, &programs, number);
                engine.run(id).unwrap();
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

    #[test]
    fn gradients_leave_while_others_are_computed() {
        let training = training();
        let programs = RunPrograms::new(&training, RankPlace { rank: 0, ranks: 3 }).unwrap();
        let id = programs.fullest();
        let tensors = trained_tensors(&programs[id], 3);
        let streams = gradient_streams(&programs[id], id, &tensors, 3);
        let owned = streams.iter().map(Stream::elements).collect();
        let division = Division::new(owned, 64);
        let backend = CpuBackend::new(CpuOptions::new(1)).unwrap();
        let engine = engine_for(&backend, programs.all(), Options::default()).unwrap();
        let ready = ready_after(engine.plan(), id, &streams, &division);
        let launches = engine.plan().schedule(id).launches.len();
        for (owner, ready) in ready.iter().enumerate() {
            assert!(ready.is_sorted() && *ready.last().unwrap() <= launches, "{ready:?}");
            let shares = ready_shares(&programs[id], &tensors, &division, owner);
            assert_eq!(shares.len(), ready.len());
            assert!(
                shares.is_sorted() && shares.iter().all(|share| (0.4..=1.0).contains(share)),
                "{shares:?}"
            );
        }
        // A backward pass is most of a program. Were gradients added at its end, all would leave after the last launches.
        let first = ready.iter().map(|ready| ready[0]).min().unwrap();
        assert!(first < launches * 3 / 4, "the first message leaves after {first} of {launches} launches");
    }
}
