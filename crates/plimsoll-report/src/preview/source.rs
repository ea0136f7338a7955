//! An image or a label map that slices are taken from. A compressed file is read from its beginning whenever something before the last
//! read is asked for, so all slices are taken in one pass, plane by plane.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_volume::{Content, Geometry, StoredVolume, VolumeFile, VoxelBox};

use crate::error::Outcome;

/// Voxels that are read by regions.
pub enum Source {
    /// From the file.
    File(Box<VolumeFile>),
    /// From memory, as they were stored.
    Memory(Box<StoredVolume>),
}

impl Source {
    /// An image, which is gone through once.
    pub fn image(path: &Path, budget: &Budget) -> Outcome<Source> {
        let mut file = VolumeFile::open(path)?;
        file.decode(budget)?;
        Ok(Source::File(Box::new(file)))
    }

    /// A label map, which is gone through twice, as where slices are follows from all of it: in memory if half of what is left of the budget
    /// has room for it, and else in the file. A segmentation that has a part of its image's grid is placed on it.
    pub fn labels(path: &Path, image: &Path, budget: &Budget) -> Outcome<Source> {
        let mut file = VolumeFile::open_as(path, Content::Segments { on: None })?;
        let mut content = Content::Labels;
        if file.segments().is_some() {
            content = Content::Segments { on: Some(*VolumeFile::open(image)?.geometry()) };
            file = VolumeFile::open_as(path, content)?;
        }
        let needed = Bytes(file.stored_bytes()) + file.decoding_bytes();
        if needed.0 <= budget.free().0 / 2 {
            drop(file);
            let never = AtomicBool::new(false);
            // It ends early only where it is stopped.
            if let Some(volume) = StoredVolume::read_unless(path, content, budget, "labels", budget, &never)?
            {
                return Ok(Source::Memory(Box::new(volume)));
            }
            file = VolumeFile::open_as(path, content)?;
        }
        file.decode(budget)?;
        Ok(Source::File(Box::new(file)))
    }

    pub fn path(&self) -> &Path {
        match self {
            Source::File(file) => file.path(),
            Source::Memory(volume) => volume.path(),
        }
    }

    pub fn geometry(&self) -> &Geometry {
        match self {
            Source::File(file) => file.geometry(),
            Source::Memory(volume) => volume.geometry(),
        }
    }

    /// Reads a region of the first channel.
    pub fn read(&mut self, region: VoxelBox, voxels: &mut [f32]) -> Outcome {
        match self {
            Source::File(file) => file.region_f32(0, region, voxels)?,
            Source::Memory(volume) => volume.region_f32(0, region, voxels)?,
        }
        Ok(())
    }

    /// The voxels of regions, each `[depth][height][width]`.
    pub fn regions(&mut self, regions: &[VoxelBox], budget: &Budget) -> Outcome<Vec<Mapped<f32>>> {
        let shape = self.geometry().shape();
        in_one_pass(shape, regions, budget, &mut |region, voxels| self.read(region, voxels))
    }
}

/// Reads the planes that any of several regions has, each of them once and in order; of one region nothing else.
fn in_one_pass(
    [_, height, width]: [usize; 3],
    regions: &[VoxelBox],
    budget: &Budget,
    read: &mut dyn FnMut(VoxelBox, &mut [f32]) -> Outcome,
) -> Outcome<Vec<Mapped<f32>>> {
    let count = |region: &VoxelBox| region.voxel_count().unwrap_or(usize::MAX);
    let room = |region: &VoxelBox| Mapped::zeroed(budget, "a slice", count(region));
    let mut taken: Vec<Mapped<f32>> = regions.iter().map(room).collect::<Result<_, _>>()?;
    // One is read where it belongs, without a plane beside it.
    if let ([region], [voxels]) = (regions, &mut taken[..]) {
        read(*region, voxels)?;
        return Ok(taken);
    }
    let mut plane = Mapped::<f32>::zeroed(budget, "a plane of an image", height * width)?;
    let end = regions.iter().map(|region| region.start[0] + region.shape[0]).max().unwrap_or(0);
    for d in regions.iter().map(|region| region.start[0]).min().unwrap_or(end)..end {
        let place = |region: &VoxelBox| d.checked_sub(region.start[0]).filter(|at| *at < region.shape[0]);
        let mut those =
            regions.iter().zip(&mut taken).filter_map(|(of, to)| Some((of, to, place(of)?))).peekable();
        if those.peek().is_none() {
            continue;
        }
        read(VoxelBox { start: [d, 0, 0], shape: [1, height, width] }, &mut plane)?;
        for (region, to, place) in those {
            let [_, rows, columns] = region.shape;
            let to = to[place * rows * columns..].chunks_exact_mut(columns.max(1)).take(rows);
            for (row, to) in to.enumerate() {
                let from = (region.start[1] + row) * width + region.start[2];
                to.copy_from_slice(&plane[from..from + columns]);
            }
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_single_region_takes_its_own_room_alone() {
        let region = VoxelBox { start: [0, 0, 0], shape: [1, 64, 64] };
        let budget = Budget::new(Mapped::<f32>::bytes(64 * 64).unwrap());
        let found = in_one_pass([1, 64, 64], &[region], &budget, &mut |of, voxels| {
            assert_eq!(of, region);
            voxels.fill(3.0);
            Ok(())
        });
        assert!(found.unwrap().iter().all(|voxels| voxels.iter().all(|voxel| *voxel == 3.0)));
    }

    #[test]
    fn regions_are_read_in_one_pass_over_their_planes() {
        let shape = [7, 5, 6];
        let regions = [
            VoxelBox { start: [2, 0, 0], shape: [2, 5, 6] },
            VoxelBox { start: [1, 3, 0], shape: [4, 1, 6] },
            VoxelBox { start: [6, 1, 4], shape: [1, 2, 2] },
        ];
        let mut planes = Vec::new();
        let budget = Budget::new(Bytes::mib(1));
        let found = in_one_pass(shape, &regions, &budget, &mut |region, voxels| {
            planes.push(region.start[0]);
            let first = region.start[0] * 30;
            voxels.iter_mut().enumerate().for_each(|(at, voxel)| *voxel = (first + at) as f32);
            Ok(())
        });
        // Plane 5 is in none of them.
        assert_eq!(planes, [1, 2, 3, 4, 6]);
        for (region, voxels) in regions.iter().zip(found.unwrap()) {
            let [_, rows, columns] = region.shape;
            for (at, voxel) in voxels.iter().enumerate() {
                let place = [at / (rows * columns), at / columns % rows, at % columns];
                let [d, h, w] = [0, 1, 2].map(|axis| region.start[axis] + place[axis]);
                assert_eq!(*voxel, (d * 30 + h * 6 + w) as f32);
            }
        }
    }
}
