//! NIfTI files built byte by byte from the offsets in the format's specification, without the crate's own code.
#![allow(dead_code, clippy::unwrap_used)] // Each test file uses a part of it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The header fields of a test file.
#[derive(Clone, Debug)]
pub struct Raw {
    pub version: u8,
    pub big_endian: bool,
    pub pair: bool,
    pub dim: [i64; 8],
    pub datatype: i16,
    pub bitpix: i16,
    pub pixdim: [f64; 8],
    pub vox_offset: f64,
    pub slope: f64,
    pub intercept: f64,
    pub units: u8,
    pub qform_code: i16,
    pub sform_code: i16,
    pub quatern: [f64; 3],
    pub qoffset: [f64; 3],
    pub srow: [[f64; 4]; 3],
    pub magic: Option<&'static [u8]>,
}

impl Raw {
    /// A single little-endian NIfTI-1 file of one channel of u8, 1 mm.
    pub fn new(shape: [usize; 3]) -> Raw {
        let [depth, height, width] = shape.map(|voxels| voxels as i64);
        Raw {
            version: 1,
            big_endian: false,
            pair: false,
            dim: [3, width, height, depth, 1, 1, 1, 1],
            datatype: 2,
            bitpix: 8,
            pixdim: [1.0; 8],
            vox_offset: 352.0,
            slope: 0.0,
            intercept: 0.0,
            units: 2,
            qform_code: 0,
            sform_code: 1,
            quatern: [0.0; 3],
            qoffset: [0.0; 3],
            srow: [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]],
            magic: None,
        }
    }

    pub fn header(&self) -> Vec<u8> {
        let mut bytes = vec![0; if self.version == 1 { 348 } else { 540 }];
        let mut put = |at: usize, little: &[u8]| {
            let field = &mut bytes[at..at + little.len()];
            field.copy_from_slice(little);
            if self.big_endian {
                field.reverse();
            }
        };
        if self.version == 1 {
            put(0, &348i32.to_le_bytes());
            for (i, size) in self.dim.iter().enumerate() {
                put(40 + 2 * i, &(*size as i16).to_le_bytes());
            }
            put(70, &self.datatype.to_le_bytes());
            put(72, &self.bitpix.to_le_bytes());
            let floats = [(76, &self.pixdim[..]), (256, &self.quatern), (268, &self.qoffset)];
            let scalars = [(108, self.vox_offset), (112, self.slope), (116, self.intercept)];
            let floats = floats.into_iter().chain([(280, self.srow.as_flattened())]);
            for (at, values) in
                floats.chain(scalars.iter().map(|(at, value)| (*at, std::slice::from_ref(value))))
            {
                for (i, value) in values.iter().enumerate() {
                    put(at + 4 * i, &(*value as f32).to_le_bytes());
                }
            }
            put(123, &[self.units]);
            put(252, &self.qform_code.to_le_bytes());
            put(254, &self.sform_code.to_le_bytes());
            bytes[344..348].copy_from_slice(self.magic.unwrap_or(if self.pair {
                b"ni1\0"
            } else {
                b"n+1\0"
            }));
        } else {
            put(0, &540i32.to_le_bytes());
            put(12, &self.datatype.to_le_bytes());
            put(14, &self.bitpix.to_le_bytes());
            for (i, size) in self.dim.iter().enumerate() {
                put(16 + 8 * i, &size.to_le_bytes());
            }
            put(168, &(self.vox_offset as i64).to_le_bytes());
            let floats = [(104, &self.pixdim[..]), (352, &self.quatern), (376, &self.qoffset)];
            let scalars = [(176, self.slope), (184, self.intercept)];
            let floats = floats.into_iter().chain([(400, self.srow.as_flattened())]);
            for (at, values) in
                floats.chain(scalars.iter().map(|(at, value)| (*at, std::slice::from_ref(value))))
            {
                for (i, value) in values.iter().enumerate() {
                    put(at + 8 * i, &value.to_le_bytes());
                }
            }
            put(344, &i32::from(self.qform_code).to_le_bytes());
            put(348, &i32::from(self.sform_code).to_le_bytes());
            put(500, &i32::from(self.units).to_le_bytes());
            let magic: &[u8] = if self.pair { b"ni2\0\r\n\x1a\n" } else { b"n+2\0\r\n\x1a\n" };
            bytes[4..12].copy_from_slice(self.magic.unwrap_or(magic));
        }
        bytes
    }

    /// The bytes of a single file with these voxels, which are in the file's byte order.
    pub fn single(&self, voxels: &[u8]) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(self.vox_offset as usize, 0);
        bytes.extend(voxels);
        bytes
    }

    /// Writes one file or a pair, compressed on request, and returns the path to open.
    pub fn write(&self, folder: &Path, name: &str, compressed: bool, voxels: &[u8]) -> PathBuf {
        let gz = if compressed { ".gz" } else { "" };
        let save = |extension: &str, bytes: &[u8]| {
            let path = folder.join(format!("{name}.{extension}{gz}"));
            fs::write(&path, if compressed { gzip(bytes) } else { bytes.to_vec() }).unwrap();
            path
        };
        if self.pair {
            save("img", &[&vec![0; self.vox_offset as usize], voxels].concat());
            save("hdr", &self.header())
        } else {
            save("nii", &self.single(voxels))
        }
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A file of the test data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Reference values, computed by another program.
pub fn oracle(name: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
