//! The memory that a warp's access touches: sectors and banks.

use crate::lanes::{Lanes, lanes};

/// Banks of shared memory, of 4 bytes each.
const BANKS: usize = 32;

/// Sectors of 32 bytes that lanes touch.
pub(crate) fn sectors(addresses: &Lanes, mask: u32) -> u64 {
    let mut touched = [0; 32];
    let mut count = 0;
    for lane in lanes(mask) {
        let sector = addresses[lane] / 32;
        // Neighbouring lanes mostly share sectors.
        if count == 0 || touched[count - 1] != sector {
            touched[count] = sector;
            count += 1;
        }
    }
    let touched = &mut touched[..count];
    touched.sort_unstable();
    let changes = touched.windows(2).filter(|pair| pair[0] != pair[1]).count();
    (changes + usize::from(count > 0)) as u64
}

/// Passes beyond the least that an access of `bytes` a lane needs.
pub(crate) fn bank_conflicts(offsets: &Lanes, mask: u32, bytes: usize) -> u64 {
    let lanes_at_once = match bytes {
        16.. => 8,
        8.. => 16,
        _ => 32,
    };
    (0..32)
        .step_by(lanes_at_once)
        .map(|start| {
            let group = mask >> start & crate::lanes::low(lanes_at_once as u32) as u32;
            let words = lanes(group).flat_map(|lane| {
                let first = offsets[start + lane] / 4;
                (0..bytes.div_ceil(4) as u64).map(move |word| first + word)
            });
            extra_passes(words)
        })
        .sum()
}

/// Returns the number of words beyond one that the busiest bank has to provide.
fn extra_passes(words: impl Iterator<Item = u64> + Clone) -> u64 {
    let mut first = [u64::MAX; BANKS];
    let conflict = words.clone().any(|word| {
        let bank = &mut first[word as usize % BANKS];
        let other = *bank != u64::MAX && *bank != word;
        *bank = word;
        other
    });
    if !conflict {
        return 0;
    }
    let mut all: Vec<u64> = words.collect();
    all.sort_unstable();
    all.dedup();
    let mut counts = [0_u64; BANKS];
    for word in all {
        counts[word as usize % BANKS] += 1;
    }
    counts.into_iter().max().unwrap_or(1).saturating_sub(1)
}
