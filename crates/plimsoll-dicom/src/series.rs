//! One volume of a folder's slices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_memory::Budget;
use plimsoll_volume::{Affine, Geometry};

use crate::DicomError;
use crate::header::{Header, cross, dot, is_dicom, read};

/// How much directions and spacings of slices may differ: files have few digits.
const SAME: f64 = 1e-3;

/// Slices that are nearer are at one place, in mm.
const ONE_PLACE: f64 = 1e-3;

/// How much a distance between slices may differ from the others: a share of it, and mm.
const UNEVEN: (f64, f64) = (0.02, 0.02);

/// The most degrees by which the line of positions may be tilted against slices: rounded positions make some.
const MOST_TILT: f64 = 0.5;

/// How deep folders are looked into.
const DEPTH: usize = 8;

/// The slices of a volume, from one end to the other.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) folder: PathBuf,
    pub(crate) slices: Vec<Header>,
    geometry: Geometry,
}

/// Whether a folder, or one in it, has a file of DICOM.
///
/// # Errors
/// If it cannot be read.
pub fn has_dicom(folder: &Path) -> Result<bool, DicomError> {
    for file in files(folder, DEPTH)? {
        if is_dicom(&file)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The files of a folder and of those in it, in order.
fn files(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, DicomError> {
    let io = |source| DicomError::Io { path: folder.into(), source };
    let mut entries = plimsoll_disk::read_dir(folder).map_err(io)?;
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        if entry.is_dir() {
            if depth > 0 {
                found.extend(files(&entry, depth - 1)?);
            }
        } else if entry.is_file() {
            found.push(entry);
        }
    }
    Ok(found)
}

impl Series {
    /// Finds the volume of a folder. Files that are no DICOM, and those that have no pixels, are passed over. What a file may take without
    /// its pixels is reserved while it is read.
    ///
    /// # Errors
    /// If a file cannot be read, there are no slices or several series, slices make no volume, or the budget has no
    /// room for a file.
    pub fn find(folder: &Path, budget: &Budget) -> Result<Series, DicomError> {
        let mut all: BTreeMap<String, Vec<Header>> = BTreeMap::new();
        for file in files(folder, DEPTH)? {
            if is_dicom(&file)?
                && let Some(header) = read(&file, budget)?
            {
                all.entry(header.series.clone()).or_default().push(header);
            }
        }
        if all.len() > 1 {
            let told = all.values().filter_map(|slices| {
                let first = slices.first()?;
                Some(format!("{} ({} slices, {})", first.what, slices.len(), first.path.display()))
            });
            return Err(DicomError::Several { folder: folder.into(), series: told.collect() });
        }
        let nothing = || DicomError::Nothing { folder: folder.into() };
        let mut slices = all.into_values().next().ok_or_else(nothing)?;
        let first = slices.first().cloned().ok_or_else(nothing)?;
        slices.iter().try_for_each(|slice| expect_like(slice, &first))?;
        let normal = cross(first.directions[0], first.directions[1]);
        slices.sort_by(|a, b| dot(a.position, normal).total_cmp(&dot(b.position, normal)));
        let step = step(folder, &slices, normal)?;
        let geometry = geometry(folder, &slices, step)?;
        Ok(Series { folder: folder.into(), slices, geometry })
    }

    /// The grid: depth along the stack, height down the rows, width along the columns.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Modality and description, as its first slice has them.
    pub fn what(&self) -> &str {
        self.slices.first().map_or("", |slice| slice.what.as_str())
    }
}

/// Refuses a slice that is of another grid than the first one.
fn expect_like(slice: &Header, first: &Header) -> Result<(), DicomError> {
    let differs = |what, found: String, expected: String| {
        let (path, other) = (slice.path.clone(), first.path.clone());
        Err(DicomError::Differs { path, what, found, other, expected })
    };
    let size = |of: &Header| format!("{} × {} pixels", of.rows, of.columns);
    if size(slice) != size(first) {
        return differs("the size", size(slice), size(first));
    }
    let is_near = |(a, b): (f64, f64)| (a - b).abs() <= SAME;
    let directions = |of: &Header| of.directions.into_iter().flatten().collect::<Vec<f64>>();
    if !directions(slice).into_iter().zip(directions(first)).all(is_near) {
        let (found, expected) = (format!("{:?}", slice.directions), format!("{:?}", first.directions));
        return differs("the directions", found, expected);
    }
    if !slice.spacing.into_iter().zip(first.spacing).all(is_near) {
        let (found, expected) = (format!("{:?} mm", slice.spacing), format!("{:?} mm", first.spacing));
        return differs("the spacing", found, expected);
    }
    Ok(())
}

/// From one slice to the next, in LPS millimetres.
fn step(folder: &Path, slices: &[Header], normal: [f64; 3]) -> Result<[f64; 3], DicomError> {
    let (Some(first), Some(last)) = (slices.first(), slices.last()) else {
        return Err(DicomError::Nothing { folder: folder.into() });
    };
    if slices.len() == 1 {
        let Some(thickness) = first.thickness.filter(|thickness| *thickness > 0.0) else {
            let why = "is missing, and there is no other slice to tell it by".into();
            return Err(DicomError::Attribute { path: first.path.clone(), attribute: "SliceThickness", why });
        };
        return Ok(normal.map(|part| part * thickness));
    }
    let at = |slice: &Header| dot(slice.position, normal);
    let pairs = || slices.iter().zip(slices.iter().skip(1));
    for (one, other) in pairs() {
        if at(other) - at(one) <= ONE_PLACE {
            let (one, other, position) = (one.path.clone(), other.path.clone(), at(one));
            return Err(DicomError::Doubled { one, other, position });
        }
    }
    let mut distances: Vec<f64> = pairs().map(|(one, other)| at(other) - at(one)).collect();
    distances.sort_by(f64::total_cmp);
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(at(last) - at(first));
    let allowed = UNEVEN.0 * usual + UNEVEN.1;
    for (one, other) in pairs() {
        let found = at(other) - at(one);
        if (found - usual).abs() > allowed {
            let times = (found / usual).round();
            let is_whole = times >= 2.0 && (found - times * usual).abs() <= times * allowed;
            return Err(DicomError::Gap {
                one: one.path.clone(),
                other: other.path.clone(),
                found,
                usual,
                missing: is_whole.then_some(times as usize - 1),
            });
        }
    }
    let steps = (slices.len() - 1) as f64;
    let step = [0, 1, 2].map(|axis| (last.position[axis] - first.position[axis]) / steps);
    let degrees = (dot(step, normal) / dot(step, step).sqrt()).clamp(-1.0, 1.0).acos().to_degrees();
    // The line through both ends is straight; slices between them may still be beside it.
    let strays = slices.iter().enumerate().map(|(number, slice)| {
        let stray =
            [0, 1, 2].map(|axis| slice.position[axis] - first.position[axis] - number as f64 * step[axis]);
        dot(stray, stray).sqrt()
    });
    let most = strays.fold(0.0, f64::max);
    if degrees > MOST_TILT || most > 2.0 * allowed {
        let of_stray = (most / usual).atan().to_degrees();
        return Err(DicomError::Tilted { folder: folder.into(), degrees: degrees.max(of_stray) });
    }
    Ok(step)
}

fn geometry(folder: &Path, slices: &[Header], step: [f64; 3]) -> Result<Geometry, DicomError> {
    let Some(first) = slices.first() else { return Err(DicomError::Nothing { folder: folder.into() }) };
    let [along_rows, along_columns] = first.directions;
    // From left, posterior, superior.
    let row = |axis: usize| {
        let sign = if axis < 2 { -1.0 } else { 1.0 };
        [
            sign * step[axis],
            sign * along_columns[axis] * first.spacing[0],
            sign * along_rows[axis] * first.spacing[1],
            sign * first.position[axis],
        ]
    };
    Geometry::new([slices.len(), first.rows, first.columns], Affine([row(0), row(1), row(2)]))
        .map_err(|source| DicomError::Grid { folder: folder.into(), source })
}
