//! Cases with far more windows than the others. Most have a wrong header, and all take hours. On request they are predicted at another
//! spacing than the training spacing.

use plimsoll_data::{Preparation, TargetSpacing};
use plimsoll_infer::{CaseRequest, CaseSpacing, CaseView, Predictor};
use plimsoll_report::duration::{duration, grouped};
use plimsoll_volume::Spacing;
use serde::Serialize;

use crate::context::Context;
use crate::error::{Error, Outcome};

/// A case with more windows than this multiple of the median is an outlier.
const TIMES_THE_MEDIAN: usize = 20;

/// So is one with more windows than this, whatever the others have.
const MANY: usize = 2000;

/// The spacing that is offered if the image's own would take no fewer windows, as a multiple of the training spacing.
const COARSER: f64 = 2.0;

/// The treatment of outliers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OutlierRemedy {
    /// They are predicted like all others, and no alternative is offered.
    None,
    /// They are predicted like all others, and another spacing is offered.
    Offer,
    /// They are seen at another spacing.
    See(CaseSpacing),
}

impl OutlierRemedy {
    /// The treatment that a command with `--outlier-spacing` requests.
    pub fn asked(spacing: Option<CaseSpacing>) -> OutlierRemedy {
        spacing.map_or(OutlierRemedy::Offer, OutlierRemedy::See)
    }
}

/// A case whose windows are counted.
pub struct Counting<'a> {
    /// It, and the labels of an earlier network that it has.
    pub request: CaseRequest<'a>,
    /// `true` if its prediction exists and is kept.
    pub is_kept: bool,
}

/// The numbers of windows of all cases. Kept predictions count too, so that the outliers do not change from call to call.
#[derive(Clone, Debug, Default)]
pub struct WindowCounts {
    cases: Vec<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    case: String,
    /// At the spacing of training.
    windows: usize,
    is_kept: bool,
    other_spacing: Option<OtherSpacing>,
}

/// A spacing other than the training spacing at which a case has fewer windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OtherSpacing {
    /// `true` if the case is predicted at this spacing, `false` if it only could be.
    pub is_used: bool,
    /// The flag that asks for it.
    pub flag: String,
    /// The spacing of training in millimetres, along the axes of the network.
    pub trained_mm: Spacing,
    /// The spacing that the network sees instead.
    pub seen_mm: Spacing,
    /// The windows that the case then has, each fold counted.
    pub windows: usize,
}

/// A case with far more windows than the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlier {
    /// Its windows at the spacing of training, each fold counted.
    pub windows: usize,
    /// The median over all cases.
    pub median: usize,
    /// The other spacing that is used or offered; `None` if no spacing takes fewer windows.
    pub other_spacing: Option<OtherSpacing>,
}

impl WindowCounts {
    /// Counts the windows of cases from their headers; unreadable headers are reported when their cases are predicted. From then on the
    /// predictor sees outliers as the remedy says.
    ///
    /// # Errors
    /// Returns an error if the requested spacing is impossible, or takes no fewer windows for an outlier that is to be predicted.
    pub fn count(
        predictor: &mut Predictor,
        cases: &[Counting<'_>],
        remedy: OutlierRemedy,
        context: &Context,
    ) -> Outcome<WindowCounts> {
        let mut windows = WindowCounts::default();
        let mut views = Vec::new();
        for counting in cases {
            if let Ok(view) = predictor.view(&counting.request, None) {
                windows.add(&counting.request.case.id, view.windows, counting.is_kept);
                views.push((counting, view));
            }
        }
        let Some(median) = windows.lower_median() else { return Ok(windows) };
        let mut has_outlier = false;
        for (counted, (Counting { request, is_kept }, trained)) in windows.cases.iter_mut().zip(views) {
            let is_outlier = is_far(counted.windows, median);
            has_outlier |= is_outlier;
            if !is_outlier || *is_kept {
                continue;
            }
            counted.other_spacing = match remedy {
                OutlierRemedy::None => None,
                OutlierRemedy::Offer => offered(predictor, request, trained),
                OutlierRemedy::See(spacing) => Some(used(predictor, request, trained, spacing)?),
            };
        }
        if matches!(remedy, OutlierRemedy::See(_)) && !has_outlier {
            context.warn(format_args!(
                "no case has far more windows than the others: ‹outlier_spacing› changes none"
            ));
        }
        Ok(windows)
    }

    fn add(&mut self, case: &str, windows: usize, is_kept: bool) {
        self.cases.push(Counted { case: case.into(), windows, is_kept, other_spacing: None });
    }

    fn find(&self, case: &str) -> Option<&Counted> {
        self.cases.iter().find(|counted| counted.case == case)
    }

    /// The other spacing at which a case is seen, if it is.
    pub fn used(&self, case: &str) -> Option<&OtherSpacing> {
        self.find(case)?.other_spacing.as_ref().filter(|other| other.is_used)
    }

    /// The number of windows of the cases after this one, in units of the mean number up to it. Kept cases do not count. `None` for an
    /// unknown case.
    pub fn behind(&self, case: &str) -> Option<f64> {
        let left: Vec<&Counted> = self.cases.iter().filter(|counted| !counted.is_kept).collect();
        let place = left.iter().position(|counted| counted.case == case)?;
        let sum = |of: &[&Counted]| of.iter().map(|counted| counted.computed() as f64).sum::<f64>();
        let (before, behind) = left.split_at(place + 1);
        Some(sum(behind) / sum(before) * before.len() as f64).filter(|cases| cases.is_finite())
    }

    /// Returns the middle number of windows, the lower of two, or `None` without a case.
    pub fn lower_median(&self) -> Option<usize> {
        let mut all: Vec<usize> = self.cases.iter().map(|counted| counted.windows).collect();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2).copied()
    }

    /// Returns the case as an outlier if it has far more windows than the others.
    pub fn outlier(&self, case: &str) -> Option<Outlier> {
        let (Counted { windows, other_spacing, .. }, median) = (self.find(case)?, self.lower_median()?);
        let other_spacing = other_spacing.clone();
        is_far(*windows, median).then_some(Outlier { windows: *windows, median, other_spacing })
    }
}

/// Returns `true` if a number of windows is far above the median.
fn is_far(windows: usize, median: usize) -> bool {
    windows > MANY || windows > median.saturating_mul(TIMES_THE_MEDIAN)
}

impl Counted {
    /// The windows that are computed for it.
    fn computed(&self) -> usize {
        let used = self.other_spacing.as_ref().filter(|other| other.is_used);
        used.map_or(self.windows, |other| other.windows)
    }
}

impl Outlier {
    /// The warning before the case begins, with its predicted time if rates were measured. `can_overlap` is `true` if `--overlap` would
    /// reduce its windows.
    pub fn line(&self, case: &str, seconds: Option<f64>, can_overlap: bool) -> String {
        let Outlier { windows, median, other_spacing } = self;
        let of_others = match windows > median {
            true => format!(", where the median is {}", grouped(*median as u64)),
            false => String::new(),
        };
        let about = |seconds: Option<f64>| {
            seconds.map(|seconds| format!(", about {}", duration(seconds))).unwrap_or_default()
        };
        let count = grouped(*windows as u64);
        let (ways, last) = match other_spacing {
            Some(OtherSpacing { is_used: true, trained_mm, seen_mm, windows, .. }) => {
                return format!(
                    "{case} has {count} windows at the spacing of training, {trained_mm}{of_others}: it is predicted at {seen_mm}, in {} \
                     windows{}; the network was not trained at that spacing, so check its labels",
                    grouped(*windows as u64),
                    about(seconds)
                );
            }
            Some(OtherSpacing { flag, seen_mm, windows: fewer, .. }) => {
                let seconds = seconds.map(|seconds| seconds * *fewer as f64 / (*windows).max(1) as f64);
                let (fewer, takes) = (grouped(*fewer as u64), about(seconds));
                (true, format!(", or predict it at {seen_mm} with {flag}: {fewer} windows{takes}"))
            }
            None => (false, String::new()),
        };
        let cut = match (can_overlap, ways) {
            (true, true) => ", crop it to the structures, use fewer windows with ‹overlap=0.25›",
            (true, false) => ", crop it to the structures, or use fewer windows with ‹overlap=0.25›",
            (false, true) => ", crop it to the structures",
            (false, false) => ", or crop it to the structures",
        };
        let takes = about(seconds);
        format!("{case} has {count} windows{of_others}{takes}: check the spacing in its header{cut}{last}")
    }
}

/// The flag that asks for a spacing.
fn flag(spacing: CaseSpacing) -> String {
    match spacing {
        CaseSpacing::Native => "‹outlier_spacing=native›".into(),
        CaseSpacing::Of(spacing) => {
            // As many digits as a header has.
            let digits = |length: &f64| (*length as f32).to_string();
            let lengths: Vec<String> = spacing.lengths().iter().map(digits).collect();
            format!("‹outlier_spacing={}›", lengths.join(","))
        }
    }
}

/// The spacing of an outlier's image, or else a coarser one than the training spacing, if the model then needs fewer windows.
fn offered(predictor: &Predictor, request: &CaseRequest<'_>, trained: CaseView) -> Option<OtherSpacing> {
    let coarser = match predictor.model().preparation {
        Preparation::Canonical { spacing } => spacing,
        Preparation::NnUnet(ref steps) => steps.spacing,
        Preparation::Zoomed(_) | Preparation::Monai(_) | Preparation::Located(_) => return None,
    };
    let coarser = match coarser {
        TargetSpacing::Native(Spacing(lengths)) | TargetSpacing::Volume(Spacing(lengths)) => {
            TargetSpacing::Volume(Spacing(lengths.map(|length| length * COARSER)))
        }
        TargetSpacing::InPlane(lengths) => TargetSpacing::InPlane(lengths.map(|length| length * COARSER)),
    };
    let fewer = |spacing: CaseSpacing| {
        let view = predictor.view(request, Some(spacing)).ok()?;
        (view.windows < trained.windows).then(|| other_spacing(spacing, trained, view, false))
    };
    fewer(CaseSpacing::Native).or_else(|| fewer(CaseSpacing::Of(coarser)))
}

/// Makes a predictor see an outlier at the requested spacing.
fn used(
    predictor: &mut Predictor,
    request: &CaseRequest<'_>,
    trained: CaseView,
    spacing: CaseSpacing,
) -> Outcome<OtherSpacing> {
    let seen = predictor.view(request, Some(spacing))?;
    if seen.windows >= trained.windows {
        let message = format!(
            "{}: {} does not help: at {} there are {} windows, at the spacing of training, {}, {}",
            request.case.id,
            flag(spacing),
            seen.spacing,
            grouped(seen.windows as u64),
            trained.spacing,
            grouped(trained.windows as u64)
        );
        return Err(Error::new(message, "name a coarser one as ‹outlier_spacing=Z,Y,X›, or leave it out"));
    }
    predictor.see_at(request.case, spacing);
    Ok(other_spacing(spacing, trained, seen, true))
}

fn other_spacing(spacing: CaseSpacing, trained: CaseView, seen: CaseView, is_used: bool) -> OtherSpacing {
    let (trained_mm, seen_mm) = (trained.spacing, seen.spacing);
    OtherSpacing { is_used, flag: flag(spacing), trained_mm, seen_mm, windows: seen.windows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_counts(counts: &[usize]) -> WindowCounts {
        let mut windows = WindowCounts::default();
        counts.iter().enumerate().for_each(|(number, count)| windows.add(&number.to_string(), *count, false));
        windows
    }

    #[test]
    fn a_case_is_called_out_by_the_median_or_by_its_number_of_windows() {
        let windows = from_counts(&[8, 10, 12, 201, 200]);
        assert_eq!(windows.lower_median(), Some(12));
        let windows = from_counts(&[8, 10, 10, 12, 201, 9]);
        let outlier = Outlier { windows: 201, median: 10, other_spacing: None };
        assert_eq!(windows.outlier("4"), Some(outlier));
        assert_eq!((windows.outlier("3"), windows.outlier("none")), (None, None));
        // Cases behind the third are as many as 22 times those before it on average.
        let behind = from_counts(&[8, 10, 12, 201, 19]).behind("2");
        assert_eq!(behind, Some(22.0));
        assert_eq!((windows.behind("5"), windows.behind("none")), (Some(0.0), None));
        // If all cases are large, each is reported.
        let large = from_counts(&[2001, 2001]);
        let line = large.outlier("0").map(|outlier| outlier.line("0", Some(7200.0), true));
        assert!(line.is_some_and(|line| {
            line.starts_with("0 has 2,001 windows, about 2 h: check") && line.ends_with("‹overlap=0.25›")
        }));
        let line = large.outlier("0").map(|outlier| outlier.line("0", None, false));
        assert!(line.is_some_and(|line| {
            line.starts_with("0 has 2,001 windows: check") && !line.contains("‹overlap›")
        }));
        assert_eq!(WindowCounts::default().lower_median(), None);
    }

    #[test]
    fn what_is_kept_counts_for_the_median_and_not_for_the_time_that_is_left() {
        let mut windows = from_counts(&[10, 10]);
        windows.add("kept", 10, true);
        windows.add("large", 400, false);
        assert_eq!(windows.outlier("large").map(|outlier| outlier.median), Some(10));
        assert_eq!(windows.behind("1"), Some(40.0));
        let last = windows.cases.len() - 1;
        windows.cases[last].other_spacing = Some(other(true));
        assert_eq!(windows.behind("1"), Some(2.0), "the windows that are computed");
        assert_eq!(windows.used("large").map(|other| other.windows), Some(20));
        assert_eq!(windows.used("1"), None);
    }

    fn other(is_used: bool) -> OtherSpacing {
        let flag = flag(CaseSpacing::Native);
        let [trained_mm, seen_mm] = [1.0, 5.0].map(|length| Spacing([length; 3]));
        OtherSpacing { is_used, flag, trained_mm, seen_mm, windows: 20 }
    }

    #[test]
    fn a_line_says_what_another_spacing_takes_and_changes() {
        let line = |is_used: bool, seconds: f64| {
            let outlier = Outlier { windows: 400, median: 10, other_spacing: Some(other(is_used)) };
            outlier.line("wide", Some(seconds), true)
        };
        let offered = line(false, 3600.0);
        assert!(
            offered.ends_with(
                "‹overlap=0.25›, or predict it at 5.0000 × 5.0000 × 5.0000 mm with ‹outlier_spacing=native›: 20 windows, about 3 min"
            ),
            "{offered}"
        );
        let used = line(true, 180.0);
        assert!(
            used.starts_with(
                "wide has 400 windows at the spacing of training, 1.0000 × 1.0000 × 1.0000 mm, where"
            ) && used
                .contains("it is predicted at 5.0000 × 5.0000 × 5.0000 mm, in 20 windows, about 3 min; the"),
            "{used}"
        );
        let coarse = CaseSpacing::Of(TargetSpacing::Volume(Spacing([3.0, 1.5, 1.5])));
        assert_eq!(flag(coarse), "‹outlier_spacing=3,1.5,1.5›");
    }
}
