//! Differences of two classifiers.

use serde::Serialize;

use crate::comparison::Verdict;

/// The test of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TestName {
    /// McNemar's exact test: see [`mcnemar`](super::mcnemar).
    Mcnemar,
    /// The same of several repeats: see [`sign_flip`](super::sign_flip).
    SignFlip,
    /// The normal distribution of the difference of two areas: see [`delong`](super::delong).
    Delong,
    /// Resamples of images: see [`bootstrap_p`](super::bootstrap_p).
    Bootstrap,
}

impl TestName {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            TestName::Mcnemar => "mcnemar",
            TestName::SignFlip => "sign_flip",
            TestName::Delong => "delong",
            TestName::Bootstrap => "bootstrap",
        }
    }
}

/// A test of the difference of two classifiers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ImageTest {
    /// Which.
    pub test: TestName,
    /// Images that only the first gets right, and only the second; of several repeats those that more of its repeats do. None of tests of other
    /// things.
    pub right_in_one_alone: Option<[u64; 2]>,
    /// The two-sided p value.
    pub p: f64,
}

/// The difference of two classifiers in a score.
#[derive(Clone, Debug, Serialize)]
pub struct ImageDifference {
    /// The class; none of all classes together.
    pub class: Option<String>,
    /// The first classifier.
    pub first: String,
    /// The second, whose score is subtracted.
    pub second: String,
    /// Images that the score is of.
    pub images: usize,
    /// The scores of both; `None` if undefined.
    pub scores: [Option<f64>; 2],
    /// The first less the second.
    pub difference: Option<f64>,
    /// Its interval: the normal one of areas, else by the percentile bootstrap.
    pub interval: Option<[f64; 2]>,
    /// Its standard error: of areas by DeLong et al., else over resamples.
    pub standard_error: Option<f64>,
    /// The test.
    pub test: Option<ImageTest>,
    /// Its p value after Holm's correction, over all pairs and classes of the score.
    pub p_holm: Option<f64>,
    /// The conclusion from the images.
    pub verdict: Verdict,
}
