//! Morphological opening of masks of bits: small changes do not need a refinement.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};

use crate::interactive::bits::BitMask;

/// Voxels of a window of 5 on each side of its centre.
const REACH: usize = 2;
/// The original planes that are kept while planes are replaced: those before the present one, and itself.
const KEPT: usize = REACH + 1;

/// The operation of a window on the bits of voxels.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Erosion,
    Dilation,
}

impl Step {
    /// Bits outside of the grid, which do not change a window.
    fn neutral(self) -> u64 {
        if self == Step::Erosion { u64::MAX } else { 0 }
    }

    fn join(self, one: u64, other: u64) -> u64 {
        if self == Step::Erosion { one & other } else { one | other }
    }
}

/// The scratch of an opening.
pub(crate) fn scratch_bytes([_, height, width]: [usize; 3]) -> Result<Bytes, MapError> {
    Mapped::<u64>::bytes(KEPT.saturating_mul(height).saturating_mul(width.div_ceil(64)))
}

/// Erodes a mask by a cube of 5 voxels and dilates the result. Voxels outside of the grid do not count.
///
/// # Errors
/// Returns an error if the budget has no room for some planes.
pub(crate) fn open(mask: &mut BitMask, holder: &str, budget: &Budget) -> Result<(), MapError> {
    let mut kept = Mapped::<u64>::zeroed(budget, holder, KEPT * mask.plane_words())?;
    for step in [Step::Erosion, Step::Dilation] {
        along_width(mask, step, &mut kept);
        along_height(mask, step, &mut kept);
        along_depth(mask, step, &mut kept);
    }
    Ok(())
}

fn along_width(mask: &mut BitMask, step: Step, kept: &mut [u64]) {
    let (words, width) = (mask.row_words(), mask.shape()[2]);
    // Bits of the last word that are voxels.
    let inside = match width % 64 {
        0 => u64::MAX,
        bits => (1 << bits) - 1,
    };
    let from = &mut kept[..words];
    for row in mask.words_mut().chunks_exact_mut(words) {
        from.copy_from_slice(row);
        if let Some(last) = from.last_mut() {
            *last |= step.neutral() & !inside;
        }
        let word =
            |place: Option<usize>| place.and_then(|place| from.get(place).copied()).unwrap_or(step.neutral());
        for (place, to) in row.iter_mut().enumerate() {
            let (own, before, behind) =
                (word(Some(place)), word(place.checked_sub(1)), word(Some(place + 1)));
            *to = (1..=REACH).fold(own, |joined, shift| {
                let lower = own << shift | before >> (64 - shift);
                let upper = own >> shift | behind << (64 - shift);
                step.join(step.join(joined, lower), upper)
            });
        }
        if let Some(last) = row.last_mut() {
            *last &= inside;
        }
    }
}

fn along_height(mask: &mut BitMask, step: Step, kept: &mut [u64]) {
    let (words, plane) = (mask.row_words(), mask.plane_words());
    let from = &mut kept[..plane];
    for to in mask.words_mut().chunks_exact_mut(plane) {
        from.copy_from_slice(to);
        for shift in 1..=REACH {
            let skipped = (shift * words).min(plane);
            join(&mut to[skipped..], from, step);
            join(to, &from[skipped..], step);
        }
    }
}

fn along_depth(mask: &mut BitMask, step: Step, kept: &mut [u64]) {
    let (plane, depth) = (mask.plane_words(), mask.shape()[0]);
    for at in 0..depth {
        let (place, words) = (at % KEPT * plane, mask.words_mut());
        kept[place..place + plane].copy_from_slice(&words[at * plane..][..plane]);
        for before in at.saturating_sub(REACH)..at {
            let from = &kept[before % KEPT * plane..][..plane];
            join(&mut words[at * plane..][..plane], from, step);
        }
        for behind in at + 1..depth.min(at + REACH + 1) {
            let (to, from) = words.split_at_mut(behind * plane);
            join(&mut to[at * plane..][..plane], &from[..plane], step);
        }
    }
}

fn join(to: &mut [u64], from: &[u64], step: Step) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = step.join(*to, *from));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: a voxel stays if all voxels of a window around it are set, and spreads over a window then.
    fn opened(voxels: &[bool], shape: [usize; 3]) -> Vec<bool> {
        let place = |[d, h, w]: [usize; 3]| (d * shape[1] + h) * shape[2] + w;
        let window = |at: [usize; 3]| {
            let range = move |axis: usize| at[axis].saturating_sub(2)..(at[axis] + 3).min(shape[axis]);
            range(0).flat_map(move |d| range(1).flat_map(move |h| range(2).map(move |w| [d, h, w])))
        };
        let all: Vec<[usize; 3]> = (0..shape[0])
            .flat_map(|d| (0..shape[1]).flat_map(move |h| (0..shape[2]).map(move |w| [d, h, w])))
            .collect();
        let eroded: Vec<bool> = all.iter().map(|at| window(*at).all(|near| voxels[place(near)])).collect();
        all.iter().map(|at| window(*at).any(|near| eroded[place(near)])).collect()
    }

    #[test]
    fn opening_equals_its_definition_at_borders_and_across_words() {
        for shape in [[9, 8, 70], [6, 11, 64], [3, 4, 131], [1, 1, 9]] {
            let budget = Budget::new(Bytes::mib(4));
            let mut mask = BitMask::new(shape, "test", &budget).unwrap();
            let count: usize = shape.iter().product();
            // Mostly set, with holes at places that a linear congruence picks.
            let voxels: Vec<bool> = (0..count).map(|place| (place * 7919 + 31) % 211 > 1).collect();
            for (place, value) in voxels.iter().enumerate() {
                let [_, height, width] = shape;
                mask.set([place / width / height, place / width % height, place % width], *value);
            }
            open(&mut mask, "test", &budget).unwrap();
            let expected = opened(&voxels, shape);
            let found: Vec<bool> = (0..count)
                .map(|place| {
                    mask.get([place / shape[2] / shape[1], place / shape[2] % shape[1], place % shape[2]])
                })
                .collect();
            assert!(found == expected, "{shape:?}");
        }
    }
}
