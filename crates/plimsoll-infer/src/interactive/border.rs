//! The decision to zoom out: a segmentation that changes at the border of its patch continues beyond it.

/// Changed voxels of a face beyond which a patch is zoomed out.
const MANY: u32 = 1500;
/// Changed voxels beyond which it is, if the number of voxels of the object on the face changes by more than a share.
const SOME: u32 = 100;
const SHARE: f64 = 0.2;

/// Returns `true` if a segmentation differs enough from the previous one on a face of the patch.
pub(crate) fn changes_at_border(
    patch: [usize; 3],
    present: impl Fn([usize; 3]) -> bool,
    previous: impl Fn([usize; 3]) -> bool,
) -> bool {
    let faces = (0..3).flat_map(|axis| [0, patch[axis] - 1].map(|place| (axis, place)));
    for (axis, place) in faces {
        let (mut before, mut now, mut changed) = (0u32, 0u32, 0u32);
        let [first, second] = [[1, 2], [0, 2], [0, 1]][axis];
        for one in 0..patch[first] {
            for other in 0..patch[second] {
                let mut at = [place; 3];
                (at[first], at[second]) = (one, other);
                let (was, is) = (previous(at), present(at));
                before += u32::from(was);
                now += u32::from(is);
                changed += u32::from(was != is);
            }
        }
        let growth = f64::from(before.max(now)) / f64::from(before.min(now)).max(1e-5) - 1.0;
        if changed > MANY || (changed > SOME && growth > SHARE) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_changes_and_changes_inside_do_not_zoom_out() {
        let patch = [40, 50, 60];
        let changes = |present: &dyn Fn([usize; 3]) -> bool, previous: &dyn Fn([usize; 3]) -> bool| {
            changes_at_border(patch, present, previous)
        };
        let nothing = |_: [usize; 3]| false;
        assert!(!changes(&|[d, h, w]| d > 0 && d < 39 && h > 0 && h < 49 && w > 0 && w < 59, &nothing));
        // 100 voxels of a face are not more than 100; 101 are.
        assert!(!changes(&|[d, h, w]| d == 39 && (10..12).contains(&h) && w < 50, &nothing));
        assert!(changes(&|[d, h, w]| d == 39 && (h == 10 && w < 51 || h == 11 && w < 50), &nothing));
        // 1000 of 2000 voxels move: many, but the object grows by nothing.
        let stripe = |from: usize| move |[d, h, _]: [usize; 3]| d == 0 && (from..from + 20).contains(&h);
        assert!(!changes(&stripe(5), &stripe(10)));
        assert!(changes(&stripe(5), &stripe(25)));
    }
}
