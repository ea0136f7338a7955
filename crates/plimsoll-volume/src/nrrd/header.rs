//! The fields of a header of NRRD.

use std::collections::BTreeMap;

use super::segments::Pairs;
use crate::text::{LineError, Lines, numbers, short};
use crate::{ByteOrder, ElementType};

/// The fields of a header as they are written.
#[derive(Debug, Default)]
pub(super) struct Fields {
    fields: BTreeMap<String, String>,
    /// Key/value pairs of segments.
    pub(super) segments: Pairs,
    /// The bytes of the header, up to the voxels behind it.
    pub(super) length: u64,
}

/// Fields that say something of the voxels and are not read: what they change would be lost.
const REFUSED: [&str; 1] = ["block size"];

/// The same fields by other names.
const ALSO: [(&str, &str); 4] = [
    ("datafile", "data file"),
    ("byteskip", "byte skip"),
    ("lineskip", "line skip"),
    ("blocksize", "block size"),
];

/// Fields that are read. Of others nothing is kept.
const READ: [&str; 15] = [
    "type",
    "dimension",
    "sizes",
    "endian",
    "encoding",
    "space",
    "space dimension",
    "space directions",
    "space origin",
    "space units",
    "spacings",
    "kinds",
    "data file",
    "byte skip",
    "line skip",
];

/// Returns `true` if a line is a key with its value, `key:=value`, not a field, `field: value`.
fn is_pair(line: &str) -> bool {
    let field = line.find(": ").unwrap_or(line.len());
    line.find(":=").is_some_and(|pair| pair < field)
}

impl Fields {
    /// Reads a header up to the empty line that ends it, or the end of the file.
    ///
    /// # Errors
    /// Returns an error if a line is neither a field, nor a key with a value, nor a comment; a field occurs twice, or
    /// is not supported.
    pub(super) fn read(lines: &mut Lines) -> Result<Fields, LineError> {
        let mut found = Fields::default();
        lines.next()?;
        while let Some(line) = lines.next()?.filter(|line| !line.is_empty()) {
            // Of keys and their values, only the keys of segments are read.
            if is_pair(&line) {
                found.segments.note(&line);
                continue;
            }
            if line.starts_with('#') {
                continue;
            }
            let (name, rest) = line.split_once(':').ok_or_else(|| {
                let shown: String = line.chars().take(60).collect();
                LineError::Why(format!("its header has a line {shown:?}, which is not a field"))
            })?;
            let name = name.trim().to_ascii_lowercase();
            let name = ALSO.iter().find(|(other, _)| *other == name).map_or(name, |(_, name)| (*name).into());
            if REFUSED.contains(&&*name) {
                return Err(LineError::Why(format!("its field `{name}` is not supported")));
            }
            if !READ.contains(&&*name) {
                continue;
            }
            let value = short(&name, rest.trim()).map_err(LineError::Why)?;
            if found.fields.insert(name.clone(), value.into()).is_some() {
                return Err(LineError::Why(format!("its field `{name}` appears twice")));
            }
        }
        found.length = lines.read_bytes();
        Ok(found)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub(super) fn need(&self, name: &str) -> Result<&str, String> {
        self.get(name).ok_or_else(|| format!("its field `{name}` is missing"))
    }

    /// The extents of all axes, fastest first.
    pub(super) fn sizes(&self) -> Result<Vec<usize>, String> {
        let sizes: Vec<usize> = numbers("sizes", self.need("sizes")?)?;
        let dimension = self.need("dimension")?;
        if dimension.parse() != Ok(sizes.len()) {
            return Err(format!("`dimension` is {dimension}, but `sizes` has {} numbers", sizes.len()));
        }
        match sizes.len() {
            2..=4 => Ok(sizes),
            found => Err(format!("it has {found} axes, but 2 to 4 are supported")),
        }
    }

    pub(super) fn element_type(&self) -> Result<ElementType, String> {
        Ok(match self.need("type")?.to_ascii_lowercase().as_str() {
            "signed char" | "int8" | "int8_t" => ElementType::I8,
            "uchar" | "unsigned char" | "uint8" | "uint8_t" => ElementType::U8,
            "short" | "short int" | "signed short" | "signed short int" | "int16" | "int16_t" => {
                ElementType::I16
            }
            "ushort" | "unsigned short" | "unsigned short int" | "uint16" | "uint16_t" => ElementType::U16,
            "int" | "signed int" | "int32" | "int32_t" => ElementType::I32,
            "uint" | "unsigned int" | "uint32" | "uint32_t" => ElementType::U32,
            "longlong"
            | "long long"
            | "long long int"
            | "signed long long"
            | "signed long long int"
            | "int64"
            | "int64_t" => ElementType::I64,
            "ulonglong" | "unsigned long long" | "unsigned long long int" | "uint64" | "uint64_t" => {
                ElementType::U64
            }
            "float" => ElementType::F32,
            "double" => ElementType::F64,
            other => return Err(format!("`type` is {other:?}, which is not supported")),
        })
    }

    /// The byte order, which files of single bytes need not say.
    pub(super) fn byte_order(&self, element: ElementType) -> Result<ByteOrder, String> {
        match self.get("endian").map(str::to_ascii_lowercase).as_deref() {
            Some("little") => Ok(ByteOrder::Little),
            Some("big") => Ok(ByteOrder::Big),
            Some(other) => Err(format!("`endian` is {other:?}")),
            None if element.size() == 1 => Ok(ByteOrder::NATIVE),
            None => Err("its field `endian` is missing".into()),
        }
    }

    /// A vector for each axis, or none where an axis is not one of space.
    pub(super) fn directions(&self) -> Result<Option<Vec<Option<[f64; 3]>>>, String> {
        let Some(text) = self.get("space directions") else { return Ok(None) };
        let mut rest = text.trim();
        let mut found = Vec::new();
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix("none") {
                (rest, found) = (behind.trim_start(), [found, vec![None]].concat());
                continue;
            }
            let end = rest.find(')').ok_or_else(|| format!("`space directions` has {rest:?}"))?;
            let (inside, behind) = rest.split_at(end + 1);
            found.push(Some(vector("space directions", inside)?));
            rest = behind.trim_start();
            if found.len() > 16 {
                return Err("`space directions` has more vectors than axes".into());
            }
        }
        Ok(Some(found))
    }
}

/// A vector `(x,y,z)`; of two numbers the third is 0.
pub(super) fn vector(field: &str, text: &str) -> Result<[f64; 3], String> {
    let inside = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let inside = inside.ok_or_else(|| format!("`{field}` has {text:?} instead of a vector"))?;
    let found: Vec<f64> = numbers(field, &inside.replace(',', " "))?;
    match *found {
        [x, y, z] => Ok([x, y, z]),
        [x, y] => Ok([x, y, 0.0]),
        _ => Err(format!("`{field}` has a vector of {} numbers, but its space has three axes", found.len())),
    }
}
