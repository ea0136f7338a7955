//! Loading the parameters of a network from a weight file, with a report of each tensor.

mod kernels;
mod matched;
mod storage;

use std::fmt;

use plimsoll_graph::{Program, TensorId};
use plimsoll_memory::Budget;
use plimsoll_nn::Architecture;
use plimsoll_nn::weights::{WeightError, WeightFile, WeightSource};
use plimsoll_plan::{Engine, HostSlice, ProgramId};

use self::matched::Matched;
use crate::RunError;

/// The most names in an error or a report; further ones are only counted.
const MOST_NAMES: usize = 4;

/// The differences between a file and a network that are allowed. By default none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Ignores tensors that the network does not have.
    pub allow_extra: bool,
    /// With a seed, heads may be missing or have another shape, and so may all that is no part of an encoder in files that are
    /// of one alone: they get the initial values of that seed.
    pub new_head: Option<u64>,
    /// Sums the weights of the first convolution over three image channels for a network of one channel, as timm does: an image with three
    /// equal channels has the same result.
    pub sum_stem: bool,
    /// Resamples kernels of another extent linearly, as the authors of MedNeXt do to start a network with larger kernels.
    pub upkern: bool,
    /// Reads the moving average `NAME/ema` of a parameter instead of the parameter, if the file has one.
    pub averaged: bool,
}

/// The result of loading: the fate of each tensor of the file and each parameter of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Parameters that have the file's values.
    pub loaded: Vec<String>,
    /// Tensors of the file that the network has no place for.
    pub skipped: Vec<String>,
    /// Parameters that have initial values.
    pub initialised: Vec<String>,
}

impl LoadReport {
    /// A line for each tensor.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let all = [("loaded", &self.loaded), ("initialised", &self.initialised), ("skipped", &self.skipped)];
        all.into_iter().flat_map(|(what, names)| names.iter().map(move |name| format!("{name}: {what}")))
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} parameters loaded", self.loaded.len())?;
        for (what, names) in [("initialised", &self.initialised), ("skipped", &self.skipped)] {
            if !names.is_empty() {
                write!(f, ", {} {what} ({})", names.len(), some_of(names))?;
            }
        }
        Ok(())
    }
}

/// The first few of some names.
fn some_of(names: &[String]) -> String {
    let mut text = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMES {
        text.push_str(", …");
    }
    text
}

/// A program of an engine, with its number there.
#[derive(Clone, Copy)]
pub struct NumberedProgram<'a> {
    /// The number of the program in the engine.
    pub number: ProgramId,
    /// The program.
    pub program: &'a Program,
}

/// Reads the parameters of a network's program from a weight file into an engine. `buffer` must have room for the largest. The file is
/// checked before anything is written.
///
/// # Errors
/// Returns an error if the file cannot be read, is of another network, has tensors that the network lacks, or values that are not finite.
pub fn read_parameters(
    source: &WeightSource,
    net: &dyn Architecture,
    engine: &mut dyn Engine,
    program: NumberedProgram<'_>,
    buffer: &mut [f32],
    options: LoadOptions,
    budget: &Budget,
) -> Result<LoadReport, RunError> {
    let NumberedProgram { number, program } = program;
    let (initialised, mut report) =
        each_parameter::<RunError>(source, net, program, buffer, options, budget, &mut |id, values| {
            Ok(engine.write(number, id, HostSlice::F32(values))?)
        })?;
    if let Some(seed) = options.new_head {
        for id in initialised {
            let info = program.tensor(id);
            engine.write(number, id, HostSlice::F32(&net.initial_values(info, seed)))?;
            report.initialised.push(info.name.clone());
        }
    }
    Ok(report)
}

/// A function that takes a parameter and its values.
pub type Visit<'a, E = RunError> = dyn FnMut(TensorId, &[f32]) -> Result<(), E> + 'a;

/// Reads the parameters of a network's program from a weight file one by one, and passes each to `visit`. `buffer` must have room for the
/// largest. The file is checked before the first call. Returns the parameters that the file lacks and may lack.
///
/// # Errors
/// Returns an error if the file cannot be read, is of another network, has tensors that the network lacks, or values that are not finite;
/// or the first error of `visit`.
pub fn each_parameter<E: From<RunError> + From<WeightError>>(
    source: &WeightSource,
    net: &dyn Architecture,
    program: &Program,
    buffer: &mut [f32],
    options: LoadOptions,
    budget: &Budget,
    visit: &mut Visit<'_, E>,
) -> Result<(Vec<TensorId>, LoadReport), E> {
    let mut file = WeightFile::open_source(source, budget)?;
    let weights = &*source.path;
    let Matched { found, initialised, skipped } = Matched::new(&file, weights, net, program, options)?;
    let mut report = LoadReport { skipped, ..LoadReport::default() };
    for found in &found {
        let info = program.tensor(found.id);
        let values = &mut buffer[..info.shape.count()];
        found.read(&mut file, weights, info, values)?;
        visit(found.id, values)?;
        report.loaded.push(info.name.clone());
    }
    // A fault in a tensor that no result depends on still shows that the file is damaged.
    file.verify_others(&found.iter().map(|found| found.name.as_str()).collect())?;
    Ok((initialised, report))
}

/// Reads some parameters of a network's program from a weight file, each into as many values as it has.
///
/// # Errors
/// Returns the errors of [`read_parameters`], and an error if one of the tensors is no parameter of the program.
pub fn read_some_parameters(
    source: &WeightSource,
    net: &dyn Architecture,
    program: &Program,
    wanted: &mut [(TensorId, &mut [f32])],
    options: LoadOptions,
    budget: &Budget,
) -> Result<(), RunError> {
    let mut file = WeightFile::open_source(source, budget)?;
    let weights = &*source.path;
    let matched = Matched::new(&file, weights, net, program, options)?;
    for (id, values) in wanted {
        let info = program.tensor(*id);
        let found = matched.found.iter().find(|found| found.id == *id).ok_or_else(|| {
            let (path, name, shape) = (weights.into(), info.name.clone(), info.shape.clone());
            WeightError::Missing { path, name, shape }
        })?;
        found.read(&mut file, weights, info, values)?;
    }
    Ok(())
}

/// Checks that weights are those that a network's program needs, by names and shapes, without reading their values.
///
/// # Errors
/// Returns an error if the file cannot be read, is of another network, or holds more than the network has a place for.
pub fn expect_weights(
    source: &WeightSource,
    net: &dyn Architecture,
    program: &Program,
    options: LoadOptions,
    budget: &Budget,
) -> Result<(), RunError> {
    let file = WeightFile::open_source(source, budget)?;
    Matched::new(&file, &source.path, net, program, options).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_and_names() {
        let name = |i: usize| format!("t{i}");
        let report = LoadReport {
            loaded: (0..7).map(name).collect(),
            skipped: (0..6).map(name).collect(),
            initialised: vec!["head".into()],
        };
        assert_eq!(
            report.to_string(),
            "7 parameters loaded, 1 initialised (head), 6 skipped (t0, t1, t2, t3, …)"
        );
    }
}
