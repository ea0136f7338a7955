//! The number of tasks that a thread takes at a time, and the time at which a kernel ends on several threads if its
//! tasks take given times.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A thread takes this factor fewer tasks than its share of the remaining ones.
const SHARES: usize = 4;

/// Returns the number of the `left` tasks that a thread takes next: many at first, so that threads seldom meet at the
/// counter and neighbouring tasks, which read the same borders, stay together; one by one at the end, so that all
/// threads end at about the same time.
pub(super) fn claim(left: usize, threads: usize) -> usize {
    (left / (SHARES * threads)).max(1)
}

/// Returns the end of the last task, in seconds from the first one's start: each thread that is free takes the tasks
/// that it would take of the pool.
pub(super) fn makespan(tasks: &[f64], threads: usize) -> f64 {
    // Times of positive floats are ordered as their bits are.
    let mut free: BinaryHeap<Reverse<u64>> = (0..threads.max(1)).map(|_| Reverse(0f64.to_bits())).collect();
    let mut rest = tasks;
    let mut end = 0.0f64;
    while !rest.is_empty() {
        let (taken, left) = rest.split_at(claim(rest.len(), threads.max(1)));
        let Some(Reverse(start)) = free.pop() else { return end };
        let until = f64::from_bits(start) + taken.iter().sum::<f64>();
        free.push(Reverse(until.to_bits()));
        end = end.max(until);
        rest = left;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_a_quarter_of_a_share_and_never_none() {
        assert_eq!(claim(1, 64), 1);
        assert_eq!(claim(256, 2), 32);
        assert_eq!(claim(255, 64), 1);
    }

    #[test]
    fn the_end_is_that_of_the_thread_that_is_busy_longest() {
        assert_eq!(makespan(&[], 4), 0.0);
        assert_eq!(makespan(&[3.0, 1.0, 1.0, 1.0], 1), 6.0);
        assert_eq!(makespan(&[3.0, 1.0, 1.0, 1.0], 2), 3.0);
        // Who is free first takes the next: the long one last is the worst case.
        assert_eq!(makespan(&[1.0, 1.0, 1.0, 3.0], 3), 4.0);
        assert_eq!(makespan(&[1.0; 17], 16), 2.0);
    }
}
