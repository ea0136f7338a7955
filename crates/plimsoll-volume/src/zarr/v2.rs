//! The metadata of arrays of Zarr's version 2: `.zarray`.

use serde::Deserialize;
use serde_json::Value;

use super::array::{Element, Said};
use super::codecs::{Codecs, Compressor};
use super::keys::{Keys, Separator};
use crate::ByteOrder;
use crate::npy::element_type;

#[derive(Deserialize)]
struct Metadata {
    zarr_format: u64,
    shape: Vec<u64>,
    chunks: Vec<u64>,
    dtype: Value,
    compressor: Option<Value>,
    fill_value: Value,
    order: String,
    filters: Option<Vec<Value>>,
    dimension_separator: Option<String>,
}

/// # Errors
/// In words, with the entry that cannot be used.
pub(super) fn said(json: &Value) -> Result<Said, String> {
    let said = Metadata::deserialize(json).map_err(|problem| problem.to_string())?;
    if said.zarr_format != 2 {
        return Err(format!("its zarr_format is {}", said.zarr_format));
    }
    if said.order != "C" {
        return Err(format!("its order is {:?}, but only C is supported", said.order));
    }
    if let Some(filter) = said.filters.iter().flatten().next() {
        return Err(format!("it has the filter {filter}, but filters are not supported"));
    }
    let compressor = match &said.compressor {
        None => None,
        Some(compressor) => {
            let id = compressor.get("id").and_then(Value::as_str).unwrap_or_default();
            let known = Compressor::named(id);
            Some(known.ok_or_else(|| {
                format!(
                    "its compressor is {compressor}, but only blosc, gzip, lz4, zlib and zstd are supported"
                )
            })?)
        }
    };
    Ok(Said {
        shape: said.shape,
        element: element(&said.dtype)?,
        fill: said.fill_value,
        file: said.chunks.clone(),
        chunk: said.chunks,
        codecs: Codecs { compressor, is_checked: false },
        shard: None,
        keys: Keys {
            has_prefix: false,
            separator: Separator::parse(said.dimension_separator.as_deref().unwrap_or("."))?,
        },
    })
}

fn element(said: &Value) -> Result<Element, String> {
    let refused = || format!("its dtype is {said}: whole numbers of 8 to 64 bits, f4 and f8 are supported");
    let text = said.as_str().ok_or_else(refused)?;
    let mut letters = text.chars();
    let first = letters.next();
    let order = match first {
        Some('<') => ByteOrder::Little,
        Some('>') => ByteOrder::Big,
        Some('|') => ByteOrder::NATIVE,
        _ => return Err(refused()),
    };
    let kind = element_type(letters.as_str()).ok_or_else(refused)?;
    // Only numbers of one byte have no order.
    if first == Some('|') && kind.size() > 1 {
        return Err(refused());
    }
    Ok(Element { kind, order })
}
