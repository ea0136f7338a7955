//! Tiling a patch so that the source of each tile fits a given memory.

use plimsoll_volume::{VoxelBox, VoxelMap};

/// The factor by which another cut must reduce reading to be preferred to a cut between the source's planes. The latter
/// reads planes in file order, which matters for compressed files.
const PREFERENCE: f64 = 0.9;

/// The part of the patch, and the box of the source that it reads; `None` if it is wholly outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tile {
    pub(crate) part: VoxelBox,
    pub(crate) region: Option<VoxelBox>,
}

/// A patch that is pulled in tiles.
pub(crate) struct Tiling<'a> {
    /// The box of the source that a part of the patch reads.
    region: &'a dyn Fn(&VoxelBox) -> Option<VoxelBox>,
    patch: [usize; 3],
    /// The capacity in elements.
    capacity: usize,
    /// The patch's axes, starting with the one that advances furthest through the source's planes.
    order: [usize; 3],
}

/// The source of a single voxel exceeds the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooSmall {
    /// The elements needed at least.
    pub(crate) needed: usize,
}

impl<'a> Tiling<'a> {
    /// The tiles of a patch whose parts read the regions that `region` returns, roughly along `map`.
    pub(crate) fn new(
        map: &VoxelMap,
        region: &'a dyn Fn(&VoxelBox) -> Option<VoxelBox>,
        patch: [usize; 3],
        capacity: usize,
    ) -> Tiling<'a> {
        let rows = map.rows();
        let mut order = [0, 1, 2];
        let reach = |axis: usize, row: usize| rows[row][axis].abs();
        order.sort_by(|a, b| {
            reach(*b, 0).total_cmp(&reach(*a, 0)).then(reach(*b, 1).total_cmp(&reach(*a, 1))).then(a.cmp(b))
        });
        Tiling { region, patch, capacity, order }
    }

    /// Calls `visit` with tiles that cover the patch, each once, and whose source (and, where a tile is not in one piece
    /// in the patch, the tile itself) fits the capacity.
    pub(crate) fn visit<E>(
        &self,
        too_small: impl Fn(TooSmall) -> E + Copy,
        visit: &mut impl FnMut(Tile) -> Result<(), E>,
    ) -> Result<(), E> {
        self.visit_part(VoxelBox::whole(self.patch), too_small, visit)
    }

    fn visit_part<E>(
        &self,
        part: VoxelBox,
        too_small: impl Fn(TooSmall) -> E + Copy,
        visit: &mut impl FnMut(Tile) -> Result<(), E>,
    ) -> Result<(), E> {
        let region = self.region(&part);
        if self.elements(&part, region).is_some_and(|needed| needed <= self.capacity) {
            return visit(Tile { part, region });
        }
        match self.cut(&part) {
            Some(halves) => {
                for half in halves {
                    self.visit_part(half, too_small, visit)?;
                }
                Ok(())
            }
            None => Err(too_small(TooSmall { needed: self.elements(&part, region).unwrap_or(usize::MAX) })),
        }
    }

    fn region(&self, part: &VoxelBox) -> Option<VoxelBox> {
        (self.region)(part)
    }

    /// The elements that are held while a tile is pulled.
    fn elements(&self, part: &VoxelBox, region: Option<VoxelBox>) -> Option<usize> {
        let source = region.map_or(Some(0), |region| region.voxel_count())?;
        let aside = if is_contiguous(part, self.patch) { 0 } else { part.voxel_count()? };
        source.checked_add(aside)
    }

    /// The halves of a part, in the order of their sources in the file.
    fn cut(&self, part: &VoxelBox) -> Option<[VoxelBox; 2]> {
        let mut best: Option<(f64, [VoxelBox; 2])> = None;
        for axis in self.order {
            if part.shape[axis] < 2 {
                continue;
            }
            let halves = halves(part, axis);
            let read: f64 = halves
                .iter()
                .filter_map(|half| self.region(half))
                .map(|region| region.shape.iter().map(|extent| *extent as f64).product::<f64>())
                .sum();
            if best.is_none_or(|(least, _)| read < PREFERENCE * least) {
                best = Some((read, halves));
            }
        }
        let [first, second] = best?.1;
        let start = |half: &VoxelBox| self.region(half).map(|region| region.start);
        Some(if start(&second) < start(&first) { [second, first] } else { [first, second] })
    }
}

/// The map for the voxels of a part of the patch.
pub(crate) fn within(map: &VoxelMap, part: &VoxelBox) -> VoxelMap {
    VoxelMap::translation(part.start.map(|start| start as f64)).then(map)
}

/// Returns `true` if the voxels of a part are contiguous in the patch.
pub(crate) fn is_contiguous(part: &VoxelBox, patch: [usize; 3]) -> bool {
    let whole = |axis: usize| part.shape[axis] == patch[axis];
    match part.shape {
        [1, 1, _] => true,
        [1, _, _] => whole(2),
        _ => whole(1) && whole(2),
    }
}

fn halves(part: &VoxelBox, axis: usize) -> [VoxelBox; 2] {
    let (mut first, mut second) = (*part, *part);
    first.shape[axis] = part.shape[axis] / 2;
    second.shape[axis] -= first.shape[axis];
    second.start[axis] += first.shape[axis];
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_volume::Spacing;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tiles_cover_a_patch_once_and_fit(
            radians in prop::array::uniform3(-1.0..1.0f64),
            factors in prop::array::uniform3(0.3..3.0f64),
            patch in prop::array::uniform3(1usize..12),
            capacity in 16usize..400,
        ) {
            let map = VoxelMap::scale(factors, [3.0; 3])
                .then(&VoxelMap::rotation(radians, Spacing([1.0; 3]), [4.0; 3]));
            let region = |part: &VoxelBox| within(&map, part).source_box(part.shape, [9, 8, 10], 0);
            let tiling = Tiling::new(&map, &region, patch, capacity);
            let mut covered = vec![0; patch.iter().product()];
            tiling.visit(|too_small| too_small.needed, &mut |tile| {
                let source = tile.region.map_or(0, |region| region.voxel_count().unwrap());
                assert!(source <= capacity);
                let [d, h, w] = tile.part.start;
                let [depth, height, width] = tile.part.shape;
                for d in d..d + depth {
                    for h in h..h + height {
                        for w in w..w + width {
                            covered[(d * patch[1] + h) * patch[2] + w] += 1;
                        }
                    }
                }
                Ok(())
            }).unwrap();
            prop_assert!(covered.iter().all(|count| *count == 1));
        }
    }

    #[test]
    fn an_unrotated_patch_is_cut_between_the_planes_of_the_file_in_order() {
        let backwards = VoxelMap::new([[0.0, -1.0, 0.0, 15.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]);
        let region = |part: &VoxelBox| within(&backwards, part).source_box(part.shape, [16; 3], 0);
        let tiling = Tiling::new(&backwards, &region, [16; 3], 1024);
        let mut next = 0;
        tiling
            .visit(|_| (), &mut |tile| {
                let region = tile.region.unwrap();
                assert_eq!((region.start, region.shape[1..].to_vec()), ([next, 0, 0], vec![16, 16]));
                next += region.shape[0];
                Ok(())
            })
            .unwrap();
        assert_eq!(next, 16);
    }
}
