//! The layout of voxels in a file: grid, channels, type and offset.

use crate::{ByteOrder, ElementType, Geometry, Scaling};

/// The layout of voxels in a file. All numbers are consistent and fit the address space, but have not been checked
/// against the length of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    /// The product of all dimensions beyond the third.
    pub(crate) channels: usize,
    pub(crate) element_type: ElementType,
    pub(crate) byte_order: ByteOrder,
    pub(crate) scaling: Scaling,
    /// The offset of the first voxel in the (decompressed) file.
    pub(crate) start: u64,
    /// The bytes of all voxels of all channels.
    pub(crate) bytes: u64,
}

/// The bytes of an array with these extents; none if there are none, or more than files and this machine can address.
pub(crate) fn bytes_of(extents: &[usize], element_type: ElementType) -> Option<u64> {
    let limit = (isize::MAX as u64).min(i64::MAX as u64);
    let one = element_type.size() as u64;
    let bytes = extents.iter().try_fold(one, |product, extent| product.checked_mul(*extent as u64))?;
    (bytes > 0 && bytes <= limit).then_some(bytes)
}

impl Layout {
    /// One past the last byte of the voxels. The sum cannot overflow, as was checked.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes
    }
}
