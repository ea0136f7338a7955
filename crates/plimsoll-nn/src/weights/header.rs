//! The header of a safetensors file: what it may claim, and its checksum.
//!
//! Two keys of our own stand in the metadata of files that we write. `plimsoll.checksums` is JSON from the name of each tensor to
//! the XXH3-64 of its bytes, and `plimsoll.header` is the checksum of the header itself, from the eight bytes of its length on, with
//! sixteen zeros in the place of the sum. Together they cover every byte of the file.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use plimsoll_memory::{Digest, Digester};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::prefix::by_bare_name;

/// The metadata's key for the checksums of tensors.
pub(super) const CHECKSUMS: &str = "plimsoll.checksums";
/// The metadata's key for the checksum of the header.
pub(super) const HEADER: &str = "plimsoll.header";
/// The header's key for what is no tensor.
pub(super) const METADATA: &str = "__metadata__";
/// The place of a checksum before it is known.
pub(super) const ZEROS: &str = "0000000000000000";

/// More axes than any tensor of a network has. A list that is as long as the file would take eight times its room.
const MOST_AXES: usize = 16;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Its bytes, counted from the end of the header.
    pub(super) bytes: Range<u64>,
    pub(super) checksum: Option<String>,
}

/// The content of a header.
#[derive(Debug)]
pub(super) struct Header {
    /// By their names without what wrappers put before them.
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) has_checksums: bool,
}

/// The faults of a header.
#[derive(Debug, PartialEq)]
pub(super) enum HeaderFault {
    /// It is no header of a file with this number of bytes of data.
    Format(String),
    /// It is not what was written.
    Damaged,
}

impl Header {
    /// Reads the header of a file that has `data` bytes behind it. What it takes is at most eight times the text.
    pub(super) fn parse(text: &[u8], data: u64) -> Result<Header, HeaderFault> {
        let format = |why: String| HeaderFault::Format(why);
        let raw: RawHeader =
            serde_json::from_slice(text).map_err(|error| format(format!("bad header: {error}")))?;
        let checksums = raw.checksums(text)?;
        check_layout(&raw.tensors, data).map_err(format)?;
        let has_checksums = checksums.is_some();
        let mut checksums = checksums.unwrap_or_default();
        if has_checksums && raw.tensors.keys().any(|name| !checksums.contains_key(name)) {
            return Err(HeaderFault::Damaged);
        }
        let entries = raw.tensors.into_iter().map(|(name, RawEntry { dtype, shape, data_offsets })| {
            let [start, end] = data_offsets;
            let checksum = checksums.remove(&name);
            (name, Entry { dtype, shape: shape.0, bytes: start..end, checksum })
        });
        let twice = |name| format(format!("`{name}` appears more than once, with and without a prefix"));
        Ok(Header { entries: by_bare_name(entries).map_err(twice)?, metadata: raw.metadata, has_checksums })
    }
}

/// The checksum of a header in its written form.
///
/// # Errors
/// Returns an error if the header has no place for a checksum.
pub(super) fn header_checksum(text: &[u8]) -> Result<(Range<usize>, Digest), HeaderFault> {
    // No string of JSON has a bare quote in it, so this can only be the key itself.
    let key = format!("\"{HEADER}\":\"");
    let at = text.windows(key.len()).position(|window| window == key.as_bytes());
    let start = at.ok_or(HeaderFault::Damaged)? + key.len();
    let place = start..start + ZEROS.len();
    let (Some(before), Some(after)) = (text.get(..place.start), text.get(place.end..)) else {
        return Err(HeaderFault::Damaged);
    };
    let mut sum = Digester::default();
    sum.update(&(text.len() as u64).to_le_bytes());
    sum.update(before);
    sum.update(ZEROS.as_bytes());
    sum.update(after);
    Ok((place, sum.finish()))
}

/// Bytes of an element of each type that the format knows; none for types that share bytes between elements.
fn stored_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(1),
        "U16" | "I16" | "F16" | "BF16" => Some(2),
        "U32" | "I32" | "F32" => Some(4),
        "U64" | "I64" | "F64" | "C64" => Some(8),
        _ => None,
    }
}

/// Checks that tensors have the bytes that their shapes ask for, and lie one behind the other from the first byte of the data
/// to the last.
fn check_layout(tensors: &BTreeMap<String, RawEntry>, data: u64) -> Result<(), String> {
    let mut places: Vec<([u64; 2], &str)> = Vec::with_capacity(tensors.len());
    for (name, entry) in tensors {
        let [start, end] = entry.data_offsets;
        if start > end || end > data {
            return Err(format!("`{name}` claims bytes {start} to {end} of {data}"));
        }
        let count = entry.shape.0.iter().try_fold(1u64, |count, extent| count.checked_mul(*extent as u64));
        let Some(count) = count else {
            return Err(format!("`{name}` claims the shape {:?}, which no file can hold", entry.shape.0));
        };
        let bytes = stored_bytes(&entry.dtype).map(|size| count.checked_mul(size));
        if bytes.is_some_and(|bytes| bytes != Some(end - start)) {
            let (shape, dtype) = (&entry.shape.0, &entry.dtype);
            return Err(format!("`{name}` is {shape:?} of {dtype}, which is not {} bytes", end - start));
        }
        places.push(([start, end], name));
    }
    places.sort_unstable();
    let mut last = 0;
    for ([start, end], name) in places {
        if start != last {
            return Err(format!(
                "`{name}` begins at byte {start} of the data, but the tensor before it ends at {last}"
            ));
        }
        last = end;
    }
    if last != data {
        return Err(format!("its tensors end at byte {last} of the data, which has {data}"));
    }
    Ok(())
}

struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, RawEntry>,
}

impl RawHeader {
    /// The checksums of tensors, if there are any; the checksum of the header is then verified.
    fn checksums(&self, text: &[u8]) -> Result<Option<BTreeMap<String, String>>, HeaderFault> {
        // Either key without the other is a key that was damaged.
        let (checksums, header) = match (self.metadata.get(CHECKSUMS), self.metadata.get(HEADER)) {
            (None, None) => return Ok(None),
            (Some(checksums), Some(header)) => (checksums, header),
            _ => return Err(HeaderFault::Damaged),
        };
        // As text: no other way to write the same number is that which was written.
        if header_checksum(text)?.1.to_string() != *header {
            return Err(HeaderFault::Damaged);
        }
        let checksums: Distinct<String> =
            serde_json::from_str(checksums).map_err(|_| HeaderFault::Damaged)?;
        Ok(Some(checksums.0))
    }
}

/// A tensor as the header tells of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    dtype: String,
    shape: Extents,
    data_offsets: [u64; 2],
}

/// A map in which no key is there twice: JSON leaves open which of two would count.
struct Distinct<V>(BTreeMap<String, V>);

/// Extents of not too many axes.
struct Extents(Vec<usize>);

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawHeader, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let (mut metadata, mut tensors) = (None, BTreeMap::new());
                while let Some(key) = map.next_key::<String>()? {
                    let is_new = if key == METADATA {
                        metadata.replace(map.next_value::<Distinct<String>>()?.0).is_none()
                    } else {
                        let value = map.next_value()?;
                        !tensors.contains_key(&key) && tensors.insert(key.clone(), value).is_none()
                    };
                    if !is_new {
                        return Err(A::Error::custom(format!("`{key}` appears more than once")));
                    }
                }
                Ok(RawHeader { metadata: metadata.unwrap_or_else(BTreeMap::new), tensors })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Distinct<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Distinct<V>, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Distinct<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Distinct<V>, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    if entries.contains_key(&key) {
                        return Err(A::Error::custom(format!("`{key}` appears more than once")));
                    }
                    entries.insert(key, value);
                }
                Ok(Distinct(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Extents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Extents, D::Error> {
        struct Axes;
        impl<'de> Visitor<'de> for Axes {
            type Value = Extents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the extents of at most {MOST_AXES} axes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut axes: A) -> Result<Extents, A::Error> {
                let mut extents = Vec::new();
                while let Some(extent) = axes.next_element()? {
                    if extents.len() == MOST_AXES {
                        return Err(A::Error::invalid_length(MOST_AXES + 1, &self));
                    }
                    extents.push(extent);
                }
                Ok(Extents(extents))
            }
        }
        deserializer.deserialize_seq(Axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_file_can_hold_is_refused_by_name() {
        let refused = |text: &str, data: u64| match Header::parse(text.as_bytes(), data) {
            Err(HeaderFault::Format(why)) => why,
            other => panic!("{text}: {other:?}"),
        };
        let entry = |name: &str, dtype: &str, shape: &str, start: i64, end: i64| {
            format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
        };
        let one = |dtype, shape, start, end| format!("{{{}}}", entry("a", dtype, shape, start, end));
        let two = |first: [i64; 2], second: [i64; 2]| {
            let (a, b) =
                (entry("a", "U8", "[4]", first[0], first[1]), entry("b", "U8", "[4]", second[0], second[1]));
            format!("{{{a},{b}}}")
        };
        let most = u64::MAX;
        for (text, says) in [
            (one("F32", &format!("[{most},2]"), 0, 8), "`a` claims the shape"),
            (one("F32", &format!("[{}]", most / 2), 0, 8), "which is not 8 bytes"),
            (one("F32", "[3]", 0, 8), "which is not 8 bytes"),
            (one("F32", "[-2]", 0, 8), "bad header"),
            (one("F32", "[NaN]", 0, 8), "bad header"),
            (one("F32", "[2.0]", 0, 8), "bad header"),
            (one("F32", "[2]", 0, 9), "`a` claims bytes 0 to 9 of 8"),
            (one("F32", "[2]", -8, 0), "bad header"),
            (one("F32", "[2,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 8), "at most 16 axes"),
            (two([0, 4], [0, 4]), "`b` begins at byte 0"),
            (two([0, 4], [2, 6]), "`b` begins at byte 2"),
            (two([0, 4], [3, 7]), "begins at byte 3"),
            (format!("{{{0},{0}}}", entry("a", "F32", "[2]", 0, 8)), "`a` appears more than once"),
            (one("F32", "[1]", 0, 4), "end at byte 4 of the data, which has 8"),
            (r#"{"__metadata__":{"k":"1","k":"2"}}"#.into(), "`k` appears more than once"),
            (r#"{"a":{"k":"1"}}"#.into(), "bad header"),
            ("[".repeat(100_000), "bad header"),
        ] {
            let why = refused(&text, 8);
            assert!(why.contains(says), "{text:.200}: {why}");
        }
        let both = format!("{{{},{}}}", entry("a", "U8", "[4]", 0, 4), entry("module.a", "U8", "[4]", 4, 8));
        assert!(refused(&both, 8).contains("`a` appears more than once, with and without a prefix"));
    }
}
