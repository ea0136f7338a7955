//! The types that instructions name: `.s32`, `.f16x2`, `.pred`, …

/// The meaning of the bits of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Untyped bits.
    Bits,
    /// Unsigned integers.
    Unsigned,
    /// Signed integers in two's complement.
    Signed,
    /// IEEE 754 numbers of 16, 32 or 64 bits.
    Float,
    /// The upper half of an f32.
    Bfloat,
    /// An f32 of which 10 bits of the mantissa count.
    Tf32,
    /// One truth value.
    Predicate,
}

/// A type: kind, bits of one element, and whether a register holds two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    pub kind: Kind,
    /// The bits of one element.
    pub bits: u32,
    /// Two elements side by side: `.f16x2`.
    pub pair: bool,
}

impl Type {
    /// The type of this name, without its dot.
    pub fn named(name: &str) -> Option<Type> {
        let simple = |kind, bits| Some(Type { kind, bits, pair: false });
        match name {
            "pred" => simple(Kind::Predicate, 1),
            "f16x2" => Some(Type { kind: Kind::Float, bits: 16, pair: true }),
            "bf16x2" => Some(Type { kind: Kind::Bfloat, bits: 16, pair: true }),
            "bf16" => simple(Kind::Bfloat, 16),
            "tf32" => simple(Kind::Tf32, 32),
            "b128" => simple(Kind::Bits, 128),
            _ => {
                let (kind, sizes): (Kind, &[u32]) = match name.get(..1)? {
                    "b" => (Kind::Bits, &[8, 16, 32, 64]),
                    "u" => (Kind::Unsigned, &[8, 16, 32, 64]),
                    "s" => (Kind::Signed, &[8, 16, 32, 64]),
                    "f" => (Kind::Float, &[16, 32, 64]),
                    _ => return None,
                };
                let bits = name.get(1..)?.parse().ok()?;
                if sizes.contains(&bits) { simple(kind, bits) } else { None }
            }
        }
    }

    /// Bits of a register that holds it.
    pub fn width(self) -> u32 {
        if self.pair { 2 * self.bits } else { self.bits }
    }

    /// Returns `true` if it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self.kind, Kind::Float | Kind::Bfloat | Kind::Tf32)
    }
}
