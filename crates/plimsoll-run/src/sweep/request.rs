//! The request of a sweep, from its file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::grid::{self, Choice, MOST_ARMS};
use super::{Arm, SweepFolder};
use crate::{FoldName, RunError, Settings};

/// The longest file that is read. Of a text with many mistakes, the parser may take up to a kibibyte for each byte.
const LONGEST: u64 = 64 << 10;

/// The longest that is read, of the two that a sweep may be given in.
const LONGEST_PART: u64 = LONGEST / 2;

/// The most seeds, and the most folds.
const MOST_REPEATS: usize = 1000;

/// The file as it is written.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    splits: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folds: Option<Vec<WrittenFold>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seeds: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Table>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<Table>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arm: Option<Vec<WrittenArm>>,
}

/// A fold, as a number or as `"all"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "folds are 0, 1, 2, … or \"all\"")]
enum WrittenFold {
    Number(usize),
    Name(FoldName),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenArm {
    name: String,
    #[serde(default)]
    settings: Table,
}

/// The request of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRequest {
    /// The data set: that which was given, else that which the file names.
    pub dataset: Option<PathBuf>,
    /// A file of folds, where the file names it.
    pub splits: Option<PathBuf>,
    /// The arms to compare.
    pub arms: Vec<ArmRequest>,
    /// Ascending.
    pub seeds: Vec<u64>,
    /// Ascending; none for all that the data set is divided into.
    pub folds: Option<Vec<FoldName>>,
    /// A file that asks for the same wherever it lies: with whole paths, and the settings that all arms have in common in it.
    pub text: String,
}

/// An arm with all of its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmRequest {
    /// The arm and its settings.
    pub arm: Arm,
    /// Laid over what all have in common.
    pub settings: Settings,
}

impl SweepRequest {
    /// Reads a file; a data set that is given takes the place of the one that it names. All settings of all arms are checked, as far as they
    /// can be without it.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, says something else than a sweep, or if an arm's settings are none.
    pub fn read(path: &Path, dataset: Option<&Path>) -> Result<SweepRequest, RunError> {
        SweepRequest::parse(&read_text(path, LONGEST)?, path, dataset)
    }

    /// Reads the text of such a file. Errors name `path`, in whose folder relative paths begin; it need not exist.
    ///
    /// # Errors
    /// Returns the errors of [`SweepRequest::read`].
    pub fn parse(text: &str, path: &Path, dataset: Option<&Path>) -> Result<SweepRequest, RunError> {
        let mut written: Written = parse(text, path)?;
        let absolute = |path: &Path| std::path::absolute(path).map_err(|source| RunError::io(path, source));
        let beside = |other: PathBuf| absolute(&path.parent().unwrap_or(Path::new("")).join(other));
        written.dataset = match dataset {
            Some(given) => Some(absolute(given)?),
            None => written.dataset.map(beside).transpose()?,
        };
        written.splits = written.splits.map(beside).transpose()?;
        let wrong = |what: String| RunError::Sweep { path: path.into(), what };
        let base = match (written.base.take(), written.settings.take()) {
            (Some(_), Some(_)) => return Err(wrong("it has both `base` and [settings]".into())),
            (Some(base), None) => {
                let base = beside(base)?;
                let table: Table = parse(&read_text(&base, LONGEST_PART)?, &base)?;
                settings_of(&table).map_err(|what| RunError::Sweep { path: base, what })?;
                table
            }
            (None, Some(table)) => {
                settings_of(&table).map_err(|what| wrong(format!("[settings]: {what}")))?;
                table
            }
            (None, None) => Table::new(),
        };
        let choices = written.choices().map_err(wrong)?;
        let arms = arms(&base, choices).map_err(wrong)?;
        let base_seed = settings_of(&base).map_err(wrong)?.seed;
        let seeds = written.seeds.clone().unwrap_or(vec![base_seed.unwrap_or(0)]);
        let seeds = ascending("seeds", seeds).map_err(wrong)?;
        let folds = written.folds.as_ref().map(|folds| folds.iter().map(WrittenFold::name).collect());
        let folds = folds.map(|folds| ascending("folds", folds)).transpose().map_err(wrong)?;
        written.settings = Some(base).filter(|base| !base.is_empty());
        let text = toml::to_string(&written).map_err(|problem| wrong(problem.to_string()))?;
        if text.len() as u64 > LONGEST {
            return Err(wrong(format!("it is longer than {LONGEST} bytes, including its `base`")));
        }
        let Written { dataset, splits, .. } = written;
        Ok(SweepRequest { dataset, splits, arms, seeds, folds, text })
    }
}

impl Written {
    /// The names and the settings of the arms.
    fn choices(&self) -> Result<Vec<Choice>, String> {
        match (&self.grid, &self.arm) {
            (Some(_), Some(_)) => Err("it has both [grid] and [[arm]]".into()),
            (Some(grid), None) if !grid.is_empty() => grid::product(grid),
            (None, Some(arms)) if !arms.is_empty() => {
                Ok(arms.iter().map(|arm| (arm.name.clone(), grid::by_key(&arm.settings))).collect())
            }
            _ => Err("it varies nothing: there is neither a [grid] nor an [[arm]]".into()),
        }
    }
}

impl WrittenFold {
    fn name(&self) -> FoldName {
        match self {
            WrittenFold::Number(number) => FoldName::Number(*number),
            WrittenFold::Name(name) => *name,
        }
    }
}

/// Reads the text of a file.
fn read_text(path: &Path, longest: u64) -> Result<String, RunError> {
    plimsoll_disk::read_to_string(path, longest).map_err(|source| RunError::io(path, source))
}

/// Reads the TOML of the file at a path.
fn parse<T: for<'de> Deserialize<'de>>(text: &str, path: &Path) -> Result<T, RunError> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let what = match before {
            Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
            None => error.message().to_string(),
        };
        RunError::Sweep { path: path.into(), what }
    })
}

/// Settings of a table, each within its bounds.
fn settings_of(table: &Table) -> Result<Settings, String> {
    let value = as_json(&Value::Table(table.clone()));
    let settings: Settings = serde_json::from_value(value).map_err(|problem| problem.to_string())?;
    settings.check().map_err(|problem| problem.to_string())?;
    Ok(settings)
}

/// Lays what each arm sets over what all have in common.
fn arms(base: &Table, choices: Vec<Choice>) -> Result<Vec<ArmRequest>, String> {
    if choices.len() > MOST_ARMS {
        return Err(format!("there are more than {MOST_ARMS} arms"));
    }
    let mut names = BTreeSet::new();
    let mut arms = Vec::new();
    for (name, set) in choices {
        if !SweepFolder::may_be_an_arm(&name) {
            return Err(format!(
                "{name:?} is not a valid name of an arm and its folder: at most 100 letters, digits and -_.+=, the first a letter or a digit"
            ));
        }
        if !names.insert(name.clone()) {
            return Err(format!("two arms are called `{name}`"));
        }
        let of_arm = |what: String| format!("arm `{name}`: {what}");
        let mut table = base.clone();
        let mut shown = BTreeMap::new();
        for (key, value) in set {
            if key == "seed" {
                return Err(of_arm("an arm cannot set seeds: list them in `seeds`".into()));
            }
            grid::set(&mut table, &key, &value).map_err(of_arm)?;
            if shown.insert(key.clone(), as_json(&value)).is_some() {
                return Err(of_arm(format!("`{key}` is set twice")));
            }
        }
        let settings = settings_of(&table).map_err(of_arm)?;
        arms.push(ArmRequest { arm: Arm { name, settings: shown }, settings });
    }
    Ok(arms)
}

/// Sorts a list whose elements must be unique.
fn ascending<T: Ord>(what: &str, mut list: Vec<T>) -> Result<Vec<T>, String> {
    list.sort();
    match list.len() {
        0 => Err(format!("`{what}` is empty")),
        many if many > MOST_REPEATS => Err(format!("`{what}` are more than {MOST_REPEATS}")),
        _ if list.windows(2).any(|pair| pair[0] == pair[1]) => Err(format!("`{what}` has a value twice")),
        _ => Ok(list),
    }
}

/// A value as JSON, which has no infinity: that is a word, as in settings.
fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::String(text) => text.clone().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) if number.is_finite() => (*number).into(),
        Value::Float(number) => number.to_string().into(),
        Value::Boolean(is) => (*is).into(),
        Value::Datetime(time) => time.to_string().into(),
        Value::Array(values) => values.iter().map(as_json).collect::<Vec<_>>().into(),
        Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), as_json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SweepRequest, RunError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweep.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(dir.path().join("base.toml"), "epochs = 7\n[augmentation]\np_mirror = 0.0\n").unwrap();
        SweepRequest::read(&path, None)
    }

    #[test]
    fn arms_are_laid_over_what_all_have_in_common() {
        let request = read(
            "dataset = 'data'\nbase = 'base.toml'\nfolds = [2, 0, 'all']\nseeds = [5, 1]\n[grid]\n'augmentation.p_gamma' = [0.0, 0.5]\n\
             max_grad_norm = [{ name = 'free', value = inf }]",
        )
        .unwrap();
        let names: Vec<&str> = request.arms.iter().map(|arm| arm.arm.name.as_str()).collect();
        assert_eq!(names, ["p_gamma-0_free", "p_gamma-0.5_free"]);
        let second = &request.arms[1];
        assert_eq!(second.settings.epochs, Some(7));
        assert_eq!(second.settings.max_grad_norm, Some(f32::INFINITY));
        let augmentation = second.settings.augmentation.as_ref().unwrap();
        assert_eq!((augmentation.p_mirror, augmentation.p_gamma), (0.0, 0.5));
        assert_eq!(second.arm.settings["augmentation.p_gamma"], 0.5);
        assert_eq!(second.arm.settings["max_grad_norm"], "inf");
        assert_eq!(request.seeds, [1, 5]);
        assert_eq!(request.folds, Some(vec![FoldName::Number(0), FoldName::Number(2), FoldName::All]));
        assert!(request.dataset.as_ref().unwrap().is_absolute());
    }

    #[test]
    fn the_text_that_is_kept_asks_for_the_same_wherever_it_lies() {
        let request = read(
            "dataset = 'data'\nbase = 'base.toml'\n[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\nsettings.epochs = 3\n[arm.settings.network]\n\
             net = 'dynunet'",
        )
        .unwrap();
        assert_eq!(read(&request.text).unwrap(), request);
        assert_eq!(request.arms[1].settings.epochs, Some(3));
        assert_eq!((request.seeds.as_slice(), request.folds.as_deref()), (&[0][..], None));
    }

    #[test]
    fn a_data_set_that_is_given_takes_the_place_of_the_one_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweep.toml");
        std::fs::write(&path, "dataset = 'data'\n[[arm]]\nname = 'a'").unwrap();
        let given = dir.path().join("other");
        let request = SweepRequest::read(&path, Some(&given)).unwrap();
        assert_eq!(read(&request.text).unwrap().dataset, Some(given));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_file_and_the_arm() {
        let arm = "[[arm]]\nname = 'a'\n";
        for (text, said) in [
            ("epochs = 3", "unknown field `epochs`"),
            ("folds = [0]\n", "varies nothing"),
            ("folds = ['x']\n[[arm]]\nname='a'", "folds are 0, 1, 2"),
            ("seeds = [1, 1]\n[[arm]]\nname='a'", "`seeds` has a value twice"),
            ("seeds = []\n[[arm]]\nname='a'", "`seeds` is empty"),
            (&format!("{arm}{arm}"), "two arms are called `a`"),
            (&format!("{arm}settings.lerning_rate = 1.0"), "arm `a`: unknown field `lerning_rate`"),
            (&format!("{arm}settings.epochs = 0"), "arm `a`: `epochs` is 0"),
            (&format!("{arm}settings.seed = 1"), "list them in `seeds`"),
            (&format!("{arm}[grid]\nepochs = [1]"), "both [grid] and [[arm]]"),
            ("[grid]\nnetwork.net = ['plain']\n'network.net' = ['dynunet']", "`network.net` is set twice"),
            ("[[arm]]\nname = '../up'", "is not a valid name of an arm"),
            ("[[arm]]\nname = 'sweep.json'", "is not a valid name of an arm"),
            (&format!("base = 'base.toml'\n{arm}[settings]\nepochs = 1"), "both `base` and [settings]"),
            (&format!("{arm}[settings]\nepoch = 1"), "[settings]: unknown field `epoch`"),
            ("x = ", "line 1"),
        ] {
            let problem = read(text).unwrap_err().to_string();
            assert!(problem.contains(said), "{text}: {problem}");
            assert!(problem.contains("sweep.toml"), "{problem}");
        }
        assert!(
            read(&format!("base = 'nowhere.toml'\n{arm}")).unwrap_err().to_string().contains("nowhere.toml")
        );
    }
}
