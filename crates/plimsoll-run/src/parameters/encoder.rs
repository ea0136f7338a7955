//! The assignment of a pre-trained encoder to a network that may have other channels, kernels and stages.
//!
//! The rules are `load_pretrained_weights_dynamic` and `adapt_encoder_weights_for_architecture` of nnU-Net 2.8.1 (commit 0e495086).
//! nnU-Net applies the rules for kernels to residual encoders alone, and stops at plain ones whose shapes differ; here they hold for both.

use std::collections::HashSet;
use std::path::Path;

use plimsoll_graph::{Program, Role, Shape, TensorId};
use plimsoll_nn::bounds::LARGEST_KERNEL;
use plimsoll_nn::weights::{self, WeightFile};
use plimsoll_nn::{Architecture, EncoderNames};

use super::Assigned;
use super::kernel::{AdaptedKernel, kernel_of};
use super::matched::is_count;
use super::positions::AdaptedPositions;
use super::storage::{Found, ParameterStorage};
use crate::{
    Adaptation, NewReason, PretrainedEncoder, RunError, StartTable, StartedTensor, TensorFate, UnusedReason,
};

/// Assigns the stem and the encoder of a file to the stem and the encoder of a network.
///
/// # Errors
/// Returns an error if the network has no such encoder, its images have other channels that the stem cannot be repeated over, or tensors
/// have shapes that cannot be adapted.
pub(super) fn assign(
    file: &WeightFile,
    path: &Path,
    net: &dyn Architecture,
    program: &Program,
    encoder: &PretrainedEncoder,
) -> Result<Assigned, RunError> {
    let names = net.encoder_names().filter(|_| net.dimensions() == 3);
    let Some(names) = names else { return Err(RunError::NoEncoder { network: net.describe() }) };
    let (found, images) = (encoder.channels, net.in_channels());
    if found != images && found != 1 {
        return Err(RunError::StartChannels { path: path.into(), found, images });
    }
    let assignment = Assignment { file, path, net, program, names, encoder };
    let mut assigned = Assigned { found: Vec::new(), table: StartTable::default() };
    let mut other_shapes = HashSet::new();
    let parameters = program.with_role(Role::Parameter).filter(|id| !is_count(&program.tensor(*id).name));
    for id in parameters {
        let (source, fate, held) = assignment.of(id)?;
        if let (Some(name), TensorFate::New { why: NewReason::OtherShape { .. } }) = (&source, &fate) {
            other_shapes.insert(name.clone());
        }
        if let (Some(name), Some(held)) = (source, held) {
            assigned.found.push(Found { id, name, held });
        }
        let info = program.tensor(id);
        let (name, shape) = (info.name.clone(), info.shape.0.clone());
        assigned.table.tensors.push(StartedTensor { name, shape, fate });
    }
    assignment.expect_stages(&assigned.found)?;
    let unused = assignment.unused(&assigned.found, &other_shapes);
    assigned.table.tensors.extend(unused);
    Ok(assigned)
}

/// A file and the network that starts from it.
struct Assignment<'a> {
    file: &'a WeightFile,
    path: &'a Path,
    net: &'a dyn Architecture,
    program: &'a Program,
    names: EncoderNames,
    encoder: &'a PretrainedEncoder,
}

/// The tensor of a parameter, its fate and its storage.
type Source = (Option<String>, TensorFate, Option<ParameterStorage>);

impl Assignment<'_> {
    /// The source of a parameter.
    fn of(&self, id: TensorId) -> Result<Source, RunError> {
        let info = self.program.tensor(id);
        let Some(Place { source, is_stem }) = self.place(&info.name) else {
            let is_head = self.net.heads().iter().any(|head| is_below(&info.name, head));
            let why = if is_head { NewReason::Head } else { NewReason::Decoder };
            return Ok((None, TensorFate::New { why }, None));
        };
        let Some(stored) = self.file.shape(&source) else {
            if is_stem {
                let found = "missing".into();
                return Err(self.other_topology(&source, found, &info.shape));
            }
            return Ok((Some(source), TensorFate::New { why: NewReason::Missing }, None));
        };
        if let Some((fate, held)) = self.positions(&info.name, &source, &stored, &info.shape)? {
            return Ok((Some(source), fate, Some(held)));
        }
        let kernel = self.adapted(&info.name, &source, &stored, &info.shape)?;
        let now = kernel.as_ref().map_or_else(|| stored.clone(), |(kernel, _)| kernel.target());
        match (kernel, weights::fits(&now, &info.shape)) {
            (None, true) => Ok((Some(source), TensorFate::Taken, Some(ParameterStorage::Itself))),
            (Some((kernel, how)), true) => {
                Ok((Some(source), TensorFate::Adapted { how }, Some(ParameterStorage::Adapted(kernel))))
            }
            (None, false) if !is_stem => {
                let why = NewReason::OtherShape { found: stored.0 };
                Ok((Some(source), TensorFate::New { why }, None))
            }
            (_, false) => Err(self.other_topology(&source, format!("of shape {stored}"), &info.shape)),
        }
    }

    /// The place of a parameter in the file; `None` outside of stem and encoder.
    fn place(&self, parameter: &str) -> Option<Place> {
        let below = |prefix: &str| parameter.strip_prefix(prefix)?.strip_prefix('.');
        let stem = below(self.names.stem).map(|rest| (&self.encoder.stem, rest));
        let is_stem = stem.is_some();
        let (prefix, rest) =
            stem.or_else(|| below(self.names.stages).map(|rest| (&self.encoder.encoder, rest)))?;
        Some(Place { source: format!("{prefix}.{rest}"), is_stem })
    }

    /// The fate of vectors of positions; `None` for other parameters.
    fn positions(
        &self,
        parameter: &str,
        source: &str,
        stored: &Shape,
        own: &Shape,
    ) -> Result<Option<(TensorFate, ParameterStorage)>, RunError> {
        let Some(positions) = self.names.positions.filter(|positions| positions.name == parameter) else {
            return Ok(None);
        };
        let fits = |grid: &[usize; 3]| match stored.0[..] {
            [1, tokens, channels] => tokens == grid.iter().product::<usize>() && channels == own.dim(1),
            _ => false,
        };
        let (to, Some(from)) = (positions.grid, self.encoder.grid.filter(fits)) else {
            return Err(self.other_topology(source, format!("of shape {stored}"), own));
        };
        if from == to {
            return Ok(Some((TensorFate::Taken, ParameterStorage::Itself)));
        }
        let adapted = AdaptedPositions { stored: stored.clone(), from, to };
        let how = vec![Adaptation::Interpolated { from, to }];
        Ok(Some((TensorFate::Adapted { how }, ParameterStorage::OtherGrid(adapted))))
    }

    /// The change of the weights of a convolution, if there must be one.
    fn adapted(
        &self,
        parameter: &str,
        source: &str,
        stored: &Shape,
        own: &Shape,
    ) -> Result<Option<(AdaptedKernel, Vec<Adaptation>)>, RunError> {
        let (Some(from), Some(to)) = (kernel_of(stored), kernel_of(own)) else { return Ok(None) };
        let channels = self.net.in_channels();
        let is_input = parameter.strip_suffix(".weight") == Some(self.names.input);
        if !is_input && !parameter.ends_with("conv.weight") {
            return Ok(None);
        }
        let is_repeated = is_input && channels > self.encoder.channels && stored.dim(1) == 1;
        if from == to && !is_repeated {
            return Ok(None);
        }
        let is_possible = (0..3).all(|axis| to[axis] == from[axis] || to[axis] == 1);
        if !is_possible || from.iter().any(|extent| *extent > LARGEST_KERNEL) {
            return Err(self.other_topology(source, format!("of shape {stored}"), own));
        }
        let mut how = Vec::new();
        if is_repeated {
            how.push(Adaptation::Repeated { channels });
        }
        if from != to {
            how.push(Adaptation::MeanOfKernel { from, to });
        }
        let repeated = if is_repeated { channels } else { 1 };
        Ok(Some((AdaptedKernel { stored: stored.clone(), repeated, kernel: to }, how)))
    }

    fn other_topology(&self, name: &str, found: String, own: &Shape) -> RunError {
        let (path, name, needed) = (self.path.into(), name.into(), own.to_string());
        RunError::OtherTopology { path, name, found, needed }
    }

    /// Checks that at least one stage behind the stem has values of the file.
    fn expect_stages(&self, found: &[Found]) -> Result<(), RunError> {
        let is_of_stages = |found: &Found| {
            self.place(&self.program.tensor(found.id).name).is_some_and(|place| !place.is_stem)
        };
        match found.iter().any(is_of_stages) {
            true => Ok(()),
            false => Err(RunError::OtherTopology {
                path: self.path.into(),
                name: format!("{}.…", self.encoder.encoder),
                found: "without a tensor that fits".into(),
                needed: self.net.describe(),
            }),
        }
    }

    /// The tensors of the file that no parameter takes. Copies under other names and biases that change nothing are left out.
    fn unused(&self, found: &[Found], other_shapes: &HashSet<String>) -> Vec<StartedTensor> {
        let used: HashSet<&str> = found.iter().map(|found| found.name.as_str()).collect();
        let idle: HashSet<String> = self
            .net
            .idle_biases()
            .into_iter()
            .filter_map(|(name, _)| self.place(&name).map(|place| place.source))
            .collect();
        let schemes = self.net.naming_schemes();
        let is_copy = |name: &str| schemes.iter().any(|scheme| scheme.is_duplicate(name));
        let is_left =
            |name: &&str| !used.contains(name) && !idle.contains(*name) && !is_copy(name) && !is_count(name);
        let reason = |name: &str| match name {
            _ if other_shapes.contains(name) => UnusedReason::OtherShape,
            _ if is_below(name, &self.encoder.encoder) || is_below(name, &self.encoder.stem) => {
                UnusedReason::NoPlace
            }
            _ => UnusedReason::NotEncoder,
        };
        let row = |name: &str| StartedTensor {
            name: name.into(),
            shape: self.file.shape(name).map_or_else(Vec::new, |shape| shape.0),
            fate: TensorFate::Unused { why: reason(name) },
        };
        self.file.names().into_iter().filter(is_left).map(row).collect()
    }
}

/// The place of a parameter in a file.
struct Place {
    /// The name of its tensor.
    source: String,
    /// `true` in the stem, without which no encoder can be used.
    is_stem: bool,
}

/// Returns `true` if a name begins with a prefix and a dot.
fn is_below(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
}
