//! The last access to each byte, to find races.
//!
//! A byte keeps its last write and two reads since (FastTrack, Flanagan and Freund 2009, keeps one read or all). Two are enough
//! for barriers of whole blocks and warps: they are of different warps if there are such, so that any later writer is
//! unordered with one of them if it is unordered with any. Neighbouring bytes that are always accessed together share an
//! entry.

use std::ops::Range;

use super::timeline::Timeline;
use crate::lanes::WARP;

/// One access.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stamp {
    /// Number of the block plus one; 0 if there was no access.
    pub block: u32,
    /// The time of the warp's clock.
    pub time: u32,
    pub thread: u16,
    pub atomic: bool,
}

/// The history of a byte, or of four.
#[derive(Clone, Copy, Default)]
struct Entry {
    write: Stamp,
    reads: [Stamp; 2],
    /// An asynchronous copy of `write.thread` is under way.
    pending: bool,
    /// `true` if this is the first byte of a word whose other three have entries of their own.
    split: bool,
}

const PAGE: usize = 1024;

/// The entries of a page: for each word one for its first byte, which represents all four unless the word is split.
struct Page {
    firsts: [Entry; PAGE / 4],
    others: Option<Box<[[Entry; 3]; PAGE / 4]>>,
}

/// The histories of the bytes of a range.
pub(crate) struct Shadow {
    pages: Vec<Option<Box<Page>>>,
    /// Accesses of other blocks count: global memory. Shared memory starts anew with each block.
    across_blocks: bool,
}

/// The kind of access to a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
    Atomic,
    /// An asynchronous copy begins.
    Begin,
    /// It has arrived.
    Arrive,
}

/// Why an access must not be.
pub(crate) enum Conflict {
    /// With an earlier access.
    Race { offset: usize, other: Stamp, other_write: bool },
    /// With a copy that is under way.
    Pending { offset: usize, other: Stamp },
    /// Nothing was written there.
    Unwritten,
}

impl Shadow {
    /// Creates the history of `bytes` bytes.
    pub fn new(bytes: usize, across_blocks: bool) -> Shadow {
        Shadow { pages: (0..bytes.div_ceil(PAGE)).map(|_| None).collect(), across_blocks }
    }

    /// Notes an access.
    pub fn touch(
        &mut self,
        offset: usize,
        bytes: usize,
        touch: Touch,
        me: Stamp,
        timeline: &Timeline,
    ) -> Result<(), Conflict> {
        let context = Context { me, touch, across_blocks: self.across_blocks, timeline };
        let mut at = offset;
        while at < offset + bytes {
            let within = (4 - at % 4).min(offset + bytes - at);
            let Some(page) = self.pages.get_mut(at / PAGE) else { return Ok(()) };
            let page = page.get_or_insert_with(Page::new);
            page.touch(at % PAGE, within, &context).map_err(|reason| reason.at(at))?;
            at += within;
        }
        Ok(())
    }

    /// Returns `true` if this launch has written the byte.
    pub fn written_by_launch(&self, offset: usize) -> bool {
        let page = self.pages.get(offset / PAGE).and_then(Option::as_ref);
        page.is_some_and(|page| page.entry(offset % PAGE).write.block != 0)
    }

    /// The first byte of a range whose last write was not published to products of warp groups, and that write.
    pub fn unpublished(&self, range: Range<usize>, me: Stamp, timeline: &Timeline) -> Option<(usize, Stamp)> {
        let mut known = Stamp::default();
        range.into_iter().find_map(|offset| {
            let page = self.pages.get(offset / PAGE).and_then(Option::as_ref)?;
            let write = page.entry(offset % PAGE).write;
            // Neighbouring bytes are mostly written together.
            if (write.block, write.thread, write.time) == (known.block, known.thread, known.time) {
                return None;
            }
            known = write;
            let is_published =
                timeline.is_published(usize::from(write.thread), write.time, usize::from(me.thread));
            (!is_published).then_some((offset, write))
        })
    }

    /// The last write, if it was an atomic operation that is unordered with `me`.
    pub fn concurrent_atomic(&self, offset: usize, me: Stamp, timeline: &Timeline) -> bool {
        let Some(page) = self.pages.get(offset / PAGE).and_then(Option::as_ref) else { return false };
        let write = page.entry(offset % PAGE).write;
        let context = Context { me, touch: Touch::Write, across_blocks: self.across_blocks, timeline };
        write.atomic && context.concurrent(write)
    }
}

struct Context<'a> {
    me: Stamp,
    touch: Touch,
    across_blocks: bool,
    timeline: &'a Timeline,
}

impl Context<'_> {
    /// Returns `true` if there was an access.
    fn present(&self, stamp: Stamp) -> bool {
        stamp.block == self.me.block || (self.across_blocks && stamp.block != 0)
    }

    fn ordered(&self, stamp: Stamp) -> bool {
        if stamp.block != self.me.block {
            return false;
        }
        let (other, own) = (usize::from(stamp.thread), usize::from(self.me.thread));
        other == own
            || self.timeline.surely_ordered(own / WARP, other / WARP == own / WARP, stamp.time)
            || self.timeline.ordered(other, stamp.time, own)
    }

    #[inline]
    fn concurrent(&self, stamp: Stamp) -> bool {
        self.present(stamp) && !(stamp.atomic && self.touch == Touch::Atomic) && !self.ordered(stamp)
    }
}

enum Reason {
    Race(Stamp, bool),
    Pending(Stamp),
    Unwritten,
}

impl Reason {
    fn at(self, offset: usize) -> Conflict {
        match self {
            Reason::Race(other, other_write) => Conflict::Race { offset, other, other_write },
            Reason::Pending(other) => Conflict::Pending { offset, other },
            Reason::Unwritten => Conflict::Unwritten,
        }
    }
}

impl Page {
    /// Out of line, since it makes the page on the stack first.
    #[cold]
    #[inline(never)]
    fn new() -> Box<Page> {
        Box::new(Page { firsts: [Entry::default(); PAGE / 4], others: None })
    }

    fn entry(&self, offset: usize) -> Entry {
        let word = offset / 4;
        match (&self.others, offset % 4) {
            (Some(others), byte @ 1..) if self.firsts[word].split => others[word][byte - 1],
            _ => self.firsts[word],
        }
    }

    /// Bytes of one word.
    fn touch(&mut self, offset: usize, bytes: usize, context: &Context<'_>) -> Result<(), Reason> {
        let word = offset / 4;
        if !self.firsts[word].split {
            if bytes == 4 {
                return self.firsts[word].touch(context);
            }
            let others = self.others.get_or_insert_with(other_bytes);
            others[word] = [self.firsts[word]; 3];
            self.firsts[word].split = true;
        }
        for byte in offset % 4..offset % 4 + bytes {
            match (&mut self.others, byte) {
                (Some(others), 1..) => others[word][byte - 1].touch(context)?,
                _ => self.firsts[word].touch(context)?,
            }
        }
        // After a write of all four their histories are the same again.
        self.firsts[word].split = bytes != 4 || matches!(context.touch, Touch::Read);
        Ok(())
    }
}

/// Entries for the bytes of a page that are not the first of a word; out of line like [`Page::new`].
#[cold]
#[inline(never)]
fn other_bytes() -> Box<[[Entry; 3]; PAGE / 4]> {
    Box::new([[Entry::default(); 3]; PAGE / 4])
}

impl Entry {
    #[inline]
    fn touch(&mut self, context: &Context<'_>) -> Result<(), Reason> {
        let me = context.me;
        let present = context.present(self.write);
        if self.pending && present {
            if context.touch != Touch::Arrive || self.write.thread != me.thread {
                return Err(Reason::Pending(self.write));
            }
            self.pending = false;
            self.write = me;
            return Ok(());
        }
        if context.concurrent(self.write) {
            return Err(Reason::Race(self.write, true));
        }
        match context.touch {
            Touch::Read => {
                if !present && !context.across_blocks {
                    return Err(Reason::Unwritten);
                }
                self.note_read(context);
                return Ok(());
            }
            Touch::Atomic if !present && !context.across_blocks => return Err(Reason::Unwritten),
            _ => {}
        }
        for read in self.reads {
            if context.concurrent(read) {
                return Err(Reason::Race(read, false));
            }
        }
        self.write = me;
        self.reads = [Stamp::default(); 2];
        self.pending = context.touch == Touch::Begin;
        Ok(())
    }

    fn note_read(&mut self, context: &Context<'_>) {
        let me = context.me;
        let superseded = |read: Stamp| !context.present(read) || context.ordered(read);
        let [first, second] = self.reads;
        if superseded(first) {
            self.reads[0] = me;
        } else if superseded(second) {
            self.reads[1] = me;
        } else {
            let warp = |stamp: Stamp| (stamp.block, usize::from(stamp.thread) / WARP);
            if warp(first) == warp(second) && warp(first) != warp(me) {
                self.reads[1] = me;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Conflict, Shadow, Stamp, Touch};
    use crate::lanes::WARP;
    use crate::machine::timeline::{Horizon, Timeline};

    /// An access in a history that keeps all of them.
    struct Access {
        thread: usize,
        byte: usize,
        write: bool,
        /// Barriers of the block before it, and barriers of its own warp.
        barriers: usize,
        syncs: usize,
    }

    impl Access {
        fn races_with(&self, later: &Access) -> bool {
            let ordered = self.thread == later.thread
                || self.barriers < later.barriers
                || (self.thread / WARP == later.thread / WARP && self.syncs < later.syncs);
            self.byte == later.byte && (self.write || later.write) && !ordered
        }
    }

    #[test]
    fn finds_the_first_race_and_no_other() {
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let (warps, mut races) = (3, 0);
        for _ in 0..3000 {
            let mut shadow = Shadow::new(16, true);
            let mut timeline = Timeline::new(warps);
            let (mut barriers, mut syncs) = (0, vec![0; warps]);
            let mut history: Vec<Access> = Vec::new();
            for _ in 0..60 {
                match random(10) {
                    0 => {
                        let mut horizon = Horizon::new();
                        (0..warps).for_each(|warp| timeline.arrive(warp, &mut horizon));
                        (0..warps).for_each(|warp| timeline.leave(warp, &horizon));
                        barriers += 1;
                        continue;
                    }
                    1 => {
                        let warp = random(warps);
                        timeline.join_lanes(warp, u32::MAX, u32::MAX);
                        syncs[warp] += 1;
                        continue;
                    }
                    _ => {}
                }
                let warp = random(warps);
                let thread = warp * WARP + random(3);
                let bytes = [1, 2, 4][random(3)];
                let offset = random(16 / bytes) * bytes;
                // Mostly reads, or all histories would end at once.
                let write = random(5) == 0;
                let me = Stamp { block: 1, time: timeline.now(warp), thread: thread as u16, atomic: false };
                let touch = if write { Touch::Write } else { Touch::Read };
                let found = match shadow.touch(offset, bytes, touch, me, &timeline) {
                    Ok(()) => false,
                    Err(Conflict::Race { .. }) => true,
                    Err(_) => unreachable!("no copies, and memory that may be read unwritten"),
                };
                let accesses: Vec<Access> = (offset..offset + bytes)
                    .map(|byte| Access { thread, byte, write, barriers, syncs: syncs[warp] })
                    .collect();
                let expected =
                    accesses.iter().any(|later| history.iter().any(|earlier| earlier.races_with(later)));
                assert_eq!(found, expected, "an access of thread {thread} to {bytes} bytes at {offset}");
                if found {
                    races += 1;
                    break;
                }
                history.extend(accesses);
            }
        }
        assert!(races > 1000 && races < 3000, "{races}");
    }
}
