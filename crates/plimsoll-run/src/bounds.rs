//! Bounds that no run exceeds, checked before anything is planned or read.
//!
//! A network's bounds stand in [`plimsoll_nn::bounds`]. Learning rates, optimizers and schedules check themselves.

use plimsoll_data::{
    Augmentation, AugmentationError, Fingerprint, SpacingSetting, TargetSpacing, far_apart, meant_unit,
};
use plimsoll_nn::ConfigError;
use plimsoll_nn::bounds::{MOST_BATCH, check_count, check_patch_size};

use crate::{EarlyStoppingSettings, RunError, Settings};

/// The most steps of a run: up to there every number of steps is one of `f64` too.
pub const MOST_STEPS: u64 = 1 << 53;
/// The most batches that a validation takes.
pub const MOST_VALIDATION: u64 = 1_000_000;
/// The finest spacing of a grid in millimetres: a tenth of a nanometre.
pub const FINEST_SPACING: f64 = 1e-7;
/// The coarsest spacing of a grid in millimetres.
pub const COARSEST_SPACING: f64 = 1e4;
/// The factor between the spacings of two axes beyond which one of them is a slip.
pub const MOST_ANISOTROPY: f64 = 1e4;

fn refuse<T>(
    setting: &'static str,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<T, ConfigError> {
    Err(ConfigError::Value { setting, found: found.to_string(), expected: expected.into() })
}

/// Checks that epochs of `iterations_per_epoch` steps make a countable run.
pub(crate) fn check_steps(epochs: u64, iterations_per_epoch: u64) -> Result<(), ConfigError> {
    for (setting, found) in [("epochs", epochs), ("iterations_per_epoch", iterations_per_epoch)] {
        if !(1..=MOST_STEPS).contains(&found) {
            return refuse(setting, found, format!("it must be from 1 to {MOST_STEPS}"));
        }
    }
    match epochs.checked_mul(iterations_per_epoch) {
        Some(steps) if steps <= MOST_STEPS => Ok(()),
        _ => refuse(
            "epochs",
            format!("{epochs}, of {iterations_per_epoch} steps each"),
            format!("a run may have at most {MOST_STEPS} steps"),
        ),
    }
}

/// Lengths, each in as few digits as tell it from others of single precision, in which headers have them.
pub(crate) fn listed(lengths: &[f64]) -> String {
    let digits = |length: &f64| {
        let single = *length as f32;
        let is_near = (f64::from(single) - length).abs() <= f64::from(f32::EPSILON) * length.abs();
        if is_near { single.to_string() } else { length.to_string() }
    };
    lengths.iter().map(digits).collect::<Vec<_>>().join(", ")
}

/// Checks that a grid can have this spacing.
///
/// # Errors
/// Returns an error if a length is beyond its bounds, or an axis too much coarser than another.
pub fn check_spacing(spacing: TargetSpacing) -> Result<(), ConfigError> {
    let spacing = spacing.lengths();
    let found = || format!("[{}]", listed(spacing));
    if spacing.iter().any(|mm| !(FINEST_SPACING..=COARSEST_SPACING).contains(mm)) {
        let expected = format!("its numbers must be from {FINEST_SPACING:e} to {COARSEST_SPACING} mm");
        return refuse("spacing", found(), expected);
    }
    let coarsest = spacing.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    if spacing.iter().any(|mm| coarsest / mm > MOST_ANISOTROPY) {
        let expected = format!("no axis may be more than {MOST_ANISOTROPY} times as coarse as another");
        return refuse("spacing", found(), expected);
    }
    Ok(())
}

/// Checks that a spacing is not so far from the images' spacing that its unit must be wrong.
pub(crate) fn check_near(spacing: TargetSpacing, fingerprint: &Fingerprint) -> Result<(), RunError> {
    let median = fingerprint.median_spacing();
    let usual = if spacing.is_of_slices() { &median.0[1..] } else { &median.0[..] };
    match far_apart(spacing.lengths(), usual) {
        None => Ok(()),
        Some(times) => {
            let (found, median) = (listed(spacing.lengths()), listed(usual));
            Err(RunError::FarSpacing { found, median, times, meant: meant_unit(times) })
        }
    }
}

/// Checks that a validation has a countable number of batches.
pub(crate) fn check_validation(iterations: u64) -> Result<(), ConfigError> {
    if iterations > MOST_VALIDATION {
        return refuse(
            "validation_iterations",
            iterations,
            format!("it must be from 0 to {MOST_VALIDATION}"),
        );
    }
    Ok(())
}

/// Checks that a setting is a share from 0 to 1.
pub(crate) fn check_share(setting: &'static str, found: f64) -> Result<(), ConfigError> {
    match (0.0..=1.0).contains(&found) {
        true => Ok(()),
        false => refuse(setting, found, "it must be a share from 0 to 1"),
    }
}

/// Checks the ranges of an augmentation.
pub(crate) fn check_augmentation(augmentation: Augmentation) -> Result<(), ConfigError> {
    augmentation.check().or_else(|AugmentationError { setting, found, expected }| {
        refuse(setting, found, format!("it must be {expected}"))
    })
}

impl Settings {
    /// Checks that a setting without effect is not given.
    pub(crate) fn expect_none_of(
        &self,
        setting: &'static str,
        is_given: bool,
        because: &'static str,
    ) -> Result<(), ConfigError> {
        match is_given {
            true => refuse(setting, "set", format!("it has no effect here: {because}")),
            false => Ok(()),
        }
    }

    /// Checks that nothing contradicts the preset.
    fn check_preset(&self) -> Result<(), ConfigError> {
        let is_low = self.lowres == Some(true);
        match (self.preset, self.network.net) {
            (Some(preset), Some(net)) if net != preset.network() => {
                return refuse("net", net, format!("the preset `{preset}` is of `{}`", preset.network()));
            }
            (None, _) if is_low => return refuse("lowres", true, "only a `preset` has a low resolution"),
            _ => {}
        }
        if is_low && self.spacing.is_some() {
            return refuse("spacing", "set", "with `lowres` the preset chooses the spacing");
        }
        if is_low && self.dimensions == Some(2) {
            return refuse("lowres", true, "nnU-Net has no low resolution of slices");
        }
        Ok(())
    }

    /// Checks all bounds that need no data set.
    ///
    /// # Errors
    /// Returns an error if a setting exceeds its bound; the error names the setting, the value and the bound.
    pub fn check(&self) -> Result<(), RunError> {
        self.network.check_bounds()?;
        self.check_preset()?;
        check_count("dimensions", self.dimensions.unwrap_or(3), 2, 3)?;
        self.patch_size.map_or(Ok(()), check_patch_size)?;
        if let Some(SpacingSetting::To(spacing)) = self.spacing {
            check_spacing(spacing)?;
        }
        for (setting, given) in
            [("batch_size", self.batch_size), ("shards", self.shards), ("micro_batch", self.micro_batch)]
        {
            given.map_or(Ok(()), |found| check_count(setting, found, 1, MOST_BATCH))?;
        }
        // With its default alone, an epoch too many may be none.
        check_steps(self.epochs.unwrap_or(1), self.iterations_per_epoch.unwrap_or(1))?;
        self.validation_iterations.map_or(Ok(()), check_validation)?;
        self.oversample_foreground.map_or(Ok(()), |share| check_share("oversample_foreground", share))?;
        self.early_stopping.as_ref().map_or(Ok(()), EarlyStoppingSettings::check)?;
        self.augmentation.map_or(Ok(()), check_augmentation)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(toml: &str) -> String {
        let settings: Settings = toml::from_str(toml).unwrap();
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn a_run_of_uncountable_steps_is_refused_and_the_longest_is_not() {
        assert!(said("epochs = 9223372036854775807").starts_with("`epochs` is 9223372036854775807, but"));
        assert!(said("epochs = 4294967296\niterations_per_epoch = 4294967296").contains("9007199254740992"));
        assert!(said("iterations_per_epoch = 0").starts_with("`iterations_per_epoch` is 0"));
        assert_eq!(check_steps(1 << 26, 1 << 27), Ok(()));
    }

    #[test]
    fn lengths_of_headers_are_said_in_as_few_digits_as_tell_them_apart() {
        let of_header = f64::from(0.001_f32);
        assert_eq!(listed(&[of_header, f64::from(4.97_f32), 5.0]), "0.001, 4.97, 5");
        assert_eq!(listed(&[0.000_331, 0.7, 1e300, f64::NAN]), format!("0.000331, 0.7, {}, NaN", 1e300));
    }

    #[test]
    fn numbers_that_are_none_are_refused_wherever_they_stand() {
        for (setting, value) in [
            ("spacing", "[1.0, nan, 1.0]"),
            ("spacing", "[1.0, inf, 1.0]"),
            ("spacing", "[1.0, -1.0, 1.0]"),
            ("spacing", "[1e-7, 1.0, 1.0]"),
            ("oversample_foreground", "nan"),
            ("oversample_foreground", "-0.5"),
            ("oversample_foreground", "inf"),
        ] {
            let said = said(&format!("{setting} = {value}"));
            assert!(said.starts_with(&format!("`{setting}` is ")), "{said}");
        }
        let all = plimsoll_data::Augmentation::default();
        let all = serde_json::to_value(all).unwrap();
        for (option, value) in all.as_object().unwrap() {
            let hostile: &[&str] = match value {
                serde_json::Value::Number(_) => &["nan", "inf", "-1.0", "1.5"],
                serde_json::Value::Array(range) if range.len() == 2 => {
                    &["[nan, 1.0]", "[0.5, inf]", "[-inf, 1.0]", "[2.0, 1.0]"]
                }
                _ => continue,
            };
            for value in hostile {
                let said = said(&format!("[augmentation]\n{option} = {value}"));
                assert!(said.starts_with(&format!("`{option}` is ")), "{option} = {value}: {said}");
            }
        }
        for value in ["nan", "inf", "-0.1", "1.0"] {
            assert!(said(&format!("[network]\ndropout = {value}")).starts_with("`dropout` is "));
        }
    }
}
