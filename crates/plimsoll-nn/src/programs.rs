//! The programs of a run.

use plimsoll_graph::ops::{Accumulate, GradNorm, HardCounts, Join, RATES, WeightedSum};
use plimsoll_graph::{DType, GraphError, Kind, Node, Program, Role, Shape, TensorId, differentiate};
use serde::{Deserialize, Serialize};

use crate::objective::{Head, Scene};
use crate::{ConfigError, Objective, Optimizer, TargetMap, UNet, Variant};

/// Names of inputs and outputs.
pub mod names {
    /// Input of every program: the image `[N, C, D, H, W]`.
    pub const IMAGE: &str = "image";
    /// Input when training and validating: class numbers `[N, 1, D, H, W]`.
    pub const LABELS: &str = "labels";
    /// Input of the update: see [`Optimizer::rates`](crate::Optimizer::rates).
    pub const RATES: &str = "rates";
    /// Input of a training pass with dropout: a [`Noise`](plimsoll_graph::ops::Noise).
    pub const NOISE: &str = "noise";
    /// Output: the loss that is minimised `[1]`.
    pub const LOSS: &str = "loss";
    /// Output: the components of the loss of the finest head, without their weights, in the order of
    /// [`Objective::parts`](crate::Objective::parts).
    pub const LOSS_PARTS: &str = "loss parts";
    /// Output of an update that clips gradients: the norm of all of them `[1]`.
    pub const GRAD_NORM: &str = "gradient norm";
    /// Output of validation: true positives, false positives, false negatives of each class `[C, 3]`.
    pub const COUNTS: &str = "counts";
    /// Output of prediction: logits `[N, C, D, H, W]`.
    pub const LOGITS: &str = "logits";
}

/// All that shapes the programs of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The network.
    pub net: UNet,
    /// The loss.
    pub loss: Objective,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The norm that gradients are scaled down to.
    pub max_grad_norm: Option<f32>,
    /// Depth, height, width of a patch.
    pub patch: [usize; 3],
    /// From one voxel of a patch to the next along each axis, in millimetres: the unit of distances in the loss. It is stored
    /// with the run, not here.
    #[serde(skip, default = "unit_spacing")]
    pub spacing: [f64; 3],
    /// Samples of a step.
    pub batch: usize,
    /// Samples that go through the network at a time; a divisor of the batch.
    pub micro_batch: usize,
    /// How features are stored.
    pub precision: DType,
}

fn unit_spacing() -> [f64; 3] {
    [1.0; 3]
}

/// The programs of a training run. Parameters and states of one name are one tensor in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPrograms {
    /// One micro-batch: loss and gradients; where a step is one micro-batch, the update as well. One for each of
    /// [`Objective::variants`], in their order: the first has the most components.
    pub gradients: Vec<Program>,
    /// What follows the last micro-batch, where a step has several.
    pub update: Option<Program>,
    /// Loss and counts of one micro-batch.
    pub validate: Program,
    /// The inputs of these programs that follow from the labels alone.
    pub targets: Vec<TargetMap>,
}

impl Training {
    /// Micro-batches of a step.
    pub fn accumulation(&self) -> usize {
        self.batch / self.micro_batch.max(1)
    }

    /// The weights of the heads' losses: halved from each to the next coarser one, summing to one. As in nnU-Net, the
    /// coarsest of several has none.
    pub fn head_weights(heads: usize) -> Vec<f32> {
        let counted = if heads > 2 { heads - 1 } else { heads };
        let weights: Vec<f64> =
            (0..heads).map(|i| if i < counted { 0.5f64.powi(i as i32) } else { 0.0 }).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| (weight / sum) as f32).collect()
    }

    /// Writes the programs.
    ///
    /// # Errors
    /// If the configuration is impossible, or micro-batches would change the result.
    pub fn programs(&self) -> Result<TrainingPrograms, ConfigError> {
        let value = |setting, found: usize, expected: &str| {
            Err(ConfigError::Value { setting, found: found.to_string(), expected: expected.into() })
        };
        if self.batch == 0 || self.micro_batch == 0 || !self.batch.is_multiple_of(self.micro_batch) {
            return value("micro_batch", self.micro_batch, "it must divide the batch");
        }
        if let Some((option, found, expected)) = self.loss.fault(self.net.classes) {
            return Err(ConfigError::Loss { option, found, expected });
        }
        if self.accumulation() > 1 && self.loss.needs_whole_batch() {
            return value(
                "micro_batch",
                self.micro_batch,
                "what this loss divides by is of the whole batch, which cannot be taken in parts",
            );
        }
        let mut targets = Vec::new();
        let variants = self.loss.variants();
        let gradients = variants.iter().map(|variant| self.gradient_program(variant, &mut targets));
        Ok(TrainingPrograms {
            gradients: gradients.collect::<Result<_, _>>()?,
            update: (self.accumulation() > 1).then(|| self.update_program(&variants[0])).transpose()?,
            validate: self.validate_program(&mut targets)?,
            targets,
        })
    }

    fn gradient_program(
        &self,
        variant: &Variant,
        targets: &mut Vec<TargetMap>,
    ) -> Result<Program, ConfigError> {
        let whole = self.accumulation() == 1;
        let mut program = Program::new(if whole { "step" } else { "gradient" }, self.precision);
        let (image, labels) = self.inputs(&mut program);
        let heads = self.net.forward(&mut program, image, true)?;
        let loss = self.loss_of(&mut program, &heads, labels, variant, targets)?;
        let parameters: Vec<TensorId> = program.with_role(Role::Parameter).collect();
        let scale = 1.0 / self.accumulation() as f32;
        let gradients = differentiate(&mut program, loss, scale, &parameters)?;
        // Parameters that the loss does not depend on (a head of weight zero) are left as they are.
        let pairs: Vec<(TensorId, TensorId)> = parameters
            .into_iter()
            .zip(gradients)
            .filter_map(|(parameter, gradient)| Some((parameter, gradient?)))
            .collect();
        if whole {
            self.update(&mut program, &pairs, false)?;
        } else {
            for (parameter, gradient) in pairs {
                let sum = gradient_state(&mut program, parameter);
                program.push(Accumulate, &[sum, gradient])?;
            }
        }
        Ok(program)
    }

    /// The update of accumulated gradients, which it sets back to zero.
    fn update_program(&self, variant: &Variant) -> Result<Program, ConfigError> {
        let gradient = self.gradient_program(variant, &mut Vec::new())?;
        let mut program = Program::new("update", self.precision);
        let mut pairs = Vec::new();
        for id in gradient.with_role(Role::Parameter) {
            let info = gradient.tensor(id);
            let parameter = program.parameter(info.name.clone(), info.shape.clone(), info.kind.clone());
            if gradient.find(&gradient_name(&info.name)).is_some() {
                pairs.push((parameter, gradient_state(&mut program, parameter)));
            }
        }
        self.update(&mut program, &pairs, true)?;
        Ok(program)
    }

    fn update(
        &self,
        program: &mut Program,
        pairs: &[(TensorId, TensorId)],
        clear: bool,
    ) -> Result<(), GraphError> {
        let rates = program.input(names::RATES, Shape(vec![RATES]), Kind::Table);
        let mut clip = None;
        if let Some(max) = self.max_grad_norm {
            let gradients: Vec<TensorId> = pairs.iter().map(|(_, gradient)| *gradient).collect();
            let norm = program.push_one(GradNorm, &gradients)?;
            program.mark_output(norm, names::GRAD_NORM);
            clip = Some((max, norm));
        }
        let first = program.nodes.len();
        for pair in pairs {
            self.optimizer.update(program, *pair, rates, clip, clear)?;
        }
        if clip.is_none() {
            update_early(program, first);
        }
        Ok(())
    }

    fn validate_program(&self, targets: &mut Vec<TargetMap>) -> Result<Program, ConfigError> {
        let mut program = Program::new("validate", self.precision);
        let (image, labels) = self.inputs(&mut program);
        let heads = self.net.forward(&mut program, image, false)?;
        self.loss_of(&mut program, &heads, labels, &self.loss.validation(), targets)?;
        let counts = program.push_one(HardCounts { ignore: self.loss.ignore }, &[heads[0], labels])?;
        program.mark_output(counts, names::COUNTS);
        Ok(program)
    }

    fn inputs(&self, program: &mut Program) -> (TensorId, TensorId) {
        let image = Shape::volume(self.micro_batch, self.net.in_channels, self.patch);
        let labels = Shape::volume(self.micro_batch, 1, self.patch);
        (program.input(names::IMAGE, image, Kind::Image), program.input(names::LABELS, labels, Kind::Labels))
    }

    /// The loss over all heads, as an output; adds the maps of the target that it needs to `targets`.
    fn loss_of(
        &self,
        program: &mut Program,
        heads: &[TensorId],
        labels: TensorId,
        variant: &Variant,
        targets: &mut Vec<TargetMap>,
    ) -> Result<TensorId, GraphError> {
        let mut scene = Scene::new(program, labels, self.spacing, self.loss.ignore);
        let (mut losses, mut weights, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for (logits, weight) in heads.iter().zip(Training::head_weights(heads.len())) {
            if weight == 0.0 {
                continue;
            }
            let head = self.loss.of_head(&mut scene, Head { logits: *logits }, variant)?;
            if losses.is_empty() {
                parts = head.parts;
            }
            for (value, factor) in head.values {
                losses.push(value);
                weights.push(weight * factor);
            }
        }
        for target in scene.targets() {
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

/// Moves updates, which are all nodes from the `first` on, to where nothing else reads their parameter or gradient any more:
/// a gradient need not be held until all are known if no norm of all is taken.
fn update_early(program: &mut Program, first: usize) {
    let updates = program.nodes.split_off(first);
    let nodes = std::mem::take(&mut program.nodes);
    let mut after: Vec<Vec<Node>> = vec![Vec::new(); nodes.len() + 1];
    for update in updates {
        let touches = |node: &Node| {
            let mut all = node.inputs.iter().chain(&node.outputs);
            all.any(|id| update.inputs.contains(id) && program.tensor(*id).role != Role::Input)
        };
        let place = nodes.iter().rposition(touches).map_or(0, |last| last + 1);
        after[place].push(update);
    }
    let mut after = after.into_iter();
    program.nodes.extend(after.next().into_iter().flatten());
    for (node, updates) in nodes.into_iter().zip(after) {
        program.nodes.push(node);
        program.nodes.extend(updates);
    }
}

fn gradient_name(parameter: &str) -> String {
    format!("{parameter}/grad")
}

fn gradient_state(program: &mut Program, parameter: TensorId) -> TensorId {
    let info = program.tensor(parameter).clone();
    program.state(gradient_name(&info.name), info.shape, info.kind)
}

/// The program of inference: the logits of a batch of patches.
///
/// # Errors
/// If the configuration is impossible.
pub fn predict(
    net: &UNet,
    patch: [usize; 3],
    batch: usize,
    precision: DType,
) -> Result<Program, ConfigError> {
    let mut program = Program::new("predict", precision);
    let image = Shape::volume(batch, net.in_channels, patch);
    let image = program.input(names::IMAGE, image, Kind::Image);
    let logits = net.forward(&mut program, image, false)?[0];
    program.mark_output(logits, names::LOGITS);
    Ok(program)
}
