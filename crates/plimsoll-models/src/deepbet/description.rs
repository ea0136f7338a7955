//! The `model.toml` of an imported model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_data::{Channel, LocatedSteps, Normalisation, Preparation};
use plimsoll_graph::DType;
use plimsoll_memory::Budget;
use plimsoll_nn::weights::WeightSource;
use plimsoll_nn::{Architecture, LinkNet, predict};
use plimsoll_run::{LoadOptions, expect_weights, printable};
use serde::{Deserialize, Serialize};

use super::network::CLASSES;
use super::{NETWORKS, PROGRAM};
use crate::imports::{program_of, read_description};
use crate::{Answers, Interpolated, ModelError, PackageError, SegmentationModel, WindowLayout};

/// The names of the classes.
const LABELS: [&str; CLASSES] = ["background", "brain"];

/// deepbet's preparation: `run_model` and `normalize` of its code.
const STEPS: LocatedSteps = LocatedSteps {
    coarse: [128; 3],
    fine: [256; 3],
    margin: 0.1,
    least_share: 0.02,
    quantiles: [0.005, 0.995],
    mean: 0.449,
    deviation: 0.226,
};

/// A `model.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    program: String,
    /// The files of the two networks: the network that finds the box, and the network that marks the brain in it.
    weights: [PathBuf; 2],
    /// The extents at which the networks see an image and a box of it, from left to right, from back to front, from bottom to top.
    coarse: [usize; 3],
    fine: [usize; 3],
    /// The share by which the box grows to each side.
    margin: f64,
    network: NetworkEntry,
    /// The names of the classes.
    labels: [String; CLASSES],
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkEntry {
    init_filters: usize,
}

/// Returns the text of a description of a network.
pub(super) fn text_of(net: &LinkNet) -> Result<String, String> {
    let file = File {
        program: PROGRAM.into(),
        weights: NETWORKS.map(|[_, written]| written.into()),
        coarse: STEPS.coarse,
        fine: STEPS.fine,
        margin: STEPS.margin,
        network: NetworkEntry { init_filters: net.init_filters },
        labels: LABELS.map(String::from),
    };
    toml::to_string(&file).map_err(|problem| problem.to_string())
}

/// A model of deepbet.
#[derive(Clone, Debug)]
pub struct DeepbetModel {
    /// The model.
    pub model: SegmentationModel,
    /// Its two looks at an image.
    pub steps: LocatedSteps,
}

impl DeepbetModel {
    /// Returns `true` if a `model.toml` is of deepbet. One that cannot be read is of none.
    pub(crate) fn is_one(path: &Path) -> bool {
        program_of(path).is_some_and(|program| program == PROGRAM)
    }

    /// Opens a `model.toml`.
    ///
    /// # Errors
    /// Returns an error if it or its weights cannot be read or do not fit each other, or there is no room to read them.
    pub fn open(path: &Path, budget: &Budget) -> Result<DeepbetModel, ModelError> {
        let refuse = |why: String| ModelError::from(PackageError::description(path, &why));
        let (file, _held) = read_description::<File>(path, budget)?;
        let net = LinkNet::new(1, CLASSES, file.network.init_filters);
        net.check().map_err(|fault| refuse(format!("network: {fault}")))?;
        for (name, extent) in [("coarse", file.coarse), ("fine", file.fine)] {
            net.check_patch(extent).map_err(|fault| refuse(format!("{name}: {fault}")))?;
        }
        if !(0.0..=1.0).contains(&file.margin) {
            return Err(refuse(format!("margin: it is {}, but a share from 0 to 1 is needed", file.margin)));
        }
        let steps = LocatedSteps { coarse: file.coarse, fine: file.fine, margin: file.margin, ..STEPS };
        let folder = path.parent().unwrap_or(Path::new(""));
        let weights: Vec<WeightSource> =
            file.weights.iter().map(|name| WeightSource::from(folder.join(name))).collect();
        let program = predict(&net, net.extents().next_larger([1; 3]), 1, DType::F32)?;
        for source in &weights {
            expect_weights(source, &net, &program, LoadOptions::default(), budget)?;
        }
        let channel = Channel { name: "T1".into(), normalisation: Normalisation::ZScore };
        let model = SegmentationModel {
            net: net.into(),
            patch: steps.coarse,
            precision: DType::F32,
            weights,
            channels: vec![channel],
            file_ending: ".nii.gz".into(),
            foreground: BTreeMap::new(),
            preparation: Preparation::Located(steps.clone()),
            earlier_labels: 0,
            answers: Answers::Classes(CLASSES),
            outputs: file.labels.to_vec(),
            mirror_axes: [false; 3],
            windows: WindowLayout::Even,
            interpolated: Interpolated::Logits,
        };
        Ok(DeepbetModel { model, steps })
    }

    /// A description in lines.
    pub fn lines(&self) -> Vec<String> {
        let SegmentationModel { net, outputs, .. } = &self.model;
        let ([a, b, c], [d, e, f]) = (self.steps.coarse, self.steps.fine);
        let lines = [
            format!("networks  2 × {}", net.describe()),
            format!(
                "windows   all of the image at {a} × {b} × {c} voxels, then the box of the brain at {d} × {e} × {f}"
            ),
            format!("labels    {}", outputs.join(", ")),
        ];
        lines.iter().map(|line| printable(line).replace(['\n', '\t'], " ")).collect()
    }
}
