//! The metadata of an array, of either version.

use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value;

use super::codecs::Codecs;
use super::keys::Keys;
use super::{HINT, json, v2, v3};
use crate::layout::bytes_of;
use crate::{ByteOrder, ElementType, VolumeError};

/// The most axes: time, channels, and the axes of space.
const MOST_AXES: usize = 5;

/// The largest extent of a chunk along an axis.
const MOST_EXTENT: u64 = 1 << 31;

/// An array of chunks, each of which is a file, or a part of one.
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) element: Element,
    /// The value of chunks that are not there, in the byte order of the array.
    pub(super) fill: [u8; 8],
    /// The extents of what is a file.
    pub(super) file: Vec<usize>,
    /// The extents of what is decoded as a whole: files, or the chunks in one.
    pub(super) chunk: Vec<usize>,
    /// The bytes of such a chunk, decoded.
    pub(super) chunk_bytes: usize,
    pub(super) codecs: Codecs,
    /// The place of chunks where several are a file.
    pub(super) shard: Option<Shard>,
    pub(super) keys: Keys,
}

/// The storage of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Element {
    pub(super) kind: ElementType,
    pub(super) order: ByteOrder,
}

/// The place of the index of chunks in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shard {
    pub(super) is_at_end: bool,
    /// Tells whether a checksum follows the index.
    pub(super) is_checked: bool,
    /// The chunks of a file.
    pub(super) count: usize,
}

/// The metadata of both versions before they are checked.
pub(super) struct Said {
    pub(super) shape: Vec<u64>,
    pub(super) element: Element,
    pub(super) fill: Value,
    pub(super) file: Vec<u64>,
    pub(super) chunk: Vec<u64>,
    pub(super) codecs: Codecs,
    /// The position of an index of chunks: whether it is at the end, and whether a checksum follows it.
    pub(super) shard: Option<(bool, bool)>,
    pub(super) keys: Keys,
}

impl Array {
    /// Returns `true` if a folder is an array's.
    ///
    /// # Errors
    /// Returns an error if its metadata cannot be read.
    pub(super) fn is_in(folder: &Path) -> Result<bool, VolumeError> {
        let said = json(&folder.join("zarr.json"))?;
        Ok(match said {
            Some(said) => said.get("node_type").and_then(Value::as_str) == Some("array"),
            None => folder.join(".zarray").is_file(),
        })
    }

    /// Reads the metadata of an array.
    ///
    /// # Errors
    /// Returns an error if the metadata cannot be read or used; the error names the entry.
    pub(super) fn read(folder: &Path) -> Result<Array, VolumeError> {
        let (v3, v2) = (folder.join("zarr.json"), folder.join(".zarray"));
        let (path, said) = match json(&v3)? {
            Some(said) => (v3, v3::said(&said)),
            None => match json(&v2)? {
                Some(said) => (v2, v2::said(&said)),
                None => {
                    let why = "the folder of the array has neither zarr.json nor .zarray".into();
                    return Err(VolumeError::Text {
                        path: folder.into(),
                        format: "an array of Zarr",
                        why,
                        hint: HINT,
                    });
                }
            },
        };
        said.and_then(Array::checked).map_err(|why| VolumeError::Text {
            path,
            format: "an array of Zarr",
            why,
            hint: HINT,
        })
    }

    fn checked(said: Said) -> Result<Array, String> {
        let Said { shape, element, fill, file, chunk, codecs, shard, keys } = said;
        let axes = shape.len();
        if !(2..=MOST_AXES).contains(&axes) || file.len() != axes || chunk.len() != axes {
            return Err(format!(
                "its shape is {shape:?} in chunks of {chunk:?}, but 2 to {MOST_AXES} axes are supported"
            ));
        }
        if chunk.iter().chain(&file).any(|extent| !(1..=MOST_EXTENT).contains(extent)) {
            return Err(format!("its chunks have the shape {chunk:?}"));
        }
        if file.iter().zip(&chunk).any(|(file, chunk)| file % chunk != 0) {
            return Err(format!("its shards of {file:?} are not a whole number of chunks of {chunk:?}"));
        }
        let large = |what: &str, extents: &[u64]| format!("its {what} {extents:?} cannot be addressed");
        let sized = |what: &str, extents: &[u64]| -> Result<Vec<usize>, String> {
            let sized: Option<Vec<usize>> =
                extents.iter().map(|extent| usize::try_from(*extent).ok()).collect();
            sized.ok_or_else(|| large(what, extents))
        };
        let sizes = sized("shape", &shape)?;
        bytes_of(&sizes, element.kind).ok_or_else(|| large("shape", &shape))?;
        let (file_sizes, chunk_sizes) = (sized("shard shape", &file)?, sized("chunk shape", &chunk)?);
        let chunk_bytes = bytes_of(&chunk_sizes, element.kind).and_then(|bytes| usize::try_from(bytes).ok());
        let chunk_bytes = chunk_bytes.ok_or_else(|| large("chunk shape", &chunk))?;
        bytes_of(&file_sizes, element.kind).ok_or_else(|| large("shard shape", &file))?;
        let shard = shard.map(|(is_at_end, is_checked)| Shard {
            is_at_end,
            is_checked,
            // Less than the bytes of the file, decoded.
            count: file_sizes.iter().zip(&chunk_sizes).map(|(file, chunk)| file / chunk).product(),
        });
        Ok(Array {
            shape: sizes,
            element,
            fill: fill_value(&fill, element)?,
            file: file_sizes,
            chunk: chunk_sizes,
            chunk_bytes,
            codecs,
            shard,
            keys,
        })
    }
}

/// The bytes of a fill value.
fn fill_value(said: &Value, element: Element) -> Result<[u8; 8], String> {
    let wrong = || format!("its fill_value is {said}");
    let real = || match said {
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        Value::Null => Some(0.0),
        said => said.as_f64(),
    };
    let whole = || match said {
        Value::Null => Some(0),
        Value::Bool(said) => Some(i128::from(*said)),
        Value::Number(number) => {
            let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            // Some write the fill values of whole numbers as 0.0.
            whole.or_else(|| number.as_f64().filter(|real| real.fract() == 0.0).map(|real| real as i128))
        }
        _ => None,
    };
    let size = element.kind.size();
    let mut bytes = [0; 8];
    let digits = match element.kind {
        ElementType::F32 => u64::from((real().ok_or_else(wrong)? as f32).to_bits()),
        ElementType::F64 => real().ok_or_else(wrong)?.to_bits(),
        // Two's complement of any length is its lowest bytes.
        kind => whole().filter(|whole| whole_numbers(kind).contains(whole)).ok_or_else(wrong)? as u64,
    };
    let (little, used) = (digits.to_le_bytes(), bytes.get_mut(..size).ok_or_else(wrong)?);
    used.copy_from_slice(little.get(..size).ok_or_else(wrong)?);
    if element.order == ByteOrder::Big {
        used.reverse();
    }
    Ok(bytes)
}

/// The numbers that a type of whole numbers has.
fn whole_numbers(kind: ElementType) -> RangeInclusive<i128> {
    let bits = 8 * kind.size();
    match kind {
        ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64 => {
            -(1i128 << (bits - 1))..=(1i128 << (bits - 1)) - 1
        }
        _ => 0..=(1i128 << bits) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fill_values_are_stored_as_voxels_are() {
        let of = |said: Value, kind, order| fill_value(&said, Element { kind, order });
        assert_eq!(of(json!(-2), ElementType::I16, ByteOrder::Little).unwrap()[..2], [0xfe, 0xff]);
        assert_eq!(of(json!(258), ElementType::U16, ByteOrder::Big).unwrap()[..2], [1, 2]);
        assert_eq!(of(json!(3.0), ElementType::U8, ByteOrder::Big).unwrap()[0], 3);
        assert_eq!(of(Value::Null, ElementType::F32, ByteOrder::Big).unwrap(), [0; 8]);
        let nan = of(json!("NaN"), ElementType::F32, ByteOrder::Little).unwrap();
        assert!(f32::from_le_bytes([nan[0], nan[1], nan[2], nan[3]]).is_nan());
        for (said, kind) in [
            (json!("0x7f"), ElementType::F32),
            (json!([1]), ElementType::U8),
            (json!(0.5), ElementType::U8),
            (json!(256), ElementType::U8),
            (json!(-1), ElementType::U16),
            (json!(128), ElementType::I8),
        ] {
            assert!(of(said, kind, ByteOrder::Little).unwrap_err().contains("fill_value"));
        }
    }
}
