//! The planes around one of a volume, as many as what looks at them reaches, while it goes from one end to the other.

use plimsoll_memory::{Budget, MapError, Mapped};

/// A ring of planes of bytes.
pub(crate) struct PlaneRing {
    planes: Vec<Mapped<u8>>,
    depth: usize,
    reach: usize,
    /// The first plane that is not there yet.
    next: usize,
}

impl PlaneRing {
    /// For planes of `voxels` of a volume of `depth` of them, with `reach` planes on either side.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for them.
    pub(crate) fn new(
        depth: usize,
        voxels: usize,
        reach: usize,
        budget: &Budget,
    ) -> Result<PlaneRing, MapError> {
        let count = (2 * reach + 1).min(depth.max(1));
        let plane = |_| Mapped::zeroed(budget, "planes of labels", voxels);
        Ok(PlaneRing { planes: (0..count).map(plane).collect::<Result<_, _>>()?, depth, reach, next: 0 })
    }

    /// Makes the planes around plane `d` present: `read` is called with the number of each that is not, in order. `d` never goes back.
    ///
    /// # Errors
    /// Returns an error if `read` fails.
    pub(crate) fn advance<E>(
        &mut self,
        d: usize,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.next < self.depth.min(d + self.reach + 1) {
            let slot = self.next % self.planes.len();
            read(self.next, &mut self.planes[slot])?;
            self.next += 1;
        }
        Ok(())
    }

    /// The plane `away` from plane `d`, to which the ring was advanced; none out of the volume.
    pub(crate) fn plane(&self, d: usize, away: isize) -> Option<&[u8]> {
        let at =
            d.checked_add_signed(away).filter(|at| *at < self.depth && away.unsigned_abs() <= self.reach)?;
        Some(&self.planes[at % self.planes.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::Bytes;

    #[test]
    fn the_planes_around_one_are_there_and_none_beyond_the_ends() {
        let budget = Budget::new(Bytes::mib(1));
        for (depth, reach) in [(5, 1), (5, 4), (3, 7), (1, 2)] {
            let mut ring = PlaneRing::new(depth, 2, reach, &budget).unwrap();
            let mut read = Vec::new();
            for d in 0..depth {
                ring.advance(d, |at, plane| {
                    read.push(at);
                    plane.fill(at as u8);
                    Ok::<(), ()>(())
                })
                .unwrap();
                for away in -(reach as isize)..=reach as isize {
                    let at = d as isize + away;
                    let expected = (0..depth as isize).contains(&at).then_some([at as u8; 2]);
                    assert_eq!(ring.plane(d, away), expected.as_ref().map(|plane| &plane[..]));
                }
                assert_eq!(ring.plane(d, reach as isize + 1), None);
            }
            assert_eq!(read, (0..depth).collect::<Vec<_>>());
        }
    }
}
