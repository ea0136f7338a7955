//! The metadata of arrays of Zarr's version 3: `zarr.json`.

use serde::Deserialize;
use serde_json::Value;

use super::array::{Element, Said};
use super::codecs::{Codecs, Compressor};
use super::keys::{Keys, Separator};
use crate::{ByteOrder, ElementType};

#[derive(Deserialize)]
struct Metadata {
    zarr_format: u64,
    node_type: String,
    shape: Vec<u64>,
    data_type: Value,
    chunk_grid: Named,
    chunk_key_encoding: Named,
    fill_value: Value,
    codecs: Vec<Named>,
    #[serde(default)]
    storage_transformers: Vec<Value>,
}

/// A codec by its name, with a configuration if it has one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Alone(String),
    Configured { name: String, configuration: Option<Value> },
}

impl Named {
    fn name(&self) -> &str {
        match self {
            Named::Alone(name) | Named::Configured { name, .. } => name,
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Named::Alone(_) => None,
            Named::Configured { configuration, .. } => configuration.as_ref()?.get(key),
        }
    }

    /// # Errors
    /// In words, if there is none that can be used.
    fn parsed<T: for<'a> Deserialize<'a>>(&self, key: &str) -> Result<T, String> {
        let found = self.get(key).ok_or_else(|| format!("its {} has no {key}", self.name()))?;
        T::deserialize(found).map_err(|problem| format!("{key} of its {}: {problem}", self.name()))
    }
}

/// # Errors
/// In words, with the entry that cannot be used.
pub(super) fn said(json: &Value) -> Result<Said, String> {
    let said = Metadata::deserialize(json).map_err(|problem| problem.to_string())?;
    if said.zarr_format != 3 || said.node_type != "array" {
        return Err(format!("it is a {} of zarr_format {}", said.node_type, said.zarr_format));
    }
    if !said.storage_transformers.is_empty() {
        return Err("it has storage_transformers, which are not supported".into());
    }
    if said.chunk_grid.name() != "regular" {
        return Err(format!(
            "its chunk_grid is {}, but only regular ones are supported",
            said.chunk_grid.name()
        ));
    }
    let file: Vec<u64> = said.chunk_grid.parsed("chunk_shape")?;
    let encoding = &said.chunk_key_encoding;
    let (has_prefix, usual) = match encoding.name() {
        "default" => (true, "/"),
        "v2" => (false, "."),
        other => {
            return Err(format!("its chunk_key_encoding is {other}, but only default and v2 are supported"));
        }
    };
    let separator = match encoding.get("separator") {
        None => usual,
        Some(said) => said.as_str().ok_or_else(|| format!("its chunk_key_encoding separates by {said}"))?,
    };
    let chain = chain(&said.codecs)?;
    let (chunk, order, codecs, shard) = match chain {
        Chain::Bytes { order, codecs } => (file.clone(), order, codecs, None),
        Chain::Shards { chunk, inner, is_at_end, is_checked } => {
            let (order, codecs) = inner;
            (chunk, order, codecs, Some((is_at_end, is_checked)))
        }
    };
    let kind = kind(&said.data_type)?;
    let of_one_byte = (kind.size() == 1).then_some(ByteOrder::NATIVE);
    let order = order.or(of_one_byte).ok_or("its codec bytes has no endian")?;
    Ok(Said {
        shape: said.shape,
        element: Element { kind, order },
        fill: said.fill_value,
        file,
        chunk,
        codecs,
        shard,
        keys: Keys { has_prefix, separator: Separator::parse(separator)? },
    })
}

/// The codecs that turn arrays into bytes.
enum Chain {
    /// Plain bytes, then compressed.
    Bytes { order: Option<ByteOrder>, codecs: Codecs },
    /// Chunks of their own, with an index.
    Shards { chunk: Vec<u64>, inner: (Option<ByteOrder>, Codecs), is_at_end: bool, is_checked: bool },
}

fn chain(codecs: &[Named]) -> Result<Chain, String> {
    let mut rest = codecs;
    while let [first, behind @ ..] = rest {
        if first.name() != "transpose" {
            break;
        }
        let order: Vec<usize> = first.parsed("order")?;
        if !order.iter().copied().eq(0..order.len()) {
            return Err(format!("its axes are stored in the order {order:?}, but only C order is supported"));
        }
        rest = behind;
    }
    let Some((first, behind)) = rest.split_first() else { return Err("it has no codecs".into()) };
    match first.name() {
        "bytes" => {
            let order = match first.get("endian").map(Value::as_str) {
                Some(Some("little")) => Some(ByteOrder::Little),
                Some(Some("big")) => Some(ByteOrder::Big),
                // Elements of one byte have none.
                None => None,
                _ => return Err("the endian of its bytes is neither little nor big".into()),
            };
            Ok(Chain::Bytes { order, codecs: compression(behind)? })
        }
        "sharding_indexed" => {
            if let Some(codec) = behind.first() {
                return Err(format!(
                    "its shards are encoded again by {}, which is not supported",
                    codec.name()
                ));
            }
            let inner: Vec<Named> = first.parsed("codecs")?;
            let Chain::Bytes { order, codecs } = chain(&inner)? else {
                return Err("its shards have shards, which is not supported".into());
            };
            let index: Vec<Named> = first.parsed("index_codecs")?;
            let Chain::Bytes {
                order: Some(ByteOrder::Little),
                codecs: Codecs { compressor: None, is_checked },
            } = chain(&index)?
            else {
                return Err("the index of its shards is compressed, or big-endian".into());
            };
            let is_at_end = match first.get("index_location").map(Value::as_str) {
                None | Some(Some("end")) => true,
                Some(Some("start")) => false,
                _ => return Err("the index of its shards is neither at the end nor at the start".into()),
            };
            Ok(Chain::Shards {
                chunk: first.parsed("chunk_shape")?,
                inner: (order, codecs),
                is_at_end,
                is_checked,
            })
        }
        other => Err(format!("its codec {other} is not supported")),
    }
}

/// The codecs behind the one that turns numbers into bytes: a compressor, a checksum, both in this order, or neither.
fn compression(codecs: &[Named]) -> Result<Codecs, String> {
    let (last, is_checked) = match codecs.split_last() {
        Some((last, before)) if last.name() == "crc32c" => (before, true),
        _ => (codecs, false),
    };
    match last {
        [] => Ok(Codecs { compressor: None, is_checked }),
        [one] => {
            let name = one.name();
            let known = Compressor::named(name.strip_prefix("numcodecs.").unwrap_or(name));
            let refused =
                || format!("its codec {name} is not supported: blosc, gzip, lz4, zlib and zstd are");
            Ok(Codecs { compressor: Some(known.ok_or_else(refused)?), is_checked })
        }
        several => {
            let names: Vec<&str> = several.iter().take(8).map(Named::name).collect();
            Err(format!("it has the codecs {}, but only one with a checksum is supported", names.join(", ")))
        }
    }
}

fn kind(said: &Value) -> Result<ElementType, String> {
    Ok(match said.as_str() {
        Some("bool" | "uint8") => ElementType::U8,
        Some("int8") => ElementType::I8,
        Some("uint16") => ElementType::U16,
        Some("int16") => ElementType::I16,
        Some("uint32") => ElementType::U32,
        Some("int32") => ElementType::I32,
        Some("uint64") => ElementType::U64,
        Some("int64") => ElementType::I64,
        Some("float32") => ElementType::F32,
        Some("float64") => ElementType::F64,
        _ => {
            return Err(format!("its data_type is {said}: whole numbers, float32 and float64 are supported"));
        }
    })
}
