//! The assignment of the tensors of a weight file to the parameters of a network, by names and shapes.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use plimsoll_graph::{DType, Kind, Program, Role, Shape, TensorId};
use plimsoll_nn::weights::{self, NamingScheme, WeightError, WeightFile};
use plimsoll_nn::{Architecture, ConfigError, ForwardMode, names};

use super::storage::{COLOURS, Found, ParameterStorage, coloured};
use super::upkern::other_kernel;
use super::{Assigned, LoadOptions, some_of};
use crate::{Adaptation, HeadRule, NewReason, RunError, StartTable, StartedTensor, TensorFate, UnusedReason};

/// The assignment of tensors to parameters.
#[derive(Debug)]
pub(super) struct Matched {
    pub(super) found: Vec<Found>,
    pub(super) initialised: Vec<(TensorId, NewReason)>,
    pub(super) skipped: Vec<(String, UnusedReason)>,
}

impl Matched {
    pub(super) fn new(
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
        let scheme = NamingScheme::for_file(&schemes, file, &own_names).copied();
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
        let named = by_file_name(program, &scheme, &parameters);
        let part =
            |id: TensorId| part_of(program, named.get(&scheme.weight_name(&program.tensor(id).name))?, id);
        let exchanged = |id: TensorId| {
            let info = program.tensor(id);
            net.is_exchanged(&info.name).then(|| net.stored_shape(&info.name, &info.shape))
        };
        let resampled = |id: TensorId| {
            let is_wanted =
                options.upkern && program.tensor(id).kind == Kind::Weights && exchanged(id).is_none();
            other_kernel(&file.shape(&name_of(id)).filter(|_| is_wanted)?, program.shape(id))
        };
        let fault = |id: TensorId| {
            let name = name_of(id);
            if is_summed(id) || resampled(id).is_some() {
                return None;
            }
            let expected = match part(id) {
                Some(ParameterStorage::Part { whole, .. }) => whole,
                _ => exchanged(id).unwrap_or_else(|| program.shape(id).clone()),
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
            // In a file with a part of a network, the rest is initialised like a head.
            if is_elsewhere(id) && options.heads != HeadRule::Taken {
                continue;
            }
            match (fault(*id), head_of(*id), options.heads) {
                (_, Some(head), HeadRule::New) | (Some(_), Some(head), HeadRule::NewUnlessFitting) => {
                    new_heads.insert(head);
                }
                (Some(fault), ..) => return Err(fault.into()),
                (None, ..) => {}
            }
        }
        let new_reason = |id: TensorId| match head_of(id) {
            Some(head) if new_heads.contains(head) => Some(NewReason::Head),
            _ => is_elsewhere(&id).then_some(NewReason::Missing),
        };
        let initialised = parameters.iter().filter_map(|id| Some((*id, new_reason(*id)?))).collect();
        let extra = extra_names(file, path, net, &scheme, options)?;
        let mut skipped: Vec<_> = extra.into_iter().map(|name| (name, UnusedReason::NoPlace)).collect();
        let replaced: Vec<&String> = match options.heads {
            HeadRule::New => heads.iter().collect(),
            HeadRule::Taken | HeadRule::NewUnlessFitting => new_heads.iter().copied().collect(),
        };
        let replaced: Vec<String> = replaced.into_iter().map(|head| scheme.weight_name(head)).collect();
        let of_heads =
            file.names().into_iter().filter(|name| replaced.iter().any(|head| name.starts_with(head)));
        skipped.extend(of_heads.map(|name| (name.to_string(), UnusedReason::Head)));
        let found = parameters.iter().copied().filter(|id| new_reason(*id).is_none());
        let held = |id: TensorId| match is_summed(id) {
            true => ParameterStorage::OfColours,
            false => match (exchanged(id), resampled(id)) {
                (Some(stored), _) => ParameterStorage::Exchanged { stored },
                (None, Some(stored)) => ParameterStorage::OtherKernel { stored },
                (None, None) => part(id).unwrap_or(ParameterStorage::Itself),
            },
        };
        let found = found.map(|id| Found { id, name: name_of(id), held: held(id) }).collect();
        Ok(Matched { found, initialised, skipped })
    }
}

impl Matched {
    /// The same, with the fate of every tensor.
    pub(super) fn assigned(self, file: &WeightFile, program: &Program) -> Assigned {
        let row = |id: TensorId, fate: TensorFate| {
            let info = program.tensor(id);
            (id, StartedTensor { name: info.name.clone(), shape: info.shape.0.clone(), fate })
        };
        let fate = |found: &Found| match &found.held {
            ParameterStorage::OfColours => {
                TensorFate::Adapted { how: vec![Adaptation::Summed { channels: COLOURS }] }
            }
            ParameterStorage::OtherKernel { stored } => {
                let (from, to) = (stored.spatial(), program.shape(found.id).spatial());
                TensorFate::Adapted { how: vec![Adaptation::Resampled { from, to }] }
            }
            _ => TensorFate::Taken,
        };
        let taken = self.found.iter().map(|found| row(found.id, fate(found)));
        let new = self.initialised.into_iter().map(|(id, why)| row(id, TensorFate::New { why }));
        let mut rows: Vec<(TensorId, StartedTensor)> = taken.chain(new).collect();
        rows.sort_by_key(|(id, _)| *id);
        let unused = self.skipped.into_iter().map(|(name, why)| {
            let shape = file.shape(&name).map_or_else(Vec::new, |shape| shape.0);
            StartedTensor { name, shape, fate: TensorFate::Unused { why } }
        });
        let tensors = rows.into_iter().map(|(_, row)| row).chain(unused).collect();
        Assigned { found: self.found, table: StartTable { tensors } }
    }
}

/// The parameters of each name in files.
fn by_file_name(
    program: &Program,
    scheme: &NamingScheme,
    parameters: &[TensorId],
) -> HashMap<String, Vec<TensorId>> {
    let mut named: HashMap<String, Vec<TensorId>> = HashMap::new();
    for id in parameters {
        named.entry(scheme.weight_name(&program.tensor(*id).name)).or_default().push(*id);
    }
    named
}

/// The part of a parameter in the tensor that it shares with others of the same name; `None` if it has a tensor of its own.
fn part_of(program: &Program, all: &[TensorId], id: TensorId) -> Option<ParameterStorage> {
    if all.len() < 2 {
        return None;
    }
    let rows = |ids: &[TensorId]| ids.iter().map(|id| program.shape(*id).dim(0)).sum::<usize>();
    let before = all.iter().position(|other| *other == id)?;
    let own = program.shape(id);
    let mut whole = own.clone();
    *whole.0.first_mut()? = rows(all);
    let first = rows(all.get(..before)?) * (own.count() / own.dim(0).max(1));
    Some(ParameterStorage::Part { whole, first })
}

/// The tensors of a file that the network does not have.
///
/// # Errors
/// Returns an error if there are such and they are not to be ignored.
fn extra_names(
    file: &WeightFile,
    path: &Path,
    net: &dyn Architecture,
    scheme: &NamingScheme,
    options: LoadOptions,
) -> Result<Vec<String>, RunError> {
    let known = known_names(net, scheme)?;
    let is_extra = |name: &&str| !is_known(name, &known, scheme);
    let extra: Vec<String> = file.names().into_iter().filter(is_extra).map(str::to_string).collect();
    if !extra.is_empty() && !options.allow_extra {
        let (count, names) = (extra.len(), some_of(&extra));
        return Err(RunError::Extra { path: path.into(), network: net.describe(), count, names });
    }
    Ok(extra)
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

/// Returns `true` if a tensor of a file is known to the network, belongs to a known one, or counts batches.
fn is_known(name: &str, known: &HashSet<String>, scheme: &NamingScheme) -> bool {
    // Moments and averages of our own checkpoints stand behind a slash, which no name of PyTorch's has.
    let owner = name.split_once('/').map_or(name, |(owner, _)| owner);
    known.contains(owner) || scheme.is_duplicate(owner) || is_count(owner)
}

/// Returns `true` if a tensor counts the batches that a normalisation has seen.
pub(super) fn is_count(name: &str) -> bool {
    name.ends_with(".num_batches_tracked")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::PathBuf;

    use plimsoll_memory::{Budget, Bytes};
    use plimsoll_nn::weights::safetensors;
    use plimsoll_nn::{
        DynUNet, MedNeXt, Network, NetworkSize, PlainConvUNet, SEResNeXt50, SwinUnetr, predict,
    };

    use super::super::storage::read_summed;
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
        let summed: Vec<&str> = found
            .iter()
            .filter(|found| found.held == ParameterStorage::OfColours)
            .map(|found| &found.name[..])
            .collect();
        assert_eq!(summed, ["conv1.weight"]);
        let budget = Budget::new(Bytes::mib(1));
        let mut of_file = WeightFile::open(&path, &budget).unwrap();
        let mut values = vec![0.0; 64 * 49];
        read_summed(&mut of_file, "conv1.weight", &Shape(vec![64, 1, 1, 7, 7]), &mut values).unwrap();
        assert!(values.iter().all(|value| *value == 1.5), "thrice one half");
    }

    #[test]
    fn weights_of_transposed_heads_are_read_with_their_axes_exchanged() {
        let folder = tempfile::tempdir().unwrap();
        let net = MedNeXt {
            init_filters: 8,
            encoder_blocks: vec![1, 1],
            decoder_blocks: vec![1],
            encoder_expansion: vec![2, 2],
            decoder_expansion: vec![2],
            ..MedNeXt::new(1, 3, NetworkSize::S, 3)
        };
        let net = Network::from(net);
        let stored: Vec<(String, Shape)> = tensors(&net)
            .into_iter()
            .map(|(name, shape)| (name.clone(), net.stored_shape(&name, &shape)))
            .collect();
        let path = folder.path().join("weights.safetensors");
        let fill = |_, values: &mut [f32]| {
            values.iter_mut().enumerate().for_each(|(place, value)| *value = place as f32);
            Ok(())
        };
        let mut to = File::create(&path).unwrap();
        safetensors::write(&mut to, &stored, &BTreeMap::new(), &mut vec![0.0; 1 << 12], fill).unwrap();
        let matched = matched(&path, &net, LoadOptions::default()).unwrap();
        let program =
            predict(net.as_architecture(), net.extents().next_larger([1; 3]), 1, DType::F32).unwrap();
        let head = matched.found.iter().find(|found| found.name == "out_0.conv_out.weight").unwrap();
        let mut file = WeightFile::open(&path, &Budget::new(Bytes::mib(1))).unwrap();
        let mut values = vec![f32::NAN; 3 * 8];
        head.read(&mut file, &path, program.tensor(head.id), &mut values).unwrap();
        for (place, value) in values.iter().enumerate() {
            let (class, feature) = (place / 8, place % 8);
            assert_eq!(*value, (feature * 3 + class) as f32, "class {class}, feature {feature}");
        }
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
        assert!(error.remedy().unwrap().contains("‹allow_extra›"));
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
        let options = LoadOptions { heads: HeadRule::NewUnlessFitting, ..LoadOptions::default() };
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
    fn a_self_supervised_encoder_loads_matching_tensors_and_draws_the_rest() {
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
            let options = LoadOptions { heads: HeadRule::NewUnlessFitting, ..LoadOptions::default() };
            let found = matched(&path, &net, options).unwrap();
            assert_eq!(found.found.len() + 1, file_of.len());
            assert_eq!(found.found.len() + found.initialised.len(), all.len());
            assert!(found.skipped.is_empty(), "{:?}", found.skipped);
        }
    }
}
