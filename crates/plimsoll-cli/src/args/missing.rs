//! The convention for missing scores, as a flag.

use clap::ValueEnum;
use plimsoll_metrics::Missing;

/// The treatment in means of a score that is undefined because only one of prediction and reference has the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MissingScores {
    /// Leave the case out, as nnU-Net does with undefined scores.
    #[default]
    Ignore,
    /// The worst value: 0 of a share, an infinite distance, as DeepMind's surface-distance and MONAI's Hausdorff distance.
    Worst,
    /// The worst value, but the diagonal of the image for a distance, as BraTS and other challenges.
    Diagonal,
}

impl From<MissingScores> for Missing {
    fn from(missing: MissingScores) -> Missing {
        match missing {
            MissingScores::Ignore => Missing::Ignore,
            MissingScores::Worst => Missing::Worst,
            MissingScores::Diagonal => Missing::Diagonal,
        }
    }
}
