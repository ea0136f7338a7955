//! The bounds of every network's settings.
//!
//! The bounds lie far above any network that is trained, and low enough that no size, time or number of operations that
//! is derived from numbers within them overflows. A number beyond them is a typing error, and is reported before
//! anything is computed from it.

use super::NetworkSettings;
use crate::ConfigError;

/// The most stages of a network: 2¹⁵ voxels of a patch are then one voxel of the coarsest.
pub const MOST_STAGES: usize = 16;
/// The most channels of a stage.
pub const MOST_FEATURES: usize = 4096;
/// The most convolutions or residual blocks of a stage, in the encoder and in the decoder.
pub const MOST_CONVOLUTIONS: usize = 64;
/// The largest multiple of channels inside of a block.
pub const MOST_EXPANSION: usize = 32;
/// The largest kernel along an axis.
pub const LARGEST_KERNEL: usize = 31;
/// The largest stride along an axis.
pub const LARGEST_STRIDE: usize = 16;
/// The most voxels of a patch along an axis.
pub const MOST_PATCH_EXTENT: usize = 4096;
/// The most voxels of a patch: 1024³.
pub const MOST_PATCH_VOXELS: usize = 1 << 30;
/// The most samples of a step.
pub const MOST_BATCH: usize = 4096;
/// The most multiplications of a step's forward pass, if each weight met each voxel of the batch: a processor with 10¹² in a
/// second would take twelve days.
pub const MOST_MULTIPLICATIONS: f64 = 1e18;

/// Checks that a number is within a range; the error names the setting, the number and the range.
///
/// # Errors
/// Returns an error if the number is out of range.
pub fn check_count(
    setting: &'static str,
    found: usize,
    least: usize,
    most: usize,
) -> Result<(), ConfigError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let expected = format!("it must be from {least} to {most}");
    Err(ConfigError::Value { setting, found: found.to_string(), expected })
}

/// Checks that a list has an entry for each of at most [`MOST_STAGES`] stages, and that its numbers are within a range.
fn check_list<'a>(
    setting: &'static str,
    stages: usize,
    numbers: impl IntoIterator<Item = &'a usize>,
    most: usize,
) -> Result<(), ConfigError> {
    if stages > MOST_STAGES {
        let expected = format!("a network may have at most {MOST_STAGES} stages");
        return Err(ConfigError::Value { setting, found: format!("a list of {stages}"), expected });
    }
    let Some(found) = numbers.into_iter().find(|number| !(1..=most).contains(*number)) else { return Ok(()) };
    let expected = format!("its numbers must be from 1 to {most}");
    Err(ConfigError::Value { setting, found: format!("a list with {found}"), expected })
}

/// Lists of a network, as settings have them and as a network does.
#[derive(Clone, Copy, Default)]
pub(super) struct Lists<'a> {
    pub(super) features: &'a [usize],
    pub(super) kernels: &'a [[usize; 3]],
    pub(super) strides: &'a [[usize; 3]],
    pub(super) encoder_convs: &'a [usize],
    pub(super) decoder_convs: &'a [usize],
    pub(super) encoder_blocks: &'a [usize],
    pub(super) decoder_blocks: &'a [usize],
}

impl Lists<'_> {
    /// Checks that every number is within its bounds.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        check_list("features", self.features.len(), self.features, MOST_FEATURES)?;
        check_list("kernels", self.kernels.len(), self.kernels.iter().flatten(), LARGEST_KERNEL)?;
        check_list("strides", self.strides.len(), self.strides.iter().flatten(), LARGEST_STRIDE)?;
        check_list("encoder_convs", self.encoder_convs.len(), self.encoder_convs, MOST_CONVOLUTIONS)?;
        check_list("decoder_convs", self.decoder_convs.len(), self.decoder_convs, MOST_CONVOLUTIONS)?;
        check_list("encoder_blocks", self.encoder_blocks.len(), self.encoder_blocks, MOST_CONVOLUTIONS)?;
        check_list("decoder_blocks", self.decoder_blocks.len(), self.decoder_blocks, MOST_CONVOLUTIONS)?;
        // Sixteen strides of 16 come to 2⁶⁴.
        for axis in 0..3 {
            let product = self.strides.iter().fold(1usize, |all, stride| all.saturating_mul(stride[axis]));
            if product > MOST_PATCH_EXTENT {
                let expected = format!("a patch has at most {MOST_PATCH_EXTENT} voxels along an axis");
                let found = match product {
                    usize::MAX => "a list whose product along an axis overflows".into(),
                    product => format!("a list whose product along an axis is {product}"),
                };
                return Err(ConfigError::Value { setting: "strides", found, expected });
            }
        }
        Ok(())
    }
}

impl NetworkSettings {
    /// Checks that every given setting is within its bounds, whatever the network, before anything is derived from it.
    ///
    /// # Errors
    /// Returns an error that names the first setting out of bounds.
    pub fn check_bounds(&self) -> Result<(), ConfigError> {
        Lists {
            features: self.features.as_deref().unwrap_or_default(),
            kernels: self.kernels.as_deref().unwrap_or_default(),
            strides: self.strides.as_deref().unwrap_or_default(),
            encoder_convs: self.encoder_convs.as_deref().unwrap_or_default(),
            decoder_convs: self.decoder_convs.as_deref().unwrap_or_default(),
            encoder_blocks: self.encoder_blocks.as_deref().unwrap_or_default(),
            decoder_blocks: self.decoder_blocks.as_deref().unwrap_or_default(),
        }
        .check()?;
        let dilations = self.dilations.as_deref().unwrap_or_default();
        check_list("dilations", dilations.len(), dilations, MOST_PATCH_EXTENT)?;
        for (setting, list) in
            [("encoder_expansion", &self.encoder_expansion), ("decoder_expansion", &self.decoder_expansion)]
        {
            let list = list.as_deref().unwrap_or_default();
            check_list(setting, list.len(), list, MOST_EXPANSION)?;
        }
        check_count("kernel_size", self.kernel_size.unwrap_or(1), 1, LARGEST_KERNEL)?;
        check_count("init_filters", self.init_filters.unwrap_or(1), 1, MOST_FEATURES)?;
        check_count("norm_groups", self.norm_groups.unwrap_or(1), 1, MOST_FEATURES)?;
        let heads = self.deep_supervision.unwrap_or(0);
        check_count("deep_supervision", heads, 0, MOST_STAGES)?;
        check_probability("dropout", self.dropout.unwrap_or(0.0))
    }
}

/// Checks that a dropout probability is in [0, 1).
pub(super) fn check_probability(setting: &'static str, p: f32) -> Result<(), ConfigError> {
    if (0.0..1.0).contains(&p) {
        return Ok(());
    }
    let expected = "it must be a probability from 0 to below 1".into();
    Err(ConfigError::Value { setting, found: p.to_string(), expected })
}

/// Checks that a patch can be addressed.
///
/// # Errors
/// Returns an error if the patch is empty or out of bounds.
pub fn check_patch_size(patch: [usize; 3]) -> Result<(), ConfigError> {
    let value = |expected: String| {
        Err(ConfigError::Value { setting: "patch_size", found: format!("{patch:?}"), expected })
    };
    if patch.iter().any(|extent| !(1..=MOST_PATCH_EXTENT).contains(extent)) {
        return value(format!("each extent must be from 1 to {MOST_PATCH_EXTENT} voxels"));
    }
    let voxels: usize = patch.iter().product();
    if voxels > MOST_PATCH_VOXELS {
        return value(format!("these are {voxels} voxels, more than {MOST_PATCH_VOXELS}"));
    }
    Ok(())
}

/// Checks that a batch has a possible number of samples, and that the operations of a step can be counted. `weights` is
/// the number of weights of the network's convolutions.
///
/// # Errors
/// Returns an error if either number is out of bounds.
pub fn check_batch(batch: usize, patch: [usize; 3], weights: f64) -> Result<(), ConfigError> {
    check_count("batch_size", batch, 1, MOST_BATCH)?;
    let voxels: f64 = patch.iter().map(|extent| *extent as f64).product();
    if batch as f64 * voxels * weights <= MOST_MULTIPLICATIONS {
        return Ok(());
    }
    let found = format!("{batch}, of patches of {patch:?} through {weights:.1e} weights");
    let expected = format!("a step may have at most {MOST_MULTIPLICATIONS:.0e} multiplications");
    Err(ConfigError::Value { setting: "batch_size", found, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_papers_are_within_the_bounds() {
        // nnU-Net's ResEnc XL: 192 × 192 × 192, batch 5, up to 320 features, here with twice of all.
        let settings = NetworkSettings {
            features: Some(vec![64, 128, 256, 512, 640, 640, 640]),
            kernels: Some(vec![[7; 3]; 7]),
            strides: Some([vec![[1; 3]], vec![[2; 3]; 6]].concat()),
            encoder_convs: Some(vec![2, 6, 8, 12, 12, 12, 12]),
            ..NetworkSettings::default()
        };
        assert_eq!(settings.check_bounds(), Ok(()));
        assert_eq!(check_patch_size([384; 3]), Ok(()));
        assert_eq!(check_batch(10, [384; 3], 1e9), Ok(()));
    }

    #[test]
    fn strides_whose_product_overflows_are_refused_by_name() {
        let settings =
            NetworkSettings { strides: Some(vec![[16; 3]; MOST_STAGES]), ..NetworkSettings::default() };
        let said = settings.check_bounds().unwrap_err().to_string();
        assert!(said.contains("`strides`") && said.contains("4096"), "{said}");
    }

    #[test]
    fn a_step_beyond_counting_is_refused_though_each_number_by_itself_is_possible() {
        assert_eq!(check_patch_size([1024; 3]), Ok(()));
        assert!(check_batch(MOST_BATCH, [1024; 3], 1.0).is_ok());
        assert!(check_batch(MOST_BATCH, [1024; 3], 1e8).unwrap_err().to_string().contains("`batch_size`"));
    }
}
