//! Slices put on top of each other: their order, and the grid that they make.

use std::fmt;
use std::path::Path;

use plimsoll_volume::{Affine, Geometry};

use crate::DicomError;
use crate::error::{Extra, Missing};
use crate::header::{Plane, Slice, cross, dot};

/// The most that directions and spacings of slices may differ: files have few digits.
const SAME: f64 = 1e-3;

/// Slices that are nearer are at one place, in mm.
const ONE_PLACE: f64 = 1e-3;

/// The most that a distance between slices may differ from the others: a share of the distance, and mm.
const UNEVEN: (f64, f64) = (0.02, 0.02);

/// The angle in degrees between the line of positions and the normal of slices below which slices count as not tilted:
/// rounded positions cause small angles.
const LEAST_TILT: f64 = 0.5;

/// The way in which slices are stacked.
pub(crate) struct Order {
    /// From one slice to the next, in LPS millimetres.
    pub(crate) step: [f64; 3],
    /// The part of it along their normal, in mm.
    pub(crate) apart: f64,
    /// None where they are upright on each other.
    pub(crate) tilt: Option<Tilt>,
}

/// The tilt of the line that slices are on, as of a tilted gantry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tilt {
    degrees: f64,
    /// From one slice to the next, down the columns and along the rows, in mm.
    shift: [f64; 2],
    /// From one slice to the next, along their normal, in mm.
    usual: f64,
    /// The tilt of the gantry as the scanner states it.
    told: Option<f64>,
}

impl fmt::Display for Tilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tilt { degrees, shift: [down, along], usual, told } = self;
        write!(
            f,
            "stacked along an axis tilted by {degrees:.2}° against them, each {usual:.3} mm above the one before, and shifted by \
             {down:.3} mm down its columns and {along:.3} mm along its rows"
        )?;
        told.map_or(Ok(()), |told| write!(f, " (GantryDetectorTilt is {told}°)"))
    }
}

/// Brings slices into their order, and returns how they are stacked.
///
/// # Errors
/// Returns an error if a slice is on another grid than the first, or slices are not at equal distances on a line.
pub(crate) fn order(folder: &Path, slices: &mut [Slice]) -> Result<Order, DicomError> {
    let nothing = || DicomError::Nothing { folder: folder.into() };
    let first = slices.first().cloned().ok_or_else(nothing)?;
    slices.iter().try_for_each(|slice| expect_like(slice, &first))?;
    let normal = cross(first.plane.directions[0], first.plane.directions[1]);
    let at = |slice: &Slice| dot(slice.plane.position, normal);
    let name = |slice: &Slice| (slice.header.place.path().to_path_buf(), slice.frame);
    slices.sort_unstable_by(|a, b| at(a).total_cmp(&at(b)).then_with(|| name(a).cmp(&name(b))));
    let (Some(first), Some(last)) = (slices.first(), slices.last()) else { return Err(nothing()) };
    if slices.len() == 1 {
        let Some(thickness) = first.plane.thickness.filter(|thickness| *thickness > 0.0) else {
            let path = first.header.place.path().into();
            let why = "is missing, and no other slice gives the distance".into();
            return Err(DicomError::Attribute { path, attribute: "SliceThickness", why });
        };
        return Ok(Order { step: normal.map(|part| part * thickness), apart: thickness, tilt: None });
    }
    expect_single(slices, normal)?;
    let usual = expect_even(slices, normal)?;
    let steps = (slices.len() - 1) as f64;
    let step = [0, 1, 2].map(|axis| (last.plane.position[axis] - first.plane.position[axis]) / steps);
    expect_in_line(slices, step, usual)?;
    let tilt = slices.first().and_then(|first| tilt(first, normal, step, usual));
    Ok(Order { step, apart: dot(step, normal), tilt })
}

/// Refuses a slice that is of another grid than the first one.
fn expect_like(slice: &Slice, first: &Slice) -> Result<(), DicomError> {
    let differs = |what, found: String, expected: String| {
        Err(DicomError::Differs { slice: slice.to_string(), what, found, other: first.to_string(), expected })
    };
    let size = |of: &Slice| format!("{} × {} pixels", of.header.rows, of.header.columns);
    if (slice.header.rows, slice.header.columns) != (first.header.rows, first.header.columns) {
        return differs("the size", size(slice), size(first));
    }
    if let (Some(found), Some(expected)) =
        (&slice.header.frame_of_reference, &first.header.frame_of_reference)
        && found != expected
    {
        return differs("the frame of reference", found.clone(), expected.clone());
    }
    let is_near = |(a, b): (f64, f64)| (a - b).abs() <= SAME;
    let directions = |of: &Plane| of.directions.into_iter().flatten();
    let (one, other) = (&slice.plane, &first.plane);
    if !directions(one).zip(directions(other)).all(is_near) {
        let (found, expected) = (format!("{:?}", one.directions), format!("{:?}", other.directions));
        return differs("the directions", found, expected);
    }
    if !one.spacing.into_iter().zip(other.spacing).all(is_near) {
        let (found, expected) = (format!("{:?} mm", one.spacing), format!("{:?} mm", other.spacing));
        return differs("the spacing", found, expected);
    }
    Ok(())
}

fn pairs(slices: &[Slice]) -> impl Iterator<Item = (&Slice, &Slice)> {
    slices.iter().zip(slices.iter().skip(1))
}

/// Refuses two slices at one place, and says whether they are the same one twice, or what else tells them apart.
fn expect_single(slices: &[Slice], normal: [f64; 3]) -> Result<(), DicomError> {
    let at = |slice: &Slice| dot(slice.plane.position, normal);
    let is_doubled = |(one, other): &(&Slice, &Slice)| at(other) - at(one) <= ONE_PLACE;
    let Some((one, other)) = pairs(slices).find(is_doubled) else { return Ok(()) };
    let is_same = one.header.instance.is_some()
        && one.header.instance == other.header.instance
        && one.frame == other.frame;
    Err(DicomError::Doubled {
        one: one.to_string(),
        other: other.to_string(),
        position: at(one),
        places: pairs(slices).filter(is_doubled).count(),
        is_same,
        apart: one.plane.apart(&other.plane),
    })
}

/// Refuses slices that are not equally far apart, and returns how far they are.
fn expect_even(slices: &[Slice], normal: [f64; 3]) -> Result<f64, DicomError> {
    let distance =
        |(one, other): (&Slice, &Slice)| dot(other.plane.position, normal) - dot(one.plane.position, normal);
    let usual = median(slices.len() - 1, || pairs(slices).map(distance));
    let allowed = UNEVEN.0 * usual + UNEVEN.1;
    let is_odd = |pair: &(&Slice, &Slice)| (distance(*pair) - usual).abs() > allowed;
    let Some((at, (one, other))) = pairs(slices).enumerate().find(|(_, pair)| is_odd(pair)) else {
        return Ok(usual);
    };
    let missing = |pair| {
        let found: f64 = distance(pair);
        let times = (found / usual).round();
        let is_whole = times >= 2.0 && (found - times * usual).abs() <= times * allowed;
        // Only then is there one to take off: slices that are too near have none between them.
        is_whole.then(|| times as usize - 1)
    };
    let in_all = pairs(slices).filter(is_odd).try_fold(0usize, |all, pair| Some(all + missing(pair)?));
    let found = distance((one, other));
    let is_without = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| slices.get(before));
        match before.zip(slices.get(at + 1)) {
            Some(around) => !is_odd(&around),
            // Without the first or the last one, the others are as they are.
            None => true,
        }
    };
    let extra = [at + 1, at].into_iter().filter(|_| found < usual).find(|at| is_without(*at));
    let extra = extra
        .and_then(|at| slices.get(at))
        .map(|slice| Box::new(Extra { slice: slice.to_string(), is_file: slice.header.frames == 1 }));
    Err(DicomError::Gap {
        one: one.to_string(),
        other: other.to_string(),
        found,
        usual,
        missing: Missing { here: missing((one, other)), gaps: pairs(slices).filter(is_odd).count(), in_all },
        extra,
    })
}

/// The number in the middle of so many: the least that half of all are not above, the lower of two, as what is missing makes distances
/// longer. It is found by halving, since lists that would have to be sorted would have to be reserved.
fn median<I: Iterator<Item = f64>>(count: usize, all: impl Fn() -> I) -> f64 {
    let not_above = |most: f64| all().filter(|number| *number <= most).count();
    let middle = count.div_ceil(2);
    // Positive numbers are ordered as their bits are.
    let (mut low, mut high) = (0u64, f64::MAX.to_bits());
    while low < high {
        let between = low + (high - low) / 2;
        match not_above(f64::from_bits(between)) >= middle {
            true => high = between,
            false => low = between + 1,
        }
    }
    f64::from_bits(low)
}

/// Refuses slices beside the line that the others are on.
fn expect_in_line(slices: &[Slice], step: [f64; 3], usual: f64) -> Result<(), DicomError> {
    let Some(first) = slices.first() else { return Ok(()) };
    let allowed = UNEVEN.0 * usual + UNEVEN.1;
    let stray = |(number, slice): &(usize, &Slice)| {
        let stray = [0, 1, 2].map(|axis| {
            slice.plane.position[axis] - first.plane.position[axis] - *number as f64 * step[axis]
        });
        dot(stray, stray).sqrt()
    };
    let strayed = |slice: &(usize, &Slice)| stray(slice) > 2.0 * allowed;
    if let Some(found) = slices.iter().enumerate().find(strayed) {
        let beside = stray(&found);
        return Err(DicomError::Stray { slice: found.1.to_string(), beside, usual });
    }
    Ok(())
}

/// The tilt of slices that are on a line; `None` if the line is upright on them.
fn tilt(first: &Slice, normal: [f64; 3], step: [f64; 3], usual: f64) -> Option<Tilt> {
    let degrees = (dot(step, normal) / dot(step, step).sqrt()).clamp(-1.0, 1.0).acos().to_degrees();
    let [along_rows, along_columns] = first.plane.directions;
    let shift = [dot(step, along_columns), dot(step, along_rows)];
    (degrees > LEAST_TILT).then_some(Tilt { degrees, shift, usual, told: first.header.tilt })
}

/// The grid of slices in order.
pub(crate) fn geometry(folder: &Path, slices: &[Slice], step: [f64; 3]) -> Result<Geometry, DicomError> {
    let Some(first) = slices.first() else { return Err(DicomError::Nothing { folder: folder.into() }) };
    let Plane { directions: [along_rows, along_columns], spacing, position, .. } = first.plane;
    // From left, posterior, superior.
    let row = |axis: usize| {
        let sign = if axis < 2 { -1.0 } else { 1.0 };
        [
            sign * step[axis],
            sign * along_columns[axis] * spacing[0],
            sign * along_rows[axis] * spacing[1],
            sign * position[axis],
        ]
    };
    let shape = [slices.len(), first.header.rows, first.header.columns];
    Geometry::new(shape, Affine([row(0), row(1), row(2)]))
        .map_err(|source| DicomError::Grid { folder: folder.into(), source })
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_number_in_the_middle() {
        for (numbers, middle) in [(&[2.5, 1.0, 7.5][..], 2.5), (&[3.0, 1.0, 2.0, 4.0], 2.0), (&[0.7], 0.7)] {
            assert_eq!(median(numbers.len(), || numbers.iter().copied()), middle);
        }
    }
}
