//! The messages of collective operations, counted without sending them.

use std::ops::{Add, AddAssign, Mul};

use crate::communicator::LENGTH_BYTES;

/// The messages that a rank sends and receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The messages that it sends.
    pub sent: Messages,
    /// The messages that it receives.
    pub received: Messages,
}

/// Some messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// The number of messages.
    pub count: u64,
    /// The bytes of all together.
    pub bytes: u64,
}

impl Messages {
    /// `count` messages of `bytes` bytes each.
    pub fn new(count: usize, bytes: usize) -> Messages {
        let count = count as u64;
        Messages { count, bytes: count * bytes as u64 }
    }
}

impl Add for Messages {
    type Output = Messages;

    fn add(self, other: Messages) -> Messages {
        Messages { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic { sent: self.sent + other.sent, received: self.received + other.received }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        *self = *self + other;
    }
}

impl Mul<usize> for Traffic {
    type Output = Traffic;

    /// The traffic of an exchange that is repeated.
    fn mul(self, times: usize) -> Traffic {
        let repeated = |messages: Messages| Messages {
            count: messages.count * times as u64,
            bytes: messages.bytes * times as u64,
        };
        Traffic { sent: repeated(self.sent), received: repeated(self.received) }
    }
}

impl Traffic {
    /// The messages of a rank in a [gather](crate::Communicator::gather) of `bytes` bytes from each of `size` ranks.
    pub fn of_gather(rank: usize, size: usize, root: usize, bytes: usize) -> Traffic {
        let of_peer = Messages::new(1, LENGTH_BYTES) + Messages::new(1, bytes);
        match rank == root {
            true => {
                let received = Messages {
                    count: of_peer.count * (size as u64 - 1),
                    bytes: of_peer.bytes * (size as u64 - 1),
                };
                Traffic { received, ..Traffic::default() }
            }
            false => Traffic { sent: of_peer, ..Traffic::default() },
        }
    }

    /// The messages of a rank in a [broadcast](crate::Communicator::broadcast) of `bytes` bytes to `size` ranks.
    pub fn of_broadcast(rank: usize, size: usize, root: usize, bytes: usize) -> Traffic {
        let place = TreePlace::new(rank, size, root);
        Traffic {
            sent: Messages::new(place.children().count(), bytes),
            received: Messages::new(place.parent().into_iter().count(), bytes),
        }
    }

    /// The messages of a rank in an [exchange](crate::Communicator::all_gather) of `bytes` bytes of each of `size` ranks among all.
    pub fn of_all_gather(rank: usize, size: usize, bytes: usize) -> Traffic {
        Traffic::of_gather(rank, size, 0, bytes) + Traffic::of_broadcast(rank, size, 0, bytes * size)
    }
}

/// The place of a rank in the binomial tree of a broadcast. Places are counted from the root.
#[derive(Clone, Copy)]
pub(crate) struct TreePlace {
    place: usize,
    size: usize,
    root: usize,
    /// The distance to the parent; at the root, the first power of two that is not below the number of ranks.
    distance: usize,
}

impl TreePlace {
    pub(crate) fn new(rank: usize, size: usize, root: usize) -> TreePlace {
        let place = (rank + size - root) % size;
        let mut distance = 1;
        while distance < size && place & distance == 0 {
            distance *= 2;
        }
        TreePlace { place, size, root, distance }
    }

    /// The rank at a place.
    fn rank(&self, place: usize) -> usize {
        (place + self.root) % self.size
    }

    /// The rank that this one receives from; `None` at the root.
    pub(crate) fn parent(&self) -> Option<usize> {
        (self.place != 0).then(|| self.rank(self.place - self.distance))
    }

    /// The ranks that this one sends to, in their order: those with the most ranks below them first.
    pub(crate) fn children(self) -> impl Iterator<Item = usize> {
        let halves = std::iter::successors(Some(self.distance / 2), |distance| Some(distance / 2));
        halves
            .take_while(|distance| *distance > 0)
            .map(move |distance| self.place + distance)
            .filter(move |place| *place < self.size)
            .map(move |place| self.rank(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broadcast_reaches_each_rank_once() {
        for size in 1..=17 {
            for root in [0, size / 3, size - 1] {
                let mut parents = vec![None; size];
                for rank in 0..size {
                    for child in TreePlace::new(rank, size, root).children() {
                        assert_eq!(parents[child].replace(rank), None, "{child} of {size} is reached twice");
                    }
                }
                for (rank, parent) in parents.iter().enumerate() {
                    assert_eq!(TreePlace::new(rank, size, root).parent(), *parent, "{rank} of {size}");
                    assert_eq!(parent.is_none(), rank == root, "{rank} of {size}");
                }
            }
        }
    }

    #[test]
    fn traffic_of_collective_operations_is_as_counted_by_hand() {
        // Eight ranks: the root sends to ranks 4, 2 and 1, rank 4 to ranks 6 and 5, and rank 7 to none.
        let sent = |rank| Traffic::of_broadcast(rank, 8, 0, 10).sent;
        assert_eq!([sent(0), sent(4), sent(7)], [3, 2, 0].map(|count| Messages::new(count, 10)));
        assert_eq!(Traffic::of_broadcast(5, 8, 0, 10).received, Messages::new(1, 10));
        // The length of each rank's bytes, 8 bytes, and the bytes.
        let root = Traffic::of_gather(1, 4, 1, 100);
        assert_eq!((root.sent, root.received), (Messages::default(), Messages { count: 6, bytes: 3 * 108 }));
        let other = Traffic::of_gather(0, 4, 1, 100);
        assert_eq!((other.sent, other.received), (Messages { count: 2, bytes: 108 }, Messages::default()));
        assert_eq!(Traffic::of_gather(0, 1, 0, 9) + Traffic::of_broadcast(0, 1, 0, 9), Traffic::default());
        assert_eq!((other * 3).sent, Messages { count: 6, bytes: 324 });
        // Rank 0 of four receives 100 bytes of three ranks, and sends 400 bytes to ranks 2 and 1.
        let first = Traffic::of_all_gather(0, 4, 100);
        assert_eq!(
            (first.sent, first.received),
            (Messages::new(2, 400), Messages { count: 6, bytes: 3 * 108 })
        );
    }
}
