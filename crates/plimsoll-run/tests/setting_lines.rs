//! The table of settings lists all settings and their defaults.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use plimsoll_data::phantom::{self, PhantomConfig};
use plimsoll_data::{Dataset, InspectConfig, Inspection};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_run::{RunConfig, SETTING_LINES, SettingLine, Settings, Usual};

/// The error of a file of settings.
fn objection(toml: &str) -> String {
    match toml::from_str::<Settings>(toml) {
        Ok(_) => panic!("nothing is said against {toml}"),
        Err(error) => error.message().to_string(),
    }
}

/// Words between backticks after `expected`.
fn expected(objection: &str) -> Vec<String> {
    let (_, list) = objection.split_once("expected").unwrap_or_else(|| panic!("no list: {objection}"));
    list.split('`').skip(1).step_by(2).map(String::from).collect()
}

/// The keys below a table, each found by giving one that is not there. `open` is what opens the table in a file, and `name` the
/// kind that it is of, where its keys depend on it.
fn keys(path: &str, open: &str, found: &mut BTreeSet<String>) {
    let said = objection(&format!("{open}zz = 0\n"));
    if said.contains("missing field `name`") {
        found.insert(format!("{path}.name"));
        for kind in expected(&objection(&format!("{open}name = \"zz\"\n"))) {
            let said = toml::from_str::<Settings>(&format!("{open}name = \"{kind}\"\nzz = 0\n"));
            let Err(error) = said else { continue };
            for option in expected(error.message()) {
                found.insert(format!("{path}[{kind}].{option}"));
            }
        }
        return;
    }
    for key in expected(&said) {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let opens = [format!("[{below}]\n"), format!("[[{below}]]\n")];
        let is_table = |open: &&String| {
            let Err(error) = toml::from_str::<Settings>(&format!("{open}zz = 0\n")) else { return false };
            ["unknown field `zz`", "missing field"].iter().any(|said| error.message().contains(said))
        };
        match opens.iter().find(is_table) {
            Some(open) => keys(&below, open, found),
            None => {
                found.insert(below);
            }
        }
    }
}

#[test]
fn every_key_has_a_line_and_every_line_a_key() {
    let mut found = BTreeSet::new();
    keys("", "", &mut found);
    assert!(found.len() > 100 && found.contains("loss.components[cldice].smooth"), "{found:?}");
    let listed: Vec<String> = SETTING_LINES.iter().flat_map(SettingLine::paths).collect();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "a key has two lines");
    let without_line: Vec<&String> = found.difference(&unique).collect();
    assert!(without_line.is_empty(), "give these a line in setting_lines.rs: {without_line:?}");
    let without_key: Vec<&String> = unique.difference(&found).collect();
    assert!(without_key.is_empty(), "these lines are of no key: {without_key:?}");
}

#[test]
fn what_a_line_says_holds_by_default_is_what_a_run_gets() {
    let dir = tempfile::tempdir().unwrap();
    let config = PhantomConfig { cases: 2, test_cases: 1, size: [20, 24], ..PhantomConfig::default() };
    phantom::write(dir.path(), &config).unwrap();
    let dataset = Dataset::open(dir.path()).unwrap();
    let budget = Budget::new(Bytes::gib(1));
    let inspection =
        Inspection::run(&dataset, InspectConfig { threads: 1, seed: 0 }, &budget, &|_, _| {}).unwrap();
    let fingerprint = inspection.fingerprint.unwrap();
    let resolved = |toml: &str| {
        let settings = toml::from_str(toml).unwrap_or_else(|error| panic!("{toml}: {error}"));
        RunConfig::resolve(&settings, &dataset, &fingerprint)
            .unwrap_or_else(|error| panic!("{toml}: {error}"))
    };
    let tables: BTreeSet<&str> = SETTING_LINES.iter().map(|line| line.table).collect();
    for table in tables {
        let lines = || SETTING_LINES.iter().filter(|line| line.table == table);
        let mut kinds: BTreeSet<&str> = lines().flat_map(|line| line.kinds.iter().copied()).collect();
        // A table without kinds is looked at once.
        if kinds.is_empty() {
            kinds.insert("");
        }
        for kind in kinds {
            let mut open = match table {
                "" => String::new(),
                "loss.components" | "groups" => format!("[[{table}]]\n"),
                table => format!("[{table}]\n"),
            };
            let mut constants = String::new();
            let mut required = String::new();
            if !kind.is_empty() {
                open += &format!("name = \"{kind}\"\n");
            }
            for line in lines().filter(|line| line.kinds.is_empty() || line.kinds.contains(&kind)) {
                match line.default {
                    Usual::Is(value) => constants += &format!("{} = {value}\n", line.key),
                    Usual::Required if line.key != "name" => {
                        let said = toml::from_str::<Settings>(&open).unwrap_err().to_string();
                        assert!(said.contains("missing field"), "{said}");
                        required += &format!("{} = 1\n", line.key);
                    }
                    Usual::Required | Usual::Follows(_) => {}
                }
            }
            if !constants.is_empty() {
                let given = format!("{open}{required}{constants}");
                assert_eq!(resolved(&given), resolved(&format!("{open}{required}")), "{given}");
            }
        }
    }
}

#[test]
fn the_settings_of_images_in_the_documentation_are_settings() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/classification.md");
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let files: Vec<&str> = blocks.filter(|block| block.contains("[images]")).collect();
    assert_eq!(files.len(), 1);
    let settings: Settings = toml::from_str(files[0]).unwrap();
    settings.check().unwrap();
    let images = settings.images.unwrap();
    assert_eq!(images.pipeline(None).steps.len(), 3);
    assert!(images.table.is_some_and(|table| table.image == "id_code"));
}
