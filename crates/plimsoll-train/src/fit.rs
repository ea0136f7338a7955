//! The least limits that a configuration needs, and which of several configurations is the first to fit.

use plimsoll_run::RunConfig;

use crate::TrainError;
use crate::candidate::{Candidate, Needs, Site, micro_batches};
use crate::products::multiplying;

/// The least limits that would do for a configuration, by schedules that are found with nominal rates.
pub(crate) fn least(
    config: &RunConfig,
    micro_batch_is_set: bool,
    site: Site<'_>,
) -> Result<Needs, TrainError> {
    let sizes = micro_batches(config, micro_batch_is_set);
    let smallest = sizes.last().copied().unwrap_or(config.training.micro_batch);
    let candidate = Candidate::new(config, smallest, site)?;
    let nominal = multiplying(site.backend, &config.products)?;
    let planner = candidate.planner(&*nominal)?;
    let plan = site.plan(&candidate, &planner, Some(0))?;
    Ok(candidate.needs(plan.arena_bytes))
}

/// Returns `true` if a configuration fits with its smallest arena. A configuration whose largest kernel alone does not fit is not
/// searched.
pub(crate) fn fits(config: &RunConfig, micro_batch_is_set: bool, site: Site<'_>) -> Result<bool, TrainError> {
    let sizes = micro_batches(config, micro_batch_is_set);
    let smallest = sizes.last().copied().unwrap_or(config.training.micro_batch);
    let candidate = Candidate::new(config, smallest, site)?;
    let nominal = multiplying(site.backend, &config.products)?;
    let planner = candidate.planner(&*nominal)?;
    if !site.fits(candidate.needs(planner.least_bound())) {
        return Ok(false);
    }
    Ok(site.fits(candidate.needs(site.plan(&candidate, &planner, Some(0))?.arena_bytes)))
}

/// The first of `count` that fits, by bisection: what they need falls from one to the next.
pub(crate) fn first_that_fits(
    count: usize,
    fits: impl Fn(usize) -> Result<bool, TrainError>,
) -> Result<Option<usize>, TrainError> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        if fits(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok((low < count).then_some(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_fits_is_found() {
        for first in 0..=7 {
            let found = first_that_fits(7, |at| Ok(at >= first)).unwrap();
            assert_eq!(found, (first < 7).then_some(first));
        }
    }
}
