//! The history of a run: as many epochs as a picture shows, with sums over all of them.

use plimsoll_monitor::Curve;

use super::EpochPoint;

/// Sums over all epochs up to one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Their seconds, as far as they are known.
    pub seconds: f64,
    /// The epoch of the highest moving average of pseudo-Dice, and that average.
    pub best: Option<(u64, f64)>,
    /// The epoch of the highest balanced accuracy, and that accuracy.
    pub most_accurate: Option<(u64, f64)>,
    /// The most resident memory of the process after an epoch, in bytes.
    pub most_held: u64,
}

impl Totals {
    /// The sums with one more epoch.
    fn with(self, point: &EpochPoint) -> Totals {
        let higher = |best: Option<(u64, f64)>, value: Option<f64>| match (best, value) {
            (Some((_, highest)), Some(value)) if value < highest => best,
            (_, Some(value)) => Some((point.epoch, value)),
            (_, None) => best,
        };
        Totals {
            seconds: self.seconds + if point.seconds.is_finite() { point.seconds } else { 0.0 },
            best: higher(self.best, point.ema_pseudo_dice.filter(|dice| dice.is_finite())),
            most_accurate: higher(self.most_accurate, point.accuracy),
            most_held: self.most_held.max(point.resident_bytes.unwrap_or(0)),
        }
    }
}

/// The epochs of a run, in memory that does not grow with their number.
#[derive(Clone, Debug, Default)]
pub struct History {
    curve: Curve<(EpochPoint, Totals)>,
}

impl History {
    /// Appends an epoch. Later epochs and an earlier record of the same one are removed: a run repeats them after it returns to a
    /// checkpoint. If the sums up to there are no longer kept, `read` passes all epochs of the run again.
    ///
    /// # Errors
    /// Returns an error if they cannot be read. The sums then start from the last epoch that is kept.
    pub fn push_or_read<E>(
        &mut self,
        point: EpochPoint,
        read: impl FnOnce(&mut dyn FnMut(EpochPoint)) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut is_read = Ok(());
        if self.lacks_before(point.epoch) {
            let mut again = History::default();
            is_read = read(&mut |earlier| {
                if earlier.epoch < point.epoch {
                    again.push(earlier);
                }
            });
            if is_read.is_ok() {
                *self = again;
            }
        }
        self.push(point);
        is_read
    }

    /// Returns `true` if a run returns to before an epoch, and the one before that is not kept.
    fn lacks_before(&self, epoch: u64) -> bool {
        let points = self.curve.points();
        let repeats = points.last().is_some_and(|(last, _)| *last >= epoch);
        let before = points.iter().rev().map(|(kept, _)| *kept).find(|kept| *kept < epoch);
        repeats && before != epoch.checked_sub(1)
    }

    /// Appends an epoch before which none is missing.
    pub fn push(&mut self, point: EpochPoint) {
        let before = self.curve.points().iter().rev().find(|(epoch, _)| *epoch < point.epoch);
        let totals = before.map_or_else(Totals::default, |(_, (_, totals))| *totals).with(&point);
        self.curve.push(point.epoch, (point, totals));
    }

    /// The kept epochs, each with the sums up to it.
    pub fn points(&self) -> impl Iterator<Item = &(EpochPoint, Totals)> {
        self.curve.points().iter().map(|(_, kept)| kept)
    }

    /// The last epoch and the sums over all.
    pub fn last(&self) -> Option<&(EpochPoint, Totals)> {
        self.curve.points().last().map(|(_, kept)| kept)
    }
}

impl FromIterator<EpochPoint> for History {
    fn from_iter<I: IntoIterator<Item = EpochPoint>>(points: I) -> History {
        let mut history = History::default();
        points.into_iter().for_each(|point| history.push(point));
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(epoch: u64) -> EpochPoint {
        EpochPoint {
            epoch,
            learning_rate: 0.01,
            train_loss: Some(1.0),
            validation_loss: Some(1.0),
            mean_pseudo_dice: None,
            // The highest is in an epoch that is not kept.
            ema_pseudo_dice: Some(if epoch == 4321 { 0.9 } else { 0.5 }),
            accuracy: None,
            kappa: None,
            seconds: 2.0,
            resident_bytes: Some(1000 + u64::from(epoch == 1235)),
        }
    }

    #[test]
    fn a_hundred_thousand_epochs_take_as_much_as_ten_thousand_and_their_sums_are_exact() {
        let kept = |count: u64| (0..count).map(point).collect::<History>().points().count();
        assert!(kept(100_000) <= 4096 && kept(10_000) <= 4096, "{} {}", kept(100_000), kept(10_000));
        let history: History = (0..100_000).map(point).collect();
        let (last, totals) = history.last().expect("epochs");
        assert_eq!((last.epoch, totals.seconds), (99_999, 200_000.0));
        assert_eq!((totals.best, totals.most_held), (Some((4321, 0.9)), 1001));
    }

    #[test]
    fn sums_are_exact_after_a_return_to_an_epoch_that_is_no_longer_kept() {
        let mut history: History = (0..10_000).map(point).collect();
        let journal = |each: &mut dyn FnMut(EpochPoint)| {
            (0..9_004).map(point).for_each(each);
            Ok::<(), ()>(())
        };
        assert!(history.points().all(|(kept, _)| kept.epoch != 9_002), "it is kept");
        history.push_or_read(point(9_003), journal).expect("the journal");
        let (last, totals) = history.last().expect("epochs");
        assert_eq!((last.epoch, totals.seconds), (9_003, 2.0 * 9_004.0));
        assert_eq!((totals.best, totals.most_held), (Some((4321, 0.9)), 1001));
        // The next epoch follows without reading.
        history.push_or_read(point(9_004), |_| Err(())).expect("no reading");
        assert_eq!(history.last().map(|(_, totals)| totals.seconds), Some(2.0 * 9_005.0));
    }

    #[test]
    fn repeated_epochs_replace_their_earlier_records() {
        let history: History = [0, 1, 2, 3, 2].into_iter().map(point).collect();
        let epochs: Vec<u64> = history.points().map(|(point, _)| point.epoch).collect();
        assert_eq!(epochs, [0, 1, 2]);
        assert_eq!(history.last().map(|(_, totals)| totals.seconds), Some(6.0));
    }
}
