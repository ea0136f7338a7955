//! The 26 voxels around a voxel as bits of a word, and whether removing the centre voxel changes the topology.

/// Bit 9 z + 3 y + x is the voxel at offset (z − 1, y − 1, x − 1) from the centre voxel, whose own bit, 13, is never
/// set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cube(u32);

const MIDDLE: u32 = 1 << 13;

/// The bits that are not last, or not first, along an axis.
const NOT_LAST: [u32; 3] = [select(0, 2), select(1, 2), select(2, 2)];
const NOT_FIRST: [u32; 3] = [select(0, 0), select(1, 0), select(2, 0)];
const STRIDE: [u32; 3] = [9, 3, 1];

/// For each face, edge and corner of the centre voxel, the neighbours that share it.
const FACES: [u32; 6] = shared(1);
const EDGES: [u32; 12] = shared(2);
const CORNERS: [u32; 8] = shared(3);

/// All bits except those at one position along an axis.
const fn select(axis: usize, but: usize) -> u32 {
    let mut bits = 0;
    let mut bit = 0;
    while bit < 27 {
        if place(bit)[axis] != but {
            bits |= 1 << bit;
        }
        bit += 1;
    }
    bits
}

const fn place(bit: usize) -> [usize; 3] {
    [bit / 9, bit / 3 % 3, bit % 3]
}

/// For each neighbour that differs along the given number of axes, the voxels between it and the centre, both excluded.
const fn shared<const N: usize>(axes: usize) -> [u32; N] {
    let mut shared = [0; N];
    let mut found = 0;
    let mut to = 0;
    while to < 27 {
        let corner = place(to);
        if (corner[0] != 1) as usize + (corner[1] != 1) as usize + (corner[2] != 1) as usize == axes {
            let mut bit = 0;
            while bit < 27 {
                let at = place(bit);
                let between = (at[0] == 1 || at[0] == corner[0])
                    && (at[1] == 1 || at[1] == corner[1])
                    && (at[2] == 1 || at[2] == corner[2]);
                if between && bit != 13 {
                    shared[found] |= 1 << bit;
                }
                bit += 1;
            }
            found += 1;
        }
        to += 1;
    }
    shared
}

impl Cube {
    /// From nine rows of three bits: (z, y) at 3 z + y, the lowest bit at x − 1.
    #[inline]
    pub(crate) fn new(rows: [u32; 9]) -> Cube {
        let bits = rows.iter().rev().fold(0, |bits, row| bits << 3 | (row & 7));
        Cube(bits & !MIDDLE)
    }

    /// Returns `true` if there is exactly one neighbour.
    pub(crate) fn is_end(self) -> bool {
        self.0.is_power_of_two()
    }

    /// Returns `true` if removing the centre voxel keeps the Euler number: with the closed cube, the corners, edges and faces
    /// that no neighbour shares are removed.
    pub(crate) fn keeps_euler_number(self) -> bool {
        let own = |parts: &[u32]| parts.iter().filter(|shared| self.0 & **shared == 0).count() as i32;
        own(&CORNERS) - own(&EDGES) + own(&FACES) == 1
    }

    /// Returns `true` if the neighbours are connected among themselves, at least at corners; false without neighbours.
    pub(crate) fn is_connected(self) -> bool {
        let mut reached = self.0 & self.0.wrapping_neg();
        loop {
            let mut wider = reached;
            for axis in 0..3 {
                let up = (wider & NOT_LAST[axis]) << STRIDE[axis];
                let down = (wider & NOT_FIRST[axis]) >> STRIDE[axis];
                wider |= up | down;
            }
            wider &= self.0;
            if wider == reached {
                return reached == self.0;
            }
            reached = wider;
        }
    }

    /// Returns `true` if thinning may remove the centre voxel.
    pub(crate) fn is_deletable(self) -> bool {
        !self.is_end() && self.keeps_euler_number() && self.is_connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_neighbours_are_not_connected_through_the_centre() {
        let rows = |bits: u32| std::array::from_fn(|row| bits >> (3 * row) & 7);
        assert!(!Cube::new(rows(1 << 4 | 1 << 22)).is_connected());
        assert!(!Cube::new(rows(1 | 1 << 26)).is_connected());
        assert!(Cube::new(rows(1 | 1 << 1 | 1 << 2)).is_connected());
        assert!(Cube::new(rows(1 << 10 | 1 << 12)).is_connected());
    }

    #[test]
    fn the_centre_of_a_line_and_of_a_plane_must_stay_and_a_surface_may_be_thinned() {
        let rows = |bits: u32| std::array::from_fn(|row| bits >> (3 * row) & 7);
        assert!(!Cube::new(rows(1 << 12 | 1 << 14)).is_deletable());
        let plane = 0b111_101_111 << 9;
        assert!(!Cube::new(rows(plane)).keeps_euler_number());
        // Everything below the top layer.
        assert!(Cube::new(rows(plane | 0o777 << 18)).is_deletable());
        assert!(Cube::new(rows(1 << 12)).is_end());
    }
}
