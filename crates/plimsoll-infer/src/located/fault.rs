//! Reasons for which a model of two networks marks nothing in an image.

/// The reason for which a model of two networks cannot mark an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocatedFault {
    /// Intensities cannot be normalised.
    #[error("its intensities cannot be normalised: between two quantiles, all are equal")]
    Constant,
    /// The first network marks nothing that has a box.
    #[error("the first network finds no box: nothing is marked, or less than {percent} % of each plane")]
    NoBox {
        /// The share of a plane that must be marked, in hundredths.
        percent: u32,
    },
    /// The second network marks nothing.
    #[error("the second network marks nothing in the box of the first")]
    NoMark,
    /// Probabilities are wanted.
    #[error("its model keeps no probabilities: its labels are of one component, without holes")]
    Probabilities,
}

impl LocatedFault {
    /// Returns the remedy.
    pub fn remedy(self) -> &'static str {
        match self {
            LocatedFault::Constant => "check the image: it must have contrast",
            LocatedFault::NoBox { .. } | LocatedFault::NoMark => {
                "check that the image shows what the model was trained for, and that its orientation is right"
            }
            LocatedFault::Probabilities => "predict labels alone, without probabilities",
        }
    }
}
