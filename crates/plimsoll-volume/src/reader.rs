//! Reading a region in one piece, or its halves at once.
//!
//! Decompressing the stretches of a file that a region meets takes most of the time of reading it. From access points they can be decompressed
//! independently of each other: a second reader takes the planes from the middle on.

use std::panic::resume_unwind;
use std::thread;

use crate::source::VoxelSource;
use crate::{VolumeError, VoxelBox};

/// Stored bytes that are decoded in one step.
pub(crate) const SCRATCH: usize = 64 << 10;

/// The stack of the thread of a second reader.
const STACK: usize = 128 << 10;

/// The least bytes that are decompressed by two: fewer are there before a thread has started.
const LEAST: usize = 1 << 20;

/// A source of voxels, and the room in which they are decoded.
pub(crate) struct Reader {
    pub(crate) source: Box<dyn VoxelSource>,
    pub(crate) scratch: Box<[u8]>,
}

/// The reader of an image, and a second one once it was needed.
pub(crate) struct Readers {
    pub(crate) first: Reader,
    second: Second,
}

enum Second {
    /// Not needed so far.
    Unknown,
    /// There is none.
    None,
    There(Reader),
}

/// The grid of a file.
#[derive(Clone, Copy)]
pub(crate) struct StoredGrid {
    /// (depth, height, width).
    pub(crate) shape: [usize; 3],
    /// The bytes of a voxel as it is stored.
    pub(crate) voxel_bytes: usize,
}

/// Room for a region.
pub(crate) struct Destination<'a, T> {
    pub(crate) elements: &'a mut [T],
    /// The number of elements for each voxel.
    pub(crate) per_voxel: usize,
}

impl Reader {
    fn new(source: Box<dyn VoxelSource>) -> Reader {
        Reader { source, scratch: vec![0; SCRATCH].into_boxed_slice() }
    }
}

impl Readers {
    pub(crate) fn new(source: Box<dyn VoxelSource>) -> Readers {
        Readers { first: Reader::new(source), second: Second::Unknown }
    }

    /// The source, whose access points may become others.
    pub(crate) fn changing(&mut self) -> &mut dyn VoxelSource {
        self.second = Second::Unknown;
        &mut *self.first.source
    }

    /// Reads a region of a grid.
    ///
    /// # Errors
    /// Returns the error of `read`; of the first part if both fail.
    pub(crate) fn read<T: Send>(
        &mut self,
        grid: StoredGrid,
        region: VoxelBox,
        to: Destination<'_, T>,
        read: impl Fn(&mut Reader, VoxelBox, &mut [T]) -> Result<(), VolumeError> + Sync,
    ) -> Result<(), VolumeError> {
        let Readers { first, second } = self;
        let StoredGrid { shape: [_, _, width], voxel_bytes } = grid;
        let Destination { elements: voxels, per_voxel } = to;
        // All that lies between the first and the last voxel of a plane of the region is decompressed.
        let of_plane = region.shape[1].saturating_sub(1) * width + region.shape[2];
        let is_long = region.shape[0] > 1 && region.shape[0] * of_plane * voxel_bytes >= LEAST;
        if !is_long || !first.source.is_compressed() || !first.source.is_random_access() {
            return read(first, region, voxels);
        }
        if matches!(second, Second::Unknown) {
            *second = first.source.twin().map_or(Second::None, |twin| Second::There(Reader::new(twin)));
        }
        let Second::There(second) = second else { return read(first, region, voxels) };
        let (mut front, mut back) = (region, region);
        front.shape[0] = region.shape[0] / 2;
        back.start[0] += front.shape[0];
        back.shape[0] -= front.shape[0];
        let (of_front, of_back) = voxels.split_at_mut(front.shape.iter().product::<usize>() * per_voxel);
        let both = thread::scope(|scope| {
            let thread = thread::Builder::new().name("read".into()).stack_size(STACK);
            let started = thread.spawn_scoped(scope, || read(second, back, of_back)).ok()?;
            let done = read(first, front, of_front);
            Some(done.and(started.join().unwrap_or_else(|panic| resume_unwind(panic))))
        });
        // Where no thread can be started, it takes longer.
        both.unwrap_or_else(|| read(first, region, voxels))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Voxels that are their own indices, of which two can be read at once.
    struct Indices(&'static AtomicUsize);

    impl VoxelSource for Indices {
        fn read(&mut self, _: usize, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            for (at, voxel) in bytes.chunks_exact_mut(4).enumerate() {
                voxel.copy_from_slice(&((first + at) as u32).to_ne_bytes());
            }
            Ok(())
        }

        fn is_compressed(&self) -> bool {
            true
        }

        fn is_random_access(&self) -> bool {
            true
        }

        fn twin(&self) -> Option<Box<dyn VoxelSource>> {
            Some(Box::new(Indices(self.0)))
        }
    }

    #[test]
    fn the_halves_of_a_long_region_are_read_at_once_into_their_places() {
        static READS: AtomicUsize = AtomicUsize::new(0);
        for (shape, parts) in [([5, 100, 1000], 2), ([5, 10, 1000], 1), ([1, 1000, 1000], 1)] {
            READS.store(0, Ordering::Relaxed);
            let mut readers = Readers::new(Box::new(Indices(&READS)));
            let region = VoxelBox::whole(shape);
            let mut voxels = vec![0u8; 4 * shape.iter().product::<usize>()];
            let whole = |reader: &mut Reader, part: VoxelBox, voxels: &mut [u8]| {
                reader.source.read(0, part.start[0] * shape[1] * shape[2], voxels)
            };
            let to = Destination { elements: &mut voxels[..], per_voxel: 4 };
            readers.read(StoredGrid { shape, voxel_bytes: 4 }, region, to, whole).unwrap();
            let found = voxels.chunks_exact(4).map(|voxel| u32::from_ne_bytes(voxel.try_into().unwrap()));
            assert!(found.eq(0..voxels.len() as u32 / 4));
            assert_eq!(READS.load(Ordering::Relaxed), parts, "{shape:?}");
        }
    }
}
