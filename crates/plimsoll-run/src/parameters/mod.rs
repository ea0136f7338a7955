//! Loading the parameters of a network from a weight file, with the fate of each tensor.

mod encoder;
mod kernel;
mod matched;
mod positions;
mod storage;
mod upkern;

use std::path::Path;

use plimsoll_graph::{Program, TensorId};
use plimsoll_memory::Budget;
use plimsoll_nn::Architecture;
use plimsoll_nn::weights::{WeightError, WeightFile, WeightSource};
use plimsoll_plan::{Engine, HostSlice, ProgramId};

use self::matched::Matched;
use self::storage::Found;
use crate::{HeadRule, RunError, StartRule, StartTable};

/// The most names in an error or a report; further ones are only counted.
const MOST_NAMES: usize = 4;

/// The differences between a file and a network that are allowed. By default none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Ignores tensors that the network does not have.
    pub allow_extra: bool,
    /// The treatment of heads.
    pub heads: HeadRule,
    /// Sums the weights of the first convolution over three image channels for a network of one channel, as timm does: an image with three
    /// equal channels has the same result.
    pub sum_stem: bool,
    /// Resamples kernels of another extent linearly, as the authors of MedNeXt do to start a network with larger kernels.
    pub upkern: bool,
    /// Reads the moving average `NAME/ema` of a parameter instead of the parameter, if the file has one.
    pub averaged: bool,
}

/// The tensors of a file that are parameters of a network, and the fate of all.
struct Assigned {
    found: Vec<Found>,
    table: StartTable,
}

impl Assigned {
    /// Assigns tensors by a rule.
    fn by(
        rule: &StartRule,
        file: &WeightFile,
        path: &Path,
        net: &dyn Architecture,
        program: &Program,
    ) -> Result<Assigned, RunError> {
        match rule {
            StartRule::Names { allow_extra, heads, sum_stem, upkern } => {
                let options = LoadOptions {
                    allow_extra: *allow_extra,
                    heads: *heads,
                    sum_stem: *sum_stem,
                    upkern: *upkern,
                    averaged: false,
                };
                Ok(Matched::new(file, path, net, program, options)?.assigned(file, program))
            }
            StartRule::Encoder(encoder) => encoder::assign(file, path, net, program, encoder),
        }
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
) -> Result<(), RunError> {
    let NumberedProgram { number, program } = program;
    each_parameter::<RunError>(source, net, program, buffer, options, budget, &mut |id, values| {
        Ok(engine.write(number, id, HostSlice::F32(values))?)
    })
}

/// Passes the parameters that a start has to `visit`, one by one; all others keep their initial values. `buffer` must have room for the
/// largest. The file is checked before the first call. Returns the fate of each tensor.
///
/// # Errors
/// Returns an error if the file cannot be read, is of another network, or has values that are not finite; or the first error of `visit`.
pub fn each_started(
    path: &Path,
    rule: &StartRule,
    net: &dyn Architecture,
    program: &Program,
    buffer: &mut [f32],
    budget: &Budget,
    visit: &mut Visit<'_>,
) -> Result<StartTable, RunError> {
    let mut file = WeightFile::open(path, budget)?;
    let Assigned { found, table } = Assigned::by(rule, &file, path, net, program)?;
    each_found(&mut file, path, program, &found, buffer, visit)?;
    Ok(table)
}

/// The fate of each tensor of a start, by names and shapes, without reading their values.
///
/// # Errors
/// Returns an error if the file cannot be read, or is of another network.
pub fn start_table(
    path: &Path,
    rule: &StartRule,
    net: &dyn Architecture,
    program: &Program,
    budget: &Budget,
) -> Result<StartTable, RunError> {
    let file = WeightFile::open(path, budget)?;
    Ok(Assigned::by(rule, &file, path, net, program)?.table)
}

/// A function that takes a parameter and its values.
pub type Visit<'a, E = RunError> = dyn FnMut(TensorId, &[f32]) -> Result<(), E> + 'a;

/// Reads the parameters of a network's program from a weight file one by one, and passes each to `visit`. `buffer` must have room for the
/// largest. The file is checked before the first call.
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
) -> Result<(), E> {
    let mut file = WeightFile::open_source(source, budget)?;
    let weights = &*source.path;
    let found = Matched::new(&file, weights, net, program, options)?.found;
    each_found(&mut file, weights, program, &found, buffer, visit)
}

/// Reads tensors one by one, and checks all others.
fn each_found<E: From<RunError> + From<WeightError>>(
    file: &mut WeightFile,
    path: &Path,
    program: &Program,
    found: &[Found],
    buffer: &mut [f32],
    visit: &mut Visit<'_, E>,
) -> Result<(), E> {
    for found in found {
        let info = program.tensor(found.id);
        let values = &mut buffer[..info.shape.count()];
        found.read(file, path, info, values)?;
        visit(found.id, values)?;
    }
    // A fault in a tensor that no result depends on still shows that the file is damaged.
    file.verify_others(&found.iter().map(|found| found.name.as_str()).collect())?;
    Ok(())
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
