//! The fields of both versions of the header. Each layout is defined once and used for both reading and writing.

use crate::ByteOrder;
use crate::nifti::NiftiVersion;

/// The fields that both versions have, under the names of the format, in the widest type that either uses. Fields that
/// only version 1 has are remnants of ANALYZE and unused by NIfTI.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    pub(crate) dim_info: i64,
    pub(crate) dim: [i64; 8],
    pub(crate) intent_parameters: [f64; 3],
    pub(crate) intent_code: i64,
    pub(crate) datatype: i64,
    pub(crate) bitpix: i64,
    pub(crate) slice_start: i64,
    pub(crate) pixdim: [f64; 8],
    pub(crate) vox_offset: f64,
    pub(crate) scl_slope: f64,
    pub(crate) scl_inter: f64,
    pub(crate) slice_end: i64,
    pub(crate) slice_code: i64,
    pub(crate) xyzt_units: i64,
    pub(crate) cal_max: f64,
    pub(crate) cal_min: f64,
    pub(crate) slice_duration: f64,
    pub(crate) toffset: f64,
    pub(crate) descrip: Text<80>,
    pub(crate) aux_file: Text<24>,
    pub(crate) qform_code: i64,
    pub(crate) sform_code: i64,
    pub(crate) quatern: [f64; 3],
    pub(crate) qoffset: [f64; 3],
    pub(crate) srow: [[f64; 4]; 3],
    pub(crate) intent_name: [u8; 16],
}

/// A text of fixed length, padded with zeroes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text<const N: usize>([u8; N]);

impl<const N: usize> Default for Text<N> {
    fn default() -> Text<N> {
        Text([0; N])
    }
}

impl<const N: usize> std::ops::Deref for Text<N> {
    type Target = [u8; N];
    fn deref(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> std::ops::DerefMut for Text<N> {
    fn deref_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }
}

/// A visitor of the fields of a header, in file order.
pub(crate) trait Visitor {
    fn byte(&mut self, field: &mut i64);
    fn i16(&mut self, field: &mut i64);
    fn i32(&mut self, field: &mut i64);
    fn i64(&mut self, field: &mut i64);
    fn f32(&mut self, field: &mut f64);
    fn f64(&mut self, field: &mut f64);
    fn text(&mut self, field: &mut [u8]);
    /// Bytes that are skipped when read and zero when written.
    fn unused(&mut self, count: usize);

    fn each_f32<'a>(&mut self, fields: impl IntoIterator<Item = &'a mut f64>)
    where
        Self: Sized,
    {
        fields.into_iter().for_each(|field| self.f32(field));
    }

    fn each_f64<'a>(&mut self, fields: impl IntoIterator<Item = &'a mut f64>)
    where
        Self: Sized,
    {
        fields.into_iter().for_each(|field| self.f64(field));
    }
}

impl Fields {
    pub(crate) fn visit(&mut self, version: NiftiVersion, visitor: &mut impl Visitor) {
        match version {
            NiftiVersion::One => self.visit_version_1(visitor),
            NiftiVersion::Two => self.visit_version_2(visitor),
        }
    }

    /// <https://nifti.nimh.nih.gov/pub/dist/src/niftilib/nifti1.h>
    fn visit_version_1(&mut self, v: &mut impl Visitor) {
        v.unused(4 + 10 + 18 + 4 + 2); // sizeof_hdr, data_type, db_name, extents, session_error
        v.text(&mut [b'r']); // regular: some ANALYZE readers require it
        v.byte(&mut self.dim_info);
        self.dim.iter_mut().for_each(|field| v.i16(field));
        v.each_f32(&mut self.intent_parameters);
        v.i16(&mut self.intent_code);
        v.i16(&mut self.datatype);
        v.i16(&mut self.bitpix);
        v.i16(&mut self.slice_start);
        v.each_f32(&mut self.pixdim);
        v.f32(&mut self.vox_offset);
        v.f32(&mut self.scl_slope);
        v.f32(&mut self.scl_inter);
        v.i16(&mut self.slice_end);
        v.byte(&mut self.slice_code);
        v.byte(&mut self.xyzt_units);
        v.f32(&mut self.cal_max);
        v.f32(&mut self.cal_min);
        v.f32(&mut self.slice_duration);
        v.f32(&mut self.toffset);
        v.unused(4 + 4); // glmax, glmin
        v.text(&mut *self.descrip);
        v.text(&mut *self.aux_file);
        v.i16(&mut self.qform_code);
        v.i16(&mut self.sform_code);
        v.each_f32(&mut self.quatern);
        v.each_f32(&mut self.qoffset);
        v.each_f32(self.srow.as_flattened_mut());
        v.text(&mut self.intent_name);
        v.unused(4); // magic
    }

    /// <https://nifti.nimh.nih.gov/pub/dist/doc/nifti2.h>
    fn visit_version_2(&mut self, v: &mut impl Visitor) {
        v.unused(4 + 8); // sizeof_hdr, magic
        v.i16(&mut self.datatype);
        v.i16(&mut self.bitpix);
        self.dim.iter_mut().for_each(|field| v.i64(field));
        v.each_f64(&mut self.intent_parameters);
        v.each_f64(&mut self.pixdim);
        // No file is longer than 2^53 bytes, so f64 holds the offset exactly.
        let mut vox_offset = self.vox_offset as i64;
        v.i64(&mut vox_offset);
        self.vox_offset = vox_offset as f64;
        v.f64(&mut self.scl_slope);
        v.f64(&mut self.scl_inter);
        v.f64(&mut self.cal_max);
        v.f64(&mut self.cal_min);
        v.f64(&mut self.slice_duration);
        v.f64(&mut self.toffset);
        v.i64(&mut self.slice_start);
        v.i64(&mut self.slice_end);
        v.text(&mut *self.descrip);
        v.text(&mut *self.aux_file);
        v.i32(&mut self.qform_code);
        v.i32(&mut self.sform_code);
        v.each_f64(&mut self.quatern);
        v.each_f64(&mut self.qoffset);
        v.each_f64(self.srow.as_flattened_mut());
        v.i32(&mut self.slice_code);
        v.i32(&mut self.xyzt_units);
        v.i32(&mut self.intent_code);
        v.text(&mut self.intent_name);
        v.byte(&mut self.dim_info);
        v.unused(15);
    }
}

/// Reads fields from the bytes of a header. Past their end it reads zeroes; the caller has checked the length.
pub(crate) struct Decoder<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) byte_order: ByteOrder,
}

impl Decoder<'_> {
    /// The next `N` bytes, the least significant first.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        self.text(&mut taken);
        if self.byte_order == ByteOrder::Big {
            taken.reverse();
        }
        taken
    }
}

impl Visitor for Decoder<'_> {
    fn byte(&mut self, field: &mut i64) {
        *field = i64::from(u8::from_le_bytes(self.take()));
    }

    fn i16(&mut self, field: &mut i64) {
        *field = i64::from(i16::from_le_bytes(self.take()));
    }

    fn i32(&mut self, field: &mut i64) {
        *field = i64::from(i32::from_le_bytes(self.take()));
    }

    fn i64(&mut self, field: &mut i64) {
        *field = i64::from_le_bytes(self.take());
    }

    fn f32(&mut self, field: &mut f64) {
        *field = f64::from(f32::from_le_bytes(self.take()));
    }

    fn f64(&mut self, field: &mut f64) {
        *field = f64::from_le_bytes(self.take());
    }

    fn text(&mut self, field: &mut [u8]) {
        let (taken, rest) = self.bytes.split_at(field.len().min(self.bytes.len()));
        field[..taken.len()].copy_from_slice(taken);
        self.bytes = rest;
    }

    fn unused(&mut self, count: usize) {
        self.bytes = self.bytes.get(count..).unwrap_or_default();
    }
}

/// Writes fields, little-endian. Values fit their fields: they were read from a field of the same width, or checked, so
/// nothing is truncated.
#[derive(Default)]
pub(crate) struct Encoder {
    pub(crate) bytes: Vec<u8>,
}

impl Visitor for Encoder {
    fn byte(&mut self, field: &mut i64) {
        self.bytes.push(*field as u8);
    }

    fn i16(&mut self, field: &mut i64) {
        self.bytes.extend((*field as i16).to_le_bytes());
    }

    fn i32(&mut self, field: &mut i64) {
        self.bytes.extend((*field as i32).to_le_bytes());
    }

    fn i64(&mut self, field: &mut i64) {
        self.bytes.extend(field.to_le_bytes());
    }

    fn f32(&mut self, field: &mut f64) {
        self.bytes.extend((*field as f32).to_le_bytes());
    }

    fn f64(&mut self, field: &mut f64) {
        self.bytes.extend(field.to_le_bytes());
    }

    fn text(&mut self, field: &mut [u8]) {
        self.bytes.extend_from_slice(field);
    }

    fn unused(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }
}
