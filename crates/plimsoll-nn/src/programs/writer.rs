//! The writing of the programs of a training run: gradients, updates and validation.

use plimsoll_graph::ops::{Accumulate, Fill, GradNorm, Join, RATES, RunningUpdate, WeightedSum};
use plimsoll_graph::{
    GraphError, Kind, Node, Op, Program, Role, Shape, TensorId, differentiate_from, differentiate_sum,
};

use super::owners::{RankPlace, trained_tensors};
use super::{Training, TrainingPrograms, WholePrograms, averages, names};
use crate::groups::Groups;
use crate::networks::bounds::check_batch;
use crate::objective::{BatchLoss, HeadLogits, LossBuilder};
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
        let of_structure = || self.training.loss.undivided().map(coupled);
        let needs_sums = self.training.loss.needs_batch_sums() && !self.exchanges_sums();
        let of_sums = "the denominator of this loss is over the whole batch, which only `shards` can divide";
        let of_sums = || needs_sums.then(|| of_sums.to_string());
        self.net.couples_samples().map(coupled).or_else(of_structure).or_else(of_sums)
    }

    /// Returns `true` if gradients of parts of a batch are computed by the sums of all of it, which parts exchange.
    pub(super) fn exchanges_sums(&self) -> bool {
        self.training.shards > 1 && self.training.loss.needs_batch_sums()
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
        let sums = if self.exchanges_sums() { Some(self.sums_program()?) } else { None };
        let owned = |place| self.update_program(&gradients[0], place, groups);
        let update = match self.training.accumulation() {
            1 => None,
            _ => Some(owned(place)?),
        };
        let validate = self.validate_program(update.as_ref().unwrap_or(&gradients[0]), &mut targets)?;
        let whole = match place.ranks {
            1 => None,
            _ => {
                let update = owned(RankPlace::ALONE)?;
                // All inputs are among the targets by now.
                let validate = self.validate_program(&update, &mut targets)?;
                Some(WholePrograms { update, validate })
            }
        };
        Ok(TrainingPrograms { gradients, sums, update, whole, validate, targets })
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
        if let Some(component) = loss.undivided().filter(|_| *shards > 1) {
            let expected = format!("the loss `{component}` needs the whole batch at once: set `shards` to 1");
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
        let heads = self.head_logits(&mut program, &heads, self.exchanges_sums());
        let loss = self.loss_of(&mut program, &heads, labels, variant, targets)?;
        let is_trained = |id: &TensorId| {
            let name = &program.tensor(*id).name;
            self.net.is_trained(name) && !groups.is_frozen(name)
        };
        let parameters: Vec<TensorId> = program.with_role(Role::Parameter).filter(is_trained).collect();
        let gradients = self.gradients_of(&mut program, &loss, &parameters)?;
        // Parameters that the loss does not depend on (a head of weight zero) are left as they are.
        let pairs: Vec<(TensorId, TensorId)> = parameters
            .into_iter()
            .zip(gradients)
            .filter_map(|(parameter, gradient)| Some((parameter, gradient?)))
            .collect();
        if whole {
            self.update(&mut program, &pairs, groups, StepNorm::With(loss.total))?;
        } else {
            guard_shard(&mut program)?;
            let first = program.nodes.len();
            for (parameter, gradient) in pairs {
                let sum = gradient_state(&mut program, parameter);
                program.push(Accumulate, &[sum, gradient])?;
            }
            // Ranks send each other gradients while others are computed, and a gradient that is added need not be held.
            run_early(&mut program, first);
        }
        Ok(program)
    }

    /// The gradients of a loss by parameters, multiplied by the share of the micro-batch in the step and by the scale of the loss.
    fn gradients_of(
        &self,
        program: &mut Program,
        loss: &WrittenLoss,
        parameters: &[TensorId],
    ) -> Result<Vec<Option<TensorId>>, GraphError> {
        let scale = self.training.precision.needs_loss_scale();
        let scale = scale.then(|| program.input(names::LOSS_SCALE, Shape(vec![1]), Kind::Table));
        let scaled = |program: &mut Program, factor: f32| match scale {
            Some(scale) => program.push_one(WeightedSum { weights: vec![factor] }, &[scale]),
            None => program.push_one(Fill { value: factor, shape: Shape(vec![1]) }, &[]),
        };
        let share = 1.0 / self.training.accumulation() as f32;
        if loss.of_batch.is_empty() {
            let seed = scaled(program, share)?;
            return differentiate_from(program, loss.total, seed, parameters);
        }
        let mut pairs = Vec::new();
        if !loss.values.is_empty() {
            let (values, weights): (Vec<TensorId>, Vec<f32>) = loss.values.iter().copied().unzip();
            let mean = program.push_one(WeightedSum { weights }, &values)?;
            pairs.push((mean, scaled(program, share)?));
        }
        // All parts of the batch have the same loss of its sums, and each has the derivatives by its own voxels.
        for (of_batch, weight) in &loss.of_batch {
            let factor = scaled(program, *weight)?;
            pairs.push((of_batch.logits(), of_batch.gradient(program, factor)?));
        }
        differentiate_sum(program, &pairs, parameters)
    }

    /// The sums of a micro-batch from which, added up over the batch, programs of gradients compute the loss.
    fn sums_program(&self) -> Result<Program, ConfigError> {
        let mut program = Program::new("sums");
        let (image, labels) = self.inputs(&mut program, self.training.micro_batch);
        let heads = self.net.forward(&mut program, image, self.mode(true))?;
        // The program of gradients moves running statistics, once a step.
        program.nodes.retain(|node| !matches!(node.op, Op::RunningUpdate(_)));
        let counted = self.head_logits(&mut program, &heads, false);
        let loss = &self.training.loss;
        let mut builder = LossBuilder::new(&mut program, labels, self.training.spacing, loss.ignore);
        let tables: Vec<TensorId> = counted
            .iter()
            .map(|(head, _)| loss.head_sums(&mut builder, head.logits))
            .collect::<Result<_, _>>()?;
        for (head, table) in tables.into_iter().enumerate() {
            program.mark_output(table, names::sums(head));
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
            run_early(program, first);
        }
        Ok(())
    }

    /// Loss and counts, with the averages of the parameters that have one in the program that updates them. Parameters without one there keep
    /// their place: a process has the averages of the tensors that it owns.
    fn validate_program(
        &self,
        updating: &Program,
        targets: &mut Vec<TargetInput>,
    ) -> Result<Program, ConfigError> {
        let mut program = Program::new("validate");
        let (image, labels) = self.inputs(&mut program, self.training.validation_batch());
        let heads = self.net.forward(&mut program, image, self.mode(false))?;
        let counted = self.head_logits(&mut program, &heads, false);
        self.loss_of(&mut program, &counted, labels, &self.training.loss.validation(), targets)?;
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

    /// The heads that count in the loss, with their weights; with inputs for the sums of the batch, if the loss reads these.
    fn head_logits(
        &self,
        program: &mut Program,
        heads: &[TensorId],
        reads_batch_sums: bool,
    ) -> Vec<(HeadLogits, f32)> {
        let weights = self.net.head_weights(heads.len());
        let counted = heads.iter().zip(weights).filter(|(_, weight)| *weight != 0.0).enumerate();
        let head = |(number, (logits, weight)): (usize, (&TensorId, f32))| {
            let batch_sums =
                reads_batch_sums.then(|| self.training.loss.batch_sums(program, *logits, number));
            (HeadLogits { logits: *logits, batch_sums }, weight)
        };
        counted.map(head).collect()
    }

    /// The loss over all heads, as an output; adds the maps of the target that it needs to `targets`.
    fn loss_of(
        &self,
        program: &mut Program,
        heads: &[(HeadLogits, f32)],
        labels: TensorId,
        variant: &Variant,
        targets: &mut Vec<TargetInput>,
    ) -> Result<WrittenLoss, GraphError> {
        let loss = &self.training.loss;
        let mut builder = LossBuilder::new(program, labels, self.training.spacing, loss.ignore);
        let (mut values, mut of_batch, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for (head, weight) in heads {
            let head = loss.head_loss(&mut builder, *head, variant)?;
            if parts.is_empty() {
                parts = head.parts;
            }
            values.extend(head.values.into_iter().map(|(value, factor)| (value, weight * factor)));
            of_batch.extend(head.of_batch.map(|of_batch| (of_batch, *weight)));
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
        let of_sums = of_batch.iter().map(|(of_batch, weight)| (of_batch.value, *weight));
        let (terms, weights) = values.iter().copied().chain(of_sums).unzip::<_, _, Vec<_>, _>();
        let total = program.push_one(WeightedSum { weights }, &terms)?;
        program.mark_output(total, names::LOSS);
        Ok(WrittenLoss { total, values, of_batch })
    }
}

/// A loss in a program.
struct WrittenLoss {
    /// The loss `[1]`.
    total: TensorId,
    /// Its terms that are means over the samples of the program, with their weights.
    values: Vec<(TensorId, f32)>,
    /// Its terms of the sums of a batch of which the program has a part.
    of_batch: Vec<(BatchLoss, f32)>,
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

/// Moves updates and sums of gradients, which are all nodes from the `first` on, to where nothing else touches their parameter or
/// gradient any more: a gradient need not be held until all are known if no norm of all is taken. A node stays behind those before it
/// that touch the same tensors, such as the update of an average behind the update of its parameter.
fn run_early(program: &mut Program, first: usize) {
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
