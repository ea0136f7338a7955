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
    /// checkpoint. If the epoch before it is no longer kept, its sums start from the last one that is.
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
    fn repeated_epochs_replace_their_earlier_records() {
        let history: History = [0, 1, 2, 3, 2].into_iter().map(point).collect();
        let epochs: Vec<u64> = history.points().map(|(point, _)| point.epoch).collect();
        assert_eq!(epochs, [0, 1, 2]);
        assert_eq!(history.last().map(|(_, totals)| totals.seconds), Some(6.0));
    }
}
