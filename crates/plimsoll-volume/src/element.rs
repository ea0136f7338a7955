//! The storage of voxels: their type, their byte order, and the scaling from stored to real values.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a stored voxel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // The names are Rust's own.
pub enum ElementType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl ElementType {
    /// All types.
    pub const ALL: [ElementType; 10] = [
        ElementType::U8,
        ElementType::I8,
        ElementType::U16,
        ElementType::I16,
        ElementType::U32,
        ElementType::I32,
        ElementType::U64,
        ElementType::I64,
        ElementType::F32,
        ElementType::F64,
    ];

    /// Bytes of one voxel.
    pub const fn size(self) -> usize {
        match self {
            ElementType::U8 | ElementType::I8 => 1,
            ElementType::U16 | ElementType::I16 => 2,
            ElementType::U32 | ElementType::I32 | ElementType::F32 => 4,
            ElementType::U64 | ElementType::I64 | ElementType::F64 => 8,
        }
    }

    /// The name of the Rust type: `u8`, `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            ElementType::U8 => "u8",
            ElementType::I8 => "i8",
            ElementType::U16 => "u16",
            ElementType::I16 => "i16",
            ElementType::U32 => "u32",
            ElementType::I32 => "i32",
            ElementType::U64 => "u64",
            ElementType::I64 => "i64",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The byte order of numbers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

impl ByteOrder {
    /// The byte order of this machine.
    pub const NATIVE: ByteOrder =
        if cfg!(target_endian = "little") { ByteOrder::Little } else { ByteOrder::Big };

    /// Converts elements of `size` bytes between this byte order and the machine's, in place.
    pub(crate) fn swap_to_native(self, size: usize, bytes: &mut [u8]) {
        if self == ByteOrder::NATIVE {
            return;
        }
        // The sizes are spelled out so that each loop is compiled for a constant size.
        match size {
            2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|element| element.reverse()),
            4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|element| element.reverse()),
            8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|element| element.reverse()),
            _ => {}
        }
    }
}

/// The scaling from stored to real values: real = slope × stored + intercept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The real value of one stored unit.
    pub slope: f64,
    /// The real value of a stored zero.
    pub intercept: f64,
}

impl Scaling {
    /// Stored values are real values.
    pub const NONE: Scaling = Scaling { slope: 1.0, intercept: 0.0 };

    /// Returns `true` if stored values are real values.
    pub fn is_none(&self) -> bool {
        *self == Scaling::NONE
    }

    /// The real value of a stored one.
    pub fn apply(&self, stored: f64) -> f64 {
        self.slope * stored + self.intercept
    }
}

impl Default for Scaling {
    fn default() -> Scaling {
        Scaling::NONE
    }
}
