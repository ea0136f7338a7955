//! Spacings so far from the data set's that a unit is wrong.

use plimsoll_volume::Spacing;

use crate::dataset::{Dataset, LengthUnit};
use crate::fingerprint::CaseFingerprint;
use crate::inspect::problem::{Problem, Severity};
use crate::inspect::{SoundCase, spacing};
use crate::percentile;

/// The factor between two spacings of one data set from which a unit is wrong.
pub const FAR: f64 = 50.0;

/// The unit that was probably meant by lengths that are wrong by this factor.
pub fn meant_unit(times: f64) -> Option<LengthUnit> {
    // Between powers of a thousand, as far from one as from the other.
    let is_about = |factor: f64| (times / factor).ln().abs() < 500_f64.ln();
    LengthUnit::ALL.into_iter().find(|unit| {
        let factor = 1.0 / unit.millimetres();
        *unit != LengthUnit::Millimetre && is_about(factor)
    })
}

/// The ratio of two spacings along the axis of the greatest difference; `None` if they are not far apart.
pub fn far_apart(found: &[f64], usual: &[f64]) -> Option<f64> {
    let times = found.iter().zip(usual).map(|(found, usual)| found / usual);
    let farthest = times.max_by(|one, other| one.ln().abs().total_cmp(&other.ln().abs()))?;
    (farthest.ln().abs() > FAR.ln()).then_some(farthest)
}

/// The median spacing of cases, axis by axis.
pub(crate) fn median<'a>(cases: impl Iterator<Item = &'a CaseFingerprint> + Clone) -> Spacing {
    Spacing(
        [0, 1, 2].map(|axis| percentile::from_values(cases.clone().map(|case| case.spacing().0[axis]), 50.0)),
    )
}

/// Takes out cases whose headers are far from the median, each with a problem that asks for the unit.
pub(crate) fn take_out(dataset: &Dataset, sound: Vec<SoundCase>) -> (Vec<SoundCase>, Vec<Problem>) {
    if sound.len() < 2 {
        return (sound, Vec::new());
    }
    let median = median(sound.iter().map(|(case, _)| case));
    let mut problems = Vec::new();
    let mut kept = Vec::with_capacity(sound.len());
    for (case, index) in sound {
        let Some(times) = far_apart(&case.spacing().0, &median.0) else {
            kept.push((case, index));
            continue;
        };
        let file = dataset.cases.iter().find(|known| known.id == case.id);
        let file = file.and_then(|known| known.image_files().next()).unwrap_or(&dataset.folder);
        let question = match meant_unit(times).or(meant_unit(1.0 / times)) {
            Some(_) if times > 1.0 => "are its numbers in µm, whatever its header says? ",
            Some(_) => "are its numbers in mm, whatever its header says? ",
            None => "",
        };
        problems.push(Problem {
            severity: Severity::Error,
            case: case.id.clone(),
            file: file.into(),
            text: format!(
                "its spacing is {}, but the median of the data set is {}, {} apart",
                spacing(case.spacing()),
                spacing(median),
                if times > 1.0 { format!("{times:.0} times") } else { format!("{:.0} times", 1.0 / times) },
            ),
            hint: Some(format!(
                "{question}Correct the header, or leave the case out; if the headers of all cases state the wrong unit, ‹unit› um, mm or \
                 m sets the right one"
            )),
        });
    }
    (kept, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_times_is_far_and_a_thousand_is_a_unit() {
        assert_eq!(far_apart(&[5.0, 1.0, 1.0], &[0.2, 0.5, 0.5]), None);
        let times = far_apart(&[5.0, 1.0, 1.0], &[0.005, 0.001, 0.0015]).unwrap();
        assert!((times - 1000.0).abs() < 1e-9, "{times}");
        assert_eq!(meant_unit(times), Some(LengthUnit::Micrometre));
        assert_eq!(meant_unit(1e-3), Some(LengthUnit::Metre));
        assert_eq!(meant_unit(1.5), None);
        assert!(far_apart(&[0.001; 3], &[1.0; 3]).is_some_and(|times| times < 1.0));
    }
}
