//! Losses of regions, which may overlap: each has a logit and a sigmoid of its own.

use plimsoll_graph::Op;
use plimsoll_graph::ops::{
    Activation, Component, HardCounts, Loss, RegionCounts, SoftDice, WeightedBce, is_of_regions,
};

use super::{Objective, Term};
use crate::ConfigError;

impl Objective {
    /// nnU-Net's loss of regions, `DC_and_BCE_loss`, shifted by the constant 1: Dice and the binary cross-entropy of
    /// each region. If a label is ignored, nnU-Net divides the cross-entropy by the number of voxels that count, and
    /// not by the number of regions, so that its weight is multiplied by the number of regions.
    pub fn for_regions(regions: usize, batch: bool, ignore: Option<u8>) -> Objective {
        let weight = if ignore.is_some() { regions as f32 } else { 1.0 };
        let entropy = WeightedBce {
            weight,
            activation: Activation::Sigmoid,
            include_background: true,
            ..WeightedBce::default()
        };
        let dice = SoftDice { batch, ..SoftDice::default() };
        let components = vec![Component::SoftDice(dice), Component::WeightedBce(entropy)];
        Loss { ignore, ..Loss::new(components) }.into()
    }

    /// Checks that no component of a loss of regions sets whether the background is included: regions have no
    /// background.
    ///
    /// # Errors
    /// Returns an error if a component's `include_background` is not its default.
    pub fn expect_no_background(&self) -> Result<(), ConfigError> {
        for term in &self.components {
            let Term::Sums(component) = term else { continue };
            if let Some(found) = component.include_background()
                && Some(found) != component.default_include_background()
            {
                return Err(ConfigError::Background { component: component.name(), found });
            }
        }
        Ok(())
    }

    /// Returns the op that counts right and wrong voxels of logits.
    pub(crate) fn counts(&self) -> Op {
        match &self.regions {
            Some(regions) => RegionCounts { regions: regions.clone(), ignore: self.ignore }.into(),
            None => HardCounts { ignore: self.ignore }.into(),
        }
    }

    /// Returns the fault of an objective of regions with `outputs` outputs, if there is one: the option, its value, and
    /// the expected value.
    pub(super) fn regions_fault(&self, outputs: usize) -> Option<(String, String, String)> {
        let regions = self.regions.as_ref()?;
        if regions.sets.len() != outputs {
            let found = format!("of {} regions", regions.sets.len());
            return Some(("components".into(), found, format!("the network has {outputs} outputs")));
        }
        let fits = |term: &&Term| match term {
            Term::Sums(component) => is_of_regions(component),
            Term::Structure(_) => false,
        };
        let other = self.components.iter().find(|term| !fits(term))?;
        Some((
            "components".into(),
            other.name().into(),
            "regions overlap: use components of Dice and Tversky, or weighted_bce and focal with activation = \"sigmoid\""
                .into(),
        ))
    }
}
