//! Offsets for buffers whose life spans are known: dynamic storage allocation, offline.
//!
//! Buffers are placed one after the other, each at the lowest offset where it fits between those already placed that
//! live at the same time. What is found depends on the order, so several orders are tried; then the order of the
//! large buffers is improved by placing one at the top of the arena earlier, until the lower bound is met or patience
//! ends. The search is the same on every run.

use std::cmp::Reverse;

use crate::liveness::Span;

/// Something to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its size, a multiple of the alignment.
    pub bytes: usize,
    /// When it is held.
    pub span: Span,
}

/// Where things are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// One per item.
    pub offsets: Vec<usize>,
    /// The end of the highest item.
    pub bytes: usize,
}

/// How many orders of the large items are tried, from each of the first few orders.
const PATIENCE: usize = 1500;
/// How many orders of all items are tried then, if the arena is still larger than needed by the part `SLACK`.
const LAST_PATIENCE: usize = 400;
const SLACK: usize = 1000;
/// Items of less than this part of the lower bound are placed last, where the others leave room.
const SMALL: usize = 256;

/// The most bytes that are held at one time: no placement can do with less.
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
    let bound = lower_bound(items);
    let length = |i: usize| items[i].span.end - items[i].span.start + 1;
    let mut orders: Vec<Vec<usize>> = vec![(0..items.len()).collect(); 4];
    orders[0].sort_by_key(|i| Reverse((items[*i].bytes, length(*i))));
    orders[1].sort_by_key(|i| Reverse(items[*i].bytes.saturating_mul(length(*i))));
    orders[2].sort_by_key(|i| Reverse((length(*i), items[*i].bytes)));
    orders[3].sort_by_key(|i| (items[*i].span.start, Reverse(items[*i].bytes)));
    let mut best = place_in_order(items, &orders[0]);
    let mut best_order = orders[0].clone();
    for order in &orders[1..] {
        let placement = place_in_order(items, order);
        if placement.bytes < best.bytes {
            best = placement;
            best_order.clone_from(order);
        }
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for order in orders {
        if best.bytes <= bound {
            break;
        }
        let (mut large, small): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|i| items[*i].bytes >= bound / SMALL);
        climb(items, &mut large, bound, PATIENCE, &mut random);
        large.extend(small);
        let placement = place_in_order(items, &large);
        if placement.bytes < best.bytes {
            best = placement;
            best_order = large;
        }
    }
    if best.bytes > bound + bound / SLACK {
        climb(items, &mut best_order, bound, LAST_PATIENCE, &mut random);
        best = better(best, place_in_order(items, &best_order));
    }
    best
}

fn better(a: Placement, b: Placement) -> Placement {
    if a.bytes <= b.bytes { a } else { b }
}

/// Improves an order: an item at the top of the arena, or one that stands in its way, is placed earlier.
fn climb(items: &[Item], order: &mut Vec<usize>, bound: usize, patience: usize, random: &mut u64) {
    let mut best = place_in_order(items, order);
    for _ in 0..patience {
        if best.bytes <= bound {
            break;
        }
        let is_top = |i: usize| best.offsets[i] + items[i].bytes == best.bytes;
        let top: Vec<usize> = (0..order.len()).filter(|place| is_top(order[*place])).collect();
        // Knuth's MMIX generator: any spread of choices will do.
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut from = top[(*random >> 33) as usize % top.len()];
        if *random >> 62 == 0 {
            let span = items[order[from]].span;
            let met: Vec<usize> =
                (0..order.len()).filter(|place| items[order[*place]].span.meets(&span)).collect();
            from = met[(*random >> 40) as usize % met.len()];
        }
        let to = (*random >> 13) as usize % (from + 1);
        let moved = order.remove(from);
        order.insert(to, moved);
        let placement = place_in_order(items, order);
        if placement.bytes <= best.bytes {
            best = placement;
        } else {
            let moved = order.remove(to);
            order.insert(from, moved);
        }
    }
}

/// Places items one after the other, each at the lowest offset that is free for as long as it is held. What the order
/// leaves out stays at offset 0 and does not count.
fn place_in_order(items: &[Item], order: &[usize]) -> Placement {
    let mut offsets = vec![0; items.len()];
    // What is placed, by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    let mut total = 0;
    for i in order {
        let item = items[*i];
        let mut offset = 0;
        for other in placed.iter().filter(|other| items[**other].span.meets(&item.span)) {
            if offsets[*other] >= offset + item.bytes {
                break;
            }
            offset = offset.max(offsets[*other] + items[*other].bytes);
        }
        offsets[*i] = offset;
        total = total.max(offset + item.bytes);
        let at = placed.partition_point(|other| offsets[*other] <= offset);
        placed.insert(at, *i);
    }
    Placement { offsets, bytes: total }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let item = (1usize..50, 0usize..40, 0usize..12).prop_map(|(size, start, length)| Item {
            bytes: size * 64,
            span: Span { start, end: start + length },
        });
        prop::collection::vec(item, 1..60)
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
