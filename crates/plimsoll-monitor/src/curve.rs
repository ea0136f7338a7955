//! Numbers over epochs, of which no more are kept than a picture can show.

/// The most points that are kept: each as a pixel of its own is more than a terminal or a page has.
const MOST: usize = 4096;

/// Something of each epoch, in their order. Of very many epochs only every second, fourth, … is kept, and the last one.
#[derive(Clone, Debug)]
pub struct Curve<T> {
    points: Vec<(u64, T)>,
    stride: u64,
}

impl<T> Default for Curve<T> {
    fn default() -> Curve<T> {
        Curve { points: Vec::new(), stride: 1 }
    }
}

impl<T> Curve<T> {
    /// Appends an epoch. Those that are not before it are done again, and are forgotten.
    pub fn push(&mut self, epoch: u64, point: T) {
        while self.points.last().is_some_and(|(last, _)| *last >= epoch) {
            self.points.pop();
        }
        // The last epoch of before was kept as the last.
        if self.points.last().is_some_and(|(last, _)| last % self.stride != 0) {
            self.points.pop();
        }
        self.points.push((epoch, point));
        if self.points.len() > MOST {
            self.stride *= 2;
            let stride = self.stride;
            self.points.retain(|(at, _)| at % stride == 0 || *at == epoch);
        }
    }

    /// The kept points, with their epochs.
    pub fn points(&self) -> &[(u64, T)] {
        &self.points
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Curve::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_that_are_done_again_replace_those_of_before() {
        let mut curve = Curve::default();
        [(0, 'a'), (1, 'b'), (2, 'c'), (1, 'd')]
            .into_iter()
            .for_each(|(epoch, point)| curve.push(epoch, point));
        assert_eq!(curve.points(), [(0, 'a'), (1, 'd')]);
    }

    #[test]
    fn a_curve_keeps_evenly_spaced_epochs_and_the_last() {
        let mut curve = Curve::default();
        (0..100_000u64).for_each(|epoch| curve.push(epoch, ()));
        let epochs: Vec<u64> = curve.points().iter().map(|(epoch, ())| *epoch).collect();
        assert!((MOST / 2..=MOST).contains(&epochs.len()), "{}", epochs.len());
        assert_eq!((epochs[0], epochs.last()), (0, Some(&99_999)));
        let inner = &epochs[..epochs.len() - 1];
        assert!(inner.windows(2).all(|pair| pair[1] - pair[0] == 32), "{:?}", &inner[..4]);
    }
}
