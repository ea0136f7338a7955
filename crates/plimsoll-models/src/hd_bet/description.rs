//! The `model.toml` of an imported model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_data::{
    Channel, Interpolation, LabelTies, MaskedNormalisation, NnUnetSteps, Normalisation, Planes, Preparation,
    Resizing, StepOrder, TargetSpacing,
};
use plimsoll_graph::DType;
use plimsoll_memory::Budget;
use plimsoll_nn::weights::WeightSource;
use plimsoll_nn::{Architecture, HdBet, predict};
use plimsoll_run::bounds::check_spacing;
use plimsoll_run::{FoldName, LoadOptions, expect_weights, printable};
use plimsoll_volume::Spacing;
use serde::{Deserialize, Serialize};

use super::{FOLDS, PROGRAM, weights_of};
use crate::imports::{program_of, read_description};
use crate::{Answers, Interpolated, ModelError, PackageError, SegmentationModel, WindowLayout};

/// HD-BET's spacing, in millimetres.
const SPACING: [f64; 3] = [1.5; 3];
/// HD-BET's least window.
const LEAST_WINDOW: [usize; 3] = [128; 3];
/// The names of the classes.
const LABELS: [&str; 2] = ["background", "brain"];

/// A `model.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    program: String,
    /// The files of the folds.
    weights: Vec<PathBuf>,
    network: NetworkEntry,
    /// In millimetres, along depth, height and width of the canonical orientation.
    spacing: [f64; 3],
    /// The least extent of the window.
    least_window: [usize; 3],
    /// The names of the classes.
    labels: [String; 2],
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkEntry {
    init_filters: usize,
}

/// Returns the text of a description of a network.
pub(super) fn text_of(net: &HdBet) -> Result<String, String> {
    let file = File {
        program: PROGRAM.into(),
        weights: (0..FOLDS).map(|fold| weights_of(fold).into()).collect(),
        network: NetworkEntry { init_filters: net.init_filters },
        spacing: SPACING,
        least_window: LEAST_WINDOW,
        labels: LABELS.map(String::from),
    };
    toml::to_string(&file).map_err(|problem| problem.to_string())
}

/// A model of HD-BET.
#[derive(Clone, Debug)]
pub struct HdBetModel {
    /// The model.
    pub model: SegmentationModel,
    /// The spacing that images are brought to, in millimetres along depth, height and width of the canonical orientation.
    pub spacing: [f64; 3],
}

impl HdBetModel {
    /// Returns `true` if a `model.toml` is of HD-BET. One that cannot be read is of none.
    pub(crate) fn is_one(path: &Path) -> bool {
        program_of(path).is_some_and(|program| program == PROGRAM)
    }

    /// Opens a `model.toml`, with some of its folds, or with all if none are named.
    ///
    /// # Errors
    /// Returns an error if it or its weights cannot be read or do not fit each other, it lacks the fold, or there is no room to read them.
    pub fn open(path: &Path, folds: &[FoldName], budget: &Budget) -> Result<HdBetModel, ModelError> {
        let refuse = |why: String| ModelError::from(PackageError::description(path, &why));
        let (file, _held) = read_description::<File>(path, budget)?;
        let net = HdBet::new(1, LABELS.len(), file.network.init_filters);
        net.check().map_err(|fault| refuse(format!("network: {fault}")))?;
        let spacing = TargetSpacing::Volume(Spacing(file.spacing));
        check_spacing(spacing).map_err(|fault| refuse(format!("spacing: {fault}")))?;
        net.check_patch(file.least_window).map_err(|fault| refuse(format!("least_window: {fault}")))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let all: Vec<WeightSource> =
            file.weights.iter().map(|name| WeightSource::from(folder.join(name))).collect();
        let chosen = folds.iter().map(|fold| {
            let number = match fold {
                FoldName::Number(number) => Some(*number),
                FoldName::All => None,
            };
            let weights = number.and_then(|number| all.get(number).cloned());
            weights.ok_or_else(|| ModelError::NoFold { path: path.into(), fold: *fold })
        });
        let weights = if folds.is_empty() { all.clone() } else { chosen.collect::<Result<Vec<_>, _>>()? };
        if weights.is_empty() {
            return Err(refuse("it names no weights".into()));
        }
        let program = predict(&net, net.extents().next_larger([1; 3]), 1, DType::F32)?;
        for source in &weights {
            expect_weights(source, &net, &program, LoadOptions::default(), budget)?;
        }
        let channel = Channel { name: "T1".into(), normalisation: Normalisation::ZScore };
        let model = SegmentationModel {
            net: net.into(),
            patch: file.least_window,
            precision: DType::F32,
            weights,
            channels: vec![channel],
            file_ending: ".nii.gz".into(),
            foreground: BTreeMap::new(),
            preparation: Preparation::NnUnet(steps(spacing)),
            earlier_labels: 0,
            answers: Answers::Classes(LABELS.len()),
            outputs: file.labels.to_vec(),
            mirror_axes: [true; 3],
            windows: WindowLayout::Whole { least: file.least_window },
            interpolated: Interpolated::MeanProbabilities,
        };
        Ok(HdBetModel { model, spacing: file.spacing })
    }

    /// A description in lines.
    pub fn lines(&self) -> Vec<String> {
        let SegmentationModel { net, patch: [d, h, w], outputs, weights, .. } = &self.model;
        let lines = [
            format!("network   {}", net.describe()),
            format!("windows   one over all of the image at {:?} mm, {d} × {h} × {w} at least", self.spacing),
            format!("labels    {}", outputs.join(", ")),
            format!("folds     {}, whose probabilities are averaged", weights.len()),
        ];
        lines.iter().map(|line| printable(line).replace(['\n', '\t'], " ")).collect()
    }
}

/// HD-BET's preparation at a spacing.
fn steps(spacing: TargetSpacing) -> NnUnetSteps {
    let resizing = |order| Resizing { order, order_across: order, slices: Some(false) };
    NnUnetSteps {
        order: StepOrder::HdBet,
        transposed: [0, 1, 2],
        reorients: true,
        planes: Planes::Any,
        spacing,
        channels: vec![MaskedNormalisation { normalisation: Normalisation::ZScore, inside_mask: false }],
        images: resizing(Interpolation::Cubic),
        logits: resizing(Interpolation::Nearest),
        labels: resizing(Interpolation::Nearest),
        ties: LabelTies::Nearest,
    }
}
