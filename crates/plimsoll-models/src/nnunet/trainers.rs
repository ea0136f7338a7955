//! Trainers: most change how a network is trained, few the network.

use std::path::Path;

use plimsoll_nn::NetworkSize;

use super::NnUnetError;

/// A trainer's change of the network of the plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trainer {
    /// It is as the plans say.
    AsPlanned,
    /// It has batch normalisation instead of the plans' normalisation.
    BatchNorm,
    /// It is a Primus, for patches of the plans.
    Primus {
        /// Its size.
        size: NetworkSize,
        /// Its version.
        version: usize,
    },
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
/// Trainers of nnU-Net 2.8.1 that train a Primus, with its size and version.
const PRIMUS: [(&str, NetworkSize, usize); 18] = [
    ("nnUNet_Primus_S_Trainer", NetworkSize::S, 1),
    ("nnUNet_Primus_B_Trainer", NetworkSize::B, 1),
    ("nnUNet_Primus_M_Trainer", NetworkSize::M, 1),
    ("nnUNet_Primus_M_Trainer_BS8", NetworkSize::M, 1),
    ("nnUNet_Primus_M_Trainer_BS8_2e4", NetworkSize::M, 1),
    ("nnUNet_Primus_L_Trainer", NetworkSize::L, 1),
    ("nnUNet_PrimusV2S_Trainer", NetworkSize::S, 2),
    ("nnUNet_PrimusV2B_Trainer", NetworkSize::B, 2),
    ("nnUNet_PrimusV2M_Trainer", NetworkSize::M, 2),
    ("nnUNet_PrimusV2L_Trainer", NetworkSize::L, 2),
    ("nnUNet_PrimusV3S_Trainer", NetworkSize::S, 3),
    ("nnUNet_PrimusV3B_Trainer", NetworkSize::B, 3),
    ("nnUNet_PrimusV3M_Trainer", NetworkSize::M, 3),
    ("nnUNet_PrimusV3L_Trainer", NetworkSize::L, 3),
    ("_Primus_S_96_BS1", NetworkSize::S, 1),
    ("_Primus_B_96_BS1", NetworkSize::B, 1),
    ("_Primus_M_96_BS1", NetworkSize::M, 1),
    ("_Primus_L_48_BS1", NetworkSize::L, 1),
];
/// The trainer of a batch of eight beside those, which uses the network of the plans.
const LARGE_BATCH: &str = "nnUNet_Trainer_BS8";
const PREFIX: &str = "nnUNetTrainer";
const BATCH_NORM: &str = "nnUNetTrainerBN";

/// The change of the network by a trainer that a checkpoint names.
pub(super) fn trainer(checkpoint: &Path, name: &str) -> Result<Trainer, NnUnetError> {
    if name == BATCH_NORM {
        return Ok(Trainer::BatchNorm);
    }
    if let Some((_, size, version)) = PRIMUS.iter().find(|(known, ..)| *known == name) {
        return Ok(Trainer::Primus { size: *size, version: *version });
    }
    if name == LARGE_BATCH || name.strip_prefix(PREFIX).is_some_and(|rest| AS_PLANNED.contains(&rest)) {
        return Ok(Trainer::AsPlanned);
    }
    let known = AS_PLANNED
        .iter()
        .map(|rest| format!("{PREFIX}{rest}"))
        .chain([BATCH_NORM.into(), LARGE_BATCH.into()]);
    let known = known.chain(PRIMUS.iter().map(|(name, ..)| (*name).to_string()));
    let known = known.collect::<Vec<_>>().join(", ");
    Err(NnUnetError::Unknown { path: checkpoint.into(), what: "trainer", name: name.into(), known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trainers_of_primus_make_its_sizes_and_versions_and_unknown_ones_are_refused_with_all_known() {
        let of = |name: &str| trainer(Path::new("checkpoint_final.pth"), name);
        let found = of("nnUNet_Primus_M_Trainer_BS8").unwrap();
        assert_eq!(found, Trainer::Primus { size: NetworkSize::M, version: 1 });
        let found = of("nnUNet_PrimusV3L_Trainer").unwrap();
        assert_eq!(found, Trainer::Primus { size: NetworkSize::L, version: 3 });
        assert_eq!(of("nnUNet_Trainer_BS8").unwrap(), Trainer::AsPlanned);
        let error = of("nnUNet_PrimusV4S_Trainer").unwrap_err().to_string();
        assert!(error.contains("nnUNet_PrimusV4S_Trainer"), "{error}");
        assert!(error.contains("nnUNet_PrimusV2M_Trainer") && error.contains("nnUNetTrainerBN"), "{error}");
    }
}
