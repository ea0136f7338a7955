//! Mirrored windows: what test-time augmentation looks at beside the window itself.

/// All ways to mirror a window along some axes: each of them or not, the plain one first. An axis of one voxel is the same mirrored.
pub(crate) fn all_mirrors(window: [usize; 3], along: [bool; 3]) -> impl Iterator<Item = [bool; 3]> {
    let ways = (0..8).map(|bits| [bits & 4 != 0, bits & 2 != 0, bits & 1 != 0]);
    ways.filter(move |axes| (0..3).all(|axis| !axes[axis] || (along[axis] && window[axis] > 1)))
}

/// Copies volumes `[channel][d][h][w]`, mirrored. Mirroring twice is the identity.
pub(crate) fn mirror(from: &[f32], to: &mut [f32], extent: [usize; 3], axes: [bool; 3]) {
    let [depth, height, width] = extent;
    let place = |at: usize, axis: usize| if axes[axis] { extent[axis] - 1 - at } else { at };
    let voxels = depth * height * width;
    for (from, to) in from.chunks_exact(voxels).zip(to.chunks_exact_mut(voxels)) {
        for d in 0..depth {
            for h in 0..height {
                let source = &from[(place(d, 0) * height + place(h, 1)) * width..][..width];
                let target = &mut to[(d * height + h) * width..][..width];
                target.copy_from_slice(source);
                if axes[2] {
                    target.reverse();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirroring_turns_axes_round_and_twice_is_nothing() {
        let volume: Vec<f32> = (0..48).map(|i| i as f32).collect();
        let (mut once, mut twice) = (vec![0.0; 48], vec![0.0; 48]);
        mirror(&volume, &mut once, [2, 3, 4], [false, true, true]);
        assert_eq!(once[..4], [11.0, 10.0, 9.0, 8.0]);
        assert_eq!(once[24], 24.0 + 11.0);
        for axes in all_mirrors([2, 3, 4], [true; 3]) {
            mirror(&volume, &mut once, [2, 3, 4], axes);
            mirror(&once, &mut twice, [2, 3, 4], axes);
            assert_eq!(volume, twice);
        }
        let ways = |window, along| all_mirrors(window, along).collect::<Vec<_>>();
        assert_eq!(ways([2, 3, 4], [true; 3]).first(), Some(&[false; 3]));
        assert_eq!((ways([2, 3, 4], [true; 3]).len(), ways([1, 3, 4], [true; 3]).len()), (8, 4));
        assert_eq!(ways([2, 3, 4], [false, true, false]), [[false; 3], [false, true, false]]);
        assert_eq!(ways([2, 3, 4], [false; 3]), [[false; 3]]);
    }
}
