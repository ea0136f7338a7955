//! A NIfTI header: detecting its version and byte order, decoding, encoding.

use crate::nifti::datatype::datatype_code;
use crate::nifti::fields::{Decoder, Encoder, Fields};
use crate::nifti::{HeaderError, LabelTable, NiftiVersion};
use crate::{ByteOrder, ElementType, Geometry};

/// A NIfTI header, with its fields as stored in the file. It can serve as the template of files that are written on the
/// same grid.
#[derive(Clone, Debug, PartialEq)]
pub struct NiftiHeader {
    pub(crate) version: NiftiVersion,
    pub(crate) byte_order: ByteOrder,
    /// Tells whether the voxels are in a file of their own.
    pub(crate) pair: bool,
    pub(crate) fields: Fields,
}

impl NiftiHeader {
    /// Detects version and byte order from the first four bytes of a file.
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

    /// Decodes the bytes of a header, as many as its version has.
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

    /// The bytes of a single file up to the first voxel, little-endian; with a table of labels as its extension.
    pub(crate) fn encode(&self, labels: Option<&LabelTable>) -> Vec<u8> {
        let mut encoder = Encoder::default();
        let mut fields = self.fields.clone();
        // Without one, the four bytes behind the header say that there is no extension.
        let extension = labels.map_or(vec![0; 4], LabelTable::encode);
        let offset = self.version.header_size() + extension.len();
        fields.vox_offset = offset as f64;
        fields.visit(self.version, &mut encoder);
        let mut bytes = encoder.bytes;
        bytes[..4].copy_from_slice(&(self.version.header_size() as i32).to_le_bytes());
        let magic = self.version.magic(false);
        let at = self.version.magic_offset();
        bytes[at..at + magic.len()].copy_from_slice(magic);
        bytes.resize(self.version.header_size(), 0);
        bytes.extend(extension);
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

    /// This header for other voxels: a single file without extensions and without scaling. Position, units and texts
    /// are kept. Fields that describe the old values (intent, display range) are cleared.
    pub(crate) fn describing(
        &self,
        geometry: &Geometry,
        channels: usize,
        element_type: ElementType,
    ) -> NiftiHeader {
        let mut header = self.clone();
        let [depth, height, width] = geometry.shape().map(|voxels| voxels as i64);
        let largest = geometry.shape().into_iter().fold(channels, usize::max);
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
        (fields.scl_slope, fields.scl_inter) = (1.0, 0.0);
        (fields.cal_max, fields.cal_min) = (0.0, 0.0);
        fields.intent_code = 0;
        fields.intent_parameters = [0.0; 3];
        fields.intent_name = [0; 16];
        header
    }

    /// The version of the format.
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
