//! Vertebrae that are numbered anew: one label for each body, from one end to the other.
//!
//! A network that finds each vertebra by its own label may find two labels in one of them. The bodies of vertebrae do not touch, so that
//! components tell them apart; which is which follows from their order and one label at an end. As TotalSegmentator's
//! `postprocess_vertebrae_pp`.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use plimsoll_morphology::{Connectivity, Region, component_sizes, components};

use crate::PostprocessError;
use crate::boxes::{Part, around, boxes};

/// The labels of vertebrae, from the highest to the lowest, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vertebrae {
    /// The highest, C1.
    pub first: u16,
    /// The lowest, L5.
    pub last: u16,
    /// Voxels that a vertebra has at least: what is smaller is removed.
    pub least_voxels: u64,
}

/// A component that is large enough.
struct Body {
    component: u32,
    /// The new label; 0 if the body is removed.
    label: u16,
    voxels: u64,
    /// The sum of their places along the depth.
    heights: u64,
}

impl Body {
    fn middle(&self) -> f64 {
        self.heights as f64 / self.voxels as f64
    }
}

/// Returns the index of a component in `bodies`, which are sorted by component, or `None` if it is too small or background.
fn place_of(component: u32, bodies: &[Body]) -> Option<usize> {
    bodies.binary_search_by_key(&component, |body| body.component).ok()
}

/// Numbers vertebrae anew if any two labels of a map of `shape` touch, whose depth runs upwards; else changes nothing. Returns whether it
/// did. The order is counted from the lowest label upwards; if C1 is there and L5 is not, from C1 downwards. Bodies beyond the last label
/// are removed.
///
/// Beside the labels, 9 bytes for each voxel of the box around all of them are held, 8 bytes for each component, however small, and 24 bytes
/// for each that is large enough.
///
/// # Errors
/// Returns an error if the budget has no room, or there are more voxels than 32 bits can number.
pub fn number_vertebrae(
    labels: &mut [u16],
    shape: [usize; 3],
    vertebrae: Vertebrae,
    budget: &Budget,
    threads: usize,
) -> Result<bool, PostprocessError> {
    if !labels_touch(labels, shape) {
        return Ok(false);
    }
    let Some(within) = around(boxes(labels, shape, |_| true).values()) else { return Ok(false) };
    let part = Part { shape, within };
    let mask = part.mask(labels, |label| label != 0, budget)?;
    let mut numbers = Mapped::<u32>::zeroed(budget, "components", part.voxels())?;
    let (box_shape, faces) = (within.shape, Connectivity::Faces);
    let count = components(&mask, box_shape, faces, Region::Foreground, &mut numbers, budget, threads)?;
    drop(mask);
    let sizes = component_sizes(&numbers, count, budget)?;
    let is_kept = |component: u32| sizes[component as usize] >= vertebrae.least_voxels;
    let kept = || (1..=count).filter(|component| is_kept(*component));
    let bytes = kept().count().saturating_mul(size_of::<Body>());
    let _bodies = budget.reserve("bodies of vertebrae", Bytes::from_len(bytes)).map_err(MapError::from)?;
    // In the order of their numbers.
    let mut bodies = Vec::with_capacity(kept().count());
    bodies.extend(kept().map(|component| {
        let voxels = sizes[component as usize];
        Body { component, label: 0, voxels, heights: 0 }
    }));
    let mut found = vec![false; usize::from(vertebrae.last) + 1];
    let width = within.shape[2].max(1);
    let rows_of_plane = within.shape[1].max(1);
    for (row, (numbers, line)) in numbers.chunks(width).zip(part.rows()).enumerate() {
        for (number, label) in numbers.iter().zip(&labels[line]) {
            if let Some(place) = place_of(*number, &bodies) {
                bodies[place].heights += (row / rows_of_plane) as u64;
                if let Some(found) = found.get_mut(usize::from(*label)) {
                    *found = true;
                }
            }
        }
    }
    let has = |label: u16| found.get(usize::from(label)) == Some(&true);
    let lowest = (vertebrae.first..=vertebrae.last).rev().find(|label| has(*label));
    let is_from_top = has(vertebrae.first) && !has(vertebrae.last);
    // Of bodies at one height the one with the lower number comes first.
    let upwards = |one: &Body, other: &Body| one.middle().total_cmp(&other.middle());
    let by_number = |one: &Body, other: &Body| one.component.cmp(&other.component);
    let order: Box<dyn Iterator<Item = u16>> = match (is_from_top, lowest) {
        (true, _) => {
            bodies.sort_unstable_by(|one, other| upwards(other, one).then(by_number(one, other)));
            Box::new(vertebrae.first..=vertebrae.last)
        }
        (false, Some(lowest)) => {
            bodies.sort_unstable_by(|one, other| upwards(one, other).then(by_number(one, other)));
            Box::new((vertebrae.first..=lowest).rev())
        }
        // Nothing that is large enough.
        (false, None) => Box::new(std::iter::empty()),
    };
    for (body, label) in bodies.iter_mut().zip(order) {
        body.label = label;
    }
    bodies.sort_unstable_by(by_number);
    for (numbers, line) in numbers.chunks(width).zip(part.rows()) {
        for (number, label) in numbers.iter().zip(&mut labels[line]) {
            // Neither the background nor what is too small is among them.
            *label = place_of(*number, &bodies).map_or(0, |place| bodies[place].label);
        }
    }
    Ok(true)
}

/// Returns `true` if two voxels that share a face have different labels.
fn labels_touch(labels: &[u16], [_, height, width]: [usize; 3]) -> bool {
    let differ = |one: &u16, other: &u16| *one != 0 && *other != 0 && one != other;
    let any = |one: &[u16], other: &[u16]| one.iter().zip(other).any(|(one, other)| differ(one, other));
    let plane = (height * width).max(1);
    labels.chunks(width.max(1)).any(|row| any(row, row.get(1..).unwrap_or(&[])))
        || labels.chunks(plane).any(|plane| any(plane, plane.get(width..).unwrap_or(&[])))
        || any(labels, labels.get(plane..).unwrap_or(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The cases of `oracles/total_segmentator_more.py`, made by TotalSegmentator's own function, which also grows labels by two voxels.
    #[derive(serde::Deserialize)]
    struct Case {
        kind: String,
        shape: [usize; 3],
        labels: Vec<u16>,
        after: Vec<u16>,
    }

    #[test]
    fn vertebrae_have_the_numbers_that_total_segmentator_gives_them() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/total_segmentator_more/vertebrae.json");
        let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(cases.len(), 4);
        for case in cases {
            let vertebrae = Vertebrae { first: 1, last: 24, least_voxels: 30 };
            let mut labels = case.labels.clone();
            let budget = Budget::new(Bytes::mib(8));
            let changed = number_vertebrae(&mut labels, case.shape, vertebrae, &budget, 2).unwrap();
            assert_eq!(changed, case.kind != "apart");
            assert_eq!(labels != case.labels, changed, "{}", case.kind);
            let values = |labels: &[u16]| labels.iter().copied().collect::<std::collections::BTreeSet<u16>>();
            assert_eq!(values(&labels), values(&case.after), "{}", case.kind);
            // A voxel that had a label keeps the later one, unless it was removed and another has grown there.
            for ((before, found), after) in case.labels.iter().zip(&labels).zip(&case.after) {
                assert!(*found == *after || (*found == 0 && *after != 0), "{}: {found} {after}", case.kind);
                assert!(*before != 0 || *found == 0);
            }
        }
    }

    #[test]
    fn labels_that_touch_by_an_edge_do_not_touch() {
        let shape = [2, 2, 2];
        assert!(!labels_touch(&[1, 0, 0, 2, 0, 3, 4, 0], shape));
        for at in [1, 2, 4] {
            let mut labels = [0; 8];
            (labels[0], labels[at]) = (1, 2);
            assert!(labels_touch(&labels, shape), "{at}");
            labels[at] = 1;
            assert!(!labels_touch(&labels, shape));
        }
        // The end of a row does not touch the beginning of the next.
        assert!(!labels_touch(&[0, 1, 2, 0], [1, 2, 2]) && !labels_touch(&[0, 0, 0, 1, 2, 0, 0, 0], shape));
    }
}
