//! The two ways in which a configuration may say a loss.

use serde::Deserialize;

use super::{Component, CrossEntropy, Loss, SoftDice};

/// A list of components; or the weights of Dice and cross-entropy with the options of Dice.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(super) struct Written {
    components: Option<Vec<Component>>,
    ignore: Option<u8>,
    dice: Option<f32>,
    cross_entropy: Option<f32>,
    batch: Option<bool>,
    include_background: Option<bool>,
    squared: Option<bool>,
    smooth_numerator: Option<f32>,
    smooth_denominator: Option<f32>,
}

impl TryFrom<Written> for Loss {
    type Error = String;

    fn try_from(written: Written) -> Result<Loss, String> {
        let given = [
            ("dice", written.dice.is_some()),
            ("cross_entropy", written.cross_entropy.is_some()),
            ("batch", written.batch.is_some()),
            ("include_background", written.include_background.is_some()),
            ("squared", written.squared.is_some()),
            ("smooth_numerator", written.smooth_numerator.is_some()),
            ("smooth_denominator", written.smooth_denominator.is_some()),
        ];
        if let Some(components) = written.components {
            if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
                return Err(format!("`{option}` stands beside a list of components; say it in its entries"));
            }
            return Ok(Loss { components, ignore: written.ignore });
        }
        let usual = SoftDice::default();
        let dice = SoftDice {
            weight: written.dice.unwrap_or(usual.weight),
            batch: written.batch.unwrap_or(usual.batch),
            include_background: written.include_background.unwrap_or(usual.include_background),
            squared: written.squared.unwrap_or(usual.squared),
            smooth_numerator: written.smooth_numerator.unwrap_or(usual.smooth_numerator),
            smooth_denominator: written.smooth_denominator.unwrap_or(usual.smooth_denominator),
            class_weights: Vec::new(),
        };
        let entropy = written.cross_entropy.unwrap_or(CrossEntropy::default().weight);
        Ok(Loss { ignore: written.ignore, ..Loss::dice_ce(dice, entropy) })
    }
}
