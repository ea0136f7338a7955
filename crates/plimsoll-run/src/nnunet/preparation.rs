//! How images are prepared, as a configuration says.

use std::collections::BTreeMap;

use plimsoll_data::{
    Channel, ChannelStatistics, IntensityProperties, Interpolation, MaskedNormalisation, NnUnetSteps,
    Normalisation, Resizing, TargetSpacing,
};
use plimsoll_volume::Spacing;

use super::NnUnetError;
use super::dataset::ModelDataset;
use super::entry::Entry;
use super::plans::{Configuration, Plans, one_of};
use crate::bounds::check_spacing;

/// Programs that read images, and whether they bring them to the canonical orientation.
const READERS: [(&str, bool); 3] =
    [("SimpleITKIO", false), ("NibabelIO", false), ("NibabelIOWithReorient", true)];
/// The one way of resampling that is done here.
const RESAMPLING: &str = "resample_data_or_seg_to_shape";
/// From which ratio of spacings on slices are resized for themselves.
const ANISOTROPY: f64 = 3.0;

const NORMALISATIONS: [(&str, Normalisation); 5] = [
    ("CTNormalization", Normalisation::Ct),
    ("ZScoreNormalization", Normalisation::ZScore),
    ("NoNormalization", Normalisation::None),
    ("RescaleTo01Normalization", Normalisation::RescaleTo01),
    ("RGBTo01Normalization", Normalisation::RgbTo01),
];

/// What of images is told by plans.
pub(super) struct Images {
    pub(super) steps: NnUnetSteps,
    pub(super) channels: Vec<Channel>,
    pub(super) foreground: BTreeMap<usize, IntensityProperties>,
}

/// How images of `dimensions` axes are prepared.
pub(super) fn images(
    plans: &Plans,
    configuration: &Configuration<'_>,
    dataset: &ModelDataset,
    dimensions: usize,
) -> Result<Images, NnUnetError> {
    let root = plans.root();
    configuration.known("preprocessor_name", "preprocessor", &["DefaultPreprocessor"])?;
    if let Some(manager) = root.get("label_manager")? {
        one_of(&manager, "label manager", &["LabelManager"])?;
    }
    let readers: Vec<&str> = READERS.iter().map(|(name, _)| *name).collect();
    let reader = one_of(&root.need("image_reader_writer")?, "reader of images", &readers)?;
    let reorients = READERS.iter().any(|(name, reorients)| *name == reader && *reorients);
    let transposed = transposition(&root)?;
    let normalised = normalisations(configuration, dataset.channels.len())?;
    let named = dataset.channels.iter().zip(&normalised);
    let channels =
        named.map(|(name, of)| Channel { name: name.clone(), normalisation: of.normalisation }).collect();
    let foreground = foreground(&root, &normalised)?;
    let steps = NnUnetSteps {
        transposed,
        reorients,
        spacing: spacing(configuration, dimensions)?,
        channels: normalised,
        images: resizing(configuration, "resampling_fn_data", false)?,
        logits: resizing(configuration, "resampling_fn_probabilities", false)?,
        labels: resizing(configuration, "resampling_fn_seg", true)?,
    };
    Ok(Images { steps, channels, foreground })
}

/// `transpose_forward`, whose inverse is what logits are put back with.
fn transposition(root: &Entry<'_>) -> Result<[usize; 3], NnUnetError> {
    let axes = |name: &str| -> Result<(Entry<'_>, [usize; 3]), NnUnetError> {
        let entry = root.need(name)?;
        let found = entry.wholes(3, 0, 2)?;
        match <[usize; 3]>::try_from(found) {
            Ok(axes) if (0..3).all(|axis| axes.contains(&axis)) => Ok((entry, axes)),
            _ => Err(entry.refuse("it must name the axes 0, 1 and 2 once each")),
        }
    };
    let (_, forward) = axes("transpose_forward")?;
    let (entry, backward) = axes("transpose_backward")?;
    let undone = forward.iter().enumerate().all(|(to, from)| backward.get(*from) == Some(&to));
    if undone {
        Ok(forward)
    } else {
        Err(entry.refuse(format!("it must undo `transpose_forward`, {forward:?}")))
    }
}

fn spacing(configuration: &Configuration<'_>, dimensions: usize) -> Result<TargetSpacing, NnUnetError> {
    let entry = configuration.need("spacing")?;
    let lengths: Vec<f64> = entry.list_of(dimensions)?.iter().map(Entry::number).collect::<Result<_, _>>()?;
    let spacing = match lengths[..] {
        [depth, height, width] => TargetSpacing::Volume(Spacing([depth, height, width])),
        [height, width] => TargetSpacing::InPlane([height, width]),
        _ => return Err(entry.refuse("it must be a list of two or three")),
    };
    check_spacing(spacing).map_err(|source| entry.refuse(source.to_string()))?;
    Ok(spacing)
}

fn normalisations(
    configuration: &Configuration<'_>,
    channels: usize,
) -> Result<Vec<MaskedNormalisation>, NnUnetError> {
    let schemes = configuration.need("normalization_schemes")?.list_of(channels)?;
    let masks = configuration.need("use_mask_for_norm")?.list_of(channels)?;
    let known: Vec<&str> = NORMALISATIONS.iter().map(|(name, _)| *name).collect();
    let of = |(scheme, mask): (&Entry<'_>, &Entry<'_>)| {
        let name = one_of(scheme, "normalisation", &known)?;
        let found = NORMALISATIONS.iter().find(|(known, _)| *known == name);
        let normalisation =
            found.map(|(_, normalisation)| *normalisation).ok_or_else(|| scheme.refuse("it is not known"))?;
        // Only the z-score looks at the mask.
        let inside_mask = mask.truth()? && normalisation == Normalisation::ZScore;
        Ok(MaskedNormalisation { normalisation, inside_mask })
    };
    schemes.iter().zip(&masks).map(of).collect()
}

/// Intensities of the foreground of the data set, by channel: those that are there, and those of channels that need them.
fn foreground(
    root: &Entry<'_>,
    channels: &[MaskedNormalisation],
) -> Result<BTreeMap<usize, IntensityProperties>, NnUnetError> {
    const KEY: &str = "foreground_intensity_properties_per_channel";
    let all = match root.get(KEY)? {
        Some(all) => all,
        // The name that it had at first.
        None => match root.get("foreground_intensity_properties_by_modality")? {
            Some(all) => all,
            None => root.need(KEY)?,
        },
    };
    let mut found = BTreeMap::new();
    for (channel, of) in channels.iter().enumerate() {
        let name = channel.to_string();
        if of.normalisation != Normalisation::Ct {
            continue;
        }
        let entry = all.need(&name)?;
        // Images are normalised in single precision.
        let number = |key: &str| {
            let own = entry.need(key)?;
            let number = own.number()?;
            match (number as f32).is_finite() {
                true => Ok(number),
                false => Err(own.refuse("it must be a number of single precision")),
            }
        };
        let properties = IntensityProperties {
            mean: number("mean")?,
            median: number("median")?,
            std: number("std")?,
            min: number("min")?,
            max: number("max")?,
            percentile_99_5: number("percentile_99_5")?,
            percentile_00_5: number("percentile_00_5")?,
        };
        let IntensityProperties { mean, std, percentile_00_5: low, percentile_99_5: high, .. } = properties;
        if std as f32 <= 0.0 {
            return Err(entry.need("std")?.refuse("it must be above 0"));
        }
        if low > high {
            return Err(entry
                .need("percentile_00_5")?
                .refuse(format!("it must be at most `percentile_99_5`, {high}")));
        }
        let case = ChannelStatistics { min: low, max: high, mean, std };
        let line = Normalisation::Ct.intensity(&case, Some(&properties));
        let mut ends = [low as f32, high as f32];
        line.iter().for_each(|line| line.apply(&mut ends));
        if !ends.iter().all(|end| end.is_finite()) {
            return Err(entry.refuse("images that are normalised by it would not be finite"));
        }
        found.insert(channel, properties);
    }
    Ok(found)
}

/// How something is resampled: the function by its name, and its arguments.
fn resizing(configuration: &Configuration<'_>, name: &str, of_labels: bool) -> Result<Resizing, NnUnetError> {
    configuration.known(name, "function that resamples", &[RESAMPLING])?;
    let key = format!("{name}_kwargs");
    let (mut order, mut order_across, mut slices) =
        (Interpolation::Cubic, Interpolation::Nearest, Some(false));
    let mut is_seg = false;
    if let Some(arguments) = configuration.get(&key) {
        let Some(object) = arguments.value().as_object() else {
            return Err(arguments.refuse("it must have entries of names"));
        };
        for argument in object.keys() {
            let Some(value) = arguments.get(argument)? else {
                // Nothing is said: it depends on the spacings.
                if argument == "force_separate_z" {
                    slices = None;
                }
                continue;
            };
            match argument.as_str() {
                "is_seg" => is_seg = value.truth()?,
                "order" => order = interpolation(&value)?,
                "order_z" => order_across = interpolation(&value)?,
                "force_separate_z" => slices = Some(value.truth()?),
                "separate_z_anisotropy_threshold" if value.number()? == ANISOTROPY => {}
                "separate_z_anisotropy_threshold" => {
                    return Err(value.refuse(format!(
                        "slices are resized for themselves from a ratio of {ANISOTROPY} on"
                    )));
                }
                _ => return Err(value.refuse(format!("`{RESAMPLING}` has no such argument"))),
            }
        }
    }
    if is_seg != of_labels {
        let entry = configuration.need(name)?;
        return Err(entry.refuse(format!("its `is_seg` must be {of_labels}")));
    }
    Ok(Resizing { order, order_across, slices })
}

fn interpolation(entry: &Entry<'_>) -> Result<Interpolation, NnUnetError> {
    match entry.whole(0, 5)? {
        0 => Ok(Interpolation::Nearest),
        1 => Ok(Interpolation::Linear),
        3 => Ok(Interpolation::Cubic),
        _ => Err(entry.refuse("splines of order 0, 1 and 3 are possible")),
    }
}
