//! The range of an axis, and where its ticks are.

/// Numbers beyond this are drawn as if they were none: no axis that has them would show anything else.
pub const LARGEST: f64 = 1e30;

/// The range of an axis with its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its low end.
    pub low: f64,
    /// Its high end.
    pub high: f64,
    /// From one tick to the next.
    step: f64,
}

impl Axis {
    /// Returns an axis of about `ticks` ticks that contains all numbers, except NaN and numbers beyond [`LARGEST`].
    pub fn new(numbers: impl Iterator<Item = f64>, ticks: f64) -> Axis {
        let shown = numbers.filter(|number| number.abs() <= LARGEST);
        let range = shown.fold(None, |range: Option<(f64, f64)>, number| {
            let (low, high) = range.unwrap_or((number, number));
            Some((low.min(number), high.max(number)))
        });
        let (mut low, mut high) = range.unwrap_or((0.0, 1.0));
        // A range of one number is made wide enough to be seen as one.
        if high - low <= 1e-12 * high.abs().max(low.abs()) {
            (low, high) =
                if low == 0.0 { (0.0, 1.0) } else { (low - 0.1 * low.abs(), high + 0.1 * low.abs()) };
        }
        let step = round_step((high - low) / ticks);
        Axis { low: (low / step + 1e-9).floor() * step, high: (high / step - 1e-9).ceil() * step, step }
    }

    /// Returns an axis of epochs from the first to the last, with whole ticks and no margin at the ends.
    pub fn for_epochs(first: u64, last: u64, ticks: f64) -> Axis {
        let (low, high) = (first as f64, last as f64);
        if last <= first {
            return Axis { low: low - 0.5, high: low + 0.5, step: 1.0 };
        }
        Axis { low, high, step: round_step((high - low) / ticks).max(1.0) }
    }

    /// Returns the position of a number: 0 at the low end, 1 at the high end.
    pub fn share(&self, number: f64) -> f64 {
        (number - self.low) / (self.high - self.low)
    }

    /// The ticks with their labels.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let first = (self.low / self.step - 1e-9).ceil();
        let count = ((self.high / self.step + 1e-9).floor() - first).clamp(0.0, 50.0) as usize;
        (0..=count)
            .map(|tick| (first + tick as f64) * self.step)
            .map(|number| (number, self.label(number)))
            .collect()
    }

    fn label(&self, number: f64) -> String {
        let largest = self.low.abs().max(self.high.abs());
        if number.abs() < 1e-9 * largest {
            return "0".into();
        }
        if !(1e-2..1e6).contains(&largest) {
            return format!("{number:.1e}");
        }
        let digits = (-(self.step.log10() + 1e-9).floor()).clamp(0.0, 8.0) as usize;
        format!("{number:.digits$}")
    }
}

/// The least of 1, 2, 5 times a power of ten that is not below a number.
fn round_step(number: f64) -> f64 {
    let power = 10f64.powf(number.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= number * (1.0 - 1e-9));
    times.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_that_enclose_all_that_is_shown() {
        assert_eq!(
            labels(&Axis::new([0.13, 0.87].into_iter(), 4.0)),
            ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(labels(&Axis::for_epochs(0, 9, 5.0)), ["0", "2", "4", "6", "8"]);
        assert_eq!(labels(&Axis::for_epochs(3, 3, 5.0)), ["3"]);
    }

    #[test]
    fn a_range_of_nothing_one_number_or_no_numbers_is_still_an_axis() {
        for numbers in [
            vec![],
            vec![0.0],
            vec![7.0; 3],
            vec![-2.0],
            vec![f64::NAN, f64::INFINITY],
            vec![1e300],
            vec![1e-300],
        ] {
            let axis = Axis::new(numbers.into_iter(), 4.0);
            assert!(axis.high > axis.low && axis.step > 0.0, "{axis:?}");
            assert!((2..=50).contains(&axis.ticks().len()), "{axis:?}");
        }
    }
}
