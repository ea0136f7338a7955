//! The bytes of a window that are used by the data behind it.

use super::inflate::WINDOW;

/// The bytes of the window before an access point that matches behind it copy. All others need not be kept.
pub(super) struct Marks {
    words: Box<[u64]>,
    /// The end of the window among the decompressed bytes; 0 once nothing can reach it any more.
    end: usize,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { words: vec![0; WINDOW / u64::BITS as usize].into_boxed_slice(), end: 0 }
    }
}

impl Marks {
    /// Begins with a window that ends here.
    pub(super) fn begin(&mut self, end: usize) {
        self.words.fill(0);
        self.end = end;
    }

    /// Takes no more marks.
    pub(super) fn close(&mut self) {
        self.end = 0;
    }

    /// Matches that begin before this are to be marked.
    pub(super) fn below(&self) -> usize {
        self.end
    }

    /// Records that the decompressed bytes were moved to the front by this number of bytes.
    pub(super) fn moved(&mut self, dropped: usize) {
        self.end = self.end.saturating_sub(dropped);
    }

    /// Marks what a match copies of the window.
    pub(super) fn mark(&mut self, source: usize, length: usize) {
        // A window may be shorter than the longest, and the bytes that are there may begin within it: both end at `end`.
        let first = WINDOW + source - self.end;
        for at in first..(first + length).min(WINDOW) {
            self.words[at / 64] |= 1 << (at % 64);
        }
    }

    /// Runs of marked bytes of a window of `length` bytes, as (first, end), those a few bytes apart together.
    pub(super) fn runs(&self, length: usize) -> Vec<(usize, usize)> {
        /// The bytes for writing down another run.
        const APART: usize = 4;
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (number, word) in self.words.iter().enumerate().filter(|(_, word)| **word != 0) {
            let marked = (0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| 64 * number + bit);
            for at in marked.filter_map(|at| at.checked_sub(WINDOW - length)) {
                match runs.last_mut() {
                    Some((_, end)) if at <= *end + APART => *end = at + 1,
                    _ => runs.push((at, at + 1)),
                }
            }
        }
        runs
    }
}
