//! The spacing at which a single case is seen, where that is not the one of training.

use plimsoll_data::TargetSpacing;
use plimsoll_volume::Spacing;

/// The spacing at which a case is seen in place of its model's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CaseSpacing {
    /// The spacing of its first image.
    Native,
    /// In millimetres, along the axes of the network.
    Of(TargetSpacing),
}

impl CaseSpacing {
    /// Returns the target spacing of an image with a spacing along the axes of the network.
    pub(crate) fn target(self, own: Spacing) -> TargetSpacing {
        match self {
            CaseSpacing::Native => own.into(),
            CaseSpacing::Of(spacing) => spacing,
        }
    }
}

/// The view of a network on a case, from the headers of its images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseView {
    /// Windows, each fold counted: of images that are cut to what is not zero, as many as there are at most.
    pub windows: usize,
    /// The spacing that images are brought to, along the axes of the network.
    pub spacing: Spacing,
}
