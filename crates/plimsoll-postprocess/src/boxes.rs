//! Boxes around labels, and masks of labels within such a box.

use std::collections::BTreeMap;
use std::ops::Range;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::VoxelBox;

use crate::PostprocessError;

/// The smallest boxes that have all voxels of labels, of those that are in the map and wanted.
pub(crate) fn boxes(
    labels: &[u16],
    [_, height, width]: [usize; 3],
    is_wanted: impl Fn(u16) -> bool,
) -> BTreeMap<u16, VoxelBox> {
    let mut ends: BTreeMap<u16, ([usize; 3], [usize; 3])> = BTreeMap::new();
    for (row, voxels) in labels.chunks(width.max(1)).enumerate() {
        let (d, h) = (row / height.max(1), row % height.max(1));
        let mut start = 0;
        for run in voxels.chunk_by(|one, next| one == next) {
            let (first, last) = ([d, h, start], [d, h, start + run.len() - 1]);
            start += run.len();
            let Some(label) = run.first().copied().filter(|label| *label != 0 && is_wanted(*label)) else {
                continue;
            };
            let (low, high) = ends.entry(label).or_insert((first, last));
            for axis in 0..3 {
                low[axis] = low[axis].min(first[axis]);
                high[axis] = high[axis].max(last[axis]);
            }
        }
    }
    ends.into_iter()
        .map(|(label, (low, high))| (label, VoxelBox::between(low, high.map(|at| at + 1))))
        .collect()
}

/// The smallest box around several; none if there are none.
pub(crate) fn around<'a>(boxes: impl IntoIterator<Item = &'a VoxelBox>) -> Option<VoxelBox> {
    boxes.into_iter().copied().reduce(|one, other| one.around(&other))
}

/// A box within a map of a shape, whose rows are runs of voxels.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) shape: [usize; 3],
    pub(crate) within: VoxelBox,
}

impl Part {
    /// The voxels of each row of the box in the map, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let ([_, height, width], VoxelBox { start, shape }) = (self.shape, self.within);
        let planes = start[0]..start[0] + shape[0];
        planes.flat_map(move |d| {
            (start[1]..start[1] + shape[1]).map(move |h| {
                let first = (d * height + h) * width + start[2];
                first..first + shape[2]
            })
        })
    }

    /// The number of voxels of the box.
    pub(crate) fn voxels(&self) -> usize {
        self.within.shape.iter().product()
    }

    /// 1 where a label is among some, else 0.
    pub(crate) fn mask(
        &self,
        labels: &[u16],
        is_among: impl Fn(u16) -> bool,
        budget: &Budget,
    ) -> Result<Mapped<u8>, PostprocessError> {
        let mut mask = Mapped::<u8>::zeroed(budget, "a mask", self.voxels())?;
        let rows = mask.chunks_mut(self.within.shape[2].max(1));
        for (to, row) in rows.zip(self.rows()) {
            to.iter_mut().zip(&labels[row]).for_each(|(voxel, label)| *voxel = u8::from(is_among(*label)));
        }
        Ok(mask)
    }
}
