//! Opening images.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::content::Content;
use crate::gzip::{Stretch, Wrapper};
use crate::layout::{Layout, bytes_of};
use crate::raw::{Channels, Raw};
use crate::source::Opened;
use crate::stream::ByteStream;
use crate::text::{LineError, Lines, data_file, grid, numbers, short};
use crate::{ByteOrder, ElementType, Scaling, VolumeError};

const HINT: &str = "write it again with SimpleITK as .mha or .nii.gz, as binary numbers of three axes";

/// The first fields of a header: the order of fields is free, but programs write one of these first.
const FIRST: [&[u8]; 3] = [b"ObjectType", b"NDims", b"Comment"];

/// Returns `true` if a file begins as MetaImage does.
pub(crate) fn begins(head: &[u8]) -> bool {
    let is_field = |rest: &[u8]| {
        let behind = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        behind == Some(&b'=')
    };
    FIRST.iter().any(|first| head.strip_prefix(*first).is_some_and(is_field))
}

/// Fields that are read, in lower case. Of others nothing is kept.
const READ: [&str; 19] = [
    "objecttype",
    "binarydata",
    "ndims",
    "dimsize",
    "elementnumberofchannels",
    "elementtype",
    "binarydatabyteordermsb",
    "elementbyteordermsb",
    "elementspacing",
    "elementsize",
    "offset",
    "position",
    "origin",
    "transformmatrix",
    "rotation",
    "orientation",
    "compresseddata",
    "headersize",
    "elementdatafile",
];

/// The fields of a header, by their names in lower case.
struct Fields {
    fields: BTreeMap<String, String>,
    /// The bytes of the header.
    length: u64,
}

impl Fields {
    /// Reads fields up to and with that which names the voxels, which is the last one.
    fn read(lines: &mut Lines) -> Result<Fields, LineError> {
        let mut fields = BTreeMap::new();
        while let Some(line) = lines.next()? {
            if line.trim().is_empty() {
                continue;
            }
            let (name, value) = line.split_once('=').ok_or_else(|| {
                let shown: String = line.chars().take(60).collect();
                LineError::Why(format!("its header has a line {shown:?}, which is not a field"))
            })?;
            let name = name.trim().to_ascii_lowercase();
            if !READ.contains(&&*name) {
                continue;
            }
            let is_last = name == "elementdatafile";
            let value = short(&name, value.trim()).map_err(LineError::Why)?;
            if fields.insert(name.clone(), value.to_string()).is_some() {
                return Err(LineError::Why(format!("its field `{name}` appears twice")));
            }
            if is_last {
                return Ok(Fields { fields, length: lines.read_bytes() });
            }
        }
        Err(LineError::Why("its header does not end with ElementDataFile".into()))
    }

    /// The value of a field by the first of its names that is there.
    fn get(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| Some(self.fields.get(&name.to_ascii_lowercase())?.as_str()))
    }

    fn need(&self, name: &str) -> Result<&str, String> {
        self.get(&[name]).ok_or_else(|| format!("its field {name} is missing"))
    }

    fn is_true(&self, names: &[&str]) -> Result<bool, String> {
        match self.get(names).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(other) => Err(format!("{} is {other:?}, but must be True or False", names.join(" or "))),
        }
    }

    /// So many numbers, or none where the field is missing.
    fn numbers(&self, names: &[&str], count: usize) -> Result<Option<Vec<f64>>, String> {
        let Some(text) = self.get(names) else { return Ok(None) };
        let found: Vec<f64> = numbers(&names.join(" or "), text)?;
        match found.len() == count {
            true => Ok(Some(found)),
            false => Err(format!("{} has {} numbers instead of {count}", names.join(" or "), found.len())),
        }
    }
}

/// Opens an image.
///
/// # Errors
/// Returns an error if a file is missing, the header is not usable (the error names the field), or the file is too
/// short for what it describes.
pub(crate) fn open(path: &Path, _content: Content) -> Result<Opened, VolumeError> {
    let refused = |why: String| VolumeError::Text { path: path.into(), format: "MetaImage", why, hint: HINT };
    let mut lines = Lines::open(path)?;
    let fields = Fields::read(&mut lines).map_err(|error| error.at_path(lines.path(), refused))?;
    let mut layout = layout(&fields).map_err(refused)?;
    let named = fields.need("ElementDataFile").map_err(refused)?;
    let (data, start) = match named {
        "LOCAL" | "Local" | "local" => (path.to_path_buf(), fields.length),
        list if list.starts_with("LIST") || list.contains('%') => {
            return Err(refused("its voxels are in several files, which is not supported".into()));
        }
        named => (data_file(path, named).map_err(refused)?, 0),
    };
    let failed = |source| VolumeError::Io { path: data.clone(), action: "open", source };
    let skip = fields.get(&["HeaderSize"]).unwrap_or("0");
    let stream = match fields.is_true(&["CompressedData"]).map_err(refused)? {
        true if skip == "0" => {
            let wrapper = wrapper(&data, start).map_err(failed)?;
            ByteStream::open_stretch(&data, Stretch { start, wrapper }).map_err(failed)?
        }
        true => return Err(refused(format!("HeaderSize is {skip} in front of compressed voxels"))),
        false => {
            let stream = ByteStream::open_plain(&data).map_err(failed)?;
            layout.start = match skip.parse() {
                // The voxels are the last bytes.
                Ok(-1i64) => stream.stored_length().saturating_sub(layout.bytes),
                Ok(skip) if skip >= 0 => start.saturating_add_signed(skip),
                _ => return Err(refused(format!("HeaderSize is {skip:?}"))),
            };
            if layout.start.checked_add(layout.bytes).is_none_or(|end| end > i64::MAX as u64) {
                return Err(refused(format!("HeaderSize is {skip}, beyond any file")));
            }
            stream
        }
    };
    let source = Box::new(Raw::new(&data, stream, layout, Channels::Together)?);
    Ok(Opened { path: path.into(), layout, header: None, source, segments: None })
}

/// The wrapping of compressed voxels: MetaIO writes zlib's stream, and reads gzip as well.
fn wrapper(data: &Path, start: u64) -> io::Result<Wrapper> {
    let mut magic = [0; 2];
    let is_gzip =
        ByteStream::open_plain(data)?.read_some_at(start, &mut magic)? == 2 && magic == [0x1f, 0x8b];
    Ok(if is_gzip { Wrapper::Gzip } else { Wrapper::Zlib })
}

fn layout(fields: &Fields) -> Result<Layout, String> {
    if let Some(found) = fields.get(&["ObjectType"]).filter(|found| !found.eq_ignore_ascii_case("Image")) {
        return Err(format!("ObjectType is {found}, but must be Image"));
    }
    if fields.get(&["BinaryData"]).is_some() && !fields.is_true(&["BinaryData"])? {
        return Err("its voxels are text (BinaryData is False), which is not supported".into());
    }
    let dimension: usize = match fields.need("NDims")? {
        "2" => 2,
        "3" => 3,
        found => return Err(format!("NDims is {found}, but must be 2 or 3")),
    };
    let sizes: Vec<usize> = numbers("DimSize", fields.need("DimSize")?)?;
    if sizes.len() != dimension {
        return Err(format!("DimSize has {} numbers, but NDims is {dimension}", sizes.len()));
    }
    let channels: usize = match fields.get(&["ElementNumberOfChannels"]) {
        None => 1,
        Some(text) => text.parse().map_err(|_| format!("ElementNumberOfChannels is {text:?}"))?,
    };
    let element_type = element_type(fields.need("ElementType")?)?;
    let is_big = fields.is_true(&["BinaryDataByteOrderMSB", "ElementByteOrderMSB"])?;
    let spacing = fields.numbers(&["ElementSpacing", "ElementSize"], dimension)?;
    let spacing = spacing.unwrap_or_else(|| vec![1.0; dimension]);
    let origin = fields.numbers(&["Offset", "Position", "Origin"], dimension)?;
    let origin = origin.unwrap_or_else(|| vec![0.0; dimension]);
    let directions =
        fields.numbers(&["TransformMatrix", "Rotation", "Orientation"], dimension * dimension)?;
    let step = |axis: usize| -> [f64; 3] {
        std::array::from_fn(|part| {
            let direction = match &directions {
                // A row for each axis of the image.
                Some(rows) if part < dimension => rows[axis * dimension + part],
                Some(_) => 0.0,
                None => f64::from(u8::from(part == axis)),
            };
            direction * spacing[axis]
        })
    };
    let steps: Vec<[f64; 3]> = (0..dimension).map(step).collect();
    let origin = std::array::from_fn(|axis| origin.get(axis).copied().unwrap_or(0.0));
    let geometry = grid(&sizes, &steps, origin).map_err(|problem| problem.to_string())?;
    let bytes = bytes_of(&[&sizes[..], &[channels]].concat(), element_type);
    let bytes = bytes
        .ok_or_else(|| format!("DimSize is {sizes:?} with {channels} channels, which is impossibly large"))?;
    Ok(Layout {
        geometry,
        channels,
        element_type,
        byte_order: if is_big { ByteOrder::Big } else { ByteOrder::Little },
        scaling: Scaling::NONE,
        start: 0,
        bytes,
    })
}

/// MetaIO's `long` has four bytes on all machines.
fn element_type(name: &str) -> Result<ElementType, String> {
    Ok(match name {
        "MET_CHAR" => ElementType::I8,
        "MET_UCHAR" => ElementType::U8,
        "MET_SHORT" => ElementType::I16,
        "MET_USHORT" => ElementType::U16,
        "MET_INT" | "MET_LONG" => ElementType::I32,
        "MET_UINT" | "MET_ULONG" => ElementType::U32,
        "MET_LONG_LONG" => ElementType::I64,
        "MET_ULONG_LONG" => ElementType::U64,
        "MET_FLOAT" => ElementType::F32,
        "MET_DOUBLE" => ElementType::F64,
        other => return Err(format!("ElementType is {other}, which is not supported")),
    })
}
