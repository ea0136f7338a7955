//! The tables of `benches/README.md` below its marker are generated from `benches/results/*.json`.
//!
//! After a change of a measurement, `PLIMSOLL_WRITE_RESULTS=1 cargo test -p corpus --test bench_results` writes the tables anew.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The line of the README below which everything is generated.
const MARKER: &str = "<!-- generated from results/*.json -->\n";

#[test]
fn the_tables_of_the_readme_are_the_recorded_results() {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches");
    let readme = benches.join("README.md");
    let present = fs::read_to_string(&readme).unwrap();
    let (written_by_hand, _) = present.split_once(MARKER).expect("the marker of generated tables");
    let expected = format!("{written_by_hand}{MARKER}{}", Results::read(&benches.join("results")).tables());
    if std::env::var_os("PLIMSOLL_WRITE_RESULTS").is_some() {
        fs::write(&readme, &expected).unwrap();
    } else {
        assert!(
            present == expected,
            "benches/README.md differs from benches/results: set PLIMSOLL_WRITE_RESULTS=1 to write it"
        );
    }
}

/// The machines by name, and the groups of results in the order of their files.
struct Results {
    machines: BTreeMap<String, String>,
    groups: Vec<Value>,
}

impl Results {
    fn read(folder: &Path) -> Results {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let parse = |file: &PathBuf| serde_json::from_slice::<Value>(&fs::read(file).unwrap()).unwrap();
        let (machines, groups): (Vec<_>, Vec<_>) =
            files.iter().partition(|file| file.ends_with("machines.json"));
        let machines = serde_json::from_value(parse(machines.first().unwrap())).unwrap();
        Results { machines, groups: groups.into_iter().map(parse).collect() }
    }

    fn tables(&self) -> String {
        let mut text = String::from("\n## Machines\n| name | machine |\n|---|---|\n");
        for (name, machine) in &self.machines {
            writeln!(text, "| {name} | {machine} |").unwrap();
        }
        for group in &self.groups {
            self.write_group(&mut text, group);
        }
        text
    }

    fn write_group(&self, text: &mut String, group: &Value) {
        let entries = group["entries"].as_array().unwrap();
        let programs = programs(entries);
        writeln!(text, "\n## {}\n{}\n", string(group, "title"), string(group, "text")).unwrap();
        writeln!(text, "| case | {} | machine | measured | command |", programs.join(" | ")).unwrap();
        writeln!(text, "|---|{}---|---|---|", "---|".repeat(programs.len())).unwrap();
        for entry in entries {
            let machine = string(entry, "machine");
            assert!(self.machines.contains_key(machine), "{machine} is missing in machines.json");
            let case = match entry.get("note") {
                Some(note) => format!("{} ({})", string(entry, "case"), note.as_str().unwrap()),
                None => string(entry, "case").to_owned(),
            };
            let figures: Vec<String> = programs.iter().map(|program| figures(entry, program)).collect();
            let rounds = match entry.get("rounds").and_then(Value::as_u64) {
                Some(1) => ", 1 round".to_owned(),
                Some(rounds) => format!(", {rounds} rounds"),
                None => String::new(),
            };
            let (date, commit, command) =
                (string(entry, "date"), string(entry, "commit"), string(entry, "command"));
            writeln!(
                text,
                "| {case} | {} | {machine} | {date} `{commit}`{rounds} | `{command}` |",
                figures.join(" | ")
            )
            .unwrap();
        }
    }
}

/// The programs that a group of results compares, in the order in which they first appear.
fn programs(entries: &[Value]) -> Vec<&str> {
    let mut programs = Vec::new();
    for measurement in entries.iter().flat_map(|entry| entry["measurements"].as_array().unwrap()) {
        let program = string(measurement, "program");
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    programs
}

/// The figures of one program with their units, or a dash if it was not measured.
fn figures(entry: &Value, program: &str) -> String {
    let measured = entry["measurements"]
        .as_array()
        .unwrap()
        .iter()
        .find(|measurement| measurement["program"] == program);
    let Some(measured) = measured else { return "–".to_owned() };
    let figures = measured["figures"].as_array().unwrap();
    figures
        .iter()
        .map(|figure| format!("{} {}", figure["value"], string(figure, "unit")))
        .collect::<Vec<_>>()
        .join(", ")
}

fn string<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is missing in {value}"))
}
