//! The settings of a stream of batches.

use plimsoll_data::{Augmentation, Mode, PatchGrid, SamplerConfig, SpacingSetting, TargetSpacing};
use plimsoll_volume::Spacing;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// The settings that determine the contents of batches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PatchSettings {
    /// Voxels along depth, height and width, or along height and width for slices.
    pub patch_size: Vec<usize>,
    /// Samples of a batch.
    pub batch_size: usize,
    /// The spacing that images are brought to; `None` for nnU-Net's choice.
    pub spacing: Option<SpacingSetting>,
    /// The augmentation of training patches.
    pub augmentation: Augmentation,
    /// The share of patches that are centred on the foreground.
    pub oversample_foreground: f64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Training or validation.
    pub section: Mode,
}

/// The settings that do not change the contents of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchOptions {
    /// The batches of an epoch; `None` for epochs without an end.
    pub iterations_per_epoch: Option<u64>,
    /// The batches that wait or are in use, beside those that threads fill.
    pub prefetch: usize,
    /// Labels of 64 bits instead of 8.
    pub wide_labels: bool,
}

/// Parses the JSON of an argument.
///
/// # Errors
/// If it is not a value of the type; the error names the argument.
pub fn parsed<T: DeserializeOwned>(argument: &'static str, text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        // The position in a text that the user has not written says nothing.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        Failure::argument(argument, format!("is not possible: {message}"))
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
    /// The settings of the sampler, for a data set whose usual spacing is `target`.
    ///
    /// # Errors
    /// If the patch or the batch is empty.
    pub(super) fn sampler(&self, target: Spacing) -> Result<SamplerConfig, Failure> {
        let grid = PatchGrid { patch: self.patch()?, spacing: self.target_spacing(target) };
        if self.batch_size == 0 {
            return Err(Failure::argument("batch_size", "is 0; pass at least 1"));
        }
        Ok(SamplerConfig {
            augmentation: self.augmentation,
            oversample_foreground: self.oversample_foreground,
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
            augmentation: Augmentation::default(),
            oversample_foreground: 0.33,
            seed: 1,
            section: Mode::Training,
        }
    }

    #[test]
    fn patches_are_of_volumes_or_slices() {
        let target = Spacing([3.0, 1.0, 2.0]);
        let volumes = settings(&[8, 16, 24]).sampler(target).unwrap().grid;
        assert_eq!(volumes, PatchGrid { patch: [8, 16, 24], spacing: target.into() });
        let slices = settings(&[16, 24]).sampler(target).unwrap().grid;
        assert_eq!(slices, PatchGrid { patch: [1, 16, 24], spacing: TargetSpacing::InPlane([1.0, 2.0]) });
        for wrong in [&[][..], &[1], &[1, 2, 3, 4], &[4, 0, 4]] {
            let failure = settings(wrong).sampler(target).unwrap_err();
            assert!(matches!(failure, Failure::Argument { argument: "patch_size", .. }), "{failure}");
        }
        let empty = PatchSettings { batch_size: 0, ..settings(&[8, 8]) };
        assert!(matches!(empty.sampler(target), Err(Failure::Argument { argument: "batch_size", .. })));
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
