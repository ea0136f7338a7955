//! Warnings about images in Hounsfield units whose channel is not named as CT.

use crate::Normalisation;
use crate::dataset::{Channel, Dataset};
use crate::fingerprint::Fingerprint;
use crate::inspect::{Problem, Severity};

/// The largest minimum of a CT that shows air, which has −1000 Hounsfield units, with room for noise.
const AIR: f64 = -900.0;

/// The name with which a user chooses z-scores deliberately.
const CHOSEN: &str = "zscore";

/// Beginnings of names of other modalities, whose intensities are not Hounsfield units.
const OTHERS: [&str; 12] =
    ["adc", "dce", "dwi", "flair", "mr", "pet", "pd", "swi", "t1", "t2", "us", "zscore"];

/// A warning for each channel that is normalised by each image's own mean and deviation, although most images have whole numbers from air on,
/// as CT in Hounsfield units has.
pub(super) fn unnamed_ct(dataset: &Dataset, fingerprint: &Fingerprint) -> Vec<Problem> {
    let is_own = |normalisation| matches!(normalisation, Normalisation::ZScore | Normalisation::ZScoreInMask);
    let channels = dataset.channels.iter().enumerate();
    let is_other = |name: &str| OTHERS.iter().any(|other| name.to_ascii_lowercase().starts_with(other));
    let open = channels.filter(|(_, channel)| is_own(channel.normalisation) && !is_other(&channel.name));
    open.filter_map(|(index, channel)| {
        let is_hounsfield = |range: &[f64; 2]| range[0] <= AIR && range.iter().all(|value| value.fract() == 0.0);
        let ranges = fingerprint.cases.iter().filter_map(|case| {
            let own = case.channels.get(index)?;
            Some((case, [own.min, own.max]))
        });
        let found: Vec<_> = ranges.filter(|(_, range)| is_hounsfield(range)).collect();
        let (first, [min, max]) = found.first().filter(|_| 2 * found.len() > fingerprint.cases.len())?;
        let case = dataset.cases.iter().find(|case| case.id == first.id)?;
        Some(Problem {
            severity: Severity::Warning,
            case: first.id.clone(),
            file: case.images.get(index)?.path.clone(),
            text: format!(
                "channel {} has whole numbers from {min} to {max}, like {} of {} cases: these look like Hounsfield units of CT, but each \
                 image is normalised by its own mean and deviation",
                channel.name,
                found.len(),
                fingerprint.cases.len()
            ),
            hint: Some(remedy(dataset, index)),
        })
    })
    .collect()
}

/// The two lines of settings that name a channel as CT.
fn remedy(dataset: &Dataset, index: usize) -> String {
    let channels = dataset.channels.iter().enumerate();
    let name = |(at, channel): (usize, &Channel)| {
        format!("{:?}", if at == index { "CT" } else { channel.name.as_str() })
    };
    let names: Vec<String> = channels.map(name).collect();
    let names = names.join(", ");
    format!(
        "if they are CT, write two lines into plimsoll.toml: [data] and channels = [{names}]; if not, name the channel `{CHOSEN}`"
    )
}
