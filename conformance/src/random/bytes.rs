//! Damage without any knowledge of what is damaged: to plans and programs as they would lie in a file.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Random;

/// Changes a few values in something as JSON, anywhere in it; none where what comes out cannot be read any more.
pub fn damaged<T: DeserializeOwned>(file: &Value, random: &mut Random) -> Option<T> {
    let mut value = file.clone();
    for _ in 0..=random.below(3) {
        change(&mut value, random);
    }
    serde_json::from_value(value).ok()
}

/// Words that occur in plans and programs.
const WORDS: &[&str] = &[
    "",
    "image",
    "labels",
    "loss",
    "f32",
    "u8",
    "f64",
    "bf16",
    "f16",
    "input",
    "parameter",
    "state",
    "intermediate",
    "output",
    "Volume",
    "Labels",
    "Weights",
    "Channels",
    "Statistics",
    "Table",
];

/// Descends at random, and changes the value it reaches.
fn change(value: &mut Value, random: &mut Random) {
    // Long lists of equal parts should not hide what is short.
    let stop = random.below(12) == 0;
    match value {
        Value::Array(items) if stop || items.is_empty() => change_list(items, random),
        Value::Array(items) => {
            let at = random.below(items.len());
            change(&mut items[at], random);
        }
        Value::Object(fields) if !fields.is_empty() => {
            let at = random.below(fields.len());
            if let Some(field) = fields.values_mut().nth(at) {
                change(field, random);
            }
        }
        Value::Number(number) => {
            let old = number.as_u64().unwrap_or(1);
            let new = [0, 1, 2, 64, 127, u64::MAX, u64::MAX - 63, 1 << 63, u64::from(u32::MAX)];
            *value = match random.below(12) {
                0 => json!(old.wrapping_add(1)),
                1 => json!(old.wrapping_sub(1)),
                2 => json!(old.wrapping_add(64)),
                3 => json!(old.wrapping_sub(64)),
                4 => json!(old.wrapping_mul(2)),
                5 => json!(random.below(64)),
                6 => json!(0.5),
                7 => Value::Null,
                _ => json!(new[random.below(new.len())]),
            };
        }
        Value::Bool(flag) => *flag = !*flag,
        Value::String(text) => {
            *text = WORDS[random.below(WORDS.len())].into();
        }
        Value::Null => *value = json!({ "offset": random.below(1 << 12) * 64, "bytes": 64 }),
        Value::Object(_) => {}
    }
}

fn change_list(items: &mut Vec<Value>, random: &mut Random) {
    if items.is_empty() {
        return items.push(json!(random.below(8)));
    }
    let (a, b) = (random.below(items.len()), random.below(items.len()));
    match random.below(4) {
        0 => drop(items.remove(a)),
        1 => items.insert(a, items[b].clone()),
        2 => items.swap(a, b),
        _ => items[a] = items[b].clone(),
    }
}
