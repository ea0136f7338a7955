//! Opening images of NRRD.

use std::path::Path;

use super::header::{Fields, vector};
use super::layers::Layers;
use super::segments::Coded;
use crate::VolumeError;
use crate::content::Content;
use crate::gzip::{Stretch, Wrapper};
use crate::layout::{Layout, bytes_of};
use crate::raw::{Channels, Raw};
use crate::segments::SegmentCoding;
use crate::source::Opened;
use crate::stream::ByteStream;
use crate::text::{Lines, data_file, grid, numbers};
use crate::unit::millimetres;
use crate::{ElementType, Geometry, Scaling};

const MAGIC: &[u8] = b"NRRD000";
const HINT: &str = "write it again as NRRD, raw or with gzip, with three axes of space, or as .nii.gz";

/// Returns `true` if a file begins as NRRD does.
pub(crate) fn begins(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Opens an image.
///
/// # Errors
/// Returns an error if a file is missing, the header is not usable (the error names the field), or the file is too
/// short for what it describes.
pub(crate) fn open(path: &Path, content: Content) -> Result<Opened, VolumeError> {
    let refused = |why: String| VolumeError::Text { path: path.into(), format: "NRRD", why, hint: HINT };
    let mut lines = Lines::open(path)?;
    let mut fields = Fields::read(&mut lines).map_err(|error| error.at_path(lines.path(), refused))?;
    let (layout, order) = layout(&fields).map_err(refused)?;
    if content == Content::Labels && layout.channels > 1 {
        let why = format!("it has {} layers, whose segments may overlap", layout.channels);
        return Err(VolumeError::NotForLabels { path: path.into(), why });
    }
    // Voxels are behind the header, or in a file of their own.
    let (data, start) = match fields.get("data file") {
        None => (path.to_path_buf(), fields.length),
        Some(named) if named.starts_with("LIST") || named.contains('%') => {
            return Err(refused("its voxels are in several files, which is not supported".into()));
        }
        Some(named) => (data_file(path, named).map_err(refused)?, 0),
    };
    let described = std::mem::take(&mut fields.segments);
    let (layout, stream) = stream(&fields, layout, &data, start).map_err(|error| match error {
        Failed::Io(source) => VolumeError::Io { path: data.clone(), action: "open", source },
        Failed::Why(why) => refused(why),
    })?;
    let raw = Raw::new(&data, stream, layout, order)?;
    let (path, header) = (path.to_path_buf(), None);
    let Content::Segments { .. } = content else {
        return Ok(Opened { path, layout, header, source: Box::new(raw), segments: None });
    };
    let Some(Coded { segments, codes }) = described.coded(layout.channels).map_err(refused)? else {
        return match layout.channels {
            1 => Ok(Opened { path, layout, header, source: Box::new(raw), segments: None }),
            layers => {
                let why = format!("it has {layers} layers, but no `Segment0_Name` that describes them");
                Err(VolumeError::NotForLabels { path, why })
            }
        };
    };
    let named = Some(Box::new(segments.clone()));
    if segments.coding == SegmentCoding::Values {
        return Ok(Opened { path, layout, header, source: Box::new(raw), segments: named });
    }
    let source = Layers::new(&path, raw, layout, order, Coded { segments, codes }).map_err(refused)?;
    let bytes = layout.geometry.voxel_count() as u64;
    let layout = Layout { channels: 1, element_type: ElementType::U8, start: 0, bytes, ..layout };
    Ok(Opened { path, layout, header, source: Box::new(source), segments: named })
}

enum Failed {
    Io(std::io::Error),
    Why(String),
}

/// The bytes of the voxels, and where they begin in them.
fn stream(
    fields: &Fields,
    mut layout: Layout,
    data: &Path,
    start: u64,
) -> Result<(Layout, ByteStream), Failed> {
    let skip = fields.get("byte skip").unwrap_or("0");
    let lines = fields.get("line skip").unwrap_or("0");
    if lines != "0" {
        return Err(Failed::Why(format!("`line skip` is {lines}, but only 0 is supported")));
    }
    let wrong = || Failed::Why(format!("`byte skip` is {skip:?}"));
    let stream = match fields.need("encoding").map_err(Failed::Why)?.to_ascii_lowercase().as_str() {
        "raw" => {
            let stream = ByteStream::open_plain(data).map_err(Failed::Io)?;
            layout.start = match skip {
                // The voxels are the last bytes.
                "-1" => stream.stored_length().saturating_sub(layout.bytes),
                _ => start.checked_add(skip.parse().map_err(|_| wrong())?).ok_or_else(wrong)?,
            };
            stream
        }
        "gzip" | "gz" => {
            // Bytes are passed over after decompression.
            layout.start = skip.parse().map_err(|_| wrong())?;
            ByteStream::open_stretch(data, Stretch { start, wrapper: Wrapper::Gzip }).map_err(Failed::Io)?
        }
        other => {
            return Err(Failed::Why(format!("`encoding` is {other:?}, but only raw and gzip are supported")));
        }
    };
    match layout.start.checked_add(layout.bytes).is_some_and(|end| end <= i64::MAX as u64) {
        true => Ok((layout, stream)),
        false => Err(wrong()),
    }
}

/// The layout of the voxels by the header, and the order of their channels.
fn layout(fields: &Fields) -> Result<(Layout, Channels), String> {
    let sizes = fields.sizes()?;
    let element_type = fields.element_type()?;
    let directions = fields.directions()?;
    let is_of_space = is_of_space(fields, &sizes, directions.as_deref())?;
    let of_space: Vec<usize> = (0..sizes.len()).filter(|axis| is_of_space[*axis]).collect();
    let beside: Vec<usize> = (0..sizes.len()).filter(|axis| !is_of_space[*axis]).collect();
    if !matches!(of_space.len(), 2 | 3) {
        return Err(format!("it has {} axes of space, but 2 or 3 are supported", of_space.len()));
    }
    let order = match *beside {
        [] => Channels::Apart,
        [0] => Channels::Together,
        [last] if last + 1 == sizes.len() => Channels::Apart,
        _ => return Err("its channels are between the axes of space, or on several axes".into()),
    };
    let channels = beside.first().map_or(1, |axis| sizes[*axis]);
    let extents: Vec<usize> = of_space.iter().map(|axis| sizes[*axis]).collect();
    let geometry = geometry(fields, &extents, &of_space, directions.as_deref())?;
    let bytes = bytes_of(&sizes, element_type);
    let bytes = bytes.ok_or_else(|| format!("`sizes` are {sizes:?}, which is impossibly large"))?;
    let byte_order = fields.byte_order(element_type)?;
    let layout =
        Layout { geometry, channels, element_type, byte_order, scaling: Scaling::NONE, start: 0, bytes };
    Ok((layout, order))
}

/// The axes of space: those with a direction, or those whose kind is one, or the first three.
fn is_of_space(
    fields: &Fields,
    sizes: &[usize],
    directions: Option<&[Option<[f64; 3]>]>,
) -> Result<Vec<bool>, String> {
    if let Some(directions) = directions {
        return match directions.len() == sizes.len() {
            true => Ok(directions.iter().map(Option::is_some).collect()),
            false => {
                Err(format!("`space directions` has {} vectors for {} axes", directions.len(), sizes.len()))
            }
        };
    }
    if let Some(kinds) = fields.get("kinds") {
        let kinds: Vec<&str> = kinds.split_whitespace().collect();
        if kinds.len() != sizes.len() {
            return Err(format!("`kinds` has {} words for {} axes", kinds.len(), sizes.len()));
        }
        if kinds.iter().any(|kind| matches!(*kind, "domain" | "space")) {
            return Ok(kinds.iter().map(|kind| matches!(*kind, "domain" | "space")).collect());
        }
    }
    Ok((0..sizes.len()).map(|axis| axis < 3).collect())
}

fn geometry(
    fields: &Fields,
    extents: &[usize],
    of_space: &[usize],
    directions: Option<&[Option<[f64; 3]>]>,
) -> Result<Geometry, String> {
    // Without a name, and of a scanner's own, the world is taken for LPS, as ITK does.
    let sign = match fields.get("space").map(str::to_ascii_lowercase).as_deref() {
        None | Some("left-posterior-superior" | "lps" | "scanner-xyz" | "3d-right-handed") => [1.0, 1.0, 1.0],
        Some("right-anterior-superior" | "ras") => [-1.0, -1.0, 1.0],
        Some("left-anterior-superior" | "las") => [1.0, -1.0, 1.0],
        Some(other) => return Err(format!("`space` is {other:?}, but only LPS, RAS and LAS are supported")),
    };
    if let Some(found) = fields.get("space dimension").filter(|found| *found != "3") {
        return Err(format!("`space dimension` is {found}, but only 3 is supported"));
    }
    let unit = unit(fields)?;
    let steps: Vec<[f64; 3]> = match directions {
        Some(all) => {
            all.iter().flatten().map(|step| [0, 1, 2].map(|axis| step[axis] * sign[axis] * unit)).collect()
        }
        None => {
            let spacings: Vec<f64> = match fields.get("spacings") {
                Some(text) => numbers("spacings", text)?,
                None => vec![1.0; of_space.iter().max().map_or(0, |last| last + 1)],
            };
            let step = |(place, axis): (usize, &usize)| {
                let length =
                    spacings.get(*axis).copied().filter(|length| length.is_finite() && *length > 0.0);
                let length = length.ok_or_else(|| format!("`spacings` has no length for axis {axis}"))?;
                let mut step = [0.0; 3];
                step[place] = length * sign[place] * unit;
                Ok(step)
            };
            of_space.iter().enumerate().map(step).collect::<Result<_, String>>()?
        }
    };
    let origin = match fields.get("space origin") {
        Some(text) => vector("space origin", text)?,
        None => [0.0; 3],
    };
    let origin = [0, 1, 2].map(|axis| origin[axis] * sign[axis] * unit);
    grid(extents, &steps, origin).map_err(|problem| problem.to_string())
}

/// The millimetres of a unit; one if none is given.
fn unit(fields: &Fields) -> Result<f64, String> {
    let Some(text) = fields.get("space units") else { return Ok(1.0) };
    let mut names = text.split_whitespace().map(|name| name.trim_matches('"').to_ascii_lowercase());
    let name = names.next().unwrap_or_else(|| "mm".into());
    if names.any(|other| other != name) {
        return Err(format!("`space units` are {text}, but all axes must have the same one"));
    }
    match name.as_str() {
        "" | "???" => Ok(1.0),
        other => millimetres(other)
            .ok_or_else(|| format!("`space units` is {other:?}, which is not a supported unit of length")),
    }
}
