//! Trainers: most change how a network is trained, few the network.

use std::path::Path;

use super::NnUnetError;

/// A trainer's change of the network of the plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trainer {
    /// It is as the plans say.
    AsPlanned,
    /// It has batch normalisation instead of the plans' normalisation.
    BatchNorm,
}

/// Trainers of nnU-Net 2.8.1 that use the network of the plans, without their common prefix.
const AS_PLANNED: [&str; 57] = [
    "",
    "_1epoch",
    "_5epochs",
    "_10epochs",
    "_20epochs",
    "_50epochs",
    "_100epochs",
    "_250epochs",
    "_500epochs",
    "_750epochs",
    "_2000epochs",
    "_4000epochs",
    "_8000epochs",
    "_250epochs_NoMirroring",
    "_2000epochs_NoMirroring",
    "_4000epochs_NoMirroring",
    "_8000epochs_NoMirroring",
    "_DASegOrd0",
    "_DASegOrd0_NoMirroring",
    "_noDummy2DDA",
    "_onlyMirror01",
    "_onlyMirror01_1500ep",
    "_onlyMirror01_DA5",
    "_onlyMirror01_DASegOrd0",
    "_probabilisticOversampling",
    "_probabilisticOversampling_010",
    "_probabilisticOversampling_033",
    "_warmup",
    "Adam",
    "Adam1en3",
    "Adam3en4",
    "Adan",
    "Adan1en1",
    "Adan1en3",
    "Adan3en4",
    "AdanCosAnneal",
    "Benchmark_5epochs",
    "Benchmark_5epochs_noDataLoading",
    "CELoss",
    "CELoss_5epochs",
    "CosAnneal",
    "DA5",
    "DA5_10epochs",
    "DA5Segord0",
    "DA5ord0",
    "DiceCELoss_noSmooth",
    "DiceLoss",
    "DiceTopK10Loss",
    "NoDA",
    "NoDeepSupervision",
    "NoMirroring",
    "Topk10Loss",
    "Topk10LossLS01",
    "VanillaAdam",
    "VanillaAdam1en3",
    "VanillaAdam3en4",
    "VanillaRAdam",
];
const PREFIX: &str = "nnUNetTrainer";
const BATCH_NORM: &str = "nnUNetTrainerBN";

/// The change of the network by a trainer that a checkpoint names.
pub(super) fn trainer(checkpoint: &Path, name: &str) -> Result<Trainer, NnUnetError> {
    if name == BATCH_NORM {
        return Ok(Trainer::BatchNorm);
    }
    if name.strip_prefix(PREFIX).is_some_and(|rest| AS_PLANNED.contains(&rest)) {
        return Ok(Trainer::AsPlanned);
    }
    let known = AS_PLANNED.iter().map(|rest| format!("{PREFIX}{rest}")).chain([BATCH_NORM.into()]);
    let known = known.collect::<Vec<_>>().join(", ");
    Err(NnUnetError::Unknown { path: checkpoint.into(), what: "trainer", name: name.into(), known })
}
