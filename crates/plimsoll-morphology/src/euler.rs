//! The Euler number and the Betti numbers of a mask.

use plimsoll_memory::{Budget, Mapped};

use crate::bits::BitVolume;
use crate::carve::{Carver, bytes_of, sum};
use crate::fill::{Border, join_border};
use crate::forest::Forest;
use crate::grid::{check_length, check_numbered};
use crate::rows::{Rows, WORD};
use crate::runs::RunKind;
use crate::slabs::Slabs;
use crate::{Connectivity, Label, MorphologyError};

/// The connectivity of foreground and background when holes are counted. The background has the dual connectivity, so
/// that closed surfaces separate inside from outside. In an image, of depth 1, these are 4 and 8 neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topology {
    /// Foreground voxels that share a face; the background is connected at corners.
    Faces,
    /// Foreground voxels that share a corner; the background is connected at faces.
    Corners,
}

impl Topology {
    fn foreground(self) -> Connectivity {
        match self {
            Topology::Faces => Connectivity::Faces,
            Topology::Corners => Connectivity::Corners,
        }
    }

    fn background(self) -> Connectivity {
        match self {
            Topology::Faces => Connectivity::Corners,
            Topology::Corners => Connectivity::Faces,
        }
    }
}

/// The number of holes of a mask in each dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Betti {
    /// b₀: components of the foreground.
    pub components: u64,
    /// b₁: tunnels through it, or handles on it.
    pub tunnels: u64,
    /// b₂: cavities that it encloses.
    pub cavities: u64,
}

/// The Euler number of a mask of `shape` (depth, height, width): components − tunnels + cavities. Uses an eighth of a
/// byte per voxel and up to 8 bytes per row from `budget`.
///
/// With [`Topology::Corners`] voxels are closed cubes, and the number is corners − edges + faces − cubes. With
/// [`Topology::Faces`] voxels are points, and it is points − lines between neighbours + squares of four − cubes
/// of eight.
///
/// # Errors
/// Returns an error if the mask does not fit the shape or the memory is not available.
pub fn euler_number<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    topology: Topology,
    budget: &Budget,
) -> Result<i64, MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    if mask.is_empty() {
        return Ok(0);
    }
    let mut memory = Mapped::<u8>::zeroed(budget, "Euler number of a mask", BitVolume::bytes(shape))?;
    Ok(count(&BitVolume::read(&mask, shape, &mut Carver::new(&mut memory)), topology))
}

/// The Betti numbers of a mask of `shape` (depth, height, width). Uses 4 bytes per voxel, an eighth of a byte for bits,
/// and 16 bytes per voxel of a slice and thread, from `budget`.
///
/// # Errors
/// Returns an error if the mask does not fit the shape, there are more voxels than 32 bits can number, there are no threads, or the
/// memory is not available.
pub fn betti_numbers<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    topology: Topology,
    budget: &Budget,
    threads: usize,
) -> Result<Betti, MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_numbered(shape)?;
    if threads == 0 {
        return Err(MorphologyError::NoThreads);
    }
    if mask.is_empty() {
        return Ok(Betti::default());
    }
    let work = Slabs::bytes(shape, threads).max(BitVolume::bytes(shape));
    let bytes = sum([bytes_of::<u32>(mask.len()), work]);
    let mut memory = Mapped::<u8>::zeroed(budget, "Betti numbers of a mask", bytes)?;
    let mut carver = Carver::new(&mut memory);
    let parents = carver.take::<u32>(mask.len());
    let work = carver.rest();
    let euler = count(&BitVolume::read(&mask, shape, &mut Carver::new(work)), topology);
    let mut trees = |kind: RunKind, connectivity: Connectivity| {
        trees(&mask, shape, kind, connectivity, parents, work, threads)
    };
    let components = trees(RunKind::Foreground, topology.foreground());
    let cavities = trees(RunKind::Background, topology.background());
    let tunnels = (components + cavities) as i64 - euler;
    Ok(Betti { components, tunnels: tunnels.unsigned_abs(), cavities })
}

/// Counts the components of the foreground, or the components of the background that do not reach the border.
fn trees(
    mask: &dyn Rows,
    shape: [usize; 3],
    kind: RunKind,
    connectivity: Connectivity,
    parents: &mut [u32],
    work: &mut [u8],
    threads: usize,
) -> u64 {
    let mut slabs = Slabs::new(mask, kind, shape, threads, work);
    slabs.grow(connectivity, parents);
    let mut forest = Forest::new(parents, 0);
    let outside = match kind {
        RunKind::Background => join_border(&mut slabs, shape, Border::All, &mut forest),
        RunKind::Foreground | RunKind::Label => None,
    };
    let mut count = 0;
    for slab in slabs.iter_mut() {
        slab.rows(|_, first, runs| {
            let heads = runs.map(|run| first + run.start as usize);
            count +=
                heads.filter(|head| forest.root(*head) == *head && outside != Some(*head)).count() as u64;
        });
    }
    count
}

/// Visits all lattice points where up to eight voxels meet, row by row.
fn count(bits: &BitVolume<'_>, topology: Topology) -> i64 {
    let [depth, height, width] = bits.shape();
    let mut euler = 0;
    for z in 0..=depth {
        for y in 0..=height {
            // Rows and slices out of bounds are background.
            let row = |z: usize, y: usize| bits.row(z, y);
            let rows = [
                row(z.wrapping_sub(1), y.wrapping_sub(1)),
                row(z.wrapping_sub(1), y),
                row(z, y.wrapping_sub(1)),
                row(z, y),
            ];
            euler += count_row(rows, width, topology);
        }
    }
    euler
}

/// The contribution of one row of lattice points: the rows of voxels (above, before), (above, here), (here, before) and
/// (here, here), where above and before are one less in depth and height.
fn count_row(rows: [Option<&[u64]>; 4], width: usize, topology: Topology) -> i64 {
    let mut counter = Counter::default();
    for at in 0..width.div_ceil(WORD) {
        let [a, b, c, d] = rows.map(|row| row.map_or(0, |row| row[at]));
        match topology {
            // A corner, edge or face exists if any voxel at it does.
            Topology::Corners => counter.add([a | b | c | d, b | d, c | d, d], |word, left| word | left),
            // A cube, square or line exists if all voxels at it do.
            Topology::Faces => counter.add([a & b & c & d, b & d, c & d, d], |word, left| word & left),
        }
    }
    if topology == Topology::Corners && width.is_multiple_of(WORD) {
        // The lattice point past the last voxel of a row that fills its words.
        counter.add([0; 4], |word, left| word | left);
    }
    let [four, slices, rows, voxels] = counter.along;
    let [four_pairs, slice_pairs, row_pairs, voxel_pairs] = counter.across;
    match topology {
        Topology::Corners => {
            four_pairs - (four + slice_pairs + row_pairs) + (slices + rows + voxel_pairs) - voxels
        }
        Topology::Faces => {
            voxels - (slices + rows + voxel_pairs) + (four + slice_pairs + row_pairs) - four_pairs
        }
    }
}

/// Counts the bits of four rows, and of each row combined with itself shifted by one voxel.
#[derive(Default)]
struct Counter {
    along: [i64; 4],
    across: [i64; 4],
    /// The last bit of the preceding word of each row.
    left: [u64; 4],
}

impl Counter {
    fn add(&mut self, words: [u64; 4], join: impl Fn(u64, u64) -> u64) {
        for (row, word) in words.into_iter().enumerate() {
            self.along[row] += i64::from(word.count_ones());
            self.across[row] += i64::from(join(word, word << 1 | self.left[row]).count_ones());
            self.left[row] = word >> (WORD - 1);
        }
    }
}
