//! The settings of a stream of batches.

use plimsoll_data::pictures::Augmentation as ImageAugmentation;
use plimsoll_data::{Augmentation, Mode, PatchGrid, SamplerConfig, SpacingSetting, TargetSpacing};
use plimsoll_run::ImageSettings;
use plimsoll_volume::Spacing;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// The share of patches that are centred on the foreground where nothing else is set: nnU-Net's.
const OVERSAMPLED: f64 = 0.33;

/// The settings that determine the contents of batches, as they are given. What they mean depends on the data set: patches of volumes with
/// label maps, or whole images with classes.
#[derive(Clone, Debug)]
pub struct PatchSettings {
    /// Voxels along depth, height and width, or along height and width for slices; of images the size that they are brought to.
    pub patch_size: Vec<usize>,
    /// Samples of a batch.
    pub batch_size: usize,
    /// The spacing that volumes are brought to; `None` for nnU-Net's choice.
    pub spacing: Option<SpacingSetting>,
    /// The augmentation of samples to train on.
    pub augmentation: AugmentationChoice,
    /// The share of patches that are centred on the foreground; `None` for nnU-Net's.
    pub oversample_foreground: Option<f64>,
    /// The preparation of images with classes; `None` for the defaults.
    pub images: Option<ImageSettings>,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Training or validation.
    pub section: Mode,
}

/// The settings of patches of volumes, all of them known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct VolumeSettings {
    patch_size: Vec<usize>,
    batch_size: usize,
    spacing: Option<SpacingSetting>,
    augmentation: Augmentation,
    oversample_foreground: f64,
    seed: u64,
    section: Mode,
}

/// The settings of images with classes, all of them known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PictureSettings {
    patch_size: Vec<usize>,
    batch_size: usize,
    augmentation: ImageAugmentation,
    images: ImageSettings,
    seed: u64,
    section: Mode,
}

impl PictureSettings {
    /// The preparation and the augmentation of images, as a training has them.
    pub(super) fn of_images(&self) -> ImageSettings {
        let size = <[usize; 2]>::try_from(&self.patch_size[..]).ok();
        ImageSettings { size, augmentation: Some(self.augmentation.clone()), ..self.images.clone() }
    }
}

/// The choice of an augmentation, which is read once it is known what the samples are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AugmentationChoice {
    /// The usual one.
    Usual,
    /// None.
    Off,
    /// The JSON of the values that are set.
    Values(String),
}

impl AugmentationChoice {
    /// Checks that it is an augmentation of patches or of images. It is not known yet which is needed.
    fn check(&self) -> Result<(), Failure> {
        let AugmentationChoice::Values(text) = self else { return Ok(()) };
        match (read::<Augmentation>(text), read::<ImageAugmentation>(text)) {
            (Ok(_), _) | (_, Ok(_)) => Ok(()),
            (Err(of_volumes), Err(of_images)) => Err(Failure::argument(
                "augmentation",
                format!("fits neither volumes ({of_volumes}) nor images with classes ({of_images})"),
            )),
        }
    }

    fn of_volumes(&self) -> Result<Augmentation, Failure> {
        match self {
            AugmentationChoice::Usual => Ok(Augmentation::default()),
            AugmentationChoice::Off => Ok(Augmentation::none()),
            AugmentationChoice::Values(text) => parsed("augmentation", text),
        }
    }

    fn of_images(&self) -> Result<ImageAugmentation, Failure> {
        let augmentation = match self {
            AugmentationChoice::Usual => ImageSettings::default().augmentation(),
            AugmentationChoice::Off => ImageAugmentation::default(),
            AugmentationChoice::Values(text) => parsed("augmentation", text)?,
        };
        augmentation
            .check()
            .map_err(|error| Failure::argument("augmentation", format!("is not possible: {error}")))?;
        Ok(augmentation)
    }
}

/// The batches of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochLength {
    /// nnU-Net's number of batches of patches; of images as many as it takes to have each once.
    Usual,
    /// A number of batches.
    Batches(u64),
    /// Epochs have no end.
    Endless,
}

/// The type of labels in batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelType {
    /// Label maps in 8 bits, classes of images in 64.
    Usual,
    /// 8 bits.
    Bytes,
    /// 64 bits.
    Words,
}

/// The settings that do not change the contents of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchOptions {
    /// The length of an epoch.
    pub epoch: EpochLength,
    /// The batches that wait or are in use, beside those that threads fill.
    pub prefetch: usize,
    /// The type of labels.
    pub labels: LabelType,
}

/// Parses the JSON of an argument.
///
/// # Errors
/// If it is not a value of the type; the error names the argument.
pub fn parsed<T: DeserializeOwned>(argument: &'static str, text: &str) -> Result<T, Failure> {
    read(text).map_err(|message| Failure::argument(argument, format!("is not possible: {message}")))
}

/// Reads JSON. The error is without the position in a text that the user has not written.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message).to_string()
    })
}

/// Returns the section of a fold with this name.
///
/// # Errors
/// If there is none.
pub fn section_by_name(name: &str) -> Result<Mode, Failure> {
    match name {
        "training" => Ok(Mode::Training),
        "validation" => Ok(Mode::Validation),
        _ => {
            let message = format!("is \"{name}\", but must be \"training\" or \"validation\"");
            Err(Failure::argument("section", message))
        }
    }
}

impl PatchSettings {
    /// Checks what does not depend on the data set.
    ///
    /// # Errors
    /// If the patch or the batch is empty, the augmentation is unknown, or a value has an argument of its own.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.patch()?;
        if self.batch_size == 0 {
            return Err(Failure::argument("batch_size", "is 0; pass at least 1"));
        }
        self.augmentation.check()?;
        let Some(images) = &self.images else { return Ok(()) };
        let elsewhere = [
            ("size", "patch_size", images.size.is_some()),
            ("augmentation", "augmentation", images.augmentation.is_some()),
            ("class_weights", "the loss", images.class_weights.is_some()),
        ];
        match elsewhere.iter().find(|(.., is_given)| *is_given) {
            Some((key, setter, _)) => {
                Err(Failure::argument("images", format!("has \"{key}\", which {setter} sets")))
            }
            None => Ok(()),
        }
    }

    /// The settings of patches of volumes.
    ///
    /// # Errors
    /// If a value is not possible, or is one of images with classes.
    pub(super) fn of_volumes(&self) -> Result<VolumeSettings, Failure> {
        if self.images.is_some() {
            let message = "has no effect: the data set has label maps, and no image has a class";
            return Err(Failure::argument("images", message));
        }
        Ok(VolumeSettings {
            patch_size: self.patch_size.clone(),
            batch_size: self.batch_size,
            spacing: self.spacing,
            augmentation: self.augmentation.of_volumes()?,
            oversample_foreground: self.oversample_foreground.unwrap_or(OVERSAMPLED),
            seed: self.seed,
            section: self.section,
        })
    }

    /// The settings of images with classes.
    ///
    /// # Errors
    /// If a value is not possible, or is one of patches.
    pub(super) fn of_images(&self) -> Result<PictureSettings, Failure> {
        let without_effect =
            "has no effect on images with classes, which are brought to patch_size as a whole";
        if self.spacing.is_some() {
            return Err(Failure::argument("spacing", without_effect));
        }
        if self.oversample_foreground.is_some() {
            return Err(Failure::argument("oversample_foreground", without_effect));
        }
        if self.patch_size.len() != 2 {
            let message = format!(
                "has {} numbers; pass height and width of images with classes",
                self.patch_size.len()
            );
            return Err(Failure::argument("patch_size", message));
        }
        Ok(PictureSettings {
            patch_size: self.patch_size.clone(),
            batch_size: self.batch_size,
            augmentation: self.augmentation.of_images()?,
            images: self.images.clone().unwrap_or_default(),
            seed: self.seed,
            section: self.section,
        })
    }

    /// The settings of the sampler, for a data set whose usual spacing is `target`.
    ///
    /// # Errors
    /// If the patch is empty.
    pub(super) fn sampler(
        &self,
        volumes: &VolumeSettings,
        target: Spacing,
    ) -> Result<SamplerConfig, Failure> {
        let grid = PatchGrid { patch: self.patch()?, spacing: self.target_spacing(target) };
        Ok(SamplerConfig {
            augmentation: volumes.augmentation,
            oversample_foreground: volumes.oversample_foreground,
            ..SamplerConfig::new(grid, self.batch_size)
        })
    }

    /// Voxels of a patch along depth, height and width.
    pub(super) fn patch(&self) -> Result<[usize; 3], Failure> {
        let patch = match self.patch_size[..] {
            [depth, height, width] => [depth, height, width],
            [height, width] => [1, height, width],
            _ => {
                let message = format!(
                    "has {} numbers; pass depth, height and width, or height and width for slices",
                    self.patch_size.len()
                );
                return Err(Failure::argument("patch_size", message));
            }
        };
        match patch.contains(&0) {
            true => Err(Failure::argument(
                "patch_size",
                format!("is {:?}; all sizes must be positive", self.patch_size),
            )),
            false => Ok(patch),
        }
    }

    /// The spacing of patches: as set; or nnU-Net's choice, for slices in their plane alone.
    fn target_spacing(&self, target: Spacing) -> TargetSpacing {
        match (self.spacing, self.patch_size.len()) {
            (Some(SpacingSetting::To(spacing)), _) => spacing,
            (Some(SpacingSetting::Native), _) => TargetSpacing::Native(target),
            (None, 2) => TargetSpacing::InPlane([target.0[1], target.0[2]]),
            (None, _) => target.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(patch_size: &[usize]) -> PatchSettings {
        PatchSettings {
            patch_size: patch_size.to_vec(),
            batch_size: 2,
            spacing: None,
            augmentation: AugmentationChoice::Usual,
            oversample_foreground: None,
            images: None,
            seed: 1,
            section: Mode::Training,
        }
    }

    /// The name of the argument of a failure, and its text.
    fn refused<T>(result: Result<T, Failure>) -> (&'static str, String) {
        match result.err().unwrap() {
            Failure::Argument { argument, message } => (argument, message),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn patches_are_of_volumes_or_slices() {
        let target = Spacing([3.0, 1.0, 2.0]);
        let grid = |settings: PatchSettings| {
            settings.sampler(&settings.of_volumes().unwrap(), target).map(|sampler| sampler.grid)
        };
        let volumes = grid(settings(&[8, 16, 24])).unwrap();
        assert_eq!(volumes, PatchGrid { patch: [8, 16, 24], spacing: target.into() });
        let slices = grid(settings(&[16, 24])).unwrap();
        assert_eq!(slices, PatchGrid { patch: [1, 16, 24], spacing: TargetSpacing::InPlane([1.0, 2.0]) });
        for wrong in [&[][..], &[1], &[1, 2, 3, 4], &[4, 0, 4]] {
            assert_eq!(refused(settings(wrong).check()).0, "patch_size");
        }
        let empty = PatchSettings { batch_size: 0, ..settings(&[8, 8]) };
        assert_eq!(refused(empty.check()).0, "batch_size");
    }

    #[test]
    fn arguments_without_an_effect_are_refused() {
        let images = settings(&[16, 24]);
        let known = images.of_images().unwrap().of_images();
        assert_eq!((known.size, known.augmentation().degrees), (Some([16, 24]), 10.0));
        let spacing = PatchSettings { spacing: Some(SpacingSetting::Native), ..images.clone() };
        assert_eq!(refused(spacing.of_images()).0, "spacing");
        let oversampled = PatchSettings { oversample_foreground: Some(0.5), ..images.clone() };
        assert_eq!(refused(oversampled.of_images()).0, "oversample_foreground");
        assert_eq!(refused(settings(&[1, 16, 24]).of_images()).0, "patch_size");
        let with = |images: ImageSettings| PatchSettings { images: Some(images), ..settings(&[16, 24]) };
        let sized = with(ImageSettings { size: Some([8, 8]), ..ImageSettings::default() });
        assert_eq!(refused(sized.check()), ("images", "has \"size\", which patch_size sets".into()));
        assert_eq!(refused(with(ImageSettings::default()).of_volumes()).0, "images");
    }

    #[test]
    fn an_augmentation_is_one_of_volumes_or_of_images() {
        let with = |text: &str| PatchSettings {
            augmentation: AugmentationChoice::Values(text.into()),
            ..settings(&[16, 24])
        };
        let volumes = with("{\"p_elastic\": 0.2}");
        assert!(volumes.check().is_ok() && volumes.of_volumes().is_ok());
        assert!(refused(volumes.of_images()).1.contains("p_elastic"));
        let images = with("{\"degrees\": 20}");
        assert!(images.check().is_ok() && images.of_images().is_ok());
        assert!(refused(images.of_volumes()).1.contains("degrees"));
        let (argument, message) = refused(with("{\"p_rotate\": 1}").check());
        assert!(argument == "augmentation" && message.contains("p_rotate"), "{message}");
        assert!(refused(with("{\"degrees\": 200}").of_images()).1.contains("200"));
    }

    #[test]
    fn wrong_values_are_named_with_their_argument() {
        let failure = parsed::<Augmentation>("augmentation", "{\"p_rotate\": 1}").unwrap_err();
        let text = failure.to_string();
        assert!(
            text.starts_with("augmentation") && text.contains("p_rotate") && !text.contains("line"),
            "{text}"
        );
        let spacing = parsed::<SpacingSetting>("spacing", "[1.0]").unwrap_err().to_string();
        assert!(spacing.contains("three numbers"), "{spacing}");
        assert_eq!(parsed::<SpacingSetting>("spacing", "\"native\""), Ok(SpacingSetting::Native));
    }
}
