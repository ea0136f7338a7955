//! The units of a page: those in which its numbers are short.

use crate::markup::number;

/// A unit, and how many of it are one of millimetres or of cubic millimetres.
#[derive(Clone, Copy)]
pub struct Unit {
    pub name: &'static str,
    pub per: f64,
}

impl Unit {
    /// For lengths of which this is the largest, in millimetres.
    pub fn for_length(largest: f64) -> Unit {
        match largest < 0.1 {
            true => Unit { name: "µm", per: 1e3 },
            false => Unit { name: "mm", per: 1.0 },
        }
    }

    /// For volumes of which this is the largest, in cubic millimetres.
    pub fn for_volume(largest: f64) -> Unit {
        match largest {
            _ if largest >= 100.0 => Unit { name: "ml", per: 1e-3 },
            _ if largest >= 1e-2 => Unit { name: "mm³", per: 1.0 },
            _ => Unit { name: "µm³", per: 1e9 },
        }
    }

    /// Lengths with the unit behind the last.
    pub fn lengths(self, mm: [f64; 3]) -> String {
        format!("{} {}", mm.map(|length| number(length * self.per)).join(" × "), self.name)
    }

    /// A volume with the unit.
    pub fn volume(self, cubic_mm: f64) -> String {
        format!("{} {}", number(cubic_mm * self.per), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_however_small_a_voxel_is() {
        assert_eq!(Unit::for_length(5.0).lengths([5.0, 0.5, 0.5]), "5 × 0.5 × 0.5 mm");
        assert_eq!(Unit::for_length(0.005).lengths([0.005, 0.0005, 0.0005]), "5 × 0.5 × 0.5 µm");
        assert_eq!(Unit::for_volume(3e5).volume(1.5e5), "150 ml");
        assert_eq!(Unit::for_volume(0.5).volume(0.02), "0.02 mm³");
        assert_eq!(Unit::for_volume(5e-4).volume(2e-5), "20000 µm³");
    }
}
