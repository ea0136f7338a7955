//! Intensities as networks of two looks see them.

use plimsoll_data::LocatedSteps;

use crate::located::fault::LocatedFault;

/// The range of intensities that networks see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    low: f32,
    high: f32,
}

impl Range {
    /// The range between two quantiles of some values, whose order changes.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub(super) fn new(values: &mut [f32], quantiles: [f64; 2]) -> Result<Range, LocatedFault> {
        let [low, high] = quantiles.map(|share| quantile(values, share as f32));
        match low < high {
            true => Ok(Range { low, high }),
            false => Err(LocatedFault::Constant),
        }
    }

    /// Brings values to the range from 0 to 1, and then to a mean and a deviation: of a sample, divided by one less than their number.
    ///
    /// # Errors
    /// Returns an error if all are equal.
    pub(super) fn normalise(self, values: &mut [f32], steps: &LocatedSteps) -> Result<(), LocatedFault> {
        let width = self.high - self.low;
        values.iter_mut().for_each(|value| *value = ((*value - self.low) / width).clamp(0.0, 1.0));
        let count = values.len() as f64;
        let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
        let squares = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>();
        let deviation = (squares / (count - 1.0)).sqrt() as f32;
        if !(deviation.is_finite() && deviation > 0.0) {
            return Err(LocatedFault::Constant);
        }
        let (mean, scale, shift) = (mean as f32, steps.deviation as f32, steps.mean as f32);
        values.iter_mut().for_each(|value| *value = scale * ((*value - mean) / deviation) + shift);
        Ok(())
    }
}

/// A quantile with linear interpolation, computed in f32 as `torch.quantile` does.
fn quantile(values: &mut [f32], share: f32) -> f32 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let rank = share * last as f32;
    let below = (rank.floor() as usize).min(last);
    let (_, low, above) = values.select_nth_unstable_by(below, f32::total_cmp);
    let low = *low;
    let high =
        if rank.fract() > 0.0 { above.iter().copied().min_by(f32::total_cmp).unwrap_or(low) } else { low };
    let weight = rank - below as f32;
    match weight < 0.5 {
        true => low + weight * (high - low),
        false => high - (high - low) * (1.0 - weight),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch.tensor([3., 1., 4., 1.5, 5., 9., 2., 6.]).quantile(q)` of PyTorch 2.15.
    #[test]
    fn quantiles_are_those_of_pytorch() {
        let mut values = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0];
        for (share, expected) in
            [(0.0, 1.0), (0.005, 1.0175), (0.3, 2.1), (0.5, 3.5), (0.995, 8.895), (1.0, 9.0)]
        {
            let found = quantile(&mut values, share);
            assert!((found - expected).abs() < 1e-5, "{share}: {found}");
        }
    }

    #[test]
    fn an_image_without_contrast_is_refused() {
        assert_eq!(Range::new(&mut [2.0; 9], [0.1, 0.9]), Err(LocatedFault::Constant));
    }
}
