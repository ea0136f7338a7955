//! The two versions of the format, and what differs between their headers.

/// The version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NiftiVersion {
    /// 348 bytes; at most 32767 voxels along an axis; the affine in f32.
    One,
    /// 540 bytes; sizes in 64 bits; the affine in f64.
    Two,
}

impl NiftiVersion {
    /// The size of the header in bytes, which is also its first field.
    pub(crate) const fn header_size(self) -> usize {
        match self {
            NiftiVersion::One => 348,
            NiftiVersion::Two => 540,
        }
    }

    /// The lowest offset of voxels in a single file: after the header and the four bytes that announce
    /// extensions.
    pub(crate) const fn single_file_offset(self) -> usize {
        self.header_size() + 4
    }

    pub(crate) const fn magic(self, pair: bool) -> &'static [u8] {
        match (self, pair) {
            (NiftiVersion::One, false) => b"n+1\0",
            (NiftiVersion::One, true) => b"ni1\0",
            // The tail is there to notice transfers that change line ends.
            (NiftiVersion::Two, false) => b"n+2\0\r\n\x1a\n",
            (NiftiVersion::Two, true) => b"ni2\0\r\n\x1a\n",
        }
    }

    pub(crate) const fn magic_offset(self) -> usize {
        match self {
            NiftiVersion::One => 344,
            NiftiVersion::Two => 4,
        }
    }

    /// The largest number of voxels along an axis.
    pub(crate) const fn largest_axis(self) -> u64 {
        match self {
            NiftiVersion::One => i16::MAX as u64,
            NiftiVersion::Two => i64::MAX as u64,
        }
    }
}
