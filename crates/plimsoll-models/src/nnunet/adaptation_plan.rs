//! `adaptation_plan.json`: how a network that nnssl has pre-trained becomes one that labels voxels.
//!
//! nnssl's trainers write the plan beside a checkpoint and into it (`nnssl_adaptation_plan`); nnU-Net 2.8.1 reads it (`like_nnssl.py`).
//! Entries that would change the network or its weights, and that nothing is known of, are refused by name. Entries that describe the
//! pre-training alone are named in [`AdaptationPlan::unread`].

use std::path::Path;

use plimsoll_data::Normalisation;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::bounds::MOST_FEATURES;
use plimsoll_nn::weights::{JSON_BYTES, PytorchFile};
use plimsoll_nn::{Architecture, Network, NetworkSize, Primus, ResidualEncoderUNet};
use plimsoll_run::PretrainedEncoder;
use plimsoll_run::bounds::check_spacing;
use plimsoll_volume::Spacing;
use serde_json::Value;

use super::NnUnetError;
use super::entry::Entry;
use super::network::{Ends, pretrained};
use super::plans::read;
use super::preparation::NORMALISATIONS;
use super::pretrained_primus::{Patch, WITH_ARGUMENTS, described, size_of, sized};
use crate::ModelError;

/// The name of the file.
pub const PLAN_FILE: &str = "adaptation_plan.json";
/// The entry of a checkpoint.
const ENTRY: &str = "nnssl_adaptation_plan";
/// Networks that a plan may name without arguments, and those with.
const KNOWN: [&str; 8] = [
    "ResEncL",
    "ResidualEncoderUNet",
    "PlainConvUNet",
    "PrimusS",
    "PrimusB",
    "PrimusM",
    "PrimusL",
    WITH_ARGUMENTS,
];
/// Entries of a plan.
const ENTRIES: [&str; 9] = [
    "architecture_plans",
    "pretrain_plan",
    "pretrain_num_input_channels",
    "recommended_downstream_patchsize",
    "key_to_encoder",
    "key_to_stem",
    "keys_to_in_proj",
    "key_to_lpe",
    // Overrides the patch of transformers; without effect on others.
    "pretrain_patch_size",
];
/// Entries of the pre-training's plan and of its configurations that are read here or without effect on the start.
const OF_PRETRAINING: [&str; 8] = [
    "dataset_name",
    "plans_name",
    "original_median_spacing_after_transp",
    "image_reader_writer",
    "transpose_forward",
    "transpose_backward",
    "configurations",
    "experiment_planner_used",
];
const OF_CONFIGURATION: [&str; 11] = [
    "data_identifier",
    "preprocessor_name",
    "spacing_style",
    "normalization_schemes",
    "use_mask_for_norm",
    "resampling_fn_data",
    "resampling_fn_data_kwargs",
    "resampling_fn_mask",
    "resampling_fn_mask_kwargs",
    "spacing",
    "patch_size",
];

/// An adaptation plan of nnssl.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptationPlan {
    /// The names of the encoder in the checkpoint, and its image channels.
    pub encoder: PretrainedEncoder,
    /// The pre-trained network, with one output and without heads on coarser maps.
    pub network: Network,
    /// Depth, height, width of the patch that the plan recommends.
    pub patch: [usize; 3],
    /// The preparation of images by each configuration of the pre-training.
    pub pretraining: Vec<Pretraining>,
    /// Entries that describe the pre-training and have no effect here, although nothing is known of them.
    pub unread: Vec<String>,
}

/// The preparation of images by a configuration of the pre-training.
#[derive(Clone, Debug, PartialEq)]
pub struct Pretraining {
    /// Its name.
    pub name: String,
    /// The spacing along depth, height and width; `None` if images kept their own.
    pub spacing: Option<Spacing>,
    /// The normalisation of each channel.
    pub normalisations: Vec<Normalisation>,
}

impl AdaptationPlan {
    /// Reads the plan of a folder.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or describes something that is not supported.
    pub fn read(folder: &Path, budget: &Budget) -> Result<AdaptationPlan, ModelError> {
        let described = read::<Value>(folder.join(PLAN_FILE), budget)?;
        Ok(AdaptationPlan::new(&Entry::new(&described.path, "", &described.value))?)
    }

    /// Reads the plan in a checkpoint; `None` if it has none.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or describes something that is not supported.
    pub fn within(
        file: &PytorchFile,
        path: &Path,
        budget: &Budget,
    ) -> Result<Option<AdaptationPlan>, ModelError> {
        let held = budget.reserve("the description of a model", Bytes(JSON_BYTES));
        let _held = held.map_err(|source| NnUnetError::OverBudget { path: path.into(), source })?;
        let Some(value) = file.json(ENTRY)? else { return Ok(None) };
        Ok(Some(AdaptationPlan::new(&Entry::new(path, ENTRY, &value))?))
    }

    fn new(root: &Entry<'_>) -> Result<AdaptationPlan, NnUnetError> {
        if let Some((name, value)) = unknown(root, &ENTRIES)?.into_iter().next() {
            return Err(value.refuse(format!("plans with `{name}` are not supported")));
        }
        let channels = root.need("pretrain_num_input_channels")?.whole(1, MOST_FEATURES)?;
        let of_patch = root.need("recommended_downstream_patchsize")?;
        let patch = triple(&of_patch)?;
        let network =
            network(&root.need("architecture_plans")?, channels, Patch { entry: &of_patch, extents: patch })?;
        let encoder = encoder(root, &network, channels)?;
        network.check_patch(patch).map_err(|source| of_patch.refuse(source.to_string()))?;
        let plan = root.need("pretrain_plan")?;
        let mut unread: Vec<String> = names(unknown(&plan, &OF_PRETRAINING)?);
        expect_axes(&plan)?;
        let configurations = plan.need("configurations")?;
        let Some(all) = configurations.value().as_object() else {
            return Err(configurations.refuse("it must have entries of names"));
        };
        let mut pretraining = Vec::new();
        for name in all.keys() {
            let configuration = configurations.need(name)?;
            unread.extend(names(unknown(&configuration, &OF_CONFIGURATION)?));
            pretraining.push(Pretraining {
                name: name.clone(),
                spacing: spacing(&configuration)?,
                normalisations: normalisations(&configuration)?,
            });
        }
        if pretraining.is_empty() {
            return Err(configurations.refuse("it must have a configuration"));
        }
        Ok(AdaptationPlan { encoder, network, patch, pretraining, unread })
    }
}

/// Entries with other names than those that are known.
pub(super) fn unknown<'a>(
    entry: &Entry<'a>,
    known: &[&str],
) -> Result<Vec<(&'a str, Entry<'a>)>, NnUnetError> {
    let Some(object) = entry.value().as_object() else {
        return Err(entry.refuse("it must have entries of names"));
    };
    let unknown = object.keys().filter(|name| !known.contains(&name.as_str()));
    let found =
        unknown.filter_map(|name| Some(entry.get(name).transpose()?.map(|value| (name.as_str(), value))));
    found.collect()
}

fn names(entries: Vec<(&str, Entry<'_>)>) -> Vec<String> {
    entries.into_iter().map(|(_, entry)| entry.key().to_string()).collect()
}

/// The network of a plan: one that nnU-Net knows by name (`get_network_from_name`), or a class with its arguments.
fn network(architecture: &Entry<'_>, channels: usize, patch: Patch<'_, '_>) -> Result<Network, NnUnetError> {
    const ENTRIES: [&str; 3] = ["arch_class_name", "arch_kwargs", "arch_kwargs_requiring_import"];
    if let Some((name, value)) = unknown(architecture, &ENTRIES)?.into_iter().next() {
        return Err(value.refuse(format!("networks with `{name}` are not supported")));
    }
    let class = architecture.need("arch_class_name")?;
    let name = class.text()?.rsplit('.').next().unwrap_or_default();
    if !KNOWN.contains(&name) {
        let (path, name) = (class.path().into(), class.text()?.into());
        return Err(NnUnetError::Unknown {
            path,
            what: "pre-trained network",
            name,
            known: KNOWN.join(", "),
        });
    }
    if name == WITH_ARGUMENTS {
        return Ok(described(&architecture.need("arch_kwargs")?, channels, patch)?.into());
    }
    let arguments = architecture.get("arch_kwargs")?;
    let size = size_of(name);
    if name != "ResEncL" && size.is_none() {
        let arguments = architecture.need("arch_kwargs")?;
        return pretrained(&class, &arguments, Ends { inputs: channels, outputs: 1 });
    }
    if let Some(arguments) = arguments {
        return Err(arguments.refuse(format!("{name} has no arguments")));
    }
    if let Some(size) = size {
        return Ok(sized(size, channels, patch)?.into());
    }
    let mut strides = [[2; 3]; 6];
    strides[0] = [1; 3];
    let mut network =
        ResidualEncoderUNet::new(channels, 1, &[32, 64, 128, 256, 320, 320], &[[3; 3]; 6], &strides);
    network.shape.deep_supervision = 0;
    Ok(network.into())
}

/// The names of the encoder, in which the convolution of the image must be where its network has it.
fn encoder(root: &Entry<'_>, network: &Network, channels: usize) -> Result<PretrainedEncoder, NnUnetError> {
    let stem = root.need("key_to_stem")?.text()?.to_string();
    let encoder = root.need("key_to_encoder")?.text()?.to_string();
    let inputs = root.need("keys_to_in_proj")?;
    let expected = network.encoder_names().and_then(|names| names.input.strip_prefix(names.stem));
    let expected = format!("{stem}{}", expected.unwrap_or_default());
    let listed =
        inputs.list()?.iter().map(|input| input.text().map(str::to_string)).collect::<Result<Vec<_>, _>>()?;
    match listed.contains(&expected) {
        true => {
            let grid = grid(root, network, &encoder)?;
            Ok(PretrainedEncoder { encoder, stem, channels, grid })
        }
        false => Err(inputs.refuse(format!("it must name `{expected}`, the convolution of the image"))),
    }
}

/// The grid of tokens that a transformer was trained with, to which its vectors of positions belong; `None` of other networks.
fn grid(root: &Entry<'_>, network: &Network, encoder: &str) -> Result<Option<[usize; 3]>, NnUnetError> {
    let embedding = root.get("key_to_lpe")?;
    let Some(positions) = network.encoder_names().and_then(|names| Some((names.positions?, names.stages)))
    else {
        return match embedding {
            None => Ok(None),
            Some(embedding) => Err(embedding.refuse("this network has no positional embeddings")),
        };
    };
    let (positions, stages) = positions;
    let embedding = root.need("key_to_lpe")?;
    let name = positions.name.strip_prefix(stages);
    let name =
        name.ok_or_else(|| embedding.refuse("this network has its positions outside of its encoder"))?;
    let expected = format!("{encoder}{name}");
    if embedding.text()? != expected {
        return Err(embedding.refuse(format!("it must be `{expected}`")));
    }
    let patch = match root.get("pretrain_patch_size")? {
        Some(patch) => patch,
        None => {
            let configurations = root.need("pretrain_plan")?.need("configurations")?;
            let names = configurations.value().as_object().into_iter().flat_map(|object| object.keys());
            let patches = names
                .map(|name| configurations.need(name)?.need("patch_size"))
                .collect::<Result<Vec<_>, _>>()?;
            let [first, others @ ..] = &patches[..] else {
                return Err(configurations.refuse("it must have a configuration"));
            };
            if others.iter().any(|other| other.value() != first.value()) {
                return Err(configurations.refuse("its configurations must have one patch"));
            }
            first.clone()
        }
    };
    let extents = triple(&patch)?;
    // Tokens have one size in all networks of this kind.
    let network = Primus::new(1, 1, NetworkSize::S, 1, extents);
    network.check().map_err(|source| patch.refuse(source.to_string()))?;
    Ok(network.encoder_names().and_then(|names| names.positions).map(|positions| positions.grid))
}

/// Checks that axes have the order of the images.
fn expect_axes(plan: &Entry<'_>) -> Result<(), NnUnetError> {
    let Some(axes) = plan.get("transpose_forward")? else { return Ok(()) };
    match axes.wholes(3, 0, 2)?[..] == [0, 1, 2] {
        true => Ok(()),
        false => Err(axes.refuse("plans that exchange axes are not supported")),
    }
}

fn triple(entry: &Entry<'_>) -> Result<[usize; 3], NnUnetError> {
    const MOST: usize = 4096;
    let extents = entry.wholes(3, 1, MOST)?;
    <[usize; 3]>::try_from(extents).map_err(|_| entry.refuse("it must be a list of three"))
}

fn spacing(configuration: &Entry<'_>) -> Result<Option<Spacing>, NnUnetError> {
    let Some(entry) = configuration.get("spacing")? else { return Ok(None) };
    let lengths: Vec<f64> =
        entry.list_of(3)?.iter().map(|length| length.number()).collect::<Result<_, _>>()?;
    let lengths = <[f64; 3]>::try_from(lengths).map_err(|_| entry.refuse("it must be a list of three"))?;
    let spacing = Spacing(lengths);
    check_spacing(spacing.into()).map_err(|source| entry.refuse(source.to_string()))?;
    Ok(Some(spacing))
}

fn normalisations(configuration: &Entry<'_>) -> Result<Vec<Normalisation>, NnUnetError> {
    let one = |entry: &Entry<'_>| {
        let name = entry.text()?;
        let known = NORMALISATIONS.iter().find(|(known, _)| *known == name);
        known.map(|(_, normalisation)| *normalisation).ok_or_else(|| NnUnetError::Unknown {
            path: entry.path().into(),
            what: "normalisation",
            name: name.into(),
            known: NORMALISATIONS.map(|(name, _)| name).join(", "),
        })
    };
    configuration.need("normalization_schemes")?.list()?.iter().map(one).collect()
}
