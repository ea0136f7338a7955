//! The patches that a network takes.

use crate::ConfigError;

/// The patches that a network takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// The number that each extent of a patch must be a multiple of; the quotients are the extents of the coarsest
    /// stage.
    pub multiple: [usize; 3],
    /// The least number of voxels of the coarsest stage: normalised over a single one, every feature would be 0.
    pub least_coarsest: usize,
}

impl Extents {
    /// Depth, height and width of the coarsest stage.
    pub fn coarsest(&self, patch: [usize; 3]) -> [usize; 3] {
        [0, 1, 2].map(|axis| patch[axis] / self.multiple[axis])
    }

    /// Checks that a patch is one of these.
    ///
    /// # Errors
    /// Returns an error if the patch does not fit.
    pub fn check(&self, patch: [usize; 3]) -> Result<(), ConfigError> {
        if (0..3).any(|axis| patch[axis] == 0 || !patch[axis].is_multiple_of(self.multiple[axis])) {
            return Err(ConfigError::Patch { patch, extents: *self });
        }
        if self.coarsest(patch).iter().product::<usize>() < self.least_coarsest {
            return Err(ConfigError::Coarsest { patch, extents: *self });
        }
        Ok(())
    }

    /// The least of these patches that covers another.
    pub fn next_larger(&self, patch: [usize; 3]) -> [usize; 3] {
        let mut larger = [0, 1, 2].map(|axis| patch[axis].max(1).next_multiple_of(self.multiple[axis]));
        while self.coarsest(larger).iter().product::<usize>() < self.least_coarsest {
            // An axis that is never halved is longer than another only by intent, as in networks of two dimensions.
            let shortest = |axis: &usize| (self.multiple[*axis] == 1, larger[*axis], 2 - *axis);
            let axis = (0..3).min_by_key(shortest).unwrap_or(2);
            larger[axis] += self.multiple[axis];
        }
        larger
    }

    /// Ever smaller ones of these patches: the longest extent is shortened by one multiple at a time, as long as the coarsest
    /// stage keeps two voxels along it.
    pub fn smaller(&self, mut patch: [usize; 3]) -> Vec<[usize; 3]> {
        let mut patches = Vec::new();
        while let Some(axis) =
            (0..3).filter(|axis| patch[*axis] > 2 * self.multiple[*axis]).max_by_key(|axis| patch[*axis])
        {
            patch[axis] -= self.multiple[axis];
            patches.push(patch);
        }
        patches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_ends_in_one_voxel_is_refused_with_the_next_larger_one() {
        let cubes = Extents { multiple: [16; 3], least_coarsest: 2 };
        assert_eq!(cubes.check([32, 16, 16]), Ok(()));
        let error = cubes.check([16; 3]).unwrap_err();
        assert!(error.to_string().contains("[1, 1, 1]"), "{error}");
        assert_eq!(error.remedy().unwrap(), "the next larger patch that fits is 16 × 16 × 32");
        assert_eq!(cubes.next_larger([1, 17, 9]), [16, 32, 16]);
        let flat = Extents { multiple: [1, 32, 32], least_coarsest: 2 };
        assert_eq!(flat.next_larger([1, 20, 30]), [1, 32, 64]);
    }

    #[test]
    fn a_patch_is_a_multiple_of_all_strides() {
        let extents = Extents { multiple: [4, 8, 8], least_coarsest: 2 };
        let error = extents.check([6, 16, 16]).unwrap_err();
        assert!(error.to_string().contains("a multiple of [4, 8, 8]"), "{error}");
        assert_eq!(error.remedy().unwrap(), "the next larger patch that fits is 8 × 16 × 16");
        assert_eq!(extents.smaller([12, 16, 24]), [[12, 16, 16], [8, 16, 16]]);
    }
}
