//! Comparisons of several classifiers by their predictions of the same images.
//!
//! Unlike label maps, images have no scores of their own: a score is one of all images together. [`PairedClassifiers`] puts the tables of all
//! candidates side by side, image by image; [`compare_classifiers`] tests each pair by what fits the score: images that only one of both gets
//! right ([`mcnemar`], [`sign_flip`]), areas under ROC curves of the same images ([`delong`]), or resamples of images ([`bootstrap_p`]). Repeats of
//! a candidate are averaged before anything else: a second training is no further image.

mod bootstrap;
mod delong;
mod difference;
mod pairing;
mod report;
mod score;
mod signs;
mod table;
mod verdict;

pub use bootstrap::bootstrap_p;
pub use delong::{AreaDifference, delong};
pub use difference::{ImageDifference, ImageTest, TestName};
pub use pairing::{Classifier, ClassifierRepeat, PairedClassifiers};
pub use report::{
    ClassifierComparison, ClassifierSettings, ScoreOfClassifier, ScoreOfClassifiers, compare_classifiers,
};
pub use score::ImageScore;
pub use signs::{mcnemar, sign_flip};
