//! Slopes of a UNet's activations, which MONAI keeps with the weights.

use std::path::Path;

use plimsoll_graph::Shape;
use plimsoll_memory::Budget;
use plimsoll_nn::MonaiUNet;
use plimsoll_nn::weights::{WeightError, WeightFile};

use super::error::MonaiError;
use super::network::UnetActivation;
use crate::ModelError;

/// The ending of the names of learned slopes.
const LEARNED: &str = ".adn.A.weight";

/// Sets the slopes of a network: the one of its activation, or those that PReLUs have learned. `said_by` is the file that says which.
///
/// # Errors
/// Returns an error if the file cannot be read, a slope is not there or not finite, or slopes have been learned that are not to be taken.
pub(super) fn read_slopes(
    net: &mut MonaiUNet,
    weights: &Path,
    said_by: &Path,
    activation: UnetActivation,
    budget: &Budget,
) -> Result<(), ModelError> {
    let names = net.activations();
    let mut file = WeightFile::open(weights, budget)?;
    if let UnetActivation::Leaky(slope) = activation {
        // They would fit, and give other results.
        if let Some(name) = file.names().into_iter().find(|name| name.ends_with(LEARNED)) {
            let why = format!(
                "network: act is not prelu, but the weights {} have slopes of PReLUs, as `{name}`",
                weights.display()
            );
            return Err(MonaiError::refuse(said_by, why).into());
        }
        net.slopes = vec![slope; names.len()];
        return Ok(());
    }
    let mut slopes = Vec::with_capacity(names.len());
    for name in names {
        let name = format!("{name}.weight");
        let mut slope = [0.0];
        file.read_named(&name, &Shape(vec![1]), &mut slope)?;
        let [slope] = slope;
        if !slope.is_finite() {
            return Err(WeightError::NotFinite { path: weights.into(), name, count: 1, of: 1 }.into());
        }
        slopes.push(slope);
    }
    net.slopes = slopes;
    Ok(())
}
