//! The examples of `README.md` and `docs/`: each documented command is parsed by the program, and the examples in which a prompt stands before
//! each command are run, from the start page on.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_data::phantom::{self, PhantomConfig};

use crate::support::plimsoll;

/// Pages whose examples are run, in this order in one folder: each uses files of those before it.
const RUN: [&str; 11] = [
    "start.md",
    "how-to/killed.md",
    "how-to/large-volume.md",
    "how-to/gpu-memory.md",
    "how-to/cross-validation.md",
    "how-to/resume.md",
    "how-to/fine-tune.md",
    "how-to/two-dimensions.md",
    "how-to/predict.md",
    "how-to/evaluate.md",
    "how-to/export.md",
];

/// A fenced block of a page.
struct Block {
    language: String,
    lines: Vec<String>,
}

/// The folder of the project.
fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fenced blocks of a page, and its text without them.
fn blocks(page: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut text) = (Vec::<Block>::new(), String::new());
    let mut is_open = false;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), is_open) {
            (Some(language), false) => {
                blocks.push(Block { language: language.trim().into(), lines: Vec::new() });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => blocks.last_mut().unwrap().lines.push(line.into()),
            (None, false) => text.extend([line, "\n"]),
        }
    }
    (blocks, text)
}

/// The pages: `README.md` and all of `docs/` but the printed options, by their paths below the project.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![project().join("docs")];
    let mut files = vec![project().join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().is_some_and(|ending| ending == "md") {
                true if !path.ends_with("options.md") => files.push(path),
                _ if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    let name = |path: &PathBuf| path.strip_prefix(project()).unwrap().display().to_string();
    files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// The commands of this program on a page: in blocks for a shell, and between backquotes in the text.
fn commands(page: &str) -> BTreeSet<String> {
    let (blocks, text) = blocks(page);
    let in_blocks = blocks.iter().flat_map(|block| {
        let command = |line: &'_ String| match block.language.as_str() {
            "sh" => Some(line.clone()),
            "console" => line.strip_prefix("$ ").map(String::from),
            _ => None,
        };
        block.lines.iter().filter_map(command).collect::<Vec<_>>()
    });
    let in_text = text.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " "));
    let without_comment = |line: String| line.split(" #").next().unwrap().trim().to_string();
    // `COMMAND` is a placeholder for any command.
    let is_own = |line: &String| line.starts_with("plimsoll ") && !line.contains(" COMMAND");
    in_blocks.chain(in_text).map(without_comment).filter(is_own).collect()
}

#[test]
fn every_documented_command_has_options_of_the_program() {
    let mut count = 0;
    for (name, page) in pages() {
        for command in commands(&page) {
            // Placeholders for more arguments, alternatives and pipes are no arguments.
            let words: Vec<&str> = command
                .split_whitespace()
                .skip(1)
                .take_while(|word| !["|", ">", "2>&1"].contains(word))
                .collect();
            let words =
                words.iter().filter(|word| !["…", "..."].contains(*word)).map(|word| word.trim_matches('"'));
            // The parser refuses what it does not know before it reads this flag.
            let output = plimsoll().args(words).arg("--help").output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: `{command}`: {errors}");
            count += 1;
        }
    }
    assert!(count > 100, "{count} commands were found");
}

/// A command of an example with its printed output.
struct Step {
    command: String,
    output: Vec<String>,
}

/// The commands of the examples of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::<Step>::new();
    for block in blocks(page).0.into_iter().filter(|block| block.language == "console") {
        for line in block.lines {
            match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.into(), output: Vec::new() }),
                None => steps.last_mut().unwrap().output.push(line),
            }
        }
    }
    steps
}

/// Words of an output without numbers, units and marks, which differ between data sets and machines.
fn words(text: &str) -> Vec<&str> {
    const UNITS: [&str; 9] = ["s", "ms", "min", "h", "B", "KiB", "MiB", "GiB", "bytes"];
    let is_word = |word: &&str| !word.contains(|letter: char| letter.is_ascii_digit() || !letter.is_ascii());
    let bare = text.split_whitespace().map(|word| word.trim_matches([',', ';', ':', '.', '(', ')']));
    bare.filter(is_word).filter(|word| word.contains(char::is_alphabetic) && !UNITS.contains(word)).collect()
}

/// Checks that each piece of the documented output, which `…` divides, is among the words of the actual one.
fn expect_printed(step: &Step, printed: &str) {
    let actual = words(printed);
    for piece in step.output.iter().flat_map(|line| line.split('…')) {
        let documented = words(piece);
        let is_printed =
            documented.is_empty() || actual.windows(documented.len()).any(|found| found == documented);
        assert!(is_printed, "`{}` no longer prints {piece:?}, but:\n{printed}", step.command);
    }
}

#[test]
fn the_start_page_and_how_to_pages_can_be_followed() {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_plimsoll"), bin.join("plimsoll")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    for name in RUN {
        let page = fs::read_to_string(project().join("docs").join(name)).unwrap();
        for step in steps(&page) {
            if step.command == "plimsoll demo --out demo" {
                // The data set that this command writes, with smaller volumes, without its training.
                let config = PhantomConfig { size: [24, 32], ..PhantomConfig::default() };
                phantom::write(home.join("demo/dataset"), &config).unwrap();
                continue;
            }
            let mut shell = Command::new("sh");
            shell.args(["-c", &step.command]).current_dir(&home).env("PATH", &path);
            shell.env("XDG_CACHE_HOME", dir.path().join("cache"));
            let output = shell.output().unwrap();
            let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            let fails = step.output.iter().any(|line| line.starts_with("error: "));
            assert_eq!(output.status.success(), !fails, "{name}: `{}`: {printed}", step.command);
            // One describes the machine; which limit is too low depends on the size of the program.
            if step.command != "plimsoll doctor" && !fails {
                expect_printed(&step, &printed);
            }
        }
    }
}
