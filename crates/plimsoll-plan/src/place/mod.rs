//! Offsets for buffers whose life spans are known: dynamic storage allocation, offline.
//!
//! Buffers are placed one after the other, each at the lowest offset that is free throughout its live range
//! (`occupied`). The result depends on the order, so several orders are tried; then the order of the large buffers is
//! improved (`climb`) until the lower bound is nearly met or an allowance of work is used up. The search is the same on
//! every run, and its work grows as n log n.

mod climb;
mod occupied;

use std::cmp::Reverse;

use crate::Block;
use crate::liveness::Span;
use crate::work::Work;

use climb::Climb;
use occupied::Occupied;

/// Something to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its size, a multiple of the alignment.
    pub bytes: usize,
    /// Its live range.
    pub span: Span,
}

/// The places of all items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// One per item.
    pub offsets: Vec<usize>,
    /// The end of the highest item.
    pub bytes: usize,
}

/// The number of orders of the large items tried from each of the first few orders.
const PATIENCE: usize = 1500;
/// An arena that exceeds its lower bound by at most this part is not improved any further.
const SLACK: usize = 1000;
/// Items of less than this part of the lower bound are placed last, where the others leave room. As no more than this
/// number of larger ones can be live at a time, the number of pairs that are live together grows linearly with their
/// number.
const SMALL: usize = 256;
/// The same for a last improvement, of an arena that still exceeds its bound.
const SMALLER: usize = 4096;
/// The work of improving one order, in neighbours looked at.
const ALLOWANCE: u64 = 2_000_000;
/// The most pairs per item that are live at the same time for which the order is improved.
const PAIRS: usize = 256;

/// The most bytes that are live at one time: no placement needs less.
pub fn lower_bound(items: &[Item]) -> usize {
    let nodes = items.iter().map(|item| item.span.end + 1).max().unwrap_or(0);
    let mut change = vec![0isize; nodes + 1];
    for item in items {
        change[item.span.start] += item.bytes as isize;
        change[item.span.end + 1] -= item.bytes as isize;
    }
    let mut held = 0;
    change
        .into_iter()
        .map(|change| {
            held += change;
            held as usize
        })
        .max()
        .unwrap_or(0)
}

/// Places all items.
pub fn place(items: &[Item]) -> Placement {
    place_counting(items, &Work::default())
}

/// Places all items, and counts the work.
pub(crate) fn place_counting(items: &[Item], work: &Work) -> Placement {
    let bound = lower_bound(items);
    let goal = bound + bound / SLACK;
    let length = |i: usize| items[i].span.end - items[i].span.start + 1;
    // An item of no bytes fits anywhere.
    let all: Vec<usize> = (0..items.len()).filter(|i| items[*i].bytes > 0).collect();
    let mut orders: Vec<Vec<usize>> = vec![all; 4];
    orders[0].sort_by_key(|i| Reverse((items[*i].bytes, length(*i))));
    orders[1].sort_by_key(|i| Reverse(items[*i].bytes.saturating_mul(length(*i))));
    orders[2].sort_by_key(|i| Reverse((length(*i), items[*i].bytes)));
    orders[3].sort_by_key(|i| (items[*i].span.start, Reverse(items[*i].bytes)));
    let mut best = Best { placement: place_in_order(items, &orders[0], work), order: orders[0].clone() };
    for order in &orders[1..] {
        if best.placement.bytes <= goal {
            return best.placement;
        }
        best.try_order(items, order.clone(), work);
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for order in orders {
        if best.placement.bytes <= goal {
            return best.placement;
        }
        best.improve(items, order, bound / SMALL, goal, work, &mut random);
    }
    if best.placement.bytes > goal {
        let order = best.order.clone();
        best.improve(items, order, bound / SMALLER, goal, work, &mut random);
    }
    best.placement
}

/// The smallest arena that was found, and the order that led to it.
struct Best {
    placement: Placement,
    order: Vec<usize>,
}

impl Best {
    fn try_order(&mut self, items: &[Item], order: Vec<usize>, work: &Work) {
        let placement = place_in_order(items, &order, work);
        if placement.bytes < self.placement.bytes {
            *self = Best { placement, order };
        }
    }

    /// Improves the order of the items of at least `smallest` bytes, and places the others after them.
    fn improve(
        &mut self,
        items: &[Item],
        order: Vec<usize>,
        smallest: usize,
        goal: usize,
        work: &Work,
        random: &mut u64,
    ) {
        let (large, small): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|i| items[*i].bytes >= smallest);
        let most_pairs = PAIRS * large.len();
        let Some(mut climb) = Climb::new(items, large, most_pairs, work) else { return };
        climb.improve(goal, PATIENCE, ALLOWANCE, random);
        let mut order = climb.into_order();
        order.extend(small);
        self.try_order(items, order, work);
    }
}

/// Places items one after the other, each at the lowest offset that is free throughout its live range. An item that the
/// order leaves out stays at offset 0 and does not count.
fn place_in_order(items: &[Item], order: &[usize], work: &Work) -> Placement {
    let launches = items.iter().map(|item| item.span.end + 1).max().unwrap_or(0);
    let mut occupied = Occupied::new(launches, work);
    let mut placement = Placement { offsets: vec![0; items.len()], bytes: 0 };
    for i in order {
        let Item { bytes, span } = items[*i];
        let offset = occupied.lowest_free(span, bytes);
        occupied.take(span, Block { offset, bytes });
        placement.offsets[*i] = offset;
        placement.bytes = placement.bytes.max(offset + bytes);
    }
    placement
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The most items of a random problem: few where an interpreter runs the search.
    const MOST_ITEMS: usize = if cfg!(miri) { 5 } else { 60 };

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let item = (1usize..50, 0usize..40, 0usize..12).prop_map(|(size, start, length)| Item {
            bytes: size * 64,
            span: Span { start, end: start + length },
        });
        prop::collection::vec(item, 1..MOST_ITEMS)
    }

    proptest! {
        #[test]
        fn nothing_that_is_held_together_overlaps(items in items()) {
            let placement = place(&items);
            prop_assert!(placement.bytes >= lower_bound(&items));
            for (i, a) in items.iter().enumerate() {
                prop_assert!(placement.offsets[i] + a.bytes <= placement.bytes);
                for (j, b) in items.iter().enumerate().skip(i + 1) {
                    let apart = placement.offsets[i] + a.bytes <= placement.offsets[j]
                        || placement.offsets[j] + b.bytes <= placement.offsets[i];
                    prop_assert!(apart || !a.span.meets(&b.span));
                }
            }
        }
    }

    #[test]
    fn a_pyramid_meets_its_lower_bound() {
        // As in a network: the forward pass piles up ever smaller values, the backward pass takes them down, with the
        // gradients of two levels at a time on top.
        let levels = 6;
        let mut items = Vec::new();
        for level in 0..levels {
            let (bytes, back) = (64 << (2 * (levels - level)), 2 * levels - level);
            items.push(Item { bytes, span: Span { start: level, end: back } });
            items.push(Item { bytes, span: Span { start: back, end: back + 1 } });
        }
        assert_eq!(place(&items).bytes, lower_bound(&items));
    }
}
