//! Units of length by the names that programs of microscopy give them.

/// Millimetres in a unit; none if it is no length that is known, as pixels are.
pub(crate) fn millimetres(name: &str) -> Option<f64> {
    // Symbols and names in both spellings. Descriptions escape the sign of micro, or have it as Latin-1, which is no UTF-8.
    let millimetres = match name.trim() {
        "\\u00B5m" | "\u{fffd}m" | "&#181;m" | "&#xB5;m" | "&#xb5;m" => 1e-3,
        // The signs of micro and of the Greek letter.
        "um" | "\u{b5}m" | "\u{3bc}m" | "\u{b5}" => 1e-3,
        "m" => 1e3,
        "dm" => 100.0,
        "cm" => 10.0,
        "mm" => 1.0,
        "nm" => 1e-6,
        "pm" => 1e-9,
        "\u{c5}" => 1e-7,
        "in" => 25.4,
        other => match other.to_ascii_lowercase().trim_end_matches('s') {
            "metre" | "meter" => 1e3,
            "decimetre" | "decimeter" => 100.0,
            "centimetre" | "centimeter" => 10.0,
            "millimetre" | "millimeter" => 1.0,
            "micrometre" | "micrometer" | "micron" => 1e-3,
            "nanometre" | "nanometer" => 1e-6,
            "picometre" | "picometer" => 1e-9,
            "angstrom" => 1e-7,
            "inch" | "inche" => 25.4,
            "foot" => 304.8,
            "yard" => 914.4,
            _ => return None,
        },
    };
    Some(millimetres)
}
