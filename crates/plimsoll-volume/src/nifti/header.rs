//! A NIfTI header: which kind it is, and how it is read and written.

use crate::nifti::HeaderError;
use crate::nifti::fields::{Decoder, Encoder, Fields};
use crate::nifti::layout::datatype_code;
use crate::{ByteOrder, ElementType, Geometry};

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

    /// Where voxels start at the earliest in a single file: after the header and the four bytes that announce
    /// extensions.
    pub(crate) const fn single_file_offset(self) -> usize {
        self.header_size() + 4
    }

    const fn magic(self, pair: bool) -> &'static [u8] {
        match (self, pair) {
            (NiftiVersion::One, false) => b"n+1\0",
            (NiftiVersion::One, true) => b"ni1\0",
            // The tail is there to notice transfers that change line ends.
            (NiftiVersion::Two, false) => b"n+2\0\r\n\x1a\n",
            (NiftiVersion::Two, true) => b"ni2\0\r\n\x1a\n",
        }
    }

    const fn magic_offset(self) -> usize {
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

/// A NIfTI header, with its fields as they stand in the file. It serves as the template of files that are written in
/// the same space.
#[derive(Clone, Debug, PartialEq)]
pub struct NiftiHeader {
    pub(crate) version: NiftiVersion,
    pub(crate) byte_order: ByteOrder,
    /// Whether the voxels are in a file of their own.
    pub(crate) pair: bool,
    pub(crate) fields: Fields,
}

impl NiftiHeader {
    /// What the first four bytes of a file say.
    pub(crate) fn detect(start: [u8; 4]) -> Result<(NiftiVersion, ByteOrder), HeaderError> {
        for version in [NiftiVersion::One, NiftiVersion::Two] {
            let size = version.header_size() as i32;
            if i32::from_le_bytes(start) == size {
                return Ok((version, ByteOrder::Little));
            }
            if i32::from_be_bytes(start) == size {
                return Ok((version, ByteOrder::Big));
            }
        }
        Err(HeaderError::NotNifti { found: i32::from_le_bytes(start) })
    }

    /// Reads the bytes of a header, as many as its version has.
    pub(crate) fn decode(
        version: NiftiVersion,
        byte_order: ByteOrder,
        bytes: &[u8],
    ) -> Result<NiftiHeader, HeaderError> {
        let size = if version == NiftiVersion::One { 4 } else { 8 };
        let magic = bytes.get(version.magic_offset()..).and_then(|tail| tail.get(..size)).unwrap_or_default();
        let Some(pair) = [false, true].into_iter().find(|pair| magic == version.magic(*pair)) else {
            return Err(HeaderError::Magic { found: magic.escape_ascii().to_string() });
        };
        let mut fields = Fields::default();
        fields.visit(version, &mut Decoder { bytes, byte_order });
        Ok(NiftiHeader { version, byte_order, pair, fields })
    }

    /// The bytes of a single file up to the first voxel, little-endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        let mut fields = self.fields.clone();
        fields.visit(self.version, &mut encoder);
        let mut bytes = encoder.bytes;
        bytes[..4].copy_from_slice(&(self.version.header_size() as i32).to_le_bytes());
        let magic = self.version.magic(false);
        let at = self.version.magic_offset();
        bytes[at..at + magic.len()].copy_from_slice(magic);
        // No extensions.
        bytes.resize(self.version.single_file_offset(), 0);
        bytes
    }

    /// The header of a new file in millimetres, with the affine as sform (code 1, scanner) and no qform.
    pub(crate) fn for_geometry(
        geometry: &Geometry,
        channels: usize,
        element_type: ElementType,
    ) -> NiftiHeader {
        let mut fields = Fields::default();
        let [depth, height, width] = geometry.spacing().0;
        fields.pixdim = [1.0, width, height, depth, 1.0, 1.0, 1.0, 1.0];
        fields.xyzt_units = 2;
        fields.sform_code = 1;
        fields.srow = geometry.affine().0.map(|[depth, height, width, shift]| [width, height, depth, shift]);
        let header = NiftiHeader {
            version: NiftiVersion::One,
            byte_order: ByteOrder::Little,
            pair: false,
            fields: Fields::default(),
        };
        NiftiHeader { fields, ..header }.describing(geometry, channels, element_type)
    }

    /// This header with what it says about the voxels replaced, for a single file without extensions and without
    /// scaling. Where the voxels are, the units, and the texts stay as they are. What described the old values
    /// (intent, display range) is cleared.
    pub(crate) fn describing(
        &self,
        geometry: &Geometry,
        channels: usize,
        element_type: ElementType,
    ) -> NiftiHeader {
        let mut header = self.clone();
        let [depth, height, width] = geometry.shape().map(|voxels| voxels as i64);
        let largest = geometry.shape().into_iter().chain([channels]).max().unwrap_or(0);
        if largest as u64 > header.version.largest_axis() {
            header.version = NiftiVersion::Two;
        }
        header.byte_order = ByteOrder::Little;
        header.pair = false;
        let fields = &mut header.fields;
        let dimensions = if channels == 1 { 3 } else { 4 };
        fields.dim = [dimensions, width, height, depth, channels as i64, 1, 1, 1];
        fields.datatype = datatype_code(element_type);
        fields.bitpix = element_type.size() as i64 * 8;
        fields.vox_offset = header.version.single_file_offset() as f64;
        (fields.scl_slope, fields.scl_inter) = (1.0, 0.0);
        (fields.cal_max, fields.cal_min) = (0.0, 0.0);
        fields.intent_code = 0;
        fields.intent_parameters = [0.0; 3];
        fields.intent_name = [0; 16];
        header
    }

    /// Which version of the format the file is in.
    pub fn version(&self) -> NiftiVersion {
        self.version
    }

    /// The order of the bytes in the file.
    pub fn byte_order(&self) -> ByteOrder {
        self.byte_order
    }

    /// The free text of the field `descrip`, up to its first zero.
    pub fn description(&self) -> String {
        let text = self.fields.descrip.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}
