//! Improves the order in which large items are placed.
//!
//! An item at the top of the arena, or one that is live at the same time, is placed earlier; the new order is kept if
//! the arena does not grow. Only items from the changed position on are placed anew, and only until one of them rises
//! above the arena. The search ends at its goal, or when its allowance of work is used up: it is the same on every run.

use super::Item;
use crate::work::Work;

/// Items of a size that lets only a few be held at once, with those that each of them meets.
pub(super) struct Climb<'a> {
    items: &'a [Item],
    /// For each item, the items of the order that are live at the same time.
    neighbours: Vec<Vec<u32>>,
    order: Vec<usize>,
    /// By item: its position in the order.
    rank: Vec<usize>,
    offsets: Vec<usize>,
    /// The end of the highest item.
    bytes: usize,
    work: &'a Work,
    /// Free list of the present item's neighbours, kept to save allocations.
    blocks: Vec<(usize, usize)>,
}

impl<'a> Climb<'a> {
    /// Places items in an order. None if more than `most_pairs` pairs of them are live at the same time.
    pub(super) fn new(
        items: &'a [Item],
        order: Vec<usize>,
        most_pairs: usize,
        work: &'a Work,
    ) -> Option<Climb<'a>> {
        let neighbours = neighbours(items, &order, most_pairs, work)?;
        let mut rank = vec![usize::MAX; items.len()];
        for (position, item) in order.iter().enumerate() {
            rank[*item] = position;
        }
        let offsets = vec![0; items.len()];
        let mut climb = Climb { items, neighbours, order, rank, offsets, bytes: 0, work, blocks: Vec::new() };
        climb.bytes = climb.place_from(0, usize::MAX);
        Some(climb)
    }

    /// The order that was found.
    pub(super) fn into_order(self) -> Vec<usize> {
        self.order
    }

    /// Improves the order until the arena has at most `goal` bytes, `patience` orders were tried, or `allowance` of work is used up.
    pub(super) fn improve(&mut self, goal: usize, patience: usize, allowance: u64, random: &mut u64) {
        let until = self.work.count().saturating_add(allowance);
        let mut before = self.offsets.clone();
        for _ in 0..patience {
            if self.bytes <= goal || self.work.count() >= until {
                return;
            }
            let (from, to) = self.move_to_try(random);
            self.shift(from, to);
            let bytes = self.place_from(to, self.bytes);
            if bytes <= self.bytes {
                self.bytes = bytes;
                for item in &self.order[to..] {
                    before[*item] = self.offsets[*item];
                }
            } else {
                for item in &self.order[to..] {
                    self.offsets[*item] = before[*item];
                }
                self.shift(to, from);
            }
        }
    }

    /// The position of an item to be moved, and where to.
    fn move_to_try(&self, random: &mut u64) -> (usize, usize) {
        let is_top = |item: usize| self.offsets[item] + self.items[item].bytes == self.bytes;
        let top: Vec<usize> = (0..self.order.len()).filter(|at| is_top(self.order[*at])).collect();
        self.work.add(self.order.len() / 8);
        // Knuth's MMIX generator: any spread of choices will do.
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut from = top[(*random >> 33) as usize % top.len()];
        if *random >> 62 == 0 {
            let met = &self.neighbours[self.order[from]];
            if let Some(other) = met.get((*random >> 40) as usize % met.len().max(1)) {
                from = self.rank[*other as usize];
            }
        }
        (from, (*random >> 13) as usize % (from + 1))
    }

    /// Moves the item at one position to another.
    fn shift(&mut self, from: usize, to: usize) {
        let (low, high) = (from.min(to), from.max(to));
        match from < to {
            true => self.order[low..=high].rotate_left(1),
            false => self.order[low..=high].rotate_right(1),
        }
        for position in low..=high {
            self.rank[self.order[position]] = position;
        }
    }

    /// Places the items from a position on; returns the end of the highest item of all, or more than `most` as soon as it is.
    fn place_from(&mut self, first: usize, most: usize) -> usize {
        let end = |item: &usize| self.offsets[*item] + self.items[*item].bytes;
        let mut bytes = self.order[..first].iter().map(end).max().unwrap_or(0);
        for position in first..self.order.len() {
            let item = self.order[position];
            self.blocks.clear();
            for other in &self.neighbours[item] {
                let other = *other as usize;
                if self.rank[other] < position {
                    self.blocks.push((self.offsets[other], self.offsets[other] + self.items[other].bytes));
                }
            }
            self.work.add(1 + self.neighbours[item].len());
            self.blocks.sort_unstable();
            let mut offset = 0;
            for (start, end) in &self.blocks {
                if *start >= offset + self.items[item].bytes {
                    break;
                }
                offset = offset.max(*end);
            }
            self.offsets[item] = offset;
            bytes = bytes.max(offset + self.items[item].bytes);
            if bytes > most {
                return bytes;
            }
        }
        bytes
    }
}

/// For each item, the items of an order that are live at the same time; none if there are more than `most_pairs` pairs.
fn neighbours(items: &[Item], order: &[usize], most_pairs: usize, work: &Work) -> Option<Vec<Vec<u32>>> {
    let mut by_start = order.to_vec();
    by_start.sort_by_key(|item| items[*item].span.start);
    let mut neighbours = vec![Vec::new(); items.len()];
    let (mut held, mut pairs): (Vec<usize>, usize) = (Vec::new(), 0);
    for item in by_start {
        held.retain(|other| items[*other].span.end >= items[item].span.start);
        pairs += held.len();
        work.add(1 + held.len());
        if pairs > most_pairs {
            return None;
        }
        for other in &held {
            neighbours[*other].push(item as u32);
            neighbours[item].push(*other as u32);
        }
        held.push(item);
    }
    Some(neighbours)
}
