//! The addresses that are taken, by time: the lowest free address for a span of launches, without looking at every item.
//!
//! A segment tree over launches. Each node holds two sets of disjoint stretches of addresses: those taken during all of
//! its launches, and those taken during any of them. A span is covered by O(log n) nodes, so placing an item reads and
//! updates O(log n) sets. Stretches that touch are merged, so a set stays short even if thousands of items are live at
//! once.

use crate::Block;
use crate::liveness::Span;
use crate::work::Work;

/// Disjoint stretches of addresses in ascending order, none of which touches the next.
#[derive(Clone, Debug, Default)]
struct Stretches(Vec<(usize, usize)>);

impl Stretches {
    /// Adds a stretch; returns how many stretches it was merged with.
    fn add(&mut self, start: usize, end: usize) -> usize {
        let from = self.0.partition_point(|(_, other)| *other < start);
        let until = from + self.0[from..].partition_point(|(other, _)| *other <= end);
        let merged = self.0[from..until]
            .iter()
            .fold((start, end), |(start, end), (first, last)| (start.min(*first), end.max(*last)));
        self.0.splice(from..until, [merged]);
        until - from
    }
}

/// A node of the tree.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Addresses that items take during all launches of this node, as far as no node above it says so.
    always: Stretches,
    /// Addresses that items take during any launch of this node, including the items of `always`.
    ever: Stretches,
}

/// The addresses that placed items take, by launch.
pub(super) struct Occupied<'a> {
    nodes: Vec<Node>,
    /// Launches, rounded up to a power of two.
    leaves: usize,
    work: &'a Work,
}

impl Occupied<'_> {
    /// An empty arena for this number of launches.
    pub(super) fn new(launches: usize, work: &Work) -> Occupied<'_> {
        let leaves = launches.max(1).next_power_of_two();
        Occupied { nodes: vec![Node::default(); 2 * leaves], leaves, work }
    }

    /// Returns the lowest address from which `bytes` are free during a span.
    pub(super) fn lowest_free(&self, span: Span, bytes: usize) -> usize {
        let mut sets: Vec<&[(usize, usize)]> = Vec::with_capacity(32);
        self.collect(1, Span { start: 0, end: self.leaves - 1 }, span, &mut sets);
        let mut address = 0;
        loop {
            let mut is_free = true;
            for set in &mut sets {
                let passed = set.iter().take_while(|(_, end)| *end <= address).count();
                self.work.add(1 + passed);
                *set = &set[passed..];
                if let Some((start, end)) = set.first()
                    && *start < address + bytes
                {
                    address = *end;
                    is_free = false;
                }
            }
            if is_free {
                return address;
            }
        }
    }

    /// The sets whose union is what is taken during `span`, of a node and below.
    fn collect<'s>(&'s self, node: usize, own: Span, span: Span, sets: &mut Vec<&'s [(usize, usize)]>) {
        if !own.meets(&span) {
            return;
        }
        let Node { always, ever } = &self.nodes[node];
        if ever.0.is_empty() {
            return;
        }
        if span.start <= own.start && own.end <= span.end {
            sets.push(&ever.0);
            return;
        }
        if !always.0.is_empty() {
            sets.push(&always.0);
        }
        let [left, right] = halves(own);
        self.collect(2 * node, left, span, sets);
        self.collect(2 * node + 1, right, span, sets);
    }

    /// Marks a stretch of addresses as taken during a span.
    pub(super) fn take(&mut self, span: Span, block: Block) {
        self.mark(1, Span { start: 0, end: self.leaves - 1 }, span, block);
    }

    fn mark(&mut self, node: usize, own: Span, span: Span, block: Block) {
        if !own.meets(&span) {
            return;
        }
        let merged = self.nodes[node].ever.add(block.offset, block.end());
        self.work.add(1 + merged);
        if span.start <= own.start && own.end <= span.end {
            self.nodes[node].always.add(block.offset, block.end());
            return;
        }
        let [left, right] = halves(own);
        self.mark(2 * node, left, span, block);
        self.mark(2 * node + 1, right, span, block);
    }
}

/// Both halves of a span whose length is a power of two.
fn halves(of: Span) -> [Span; 2] {
    let middle = of.start + (of.end - of.start) / 2;
    [Span { start: of.start, end: middle }, Span { start: middle + 1, end: of.end }]
}
