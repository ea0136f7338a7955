//! Values that one rank has and all need: they go around a ring of the ranks.
//!
//! Each rank sends the elements of its own tensors to the next rank, and passes on what comes from the previous one, so that all links carry messages at
//! the same time. In turn `n` a rank sends its own message `n`, then the messages `n` of the ranks before it, the nearest first. That order is known to
//! both ends of a link, so messages need no address.

use std::collections::VecDeque;

use plimsoll_plan::Engine;
use plimsoll_ranks::{Messages, Segment, Traffic, Transfer};

use crate::TrainError;
use crate::ranks::{PASSED_ON, Ranks, message_elements, ring_window};
use crate::stream::{Division, SentTensor, Stream};

/// A message of a rank's own elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    owner: usize,
    message: usize,
}

/// The messages that a rank sends to the next, in their order.
fn sent_by(rank: usize, division: &Division) -> impl Iterator<Item = Part> + '_ {
    let ranks = division.ranks();
    let turns = 0..division.longest();
    let parts = turns.flat_map(move |message| {
        (0..ranks - 1).map(move |distance| Part { owner: (rank + ranks - distance) % ranks, message })
    });
    parts.filter(|part| part.message < division.count(part.owner))
}

/// The messages of a rank while values of all ranks go around the ring.
pub(crate) fn ring_traffic(rank: usize, division: &Division) -> Traffic {
    let ranks = division.ranks();
    if ranks == 1 {
        return Traffic::default();
    }
    let all_but = |other: usize| {
        let owners = (0..ranks).filter(|owner| *owner != other);
        owners.fold(Messages::default(), |all, owner| {
            let bytes = (division.elements(owner) * size_of::<f32>()) as u64;
            all + Messages { count: division.count(owner) as u64, bytes }
        })
    };
    // Own values do not come back, and a rank does not get its own from the previous one.
    Traffic { sent: all_but((rank + 1) % ranks), received: all_but(rank) }
}

/// Copies tensors from their owners to all ranks.
pub(crate) fn share(
    tensors: impl IntoIterator<Item = SentTensor>,
    engine: &mut dyn Engine,
    ranks: &mut Ranks<'_>,
) -> Result<(), TrainError> {
    if ranks.is_alone() {
        return Ok(());
    }
    let place = ranks.place();
    let streams = Stream::by_owner(tensors, place.ranks);
    let division =
        Division::new(streams.iter().map(Stream::elements).collect(), message_elements(place.ranks));
    let (rank, count) = (place.rank, place.ranks);
    let (previous, next) = ((rank + count - 1) % count, (rank + 1) % count);
    let mut to_send = sent_by(rank, &division).peekable();
    let mut to_receive = sent_by(previous, &division);
    let window = ring_window(count);
    let (mut sending, mut receiving) = (Vec::with_capacity(window), VecDeque::with_capacity(window));
    // Messages that have arrived and are passed on, in their order.
    let mut arrived: VecDeque<Segment> = VecDeque::new();
    loop {
        while receiving.len() + arrived.len() < window
            && let Some(part) = to_receive.next()
        {
            let elements = division.stretch(part.owner, part.message).len();
            let segment = Segment::zeroed(elements * size_of::<f32>());
            receiving.push_back((part, ranks.receive(previous, PASSED_ON, segment)?));
        }
        let mut is_any = false;
        while let Some((_, transfer)) = receiving.front()
            && ranks.is_done(transfer)?
            && let Some((part, transfer)) = receiving.pop_front()
        {
            let segment = ranks.wait(transfer)?;
            let stretch = division.stretch(part.owner, part.message);
            streams[part.owner].write(engine, stretch, bytemuck::cast_slice(segment.bytes()))?;
            if part.owner != next {
                arrived.push_back(segment);
            }
            is_any = true;
        }
        is_any |= ranks.end_sent(&mut sending)?;
        while sending.len() < window
            && let Some(part) = to_send.peek()
        {
            let segment = match part.owner == rank {
                true => {
                    let stretch = division.stretch(rank, part.message);
                    let mut segment = Segment::zeroed(stretch.len() * size_of::<f32>());
                    let values = bytemuck::cast_slice_mut(segment.bytes_mut());
                    streams[rank].read(engine, stretch, values)?;
                    segment
                }
                false => match arrived.pop_front() {
                    Some(segment) => segment,
                    None => break,
                },
            };
            sending.push(ranks.send(next, PASSED_ON, segment)?);
            to_send.next();
            is_any = true;
        }
        if is_any {
            continue;
        }
        let first = receiving.front().map(|(_, transfer)| transfer);
        let in_flight: Vec<&Transfer> = first.into_iter().chain(&sending).collect();
        if in_flight.is_empty() {
            return Ok(());
        }
        ranks.wait_any(&in_flight)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_receives_all_values_of_the_others_once_and_sends_what_it_has() {
        for elements in [vec![9, 2, 0, 5], vec![3, 3], vec![0, 0, 8]] {
            let division = Division::new(elements, 2);
            let ranks = division.ranks();
            for rank in 0..ranks {
                let previous = (rank + ranks - 1) % ranks;
                let received: Vec<Part> = sent_by(previous, &division).collect();
                let mut at = 0;
                for sent in sent_by(rank, &division).filter(|part| part.owner != rank) {
                    // In the order of their arrival.
                    at += received[at..].iter().position(|part| *part == sent).unwrap() + 1;
                }
                let of = |owner: usize| received.iter().filter(|part| part.owner == owner).count();
                for owner in 0..ranks {
                    let expected = if owner == rank { 0 } else { division.count(owner) };
                    assert_eq!(of(owner), expected, "rank {rank} of {ranks}, from {owner}");
                }
                let traffic = ring_traffic(rank, &division);
                assert_eq!(traffic.received.count, received.len() as u64);
                assert_eq!(traffic.sent.count, sent_by(rank, &division).count() as u64);
            }
        }
    }
}
