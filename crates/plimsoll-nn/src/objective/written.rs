//! The ways in which a configuration may say a loss.

use plimsoll_graph::ops::{
    Component, CrossEntropy, Focal, FocalTversky, GeneralizedDice, Loss, SoftDice, Tversky, WeightedBce,
};
use serde::Deserialize;

use super::structure::{
    Boundary, ClDice, HausdorffDt, MorphSkeleton, SkeletonRecall, Structure, SurfaceDistance, ToplossSimple,
};
use super::{Objective, SoftTargets, Term};

/// A component of either kind, by its name.
#[derive(Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub(super) enum WrittenTerm {
    SoftDice(SoftDice),
    LogCoshDice(SoftDice),
    GeneralizedDice(GeneralizedDice),
    Tversky(Tversky),
    FocalTversky(FocalTversky),
    CrossEntropy(CrossEntropy),
    WeightedBce(WeightedBce),
    Focal(Focal),
    Boundary(Boundary),
    HausdorffDt(HausdorffDt),
    LogHausdorffDt(HausdorffDt),
    SurfaceDistance(SurfaceDistance),
    #[serde(rename = "cldice")]
    ClDice(ClDice),
    MorphSkeleton(MorphSkeleton),
    ToplossSimple(ToplossSimple),
    SkeletonRecall(SkeletonRecall),
}

impl From<WrittenTerm> for Term {
    fn from(entry: WrittenTerm) -> Term {
        match entry {
            WrittenTerm::SoftDice(options) => Term::Sums(Component::SoftDice(options)),
            WrittenTerm::LogCoshDice(options) => Term::Sums(Component::LogCoshDice(options)),
            WrittenTerm::GeneralizedDice(options) => Term::Sums(Component::GeneralizedDice(options)),
            WrittenTerm::Tversky(options) => Term::Sums(Component::Tversky(options)),
            WrittenTerm::FocalTversky(options) => Term::Sums(Component::FocalTversky(options)),
            WrittenTerm::CrossEntropy(options) => Term::Sums(Component::CrossEntropy(options)),
            WrittenTerm::WeightedBce(options) => Term::Sums(Component::WeightedBce(options)),
            WrittenTerm::Focal(options) => Term::Sums(Component::Focal(options)),
            WrittenTerm::Boundary(options) => Term::Structure(Structure::Boundary(options)),
            WrittenTerm::HausdorffDt(options) => Term::Structure(Structure::HausdorffDt(options)),
            WrittenTerm::LogHausdorffDt(options) => Term::Structure(Structure::LogHausdorffDt(options)),
            WrittenTerm::SurfaceDistance(options) => Term::Structure(Structure::SurfaceDistance(options)),
            WrittenTerm::ClDice(options) => Term::Structure(Structure::ClDice(options)),
            WrittenTerm::MorphSkeleton(options) => Term::Structure(Structure::MorphSkeleton(options)),
            WrittenTerm::ToplossSimple(options) => Term::Structure(Structure::ToplossSimple(options)),
            WrittenTerm::SkeletonRecall(options) => Term::Structure(Structure::SkeletonRecall(options)),
        }
    }
}

/// A list of components; or the weights of Dice and cross-entropy with the options of Dice.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(super) struct WrittenObjective {
    components: Option<Vec<Term>>,
    ignore: Option<u8>,
    dice: Option<f32>,
    cross_entropy: Option<f32>,
    batch: Option<bool>,
    include_background: Option<bool>,
    squared: Option<bool>,
    smooth_numerator: Option<f32>,
    smooth_denominator: Option<f32>,
}

impl TryFrom<WrittenObjective> for Objective {
    type Error = String;

    fn try_from(written: WrittenObjective) -> Result<Objective, String> {
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
                return Err(format!(
                    "`{option}` has no effect beside a list of components; set it in the entries of the list"
                ));
            }
            let ignore = written.ignore;
            return Ok(Objective { components, ignore, soft: SoftTargets::Never, regions: None });
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
        Ok(Loss { ignore: written.ignore, ..Loss::dice_ce(dice, entropy) }.into())
    }
}
