//! The writing of the programs of a training run: gradients, updates and validation.

use plimsoll_graph::ops::{Accumulate, GradNorm, Join, RATES, RunningUpdate, WeightedSum};
use plimsoll_graph::{
    GraphError, Kind, Node, Op, Program, Role, Shape, TensorId, differentiate, differentiate_from,
};

use super::owners::{RankPlace, trained_tensors};
use super::{Training, TrainingPrograms, averages, names};
use crate::groups::Groups;
use crate::networks::bounds::check_batch;
use crate::objective::{HeadLogits, LossBuilder};
use crate::optimizer::Updates;
use crate::{Architecture, Classifies, ConfigError, ForwardMode, TargetInput, Variant};

/// Writes the programs of a training run.
pub(super) struct ProgramWriter<'a> {
    pub(super) training: &'a Training,
    pub(super) net: &'a dyn Architecture,
}

impl ProgramWriter<'_> {
    pub(super) fn needs_whole_batch(&self) -> Option<String> {
        let what_whole = if self.training.shards > 1 { "shard of the batch" } else { "batch" };
        let coupled = |what| format!("{what} is over the whole {what_whole}, which cannot be divided");
        let of_loss = "the denominator of this loss is over the whole batch, which cannot be divided";
        let of_loss = || self.training.loss.needs_whole_batch().then(|| of_loss.to_string());
        self.net.couples_samples().map(coupled).or_else(of_loss)
    }

    pub(super) fn programs(&self, place: RankPlace) -> Result<TrainingPrograms, ConfigError> {
        let Training { loss, batch, .. } = self.training;
        self.net.check()?;
        self.net.check_patch(self.training.patch)?;
        check_batch(*batch, self.training.patch, self.net.weights())?;
        self.check_division(place)?;
        if let Some((option, found, expected)) = loss.fault(self.net.classes()) {
            return Err(ConfigError::Loss { option, found, expected });
        }
        self.check_wholeness()?;
        self.training.check_updates()?;
        let parameters = self.parameters()?;
        let parameters: Vec<(&str, bool)> =
            parameters.iter().map(|name| (&name[..], self.net.is_trained(name))).collect();
        let groups = Groups::new(&self.training.groups, &self.training.frozen, &parameters)?;
        let mut targets = Vec::new();
        let variants = loss.variants();
        let gradients: Vec<Program> = (0..variants.len())
            .map(|variant| self.gradient_program(variant, &variants[variant], groups, &mut targets))
            .collect::<Result<_, _>>()?;
        let owned = |place| self.update_program(&gradients[0], place, groups);
        let update = match self.training.accumulation() {
            1 => None,
            _ => Some(owned(place)?),
        };
        let stored = if place.ranks > 1 { Some(owned(RankPlace::ALONE)?) } else { None };
        // Averages of all parameters are validated, wherever they are updated.
        let updating = stored.as_ref().or(update.as_ref()).unwrap_or(&gradients[0]);
        let validate = self.validate_program(updating, &mut targets)?;
        Ok(TrainingPrograms { gradients, update, stored, validate, targets })
    }

    /// Checks that micro-batches divide shards, shards the batch, and processes the shards.
    fn check_division(&self, place: RankPlace) -> Result<(), ConfigError> {
        let Training { batch, shards, micro_batch, .. } = *self.training;
        let divides = |part: usize, whole: usize| part > 0 && whole > 0 && whole.is_multiple_of(part);
        if shards == 1 {
            let expected = "it must divide the batch";
            ConfigError::expect(divides(micro_batch, batch), "micro_batch", micro_batch, expected)?;
        } else {
            let expected = format!("it must divide the batch, which is `batch_size` {batch}");
            ConfigError::expect(divides(shards, batch), "shards", shards, expected)?;
            let shard = batch / shards;
            let expected = format!("it must divide a shard, which has {shard} of the {batch} samples");
            ConfigError::expect(divides(micro_batch, shard), "micro_batch", micro_batch, expected)?;
        }
        let RankPlace { ranks, .. } = place;
        let expected = format!("it must be a multiple of the number of ranks, which is {ranks}");
        ConfigError::expect(divides(ranks, shards), "shards", shards, expected)
    }

    /// Checks that nothing is divided that a loss or a network takes as a whole.
    fn check_wholeness(&self) -> Result<(), ConfigError> {
        let Training { loss, shards, micro_batch, .. } = self.training;
        if *shards > 1 && loss.needs_whole_batch() {
            let expected = "the denominator of this loss is over the whole batch: set `shards` to 1, or `batch` of the loss to false";
            return ConfigError::expect(false, "shards", shards, expected);
        }
        match self.needs_whole_batch() {
            Some(reason) if self.training.shard_accumulation() > 1 => {
                ConfigError::expect(false, "micro_batch", micro_batch, reason)
            }
            _ => Ok(()),
        }
    }

    /// The names of all parameters.
    fn parameters(&self) -> Result<Vec<String>, ConfigError> {
        let mut program = Program::new("forward");
        let (image, _) = self.inputs(&mut program, self.training.micro_batch);
        self.net.forward(&mut program, image, self.mode(true))?;
        Ok(program.with_role(Role::Parameter).map(|id| program.tensor(id).name.clone()).collect())
    }

    fn gradient_program(
        &self,
        number: usize,
        variant: &Variant,
        groups: Groups<'_>,
        targets: &mut Vec<TargetInput>,
    ) -> Result<Program, ConfigError> {
        let whole = self.training.accumulation() == 1;
        let name = if whole { format!("step {number}") } else { format!("gradient {number}") };
        let mut program = Program::new(name);
        let (image, labels) = self.inputs(&mut program, self.training.micro_batch);
        let heads = self.net.forward(&mut program, image, self.mode(true))?;
        let loss = self.loss_of(&mut program, &heads, labels, variant, targets)?;
        let is_trained = |id: &TensorId| {
            let name = &program.tensor(*id).name;
            self.net.is_trained(name) && !groups.is_frozen(name)
        };
        let parameters: Vec<TensorId> = program.with_role(Role::Parameter).filter(is_trained).collect();
        let share = 1.0 / self.training.accumulation() as f32;
        let gradients = if self.training.precision.needs_loss_scale() {
            let scale = program.input(names::LOSS_SCALE, Shape(vec![1]), Kind::Table);
            let seed = program.push_one(WeightedSum { weights: vec![share] }, &[scale])?;
            differentiate_from(&mut program, loss, seed, &parameters)?
        } else {
            differentiate(&mut program, loss, share, &parameters)?
        };
        // Parameters that the loss does not depend on (a head of weight zero) are left as they are.
        let pairs: Vec<(TensorId, TensorId)> = parameters
            .into_iter()
            .zip(gradients)
            .filter_map(|(parameter, gradient)| Some((parameter, gradient?)))
            .collect();
        if whole {
            self.update(&mut program, &pairs, groups, StepNorm::With(loss))?;
        } else {
            guard_shard(&mut program)?;
            for (parameter, gradient) in pairs {
                let sum = gradient_state(&mut program, parameter);
                program.push(Accumulate, &[sum, gradient])?;
            }
        }
        Ok(program)
    }

    /// The update of those gradients that a program accumulates and that a process owns. It sets them back to zero.
    fn update_program(
        &self,
        gradient: &Program,
        place: RankPlace,
        groups: Groups<'_>,
    ) -> Result<Program, ConfigError> {
        let mut program = Program::new("update");
        let trained = trained_tensors(gradient, place.ranks);
        let expected =
            format!("only {} tensors are trained, and each rank updates one at least", trained.len());
        ConfigError::expect(place.ranks <= trained.len(), "shards", self.training.shards, expected)?;
        let mut pairs = Vec::new();
        for id in gradient.with_role(Role::Parameter) {
            let info = gradient.tensor(id);
            let parameter = program.parameter(info.name.clone(), info.shape.clone(), info.kind);
            if trained.iter().any(|tensor| tensor.parameter == id && tensor.owner == place.rank) {
                pairs.push((parameter, gradient_state(&mut program, parameter)));
            }
        }
        let norm = if self.training.shards > 1 { StepNorm::Given } else { StepNorm::OfStates };
        self.update(&mut program, &pairs, groups, norm)?;
        Ok(program)
    }

    /// Appends the updates of parameters by their gradients. Where the loss is not made in this program, gradients are states,
    /// which are cleared.
    fn update(
        &self,
        program: &mut Program,
        pairs: &[(TensorId, TensorId)],
        groups: Groups<'_>,
        step_norm: StepNorm,
    ) -> Result<(), GraphError> {
        let rates = program.input(names::RATES, Shape(vec![RATES]), Kind::Table);
        let Training { optimizer, ema, .. } = *self.training;
        let norm_use = self.training.norm_use();
        let mut norm = None;
        if norm_use.reads() {
            // This is the norm of the scaled gradients: the host divides it by the scale.
            let computed = |loss: TensorId, program: &mut Program| {
                let mut operands = vec![loss];
                operands.extend(pairs.iter().map(|(_, gradient)| *gradient));
                let taken = program.push_one(GradNorm { loss: true }, &operands)?;
                program.mark_output(taken, names::GRAD_NORM);
                guard_running(program, taken)?;
                Ok::<_, GraphError>(taken)
            };
            norm = Some(match step_norm {
                StepNorm::With(loss) => computed(loss, program)?,
                StepNorm::OfStates => {
                    let loss = program.input(names::STEP_LOSS, Shape(vec![1]), Kind::Table);
                    computed(loss, program)?
                }
                StepNorm::Given => program.input(names::GRAD_NORM, Shape(vec![1]), Kind::Table),
            });
        }
        let first = program.nodes.len();
        let clear = !matches!(step_norm, StepNorm::With(_));
        let updates = Updates { optimizer, rates, norm: (norm_use, norm), clear, ema };
        for (parameter, gradient) in pairs {
            let rate_factor = groups.rate(&program.tensor(*parameter).name);
            updates.push(program, *parameter, *gradient, rate_factor)?;
        }
        if norm.is_none() {
            update_early(program, first);
        }
        Ok(())
    }

    /// Loss and counts, with the averages of the parameters that have one in the program that updates them.
    fn validate_program(
        &self,
        updating: &Program,
        targets: &mut Vec<TargetInput>,
    ) -> Result<Program, ConfigError> {
        let mut program = Program::new("validate");
        let (image, labels) = self.inputs(&mut program, self.training.validation_batch());
        let heads = self.net.forward(&mut program, image, self.mode(false))?;
        self.loss_of(&mut program, &heads, labels, &self.training.loss.validation(), targets)?;
        let counts = program.push_one(self.training.loss.counts(), &[heads[0], labels])?;
        program.mark_output(counts, names::COUNTS);
        if self.net.classifies() == Classifies::Images {
            program.mark_output(heads[0], names::LOGITS);
        }
        for (parameter, average) in averages(updating) {
            // A head that only training has is not here.
            if let Some(here) = program.find(&updating.tensor(parameter).name) {
                program.tensors[here.index()] = updating.tensor(average).clone();
            }
        }
        Ok(program)
    }

    fn mode(&self, training: bool) -> ForwardMode {
        ForwardMode { training, precision: self.training.precision }
    }

    fn inputs(&self, program: &mut Program, samples: usize) -> (TensorId, TensorId) {
        let patch = self.training.patch;
        let image = Shape::volume(samples, self.net.in_channels(), patch);
        let labels = Shape::volume(samples, 1, self.net.classifies().extent(patch));
        (program.input(names::IMAGE, image, Kind::Volume), program.input(names::LABELS, labels, Kind::Labels))
    }

    /// The loss over all heads, as an output; adds the maps of the target that it needs to `targets`.
    fn loss_of(
        &self,
        program: &mut Program,
        heads: &[TensorId],
        labels: TensorId,
        variant: &Variant,
        targets: &mut Vec<TargetInput>,
    ) -> Result<TensorId, GraphError> {
        let loss = &self.training.loss;
        let mut builder = LossBuilder::new(program, labels, self.training.spacing, loss.ignore);
        let (mut losses, mut weights, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for (logits, weight) in heads.iter().zip(self.net.head_weights(heads.len())) {
            if weight == 0.0 {
                continue;
            }
            let head = loss.head_loss(&mut builder, HeadLogits { logits: *logits }, variant)?;
            if losses.is_empty() {
                parts = head.parts;
            }
            for (value, factor) in head.values {
                losses.push(value);
                weights.push(weight * factor);
            }
        }
        for target in builder.targets() {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        let parts = match parts[..] {
            [table] => table,
            _ => program.push_one(Join, &parts)?,
        };
        program.mark_output(parts, names::LOSS_PARTS);
        let loss = program.push_one(WeightedSum { weights }, &losses)?;
        program.mark_output(loss, names::LOSS);
        Ok(loss)
    }
}

/// The origin of the norm of all gradients in a program that updates.
#[derive(Clone, Copy)]
enum StepNorm {
    /// Gradients and this loss are computed in the same program.
    With(TensorId),
    /// Gradients are states, and the loss is an input.
    OfStates,
    /// The norm is an input.
    Given,
}

/// Lets running statistics follow the first shard of a batch alone, by an input.
fn guard_shard(program: &mut Program) -> Result<(), GraphError> {
    if program.nodes.iter().any(|node| matches!(node.op, Op::RunningUpdate(_))) {
        let guard = program.input(names::RUNNING_GUARD, Shape(vec![1]), Kind::Table);
        guard_running(program, guard)?;
    }
    Ok(())
}

/// Moves the updates of running statistics behind the norm of all gradients, which refuses them together with the step.
fn guard_running(program: &mut Program, norm: TensorId) -> Result<(), GraphError> {
    let is_update = |node: &Node| matches!(node.op, Op::RunningUpdate(_));
    let (updates, others): (Vec<Node>, Vec<Node>) =
        std::mem::take(&mut program.nodes).into_iter().partition(is_update);
    program.nodes = others;
    for Node { op, mut inputs, .. } in updates {
        if let Op::RunningUpdate(update) = op {
            inputs.push(norm);
            program.push(RunningUpdate { guarded: true, ..update }, &inputs)?;
        }
    }
    Ok(())
}

/// Moves updates, which are all nodes from the `first` on, to where nothing else reads their parameter or gradient any more:
/// a gradient need not be held until all are known if no norm of all is taken. An update stays behind those before it that touch
/// the same tensors, such as the update of an average behind the update of its parameter.
fn update_early(program: &mut Program, first: usize) {
    let updates = program.nodes.split_off(first);
    let nodes = std::mem::take(&mut program.nodes);
    let touch = |node: &Node, update: &Node| {
        let mut all = node.inputs.iter().chain(&node.outputs);
        all.any(|id| update.inputs.contains(id) && program.tensor(*id).role != Role::Input)
    };
    let mut after: Vec<Vec<Node>> = vec![Vec::new(); nodes.len() + 1];
    for update in updates {
        let read = nodes.iter().rposition(|node| touch(node, &update)).map_or(0, |last| last + 1);
        let moved = after.iter().rposition(|updates| updates.iter().any(|node| touch(node, &update)));
        after[read.max(moved.unwrap_or(0))].push(update);
    }
    let mut after = after.into_iter();
    program.nodes.extend(after.next().into_iter().flatten());
    for (node, updates) in nodes.into_iter().zip(after) {
        program.nodes.push(node);
        program.nodes.extend(updates);
    }
}

fn gradient_state(program: &mut Program, parameter: TensorId) -> TensorId {
    let info = program.tensor(parameter).clone();
    program.state(names::gradient(&info.name), info.shape, info.kind)
}
