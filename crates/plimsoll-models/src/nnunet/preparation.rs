//! The preparation of images by a configuration.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_data::{
    Channel, ChannelStatistics, IntensityProperties, MaskedNormalisation, NnUnetSteps, Normalisation, Planes,
    StepOrder, TargetSpacing,
};
use plimsoll_run::bounds::check_spacing;
use plimsoll_volume::Spacing;

use super::NnUnetError;
use super::dataset::ModelDataset;
use super::entry::Entry;
use super::plans::{Configuration, Plans, one_of};
use super::resampling::resampling;

/// A program of nnU-Net's that reads images.
struct Reader {
    name: &'static str,
    /// `true` if it reorients images to the canonical orientation.
    reorients: bool,
    /// The endings of the names of its images.
    endings: &'static [&'static str],
    /// The meaning of images with these endings, of which there may be others.
    planes: Planes,
}

const VOLUMES: &[&str] = &[".nii.gz", ".nii"];

/// The formats of ITK that are read here.
const VOLUMES_OF_ITK: &[&str] = &[".nii.gz", ".nii", ".nrrd", ".mha"];

const READERS: [Reader; 5] = [
    Reader { name: "SimpleITKIO", reorients: false, endings: VOLUMES_OF_ITK, planes: Planes::Any },
    Reader { name: "NibabelIO", reorients: false, endings: VOLUMES, planes: Planes::Any },
    Reader { name: "NibabelIOWithReorient", reorients: true, endings: VOLUMES, planes: Planes::Any },
    Reader {
        name: "NaturalImage2DIO",
        reorients: false,
        endings: &[".png", ".bmp", ".tif"],
        planes: Planes::One,
    },
    Reader { name: "Tiff3DIO", reorients: false, endings: &[".tif", ".tiff"], planes: Planes::Several },
];

/// The endings of images that any of the readers reads.
pub(super) fn endings() -> Vec<&'static str> {
    let all: BTreeSet<&str> = READERS.iter().flat_map(|reader| reader.endings).copied().collect();
    all.into_iter().collect()
}

pub(super) const NORMALISATIONS: [(&str, Normalisation); 5] = [
    ("CTNormalization", Normalisation::Ct),
    ("ZScoreNormalization", Normalisation::ZScore),
    ("NoNormalization", Normalisation::None),
    ("RescaleTo01Normalization", Normalisation::RescaleTo01),
    ("RGBTo01Normalization", Normalisation::RgbTo01),
];

/// The preparation of images in plans.
pub(super) struct Images {
    pub(super) steps: NnUnetSteps,
    pub(super) channels: Vec<Channel>,
    pub(super) foreground: BTreeMap<usize, IntensityProperties>,
}

/// The preparation of images of `dimensions` axes.
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
    let reader = reader(&root.need("image_reader_writer")?, dataset)?;
    let transposed = transposition(&root)?;
    let normalised = normalisations(configuration, dataset.channels.len())?;
    let named = dataset.channels.iter().zip(&normalised);
    let channels =
        named.map(|(name, of)| Channel { name: name.clone(), normalisation: of.normalisation }).collect();
    let foreground = foreground(&root, &normalised)?;
    let labels = resampling(configuration, "resampling_fn_seg", true)?;
    let steps = NnUnetSteps {
        order: StepOrder::NnUnet,
        transposed,
        reorients: reader.reorients,
        planes: reader.planes,
        spacing: spacing(configuration, dimensions)?,
        channels: normalised,
        images: resampling(configuration, "resampling_fn_data", false)?.resizing,
        logits: resampling(configuration, "resampling_fn_probabilities", false)?.resizing,
        labels: labels.resizing,
        ties: labels.ties,
    };
    Ok(Images { steps, channels, foreground })
}

/// The reader that plans name, for images that end as the data set's do.
fn reader(entry: &Entry<'_>, dataset: &ModelDataset) -> Result<&'static Reader, NnUnetError> {
    let names: Vec<&str> = READERS.iter().map(|reader| reader.name).collect();
    let name = one_of(entry, "reader of images", &names)?;
    let found = READERS.iter().find(|reader| reader.name == name);
    let reader = found.ok_or_else(|| entry.refuse("unknown"))?;
    let ending = dataset.file_ending.to_ascii_lowercase();
    match reader.endings.contains(&&ending[..]) {
        true => Ok(reader),
        false => Err(entry.refuse(format!(
            "images of the data set have the ending {}, but this reader reads {}",
            dataset.file_ending,
            reader.endings.join(", ")
        ))),
    }
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
            found.map(|(_, normalisation)| *normalisation).ok_or_else(|| scheme.refuse("unknown"))?;
        // Only the z-score looks at the mask.
        let inside_mask = mask.truth()? && normalisation == Normalisation::ZScore;
        Ok(MaskedNormalisation { normalisation, inside_mask })
    };
    schemes.iter().zip(&masks).map(of).collect()
}

/// Intensities of the foreground of the data set by channel: for all channels that have them or need them.
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
            return Err(entry.refuse("normalised images would not be finite"));
        }
        found.insert(channel, properties);
    }
    Ok(found)
}
