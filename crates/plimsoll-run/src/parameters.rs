//! Parameters of a network from a weight file: what is loaded is said, and what does not fit is refused.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use plimsoll_graph::{DType, Kind, Program, Role, Shape, TensorId, TensorInfo};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::{self, NamingScheme, WeightError, WeightFile, WeightSource};
use plimsoll_nn::{Architecture, ConfigError, ForwardMode, names};
use plimsoll_plan::{Engine, HostSlice, ProgramId};

use crate::RunError;

/// How many names an error or a report lists before it only counts.
const MOST_NAMES: usize = 4;

/// What of a weight file need not fit. By default all of it must.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether tensors that the network has no place for are left out.
    pub allow_extra: bool,
    /// With a seed, heads may be missing or have another shape, and so may all that is no part of an encoder in files that are
    /// of one alone: they get the initial values of that seed.
    pub new_head: Option<u64>,
    /// Whether weights of the convolution of an image of three channels are summed over them for a network of one channel, as timm does
    /// it: an image whose three channels are alike has the same result.
    pub sum_stem: bool,
    /// Whether the moving average `NAME/ema` of a parameter is taken instead of the parameter, where the file has one.
    pub averaged: bool,
}

/// What became of the tensors of a weight file and the parameters of a network.
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
    /// What became of each tensor, in a line for each.
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

/// Reads the parameters of a network's program from a weight file into an engine. `buffer` must have room for the largest. What
/// does not fit is found before anything is written.
///
/// # Errors
/// If the file cannot be read, is of another network, holds more than the network has a place for, or has values that are not
/// finite.
pub fn read_parameters(
    source: &WeightSource,
    net: &dyn Architecture,
    engine: &mut dyn Engine,
    (id_of_program, program): (ProgramId, &Program),
    buffer: &mut [f32],
    options: LoadOptions,
    budget: &Budget,
) -> Result<LoadReport, RunError> {
    let (initialised, mut report) =
        each_parameter(source, (net, program), buffer, options, budget, &mut |id, values| {
            Ok(engine.write(id_of_program, id, HostSlice::F32(values))?)
        })?;
    if let Some(seed) = options.new_head {
        for id in initialised {
            let info = program.tensor(id);
            engine.write(id_of_program, id, HostSlice::F32(&net.initial_values(info, seed)))?;
            report.initialised.push(info.name.clone());
        }
    }
    Ok(report)
}

/// What takes a parameter and its values.
pub type Visit<'a> = dyn FnMut(TensorId, &[f32]) -> Result<(), RunError> + 'a;

/// Reads the parameters of a network's program from a weight file, one after the other, and hands each on. `buffer` must have room for
/// the largest. What does not fit is found before anything is handed on. Returns the parameters that the file need not have and has not.
///
/// # Errors
/// If the file cannot be read, is of another network, holds more than the network has a place for, or has values that are not finite; or
/// the first error of `visit`.
pub(crate) fn each_parameter(
    source: &WeightSource,
    (net, program): (&dyn Architecture, &Program),
    buffer: &mut [f32],
    options: LoadOptions,
    budget: &Budget,
    visit: &mut Visit<'_>,
) -> Result<(Vec<TensorId>, LoadReport), RunError> {
    let mut file = WeightFile::open_source(source, budget)?;
    let weights = &*source.path;
    let Matched { found, initialised, skipped } = Matched::new(&file, weights, net, program, options)?;
    let mut report = LoadReport { skipped, ..LoadReport::default() };
    for found in found {
        let info = program.tensor(found.id);
        let values = &mut buffer[..info.shape.count()];
        found.read((&mut file, weights), info, values, budget)?;
        visit(found.id, values)?;
        report.loaded.push(info.name.clone());
    }
    Ok((initialised, report))
}

/// Reads some parameters of a network's program from a weight file, each into as many values as it has.
///
/// # Errors
/// As [`read_parameters`], and if one of them is no parameter of the program.
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
        found.read((&mut file, weights), info, values, budget)?;
    }
    Ok(())
}

/// Checks that weights are those that a network's program needs, by names and shapes, without reading their values.
///
/// # Errors
/// If the file cannot be read, is of another network, or holds more than the network has a place for.
pub(crate) fn expect_weights(
    source: &WeightSource,
    net: &dyn Architecture,
    program: &Program,
    options: LoadOptions,
    budget: &Budget,
) -> Result<(), RunError> {
    let file = WeightFile::open_source(source, budget)?;
    Matched::new(&file, &source.path, net, program, options).map(|_| ())
}

/// Channels of images that networks for photographs are trained on.
const COLOURS: usize = 3;

/// The shape of weights of so many more channels of an image.
fn coloured(shape: &Shape) -> Shape {
    let extents = shape.0.iter().enumerate();
    Shape(extents.map(|(axis, extent)| if axis == 1 { COLOURS * extent } else { *extent }).collect())
}

/// Reads weights of an image of three channels, and sums them over these.
fn read_summed(
    file: &mut WeightFile,
    path: &Path,
    (name, shape): (&str, &Shape),
    values: &mut [f32],
    budget: &Budget,
) -> Result<(), RunError> {
    let of_colours = coloured(shape);
    let bytes = Bytes::of(of_colours.count() * size_of::<f32>());
    let held = budget.reserve("weights of three channels", bytes);
    let _held = held.map_err(|source| WeightError::OverBudget { path: path.into(), source })?;
    let mut all = vec![0.0; of_colours.count()];
    file.read_named(name, &of_colours, &mut all)?;
    let taps = shape.spatial().iter().product::<usize>().max(1);
    for (values, of_output) in values.chunks_mut(taps).zip(all.chunks(COLOURS * taps)) {
        for (tap, value) in values.iter_mut().enumerate() {
            *value = of_output.iter().skip(tap).step_by(taps).sum();
        }
    }
    Ok(())
}

/// Reads a part of a tensor, that which begins with the element `first`.
fn read_part(
    file: &mut WeightFile,
    path: &Path,
    (name, whole): (&str, &Shape),
    first: usize,
    values: &mut [f32],
    budget: &Budget,
) -> Result<(), RunError> {
    let bytes = Bytes::of(whole.count() * size_of::<f32>());
    let held = budget.reserve("weights of two maps", bytes);
    let _held = held.map_err(|source| WeightError::OverBudget { path: path.into(), source })?;
    let mut all = vec![0.0; whole.count()];
    file.read_named(name, whole, &mut all)?;
    for (value, of_file) in values.iter_mut().zip(all.iter().skip(first)) {
        *value = *of_file;
    }
    Ok(())
}

/// A step with such values would make all others like them, and the learning rate would be blamed.
fn check_finite(path: &Path, name: &str, values: &[f32]) -> Result<(), WeightError> {
    match values.iter().filter(|value| !value.is_finite()).count() {
        0 => Ok(()),
        count => {
            Err(WeightError::NotFinite { path: path.into(), name: name.into(), count, of: values.len() })
        }
    }
}

/// The tensor of a file that is a parameter.
#[derive(Debug)]
struct Found {
    id: TensorId,
    name: String,
    held: Held,
}

impl Found {
    /// Reads its values, which have to be finite.
    fn read(
        &self,
        (file, path): (&mut WeightFile, &Path),
        info: &TensorInfo,
        values: &mut [f32],
        budget: &Budget,
    ) -> Result<(), RunError> {
        match &self.held {
            Held::Itself => file.read_named(&self.name, &info.shape, values)?,
            Held::OfColours => read_summed(file, path, (&self.name, &info.shape), values, budget)?,
            Held::Part { whole, first } => {
                read_part(file, path, (&self.name, whole), *first, values, budget)?
            }
        }
        Ok(check_finite(path, &self.name, values)?)
    }
}

/// How a file holds a parameter.
#[derive(Debug, PartialEq)]
enum Held {
    /// As it is.
    Itself,
    /// With weights for three channels of an image, which are summed.
    OfColours,
    /// As a part of a tensor: of several parameters that have one name in files, the rows follow each other in the order of the program.
    Part {
        /// The shape of the tensor.
        whole: Shape,
        /// Its first element that is of the parameter.
        first: usize,
    },
}

/// Which tensor of a file is which parameter.
#[derive(Debug)]
struct Matched {
    found: Vec<Found>,
    initialised: Vec<TensorId>,
    skipped: Vec<String>,
}

impl Matched {
    fn new(
        file: &WeightFile,
        path: &Path,
        net: &dyn Architecture,
        program: &Program,
        options: LoadOptions,
    ) -> Result<Matched, RunError> {
        // Counts of batches change nothing: without one it is zero, as for PyTorch.
        let is_count = |id: &TensorId| is_count(&program.tensor(*id).name);
        let (counts, mut parameters): (Vec<TensorId>, Vec<TensorId>) =
            program.with_role(Role::Parameter).partition(is_count);
        let own_names: Vec<&str> = parameters.iter().map(|id| program.tensor(*id).name.as_str()).collect();
        let schemes = net.naming_schemes();
        let scheme = NamingScheme::of_file(&schemes, file, &own_names).copied();
        let scheme = scheme.unwrap_or_else(|| NamingScheme::native(net.name()));
        let name_of = |id: TensorId| {
            let name = scheme.weight_name(&program.tensor(id).name);
            let averaged = format!("{name}/ema");
            if options.averaged && file.contains(&averaged) { averaged } else { name }
        };
        let stem = net.stem().filter(|_| options.sum_stem);
        let is_summed = |id: TensorId| {
            let info = program.tensor(id);
            let of_colours = |found: Shape| weights::fits(&found, &coloured(&info.shape));
            let is_stem = stem.as_deref() == Some(&info.name) && info.shape.dim(1) == 1;
            is_stem && file.shape(&name_of(id)).is_some_and(of_colours)
        };
        let mut of_name: HashMap<String, Vec<TensorId>> = HashMap::new();
        for id in &parameters {
            of_name.entry(scheme.weight_name(&program.tensor(*id).name)).or_default().push(*id);
        }
        let part = |id: TensorId| {
            let all =
                of_name.get(&scheme.weight_name(&program.tensor(id).name)).filter(|all| all.len() > 1)?;
            let rows = |ids: &[TensorId]| ids.iter().map(|id| program.shape(*id).dim(0)).sum::<usize>();
            let before = all.iter().position(|other| *other == id)?;
            let own = program.shape(id);
            let mut whole = own.clone();
            *whole.0.first_mut()? = rows(all);
            let first = rows(all.get(..before)?) * (own.count() / own.dim(0).max(1));
            Some(Held::Part { whole, first })
        };
        let fault = |id: TensorId| {
            let name = name_of(id);
            if is_summed(id) {
                return None;
            }
            let expected = match part(id) {
                Some(Held::Part { whole, .. }) => whole,
                _ => program.shape(id).clone(),
            };
            match file.shape(&name) {
                None => Some(WeightError::Missing { path: path.into(), name, shape: expected }),
                Some(found) if !weights::fits(&found, &expected) => {
                    Some(WeightError::Shape { path: path.into(), name, found, expected })
                }
                Some(_) => None,
            }
        };
        let heads: Vec<String> = net.heads().iter().map(|head| format!("{head}.")).collect();
        let head_of = |id: TensorId| heads.iter().find(|head| program.tensor(id).name.starts_with(*head));
        parameters.extend(counts.into_iter().filter(|id| fault(*id).is_none()));
        // A head is new as a whole: half of an old one would be none.
        let mut new_heads: HashSet<&String> = HashSet::new();
        let is_elsewhere = |id: &TensorId| !scheme.holds(&program.tensor(*id).name);
        for id in &parameters {
            // Of a file of part of a network, the rest is as new as a head.
            if is_elsewhere(id) && options.new_head.is_some() {
                continue;
            }
            match (fault(*id), head_of(*id)) {
                (Some(_), Some(head)) if options.new_head.is_some() => {
                    new_heads.insert(head);
                }
                (Some(fault), _) => return Err(fault.into()),
                (None, _) => {}
            }
        }
        let is_new =
            |id: &TensorId| is_elsewhere(id) || head_of(*id).is_some_and(|head| new_heads.contains(head));
        let (initialised, found): (Vec<TensorId>, Vec<TensorId>) = parameters.into_iter().partition(is_new);
        let known = known_names(net, &scheme)?;
        let is_extra = |name: &&str| !is_known(name, &known, &scheme);
        let skipped: Vec<String> = file.names().into_iter().filter(is_extra).map(str::to_string).collect();
        if !skipped.is_empty() && !options.allow_extra {
            let (count, names) = (skipped.len(), some_of(&skipped));
            return Err(RunError::Extra { path: path.into(), network: net.describe(), count, names });
        }
        let found = found.into_iter();
        let held = |id: TensorId| match is_summed(id) {
            true => Held::OfColours,
            false => part(id).unwrap_or(Held::Itself),
        };
        let found = found.map(|id| Found { id, name: name_of(id), held: held(id) }).collect();
        Ok(Matched { found, initialised, skipped })
    }
}

/// The names that a network knows in files of a scheme: parameters of the training pass, which has all heads that are trained;
/// heads that it has not but could have; and biases that change nothing.
fn known_names(net: &dyn Architecture, scheme: &NamingScheme) -> Result<HashSet<String>, ConfigError> {
    let mut program = Program::new("parameters");
    // One sample has no statistics of a batch.
    let image = Shape::volume(2, net.in_channels(), net.extents().next_larger([1; 3]));
    let image = program.input(names::IMAGE, image, Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training: true, precision: DType::F32 })?;
    let mut known: Vec<String> =
        program.with_role(Role::Parameter).map(|id| program.tensor(id).name.clone()).collect();
    for head in net.heads() {
        known.extend(["weight", "bias"].map(|part| format!("{head}.{part}")));
    }
    known.extend(net.idle_biases().into_iter().map(|(name, _)| name));
    known.extend(net.constants().into_iter().map(|constant| constant.name));
    Ok(known.iter().map(|name| scheme.weight_name(name)).collect())
}

/// Whether a tensor of a file is one that a network knows, belongs to one, or counts batches.
fn is_known(name: &str, known: &HashSet<String>, scheme: &NamingScheme) -> bool {
    // Moments and averages of our own checkpoints stand behind a slash, which no name of PyTorch's has.
    let owner = name.split_once('/').map_or(name, |(owner, _)| owner);
    known.contains(owner) || scheme.is_duplicate(owner) || is_count(owner)
}

/// Whether a tensor counts the batches that a normalisation has seen.
fn is_count(name: &str) -> bool {
    name.ends_with(".num_batches_tracked")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::PathBuf;

    use plimsoll_nn::weights::safetensors;
    use plimsoll_nn::{DynUNet, Network, PlainConvUNet, SEResNeXt50, SwinUnetr, predict};

    use super::*;

    fn plain(convs: usize) -> PlainConvUNet {
        let mut net = PlainConvUNet::new(1, 2, &[4, 8, 8], &[[3; 3]; 3], &[[1; 3], [2; 3], [2; 3]]);
        net.shape.encoder_convs = vec![convs; 3];
        net
    }

    /// All tensors that a network's training pass has and its own files hold beside.
    fn tensors(net: &Network) -> Vec<(String, Shape)> {
        let mut program = Program::new("parameters");
        let image = Shape::volume(2, net.in_channels(), net.extents().next_larger([1; 3]));
        let image = program.input(names::IMAGE, image, Kind::Volume);
        net.forward(&mut program, image, ForwardMode { training: true, precision: DType::F32 }).unwrap();
        let own = program.with_role(Role::Parameter).map(|id| program.tensor(id));
        let own = own.map(|info| (info.name.clone(), info.shape.clone()));
        own.chain(net.idle_biases().into_iter().map(|(name, count)| (name, Shape(vec![count])))).collect()
    }

    fn file(folder: &Path, tensors: &[(String, Shape)]) -> PathBuf {
        let path = folder.join("weights.safetensors");
        let fill = |_, values: &mut [f32]| {
            values.fill(0.5);
            Ok(())
        };
        let mut to = File::create(&path).unwrap();
        safetensors::write(&mut to, tensors, &BTreeMap::new(), &mut vec![0.0; 1 << 18], fill).unwrap();
        path
    }

    fn matched(path: &Path, net: &Network, options: LoadOptions) -> Result<Matched, RunError> {
        let program =
            predict(net.as_architecture(), net.extents().next_larger([1; 3]), 1, DType::F32).unwrap();
        let file = WeightFile::open(path, &Budget::new(Bytes::mib(2))).unwrap();
        Matched::new(&file, path, net.as_architecture(), &program, options)
    }

    #[test]
    fn weights_of_colours_are_summed_for_one_channel_where_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let net = |channels: usize| {
            Network::from(SEResNeXt50 { features: vec![128; 4], ..SEResNeXt50::new(channels, 2) })
        };
        let mut of_colours = tensors(&net(3));
        // A file of PyTorch before 0.4.1 counts no batches.
        of_colours.retain(|(name, _)| !name.ends_with(".num_batches_tracked"));
        let path = file(folder.path(), &of_colours);
        assert!(matched(&path, &net(3), LoadOptions::default()).is_ok());
        let error = matched(&path, &net(1), LoadOptions::default()).unwrap_err().to_string();
        assert!(
            error.contains("`conv1.weight` has shape [64×3×1×7×7], but the network needs [64×1×1×7×7]"),
            "{error}"
        );
        let options = LoadOptions { sum_stem: true, ..LoadOptions::default() };
        let found = matched(&path, &net(1), options).unwrap().found;
        let summed: Vec<&str> =
            found.iter().filter(|found| found.held == Held::OfColours).map(|found| &found.name[..]).collect();
        assert_eq!(summed, ["conv1.weight"]);
        let budget = Budget::new(Bytes::mib(1));
        let mut of_file = WeightFile::open(&path, &budget).unwrap();
        let mut values = vec![0.0; 64 * 49];
        read_summed(
            &mut of_file,
            &path,
            ("conv1.weight", &Shape(vec![64, 1, 1, 7, 7])),
            &mut values,
            &budget,
        )
        .unwrap();
        assert!(values.iter().all(|value| *value == 1.5), "thrice one half");
    }

    #[test]
    fn convolutions_that_the_network_has_no_place_for_are_refused_by_name_unless_they_are_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), &tensors(&plain(3).into()));
        let error = matched(&path, &plain(2).into(), LoadOptions::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("12 tensors") && text.contains("encoder.stages.0.0.convs.2.conv.bias"),
            "{text}"
        );
        assert!(error.hint().unwrap().contains("--allow-extra"));
        let options = LoadOptions { allow_extra: true, ..LoadOptions::default() };
        let allowed = matched(&path, &plain(2).into(), options).unwrap();
        // Weight and idle bias of the convolution, scale and shift of its normalisation, at three stages.
        assert_eq!(allowed.skipped.len(), 12);
        assert!(matched(&path, &plain(3).into(), LoadOptions::default()).unwrap().skipped.is_empty());
    }

    #[test]
    fn state_dicts_of_pytorch_fit_their_networks_and_hold_nothing_that_is_not_known() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/data");
        for name in ["plain", "supervised", "anisotropic", "nnunet"] {
            let text = std::fs::read_to_string(folder.join(format!("unet_{name}.json"))).unwrap();
            let record: serde_json::Value = serde_json::from_str(&text).unwrap();
            let net: Network = serde_json::from_value(record["net"].clone()).unwrap();
            let path = folder.join(record["weights"].as_str().unwrap());
            let matched = matched(&path, &net, LoadOptions::default()).unwrap();
            assert!(matched.initialised.is_empty() && !matched.found.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_belongs_to_the_network_under_another_name_is_not_extra() {
        let folder = tempfile::tempdir().unwrap();
        let plain: Network = plain(2).into();
        let mut known = tensors(&plain);
        let (name, shape) = known[0].clone();
        assert_eq!(name, "encoder.stages.0.0.convs.0.conv.weight");
        let beside = [
            format!("{name}/momentum_buffer"),
            format!("{name}/exp_avg"),
            format!("{name}/ema"),
            format!("decoder.{name}"),
            "encoder.stages.0.0.convs.0.all_modules.0.weight".into(),
            "encoder.stages.0.0.convs.0.norm.num_batches_tracked".into(),
        ];
        known.extend(beside.into_iter().map(|name| (name, shape.clone())));
        let path = file(folder.path(), &known);
        assert!(matched(&path, &plain, LoadOptions::default()).unwrap().skipped.is_empty());
        let averaged = LoadOptions { averaged: true, ..LoadOptions::default() };
        let names: Vec<String> =
            matched(&path, &plain, averaged).unwrap().found.into_iter().map(|found| found.name).collect();
        assert_eq!(names[0], format!("{name}/ema"));
        assert_eq!(names[1], "encoder.stages.0.0.convs.0.norm.weight");
    }

    #[test]
    fn heads_of_deep_supervision_are_no_extras_of_a_network_without() {
        let folder = tempfile::tempdir().unwrap();
        let with = |heads: usize| {
            let mut net = DynUNet::new(1, 2, &[4, 8, 8], &[[3; 3]; 3], &[[1; 3], [2; 3], [2; 3]]);
            net.shape.deep_supervision = heads;
            Network::from(net)
        };
        let path = file(folder.path(), &tensors(&with(1)));
        assert!(matched(&path, &with(0), LoadOptions::default()).unwrap().skipped.is_empty());
    }

    #[test]
    fn a_new_head_is_new_as_a_whole_and_everything_else_must_fit() {
        let folder = tempfile::tempdir().unwrap();
        let classes = |classes: usize| {
            let mut net = plain(2);
            net.shape.classes = classes;
            Network::from(net)
        };
        let path = file(folder.path(), &tensors(&classes(2)));
        let strict = matched(&path, &classes(5), LoadOptions::default()).unwrap_err();
        assert!(matches!(strict, RunError::Weights(WeightError::Shape { .. })), "{strict}");
        let options = LoadOptions { new_head: Some(0), ..LoadOptions::default() };
        let new = matched(&path, &classes(5), options).unwrap();
        assert_eq!(new.initialised.len(), 2);
        assert!(new.found.iter().all(|found| !found.name.starts_with("decoder.seg_layers")));
        // One tensor of the head that fits does not keep the other from being new.
        let lost: Vec<_> = tensors(&classes(2))
            .into_iter()
            .filter(|(name, _)| name != "decoder.seg_layers.1.bias")
            .collect();
        let path = file(folder.path(), &lost);
        assert_eq!(matched(&path, &classes(2), options).unwrap().initialised.len(), 2);
        let lost: Vec<_> =
            lost.into_iter().filter(|(name, _)| name != "encoder.stages.0.0.convs.0.conv.weight").collect();
        let path = file(folder.path(), &lost);
        let error = matched(&path, &classes(2), options).unwrap_err();
        assert!(matches!(error, RunError::Weights(WeightError::Missing { .. })), "{error}");
    }

    #[test]
    fn values_that_are_not_finite_are_counted_under_the_names_of_file_and_tensor() {
        let path = Path::new("weights.pth");
        check_finite(path, "a", &[0.0, -f32::MAX, f32::MIN_POSITIVE]).unwrap();
        let error = check_finite(path, "a", &[f32::NAN, 1.0, f32::NEG_INFINITY]).unwrap_err();
        assert_eq!(error.to_string(), "weights.pth: 2 of the 3 values of `a` are not finite");
    }

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

    #[test]
    fn of_a_self_supervised_encoder_what_fits_is_loaded_and_the_rest_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let net: Network = SwinUnetr::new(1, 2, 12).into();
        let all = tensors(&net);
        let of_encoder = |names: &dyn Fn(&str) -> String, norm: &str| -> Vec<(String, Shape)> {
            let own = all.iter().filter_map(|(name, shape)| {
                let own = name.strip_prefix("swinViT.")?;
                Some((names(own), net.stored_shape(name, shape)))
            });
            own.chain([(norm.to_string(), Shape(vec![192]))]).collect()
        };
        let first =
            of_encoder(&|own| format!("module.{}", own.replace(".linear", ".fc")), "module.norm.weight");
        let twice = |own: &str| match own.split_once(".0.") {
            Some((stage, rest)) if stage.starts_with("layers") => format!("encoder.{stage}.0.0.{rest}"),
            _ => format!("encoder.{own}"),
        };
        let second = of_encoder(&twice, "encoder.norm.weight");
        for file_of in [first, second] {
            let path = file(folder.path(), &file_of);
            let error = matched(&path, &net, LoadOptions::default()).unwrap_err().to_string();
            assert!(error.contains("there is no tensor"), "{error}");
            let options = LoadOptions { new_head: Some(1), ..LoadOptions::default() };
            let found = matched(&path, &net, options).unwrap();
            assert_eq!(found.found.len() + 1, file_of.len());
            assert_eq!(found.found.len() + found.initialised.len(), all.len());
            assert!(found.skipped.is_empty(), "{:?}", found.skipped);
        }
    }
}
