//! The number formats of stored features and of the products in convolutions.

use std::fmt;

use plimsoll_graph::DType;
use plimsoll_plan::Bf16Products;
use serde::{Deserialize, Serialize};

/// The number formats of stored features and of the products in convolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// The same, and convolutions round them to 11 bits of mantissa before they multiply them, with sums in 32 bits.
    Tf32,
    /// The upper halves of 32-bit floats; arithmetic stays in 32 bits.
    Bf16,
    /// Features as with `Bf16`; convolutions between features multiply bf16, with sums in 32 bits.
    Bf16Dot,
    /// 16-bit floats with more digits and a smaller range.
    F16,
}

impl Precision {
    /// The number format of stored features.
    pub fn storage(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 | Precision::Bf16Dot => DType::Bf16,
            Precision::F16 => DType::F16,
        }
    }

    /// The precision of a training that sets none, on a backend whose usual storage is a type.
    pub fn usual(storage: DType) -> Precision {
        match storage {
            DType::Bf16 => Precision::Bf16,
            DType::F16 => Precision::F16,
            DType::F32 | DType::F64 | DType::U8 => Precision::F32,
        }
    }

    /// The number format of products.
    pub fn products(self) -> Products {
        match self {
            Precision::F32 | Precision::Bf16 | Precision::F16 => Products::F32,
            Precision::Tf32 => Products::Tf32,
            Precision::Bf16Dot => Products::Bf16(None),
        }
    }
}

/// The number format of the products in the convolutions of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Products {
    /// 32-bit floats.
    F32,
    /// 32-bit floats that are rounded to tf32.
    Tf32,
    /// Some of them bf16: which they are is chosen when the run is planned for the first time, by what is measured to be the faster, and
    /// kept from then on, since it changes bits.
    Bf16(Option<Bf16Products>),
}

impl Products {
    /// Keeps the choice of a run that was begun, where none is made.
    pub fn adopt(&mut self, known: &Products) {
        if *self == Products::Bf16(None) && matches!(known, Products::Bf16(_)) {
            self.clone_from(known);
        }
    }
}

impl fmt::Display for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Products::F32 => f.write_str("f32"),
            Products::Tf32 => f.write_str("tf32"),
            Products::Bf16(None) => f.write_str("bf16"),
            Products::Bf16(Some(chosen)) if chosen.in_f32.is_empty() => f.write_str("bf16"),
            Products::Bf16(Some(chosen)) => {
                write!(f, "bf16, f32 for {} shapes where that is the faster", chosen.in_f32.len())
            }
        }
    }
}
