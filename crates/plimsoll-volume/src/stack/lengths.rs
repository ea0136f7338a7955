//! The distances between voxels that programs of microscopy write into TIFF files.
//!
//! ImageJ writes `unit=` and `spacing=` (between planes) into the description, and pixels per unit into the tags of resolution. OME writes
//! `PhysicalSizeX`, `Y` and `Z` with their units as attributes of `Pixels`
//! (<https://docs.openmicroscopy.org/ome-model/latest/ome-tiff/specification.html>). Resolutions of other files describe a screen or a
//! printer, and no lengths.

use crate::Spacing;
use crate::unit::millimetres;

/// The lengths that a file states.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lengths {
    /// Between planes, rows and columns; a millimetre each if the file states none.
    pub(super) spacing: Spacing,
    /// Millimetres in the unit that is given.
    pub(super) unit: f64,
    /// A warning for the user.
    pub(super) warning: Option<String>,
}

impl Lengths {
    /// The lengths of a file that states none.
    pub(super) const NONE: Lengths = Lengths { spacing: Spacing([1.0; 3]), unit: 1.0, warning: None };

    /// The lengths of a file that states no usable ones, with the reason as a warning.
    fn unknown(why: String) -> Lengths {
        Lengths { warning: Some(format!("{why}: voxels are treated as 1 mm")), ..Lengths::NONE }
    }

    /// The lengths that a description and the pixels per unit along rows (x) and columns (y) state.
    ///
    /// # Errors
    /// In words, if a length is not a number above 0.
    pub(super) fn said(description: &str, [x, y]: [Option<f64>; 2]) -> Result<Lengths, String> {
        if description.starts_with("ImageJ=") {
            let size = |per_unit: Option<f64>| per_unit.map_or(1.0, |per_unit| 1.0 / per_unit);
            imagej_lengths(description, [size(y), size(x)])
        } else if description.contains("<OME") {
            ome_lengths(description)
        } else {
            Ok(Lengths::NONE)
        }
    }
}

/// Lengths in units; without a unit, they are treated as millimetres.
fn lengths(named: &str, sizes: [f64; 3], units: [Option<&str>; 3]) -> Result<Lengths, String> {
    if !sizes.iter().all(|size| size.is_normal() && *size > 0.0) {
        return Err(format!("{named} give voxels the size {sizes:?} (depth, height, width)"));
    }
    let mut found = [1.0; 3];
    for (found, unit) in found.iter_mut().zip(units) {
        let Some(unit) = unit else { continue };
        match millimetres(unit) {
            Some(millimetres) => *found = millimetres,
            None => {
                return Ok(Lengths::unknown(format!(
                    "{named} have the unit {unit:?}, which is not a unit of length"
                )));
            }
        }
    }
    let warning = units.contains(&None).then(|| {
        format!("{named} have no unit: the size {sizes:?} of voxels is treated as millimetres, which ‹unit› corrects")
    });
    let spacing = Spacing(std::array::from_fn(|axis| sizes[axis] * found[axis]));
    Ok(Lengths { spacing, unit: found[2], warning })
}

fn imagej_lengths(text: &str, [height, width]: [f64; 2]) -> Result<Lengths, String> {
    let line =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::trim);
    let unit = line("unit").filter(|unit| !unit.is_empty());
    if unit.is_some_and(|unit| ["pixel", "pixels", "voxel", "voxels"].contains(&unit)) {
        return Ok(Lengths::NONE);
    }
    let depth = match line("spacing") {
        // Planes that run downwards have the same distance.
        Some(text) => text.parse::<f64>().map_err(|_| format!("ImageJ's tags have spacing={text}"))?.abs(),
        None => 1.0,
    };
    let sizes = [depth, height, width];
    // It is what ImageJ has where nobody has said anything.
    if unit.is_none() && sizes == [1.0; 3] {
        return Ok(Lengths::NONE);
    }
    lengths("ImageJ's tags", sizes, [unit; 3])
}

fn ome_lengths(text: &str) -> Result<Lengths, String> {
    let Some(pixels) = pixels(text) else { return Ok(Lengths::NONE) };
    let names = ["Z", "Y", "X"].map(|axis| format!("PhysicalSize{axis}"));
    let said = names.each_ref().map(|name| attribute(pixels, name));
    if said == [None; 3] {
        return Ok(Lengths::NONE);
    }
    let mut sizes = [1.0; 3];
    for ((size, said), name) in sizes.iter_mut().zip(said).zip(&names) {
        let Some(said) = said else {
            return Ok(Lengths::unknown(format!("its OME-XML has no {name}")));
        };
        *size = said.parse().map_err(|_| format!("its OME-XML has {name}={said:?}"))?;
    }
    // Micrometres are what the schema has where no unit is said.
    let units = names.each_ref().map(|name| attribute(pixels, &format!("{name}Unit")).unwrap_or("um"));
    lengths("its sizes in OME-XML", sizes, units.map(Some))
}

/// The attributes of the first element `Pixels` of OME-XML.
pub(super) fn pixels(text: &str) -> Option<&str> {
    let rest = text.split_once("<Pixels")?.1;
    rest.starts_with(char::is_whitespace).then(|| rest.split('>').next().unwrap_or(rest))
}

/// The value of an attribute.
pub(super) fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = element;
    loop {
        let (before, behind) = rest.split_once(name)?;
        let is_whole = before.is_empty() || before.ends_with(char::is_whitespace);
        let value = behind.trim_start().strip_prefix('=').map(str::trim_start);
        if let (true, Some(value)) = (is_whole, value) {
            let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
            return value[1..].split(quote).next();
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spacing(text: &str, per_unit: [Option<f64>; 2]) -> [f64; 3] {
        Lengths::said(text, per_unit).unwrap().spacing.0
    }

    #[test]
    fn lengths_are_millimetres_whatever_they_are_said_in() {
        let twice = [Some(2.0), Some(4.0)];
        assert_eq!(spacing("ImageJ=1.11a\nspacing=3\nunit=mm\n", twice), [3.0, 0.25, 0.5]);
        assert_eq!(spacing("ImageJ=1.11a\nspacing=-3\nunit=\\u00B5m\n", twice), [0.003, 0.00025, 0.0005]);
        assert_eq!(spacing("ImageJ=1.11a\nunit=inch\n", [None, None]), [25.4; 3]);
        assert_eq!(spacing("ImageJ=1.11a\nspacing=3\nunit=pixel\n", twice), [1.0; 3]);
        // A screen's or a printer's.
        assert_eq!(spacing("a slice", [Some(72.0), Some(72.0)]), [1.0; 3]);
        let ome = r#"<OME><Image><Pixels ID="a" PhysicalSizeX="0.5" PhysicalSizeXUnit="mm" PhysicalSizeY='400'
            PhysicalSizeZ = "2e-3" PhysicalSizeZUnit="m"/></Image></OME>"#;
        assert_eq!(spacing(ome, twice), [2.0, 0.4, 0.5]);
    }

    #[test]
    fn what_is_said_in_part_is_told() {
        let said = |text: &str| Lengths::said(text, [Some(2.0), Some(2.0)]).unwrap();
        let found = said("ImageJ=1.11a\nspacing=3\n");
        assert_eq!(found.spacing.0, [3.0, 0.5, 0.5]);
        assert!(found.warning.unwrap().contains("‹unit›"));
        for text in [
            "ImageJ=1.11a\nspacing=3\nunit=parsec\n",
            r#"<OME><Pixels PhysicalSizeX="0.5" PhysicalSizeY="0.5"/></OME>"#,
        ] {
            let found = said(text);
            assert_eq!((found.spacing.0, found.warning.is_some()), ([1.0; 3], true), "{text}");
        }
        for text in [
            "ImageJ=1.11a\nspacing=nan\nunit=mm\n",
            "ImageJ=1.11a\nspacing=far\nunit=mm\n",
            r#"<OME><Pixels PhysicalSizeX="0" PhysicalSizeY="0.5" PhysicalSizeZ="1"/></OME>"#,
            r#"<OME><Pixels PhysicalSizeX="1e999" PhysicalSizeY="0.5" PhysicalSizeZ="1"/></OME>"#,
        ] {
            assert!(Lengths::said(text, [None, None]).is_err(), "{text}");
        }
        assert!(Lengths::said("ImageJ=1\nunit=mm\n", [Some(0.0), Some(1.0)]).is_err());
    }
}
