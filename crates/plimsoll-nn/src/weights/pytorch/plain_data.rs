//! Data of a checkpoint beside its tensors, as JSON.

use serde_json::{Map, Number};

use crate::weights::pickle::{Id, Value, Values};

/// The most values of an entry, and the most bytes of its texts: a plan of nnssl has some hundred values.
const MOST_VALUES: usize = 4096;
const MOST_TEXT: usize = 64 << 10;
/// The most dicts and lists within each other.
const MOST_DEPTH: usize = 32;

/// The memory that the JSON of an entry takes at most.
pub const JSON_BYTES: u64 = 2 << 20;

/// The values and bytes of texts that may still follow.
struct Left {
    values: usize,
    text: usize,
}

/// Returns a value and its parts as JSON.
///
/// # Errors
/// Returns the obstacle: a part that JSON does not have, or more parts than anything that describes a network has.
pub(super) fn json(values: &Values, id: Id) -> Result<serde_json::Value, &'static str> {
    convert(values, id, &mut Left { values: MOST_VALUES, text: MOST_TEXT }, MOST_DEPTH)
}

fn convert(
    values: &Values,
    id: Id,
    left: &mut Left,
    depth: usize,
) -> Result<serde_json::Value, &'static str> {
    const TOO_LARGE: &str = "it is too large for a description";
    let depth = depth.checked_sub(1).ok_or(TOO_LARGE)?;
    left.values = left.values.checked_sub(1).ok_or(TOO_LARGE)?;
    let text = |text: &str, left: &mut Left| {
        left.text = left.text.checked_sub(text.len()).ok_or(TOO_LARGE)?;
        Ok::<String, &str>(text.into())
    };
    Ok(match values.get(id) {
        Value::None => serde_json::Value::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Int(number) => (*number).into(),
        Value::Float(number) => Number::from_f64(*number).ok_or("a number in it is not finite")?.into(),
        Value::Text(own) => text(own, left)?.into(),
        Value::List(items) | Value::Tuple(items) => {
            let items = items.iter().map(|item| convert(values, *item, left, depth));
            serde_json::Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Dict(pairs) => {
            let mut object = Map::new();
            for (key, value) in pairs {
                let key = text(values.text(*key).ok_or("a name in it is no text")?, left)?;
                object.insert(key, convert(values, *value, left, depth)?);
            }
            serde_json::Value::Object(object)
        }
        Value::Global(_) | Value::Storage(_) | Value::Tensor(_) | Value::Object(_) | Value::Opaque => {
            return Err("a part of it is neither a text, a number, a truth nor a list of such");
        }
    })
}
