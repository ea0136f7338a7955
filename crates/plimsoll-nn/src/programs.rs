//! The programs of a run.

use plimsoll_graph::ops::NormUse;
use plimsoll_graph::{DType, Kind, Program, Role, Shape, TensorId};
use serde::{Deserialize, Serialize};

use self::writer::ProgramWriter;
use crate::{
    Architecture, Classifies, ConfigError, ForwardMode, Network, Objective, Optimizer, ParameterGroup,
    TargetInput,
};

mod explain;
mod headless;
pub mod names;
mod owners;
mod split_sources;
mod writer;

pub use explain::explain;
pub use headless::Headless;
pub use owners::{RankPlace, TrainedTensor, trained_tensors};
pub use split_sources::{WeightPart, split_sources};

/// The parameters of a program that updates them, each with its average over the steps. Before the first step each average must be
/// given the parameter's initial values. Frozen parameters have none: they are their own average.
pub fn averages(program: &Program) -> Vec<(TensorId, TensorId)> {
    let parameters = program.with_role(Role::Parameter);
    parameters.filter_map(|id| Some((id, program.find(&names::average(&program.tensor(id).name))?))).collect()
}

/// All that shapes the programs of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The network.
    pub net: Network,
    /// The loss.
    pub loss: Objective,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The norm that gradients are scaled down to; infinity scales none. Wherever it is set, a step whose loss or gradients are not
    /// finite is refused, see [`names::GRAD_NORM`].
    #[serde(default, with = "crate::or_infinity")]
    pub max_grad_norm: Option<f32>,
    /// The decay of exponential moving averages of the parameters ([`names::average`]), which validation then takes in their
    /// place; none where they are not taken.
    #[serde(default)]
    pub ema: Option<f32>,
    /// Parameters that learn at a rate of their own. Of several groups that a parameter is in, that with the longest prefix holds.
    #[serde(default)]
    pub groups: Vec<ParameterGroup>,
    /// The prefixes of the names of frozen parameters, up to a dot or the end. These keep their values, and have
    /// neither gradients nor moments.
    #[serde(default)]
    pub frozen: Vec<String>,
    /// Depth, height, width of a patch.
    pub patch: [usize; 3],
    /// From one voxel of a patch to the next along each axis, in millimetres: the unit of distances in the loss. It is stored
    /// with the run, not here.
    #[serde(skip, default = "unit_spacing")]
    pub spacing: [f64; 3],
    /// Samples of a step.
    pub batch: usize,
    /// Equal parts of the batch whose gradients are summed in their order; a divisor of the batch. Several processes may share them, with
    /// the same bits as one.
    #[serde(default = "one_shard", skip_serializing_if = "is_one_shard")]
    pub shards: usize,
    /// Samples that go through the network at a time; a divisor of a shard.
    pub micro_batch: usize,
    /// The storage type of features.
    pub precision: DType,
}

fn unit_spacing() -> [f64; 3] {
    [1.0; 3]
}

fn one_shard() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one_shard(shards: &usize) -> bool {
    *shards == one_shard()
}

/// The programs of a training run. Parameters and states of one name are one tensor in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPrograms {
    /// One micro-batch: loss and gradients; where a step is one micro-batch, the update as well. One for each of
    /// [`Objective::variants`], in their order: the first has the most components.
    pub gradients: Vec<Program>,
    /// The sums of a micro-batch, if gradients are computed from the sums of the whole batch.
    pub sums: Option<Program>,
    /// The update behind the last micro-batch, if a step has several: of the tensors that this process owns.
    pub update: Option<Program>,
    /// The programs of a process that trains alone, where `update` is of a part of the tensors.
    pub whole: Option<WholePrograms>,
    /// Loss and counts of [`Training::validation_batch`] samples. It reads the averages that `update` moves. Of tensors that other processes own it
    /// reads the parameters, which are given the values of the averages while it runs.
    pub validate: Program,
    /// The inputs of these programs that follow from the labels alone.
    pub targets: Vec<TargetInput>,
}

/// The programs that only a process which trains alone has. They do not run here: the specification of a run describes them.
#[derive(Clone, Debug, PartialEq)]
pub struct WholePrograms {
    /// The update of all tensors. Checkpoints have its tensors in its order.
    pub update: Program,
    /// The validation, which reads all averages.
    pub validate: Program,
}

impl Training {
    /// Micro-batches of a step, of all its shards together.
    pub fn accumulation(&self) -> usize {
        self.batch / self.micro_batch.max(1)
    }

    /// Samples of a shard.
    pub fn shard_batch(&self) -> usize {
        self.batch / self.shards.max(1)
    }

    /// Micro-batches of a shard.
    pub fn shard_accumulation(&self) -> usize {
        self.accumulation() / self.shards.max(1)
    }

    /// Samples that go through the network at a time when validating: one, so that what is reported does not depend on the
    /// micro-batch; but a whole shard where a loss of voxels is of a whole shard. Images are validated one by one, each once.
    pub fn validation_batch(&self) -> usize {
        match self.net.classifies() {
            Classifies::Images => 1,
            Classifies::Voxels if self.needs_whole_batch().is_some() || self.exchanges_sums() => {
                self.shard_batch()
            }
            Classifies::Voxels => 1,
        }
    }

    /// Returns `true` if the loss of a step is of sums over all its shards, which are exchanged before their gradients are computed.
    pub fn exchanges_sums(&self) -> bool {
        self.writer(&*self.net).exchanges_sums()
    }

    /// Why a shard, which is the batch unless there are several, cannot go through the network in parts, if it cannot.
    pub fn needs_whole_batch(&self) -> Option<String> {
        self.writer(&*self.net).needs_whole_batch()
    }

    /// Checks the numbers that say how parameters are updated.
    ///
    /// # Errors
    /// At the first that is impossible, by its setting.
    pub fn check_updates(&self) -> Result<(), ConfigError> {
        self.optimizer.check()?;
        if let Some(max) = self.max_grad_norm {
            let expected = "it must be above zero, or inf to scale no gradient";
            ConfigError::expect(max > 0.0, "max_grad_norm", max, expected)?;
        }
        if let Some(decay) = self.ema {
            let expected = "it must be above 0 and below 1";
            ConfigError::expect(decay > 0.0 && decay < 1.0, "ema", decay, expected)?;
        }
        Ok(())
    }

    /// Returns `true` if updates read the norm of all gradients. With several shards it is then an input of the update.
    pub fn reads_norm(&self) -> bool {
        self.norm_use().reads()
    }

    /// Returns the use that updates make of the norm of all gradients.
    fn norm_use(&self) -> NormUse {
        match self.max_grad_norm {
            // Gradients that have overflown must not be taken.
            None if self.precision.needs_loss_scale() => NormUse::Guard,
            None => NormUse::Unread,
            Some(f32::INFINITY) => NormUse::Guard,
            Some(max) => NormUse::Clip(max),
        }
    }

    /// Writes the programs of a process that trains alone.
    ///
    /// # Errors
    /// Returns an error if the configuration is impossible, or micro-batches would change the result.
    pub fn programs(&self) -> Result<TrainingPrograms, ConfigError> {
        self.programs_of(RankPlace::ALONE)
    }

    /// Writes the programs of one of the processes that share the shards.
    ///
    /// # Errors
    /// Returns the errors of [`programs`](Self::programs), and an error if the number of processes does not divide the shards, or exceeds the
    /// number of trained tensors.
    pub fn programs_of(&self, place: RankPlace) -> Result<TrainingPrograms, ConfigError> {
        if let Some(why) = self.net.untrainable() {
            let found = self.net.name().to_string();
            return Err(ConfigError::Value {
                setting: "net",
                found,
                expected: format!("it is for prediction only: {why}"),
            });
        }
        self.writer(&*self.net).programs(place)
    }

    fn writer<'a>(&'a self, net: &'a dyn Architecture) -> ProgramWriter<'a> {
        ProgramWriter { training: self, net }
    }
}

/// The program of inference: the logits of a batch of patches.
///
/// # Errors
/// Returns an error if the configuration is impossible.
pub fn predict(
    net: &dyn Architecture,
    patch: [usize; 3],
    batch: usize,
    precision: DType,
) -> Result<Program, ConfigError> {
    let mut program = Program::new("predict");
    let image = Shape::volume(batch, net.in_channels(), patch);
    let image = program.input(names::IMAGE, image, Kind::Volume);
    let logits = net.forward(&mut program, image, ForwardMode { training: false, precision })?[0];
    program.mark_output(logits, names::LOGITS);
    Ok(program)
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::TensorInfo;

    use super::*;
    use crate::weights::NamingScheme;
    use crate::{DynUNet, Extents};

    /// A DynUNet whose heads alone are trained, and whose samples depend on each other if `coupled`.
    #[derive(Debug)]
    struct HeadsOnly {
        net: DynUNet,
        coupled: bool,
    }

    impl Architecture for HeadsOnly {
        fn name(&self) -> &'static str {
            "heads only"
        }

        fn check(&self) -> Result<(), ConfigError> {
            self.net.check()
        }

        fn in_channels(&self) -> usize {
            self.net.in_channels()
        }

        fn classes(&self) -> usize {
            self.net.classes()
        }

        fn weights(&self) -> f64 {
            self.net.weights()
        }

        fn extents(&self) -> Extents {
            self.net.extents()
        }

        fn forward(
            &self,
            program: &mut Program,
            image: TensorId,
            mode: ForwardMode,
        ) -> Result<Vec<TensorId>, ConfigError> {
            self.net.forward(program, image, mode)
        }

        fn naming_schemes(&self) -> Vec<NamingScheme> {
            self.net.naming_schemes()
        }

        fn initialise(&self, parameter: &TensorInfo, seed: u64, values: &mut [f32]) {
            self.net.initialise(parameter, seed, values);
        }

        fn is_trained(&self, parameter: &str) -> bool {
            parameter.starts_with("output_block")
        }

        fn couples_samples(&self) -> Option<&'static str> {
            self.coupled.then_some("batch normalisation")
        }

        fn narrower(&self) -> Vec<Network> {
            Vec::new()
        }

        fn features(&self) -> Vec<usize> {
            self.net.features()
        }

        fn describe(&self) -> String {
            self.net.describe()
        }
    }

    fn programs(coupled: bool, micro_batch: usize) -> Result<TrainingPrograms, ConfigError> {
        let net = DynUNet::new(1, 2, &[4, 8], &[[3; 3]; 2], &[[1; 3], [2; 3]]);
        let training = Training {
            net: net.clone().into(),
            loss: Objective::default(),
            optimizer: Optimizer::adamw(),
            max_grad_norm: None,
            ema: None,
            groups: Vec::new(),
            frozen: Vec::new(),
            patch: [8; 3],
            spacing: unit_spacing(),
            batch: 2,
            shards: 1,
            micro_batch,
            precision: DType::F32,
        };
        training.writer(&HeadsOnly { net, coupled }).programs(RankPlace::ALONE)
    }

    fn states(program: &Program) -> Vec<&str> {
        program.with_role(Role::State).map(|id| program.tensor(id).name.as_str()).collect()
    }

    #[test]
    fn parameters_that_are_not_trained_have_neither_gradients_nor_moments() {
        let whole = programs(false, 2).unwrap();
        let moments = |name: &str| ["exp_avg", "exp_avg_sq"].map(|moment| format!("{name}/{moment}"));
        let of_head = ["output_block.conv.conv.weight", "output_block.conv.conv.bias"];
        assert_eq!(states(&whole.gradients[0]), of_head.map(moments).concat());
        let parts = programs(false, 1).unwrap();
        assert_eq!(states(&parts.gradients[0]), of_head.map(|name| format!("{name}/grad")));
        let update = parts.update.unwrap();
        assert_eq!(states(&update).len(), 6);
        // It has all parameters nevertheless: checkpoints are of it.
        let count = |program: &Program| program.with_role(Role::Parameter).count();
        assert_eq!(count(&update), count(&whole.gradients[0]));
    }

    #[test]
    fn a_network_that_couples_samples_takes_a_batch_in_one_piece() {
        assert!(programs(true, 2).is_ok());
        let error = programs(true, 1).unwrap_err().to_string();
        assert!(error.contains("`micro_batch` is 1") && error.contains("batch normalisation"), "{error}");
    }

    #[test]
    fn programs_of_a_run_have_names_of_their_own() {
        let names = |micro_batch| {
            let TrainingPrograms { gradients, update, validate, .. } = programs(false, micro_batch).unwrap();
            let all = gradients.into_iter().chain(update).chain([validate]);
            all.map(|program| program.name).collect::<Vec<_>>()
        };
        assert_eq!(names(2), ["step 0", "validate"]);
        assert_eq!(names(1), ["gradient 0", "update", "validate"]);
    }
}
