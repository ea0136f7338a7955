//! Settings in which two configurations of a run differ.
//!
//! A run that resumes is compared with the run that began. Each setting that differs either may change, and is then recorded with
//! the step after which it holds, or it may not, and is reported with both values.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{RunConfig, RunError, Settings, as_written};

/// The most characters of a value that a line shows.
const LONGEST_VALUE: usize = 60;
/// The most settings that a line lists.
const MOST_LISTED: usize = 8;
/// Options of a component of the loss that may change when a run resumes: its factor, and the steps that compute it.
const OF_COMPONENT: [&str; 7] = ["weight", "every", "phase", "from_epoch", "mode", "rescale", "otherwise"];

/// A setting with its values before and now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingChange {
    /// Its name in `plimsoll.toml`; an option of a component of the loss as `loss.COMPONENT.OPTION`.
    pub setting: String,
    /// The value before.
    pub before: Value,
    /// The value now.
    pub now: Value,
}

/// The part of a run that a setting shapes, where it may change when the run resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The end of the run.
    End,
    /// Learning rates, and the number of epochs that they extend over.
    Schedule,
    /// The weights of components of the loss, and the steps that compute them.
    Loss,
}

/// A place where two configurations differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The keys that lead to it in the configuration, joined by dots.
    place: String,
    /// The change in the user's words.
    pub(crate) change: SettingChange,
    /// None where it may not change.
    pub(crate) effect: Option<Effect>,
}

impl Difference {
    fn new(place: &[String], setting: &[String], before: &Value, now: &Value) -> Difference {
        let setting = setting_name(setting);
        let effect = effect_of(place);
        let change = SettingChange { setting, before: before.clone(), now: now.clone() };
        Difference { place: place.join("."), change, effect }
    }

    /// Returns `true` if it follows from the data set, and is set by nobody.
    pub(crate) fn is_of_data(&self) -> bool {
        let of_task = self.place.strip_prefix("task.").and_then(|rest| rest.split_once('.'));
        of_task.is_some_and(|(_, part)| part.starts_with("dataset."))
    }

    /// Returns `true` if it is a number of channels or of outputs, which the data set decides.
    pub(crate) fn is_extent_of_data(&self) -> bool {
        ["training.net.in_channels", "training.net.classes"].contains(&self.place.as_str())
    }

    /// Returns `true` if it follows from the number of epochs.
    fn is_derived(&self) -> bool {
        self.place == "schedule.total_steps"
    }
}

impl SettingChange {
    /// A change of something that has no place in the configuration.
    pub(crate) fn from_texts(setting: &str, before: String, now: String) -> SettingChange {
        SettingChange { setting: setting.into(), before: Value::String(before), now: Value::String(now) }
    }

    /// Returns `true` if only the end of a run depends on the setting, and no bit before it.
    pub(crate) fn is_of_end(&self) -> bool {
        ["bad_numbers", "early_stopping"].iter().any(|name| is_within(&self.setting, name))
    }

    /// Returns `true` if the setting is this one or a part of it.
    pub(crate) fn is_of(&self, setting: &str) -> bool {
        is_within(&self.setting, setting)
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {}, now {}", self.setting, short(&self.before), short(&self.now))
    }
}

/// Changes as one line, the first few in full.
pub(crate) fn one_line(changes: &[SettingChange]) -> String {
    let mut listed: Vec<String> = changes.iter().take(MOST_LISTED).map(ToString::to_string).collect();
    if let Some(more) = changes.len().checked_sub(MOST_LISTED).filter(|more| *more > 0) {
        listed.push(format!("and {more} more"));
    }
    listed.join("; ")
}

/// The places where two configurations differ.
///
/// # Errors
/// Returns an error if one of them cannot be written as JSON.
pub(crate) fn differences(before: &RunConfig, now: &RunConfig) -> Result<Vec<Difference>, RunError> {
    let (before, now) = (Value::Object(as_object(before)?), Value::Object(as_object(now)?));
    let mut found = Vec::new();
    compare(&before, &now, &mut Location::default(), &mut found);
    found.retain(|difference| !difference.is_derived());
    Ok(found)
}

/// The requested ones of these changes; all changes if none was requested. The others follow from them.
///
/// # Errors
/// Returns an error if settings cannot be written as JSON.
pub(crate) fn requested_changes(
    changes: Vec<SettingChange>,
    before: &Settings,
    now: &Settings,
) -> Result<Vec<SettingChange>, RunError> {
    let set = setting_changes(before, now)?;
    let set: BTreeSet<String> = set.into_iter().map(|change| change.setting).collect();
    let is_set = |change: &&SettingChange| {
        set.iter().any(|set| is_within(&change.setting, set) || is_within(set, &change.setting))
    };
    let asked: Vec<SettingChange> = changes.iter().filter(is_set).cloned().collect();
    Ok(if asked.is_empty() { changes } else { asked })
}

/// The settings that differ in two files of settings.
///
/// # Errors
/// Returns an error if settings cannot be written as JSON.
pub fn setting_changes(before: &Settings, now: &Settings) -> Result<Vec<SettingChange>, RunError> {
    let written = |settings: &Settings| {
        as_written(settings)
            .map_err(|problem| RunError::Unwritable { what: "the settings".into(), why: problem.to_string() })
    };
    let mut found = Vec::new();
    compare(&written(before)?, &written(now)?, &mut Location::default(), &mut found);
    Ok(found.into_iter().map(|difference| difference.change).collect())
}

/// A configuration as a JSON object.
///
/// # Errors
/// Returns an error if it cannot be written as one.
pub(crate) fn as_object(config: &RunConfig) -> Result<Map<String, Value>, RunError> {
    let unwritable = |why: String| RunError::Unwritable { what: "the configuration".into(), why };
    match as_written(config) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(unwritable("it is not an object".into())),
        Err(problem) => Err(unwritable(problem.to_string())),
    }
}

/// The location of a value in a configuration.
#[derive(Default)]
struct Location {
    /// The keys and indices that lead to it.
    place: Vec<String>,
    /// The same location in the names that users know.
    setting: Vec<String>,
}

impl Location {
    fn push(&mut self, key: &str, name: String) {
        self.place.push(key.into());
        self.setting.push(name);
    }

    fn pop(&mut self) {
        self.place.pop();
        self.setting.pop();
    }
}

/// Adds all differences between two values at a location.
fn compare(before: &Value, now: &Value, at: &mut Location, found: &mut Vec<Difference>) {
    if before == now {
        return;
    }
    match (before, now) {
        (Value::Object(one), Value::Object(other)) if one.get("name") == other.get("name") => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let value = |of: &Map<String, Value>| of.get(key).cloned().unwrap_or(Value::Null);
                at.push(key, key.clone());
                compare(&value(one), &value(other), at, found);
                at.pop();
            }
        }
        (Value::Array(one), Value::Array(other))
            if let Some(names) = names(one).filter(|own| Some(own) == names(other).as_ref()) =>
        {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                let is_alone = names.iter().filter(|name| names.get(index) == Some(name)).count() == 1;
                let name = names.get(index).filter(|_| is_alone).map(|name| (*name).to_string());
                at.push(&index.to_string(), name.unwrap_or_else(|| format!("components[{index}]")));
                compare(one, other, at, found);
                at.pop();
            }
        }
        _ => found.push(Difference::new(&at.place, &at.setting, before, now)),
    }
}

/// The names of the objects of a list; `None` if it is empty or an element has no name.
fn names(list: &[Value]) -> Option<Vec<&str>> {
    let names: Option<Vec<&str>> = list.iter().map(|value| value.get("name")?.as_str()).collect();
    names.filter(|names| !names.is_empty())
}

/// The effect of the value at a place, if it may change.
fn effect_of(place: &[String]) -> Option<Effect> {
    let keys: Vec<&str> = place.iter().map(String::as_str).collect();
    match keys.as_slice() {
        ["epochs"] | ["schedule", ..] => Some(Effect::Schedule),
        ["bad_numbers" | "early_stopping", ..] => Some(Effect::End),
        ["training", "loss", "components", _, option] if OF_COMPONENT.contains(option) => Some(Effect::Loss),
        _ => None,
    }
}

/// The name that `plimsoll.toml` has for a place of the configuration.
fn setting_name(place: &[String]) -> String {
    let mut keys: Vec<&str> = place.iter().map(String::as_str).collect();
    keys = match keys.as_slice() {
        ["training", "net", "name"] => vec!["network", "net"],
        ["training", "net", rest @ ..] => [&["network"], rest].concat(),
        ["training", "patch"] => vec!["patch_size"],
        ["training", "batch"] => vec!["batch_size"],
        ["schedule", "interval"] => vec!["learning_rate_interval"],
        ["training", rest @ ..] | ["schedule", rest @ ..] => rest.to_vec(),
        ["task", "segmentation", rest @ ..] => rest.to_vec(),
        ["task", "classification", rest @ ..] => [&["images"], rest].concat(),
        ["products", ..] => vec!["precision"],
        _ => keys,
    };
    if let ["loss", "components", rest @ ..] = keys.as_slice()
        && !rest.is_empty()
    {
        keys = [&["loss"], rest].concat();
    }
    keys.join(".")
}

/// Returns `true` if a setting is `whole` or a part of it.
fn is_within(setting: &str, whole: &str) -> bool {
    setting.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A value in few words: objects by their names, nothing longer than a part of a line.
fn short(value: &Value) -> String {
    let text = match value {
        Value::Null => "none".into(),
        Value::String(text) => return text.clone(),
        Value::Array(list) => match names(list) {
            Some(names) => format!("[{}]", names.join(", ")),
            None => format!("[{}]", list.iter().map(short).collect::<Vec<_>>().join(", ")),
        },
        Value::Object(object) => {
            let options = object.iter().filter(|(key, _)| *key != "name");
            let options: Vec<String> =
                options.map(|(key, value)| format!("{key} {}", short(value))).collect();
            match (object.get("name").and_then(Value::as_str), options.is_empty()) {
                (Some(name), true) => name.into(),
                (Some(name), false) => format!("{name} ({})", options.join(", ")),
                (None, _) => options.join(", "),
            }
        }
        other => other.to_string(),
    };
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(&text)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(before: Value, now: Value) -> Vec<(String, Option<Effect>)> {
        let mut found = Vec::new();
        compare(&before, &now, &mut Location::default(), &mut found);
        found.into_iter().map(|one| (one.change.to_string(), one.effect)).collect()
    }

    #[test]
    fn settings_have_the_names_of_the_file_of_settings_and_lists_of_components_are_compared_one_by_one() {
        let before = json!({"training": {"net": {"features": [4, 8], "name": "plain"}, "patch": [8, 8, 8],
            "loss": {"components": [{"name": "soft_dice", "weight": 1.0}, {"name": "cldice", "every": 1, "scale": 1}]}},
            "schedule": {"learning_rate": 0.01, "decay": {"name": "poly", "power": 0.9}}});
        let now = json!({"training": {"net": {"features": [16, 64], "name": "plain"}, "patch": [8, 8, 8],
            "loss": {"components": [{"name": "soft_dice", "weight": 0.5}, {"name": "cldice", "every": 4, "scale": 2}]}},
            "schedule": {"learning_rate": 0.02, "decay": {"name": "cosine"}}});
        let expected = [
            ("decay was poly (power 0.9), now cosine", Some(Effect::Schedule)),
            ("learning_rate was 0.01, now 0.02", Some(Effect::Schedule)),
            ("loss.soft_dice.weight was 1.0, now 0.5", Some(Effect::Loss)),
            ("loss.cldice.every was 1, now 4", Some(Effect::Loss)),
            ("loss.cldice.scale was 1, now 2", None),
            ("network.features was [4, 8], now [16, 64]", None),
        ];
        let expected: Vec<(String, Option<Effect>)> =
            expected.into_iter().map(|(text, effect)| (text.to_string(), effect)).collect();
        assert_eq!(found(before, now), expected);
    }

    #[test]
    fn other_components_are_named_and_a_line_stays_short_whatever_the_values_are() {
        let list = |names: &[&str]| {
            let of = |name: &&str| json!({"name": name, "weight": 1.0, "class_weights": vec![0.5; 100]});
            json!({"training": {"loss": {"components": names.iter().map(of).collect::<Vec<_>>()}}})
        };
        let found = found(list(&["soft_dice", "cldice"]), list(&["soft_dice"]));
        assert_eq!(
            found,
            [("loss.components was [soft_dice, cldice], now [soft_dice]".into(), None::<Effect>)]
        );
        let many =
            vec![SettingChange { setting: "x".into(), before: json!(vec![1; 999]), now: Value::Null }; 99];
        let line = one_line(&many);
        assert!(line.len() < 800 && line.ends_with("; and 91 more"), "{line}");
    }
}
