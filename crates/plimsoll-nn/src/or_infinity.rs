//! A number that may be infinite in files of JSON, which has no infinity of its own: it is written as `"inf"` there. Use with
//! `#[serde(with = "or_infinity")]` on an `Option<f32>`.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};

const INFINITY: &str = "inf";

/// Writes a number.
///
/// # Errors
/// Returns an error if the serializer fails.
pub fn serialize<S: Serializer>(value: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_none(),
        Some(f32::INFINITY) => serializer.serialize_str(INFINITY),
        Some(value) => serializer.serialize_f32(*value),
    }
}

/// Reads a number.
///
/// # Errors
/// Returns an error unless the value is a number, `"inf"` or nothing.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f32>, D::Error> {
    deserializer.deserialize_any(OrInfinity)
}

struct OrInfinity;

impl Visitor<'_> for OrInfinity {
    type Value = Option<f32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or inf")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<f32>, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<f32>, E> {
        Ok(Some(value as f32))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Option<f32>, E> {
        Ok(Some(value as f32))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<f32>, E> {
        Ok(Some(value as f32))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Option<f32>, E> {
        if value == INFINITY {
            return Ok(Some(f32::INFINITY));
        }
        Err(E::invalid_value(Unexpected::Str(value), &self))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        #[serde(with = "super")]
        value: Option<f32>,
    }

    #[test]
    fn infinity_survives_json() {
        for (value, json) in [
            (Some(f32::INFINITY), r#"{"value":"inf"}"#),
            (Some(12.0), r#"{"value":12.0}"#),
            (None, r#"{"value":null}"#),
        ] {
            assert_eq!(serde_json::to_string(&Holder { value }).unwrap(), json);
            assert_eq!(serde_json::from_str::<Holder>(json).unwrap(), Holder { value });
        }
        assert_eq!(serde_json::from_str::<Holder>(r#"{"value":3}"#).unwrap(), Holder { value: Some(3.0) });
        let error = serde_json::from_str::<Holder>(r#"{"value":"much"}"#).unwrap_err().to_string();
        assert!(error.contains("a number or inf"), "{error}");
    }
}
