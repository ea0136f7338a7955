//! The product of some values of some settings, and settings by their dotted keys.

use toml::{Table, Value};

/// The most arms.
pub(super) const MOST_ARMS: usize = 1000;

/// One choice of all settings that are varied: its name, and what it sets by dotted keys.
pub(super) type Choice = (String, Vec<(String, Value)>);

/// Tables of settings whose keys are set one by one; others are set as a whole. As where flags are laid over `plimsoll.toml`.
const SET_BY_KEY: [&str; 3] = ["network", "data", "images"];

/// A setting that is varied.
struct Axis {
    key: String,
    /// The values, each with its part of an arm's name.
    values: Vec<(String, Value)>,
}

/// Each value of each key with each of all others. The last key changes fastest.
pub(super) fn product(grid: &Table) -> Result<Vec<Choice>, String> {
    let mut axes = Vec::new();
    find_axes(grid, "", &mut axes)?;
    let count = axes.iter().try_fold(1_usize, |count, axis| count.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > MOST_ARMS) {
        return Err(format!("the product of all values has more than {MOST_ARMS} arms"));
    }
    let mut choices: Vec<Choice> = vec![(String::new(), Vec::new())];
    for Axis { key, values } in &axes {
        let with = |(name, set): &Choice, (label, value): &(String, Value)| {
            let name = if name.is_empty() { label.clone() } else { format!("{name}_{label}") };
            (name, [&set[..], &[(key.clone(), value.clone())]].concat())
        };
        let longer = choices.iter().flat_map(|choice| values.iter().map(move |value| with(choice, value)));
        choices = longer.collect();
    }
    Ok(choices)
}

/// `network.features = […]` without quotes is a table in a table.
fn find_axes(table: &Table, prefix: &str, axes: &mut Vec<Axis>) -> Result<(), String> {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match value {
            Value::Table(inner) => find_axes(inner, &format!("{key}."), axes)?,
            Value::Array(values) if values.is_empty() => return Err(format!("`{key}` has no values")),
            Value::Array(values) => {
                let values = values.iter().map(|value| named(&key, value)).collect::<Result<_, _>>()?;
                axes.push(Axis { key, values });
            }
            _ => return Err(format!("`{key}` must be a list of values")),
        }
    }
    Ok(())
}

/// A value with what it is called: `{ name = …, value = … }` says it; numbers and words are called after their key and
/// themselves, and tables with a name after that.
fn named(key: &str, value: &Value) -> Result<(String, Value), String> {
    let last = key.rsplit('.').next().unwrap_or(key);
    if let Value::Table(table) = value {
        return match (table.get("name"), table.get("value"), table.len()) {
            (Some(Value::String(name)), Some(value), 2) => Ok((name.clone(), value.clone())),
            (Some(Value::String(name)), None, _) => Ok((name.clone(), value.clone())),
            _ => Err(format!(
                "a value of `{key}` is a table without a name: write {{ name = \"…\", value = … }}"
            )),
        };
    }
    match in_a_word(value) {
        Some(word) => Ok((format!("{last}-{word}"), value.clone())),
        None => Err(format!("a value of `{key}` has no short name: write {{ name = \"…\", value = … }}")),
    }
}

/// Numbers, words, and lists of such.
fn in_a_word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        Value::Array(values) => {
            let words: Option<Vec<String>> = values.iter().map(in_a_word).collect();
            words.map(|words| words.join("-"))
        }
        Value::Table(_) | Value::Datetime(_) => None,
    }
}

/// The settings of a table, by dotted keys.
pub(super) fn by_key(settings: &Table) -> Vec<(String, Value)> {
    let mut set = Vec::new();
    for (key, value) in settings {
        match value {
            Value::Table(inner) if SET_BY_KEY.contains(&key.as_str()) => {
                set.extend(inner.iter().map(|(name, value)| (format!("{key}.{name}"), value.clone())));
            }
            _ => set.push((key.clone(), value.clone())),
        }
    }
    set
}

/// Sets what a dotted key leads to; tables on the way are made where they are not there.
pub(super) fn set(settings: &mut Table, key: &str, value: &Value) -> Result<(), String> {
    let mut table = settings;
    let mut names: Vec<&str> = key.split('.').collect();
    let Some(last) = names.pop() else { return Ok(()) };
    for name in names {
        let inner = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
        table = match inner {
            Value::Table(inner) => inner,
            _ => return Err(format!("`{key}`: `{name}` is not a table")),
        };
    }
    table.insert(last.into(), value.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>, String> {
        let choices = product(&toml::from_str(text).unwrap())?;
        Ok(choices.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn a_grid_has_each_value_with_each_other_and_says_so_in_names() {
        let text = "
            learning_rate = [0.01, 1e-3]
            network.features = [[8, 16], { name = 'wide', value = [16, 32] }]
            optimizer = [{ name = 'sgd', momentum = 0.9 }]";
        let expected = [
            "learning_rate-0.01_features-8-16_sgd",
            "learning_rate-0.01_wide_sgd",
            "learning_rate-0.001_features-8-16_sgd",
            "learning_rate-0.001_wide_sgd",
        ];
        assert_eq!(names(text).unwrap(), expected);
        let choices = product(&toml::from_str(text).unwrap()).unwrap();
        let keys: Vec<&str> = choices[1].1.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["learning_rate", "network.features", "optimizer"]);
        // A value with a name of its own keeps it; a given name is no setting.
        assert_eq!(choices[1].1[1].1, Value::Array(vec![Value::Integer(16), Value::Integer(32)]));
        assert!(choices[1].1[2].1.get("name").is_some());
    }

    #[test]
    fn a_grid_that_is_none_is_refused_with_its_key() {
        for (text, said) in [
            ("epochs = 3", "`epochs` must be a list"),
            ("epochs = []", "`epochs` has no values"),
            ("loss = [{ components = [] }]", "`loss` is a table without a name"),
            ("groups = [[{ prefix = 'a' }]]", "`groups` has no short name"),
        ] {
            let problem = names(text).unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
        let many = format!("a = {0:?}\nb = {0:?}", (0..40).collect::<Vec<_>>());
        assert!(names(&many).unwrap_err().contains("1000 arms"));
    }

    #[test]
    fn a_dotted_key_changes_one_key_of_a_table_and_leaves_the_others() {
        let mut table: Table = toml::from_str("[augmentation]\np_mirror = 0.0\np_gamma = 0.5").unwrap();
        set(&mut table, "augmentation.p_gamma", &Value::Float(0.1)).unwrap();
        set(&mut table, "network.net", &Value::String("plain".into())).unwrap();
        let expected = "[augmentation]\np_mirror = 0.0\np_gamma = 0.1\n[network]\nnet = 'plain'";
        assert_eq!(table, toml::from_str::<Table>(expected).unwrap());
        assert!(set(&mut table, "augmentation.p_gamma.x", &Value::Integer(1)).is_err());
        let settings: Table = toml::from_str("[network]\nnet = 'plain'\n[optimizer]\nname = 'sgd'").unwrap();
        let keys: Vec<String> = by_key(&settings).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["network.net", "optimizer"]);
    }
}
