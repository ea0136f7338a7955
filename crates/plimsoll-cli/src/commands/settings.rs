//! `plimsoll settings`

use plimsoll_run::{SETTING_LINES, SettingLine, Usual};

use crate::failure::Outcome;
use crate::report::json;

/// The width of the printed list in columns: every terminal shows it and a page of documentation does not scroll.
const WIDTH: usize = 100;

/// Prints every setting of `plimsoll.toml` with its default and meaning.
pub fn run(as_json: bool) -> Outcome {
    if as_json {
        return json(&SETTING_LINES);
    }
    println!(
        "Settings of plimsoll.toml, in the current folder or named by --config. All are optional except"
    );
    println!("those marked as required.");
    for group in SETTING_LINES.chunk_by(|a, b| (a.table, a.kinds) == (b.table, b.kinds)) {
        if let Some(title) = group.first().and_then(title) {
            println!("\n{title}");
        }
        for SettingLine { key, default, meaning, .. } in group {
            println!("\n{key}");
            println!("{}", wrapped(meaning));
            let default = match default {
                Usual::Is(value) => format!("Default: {value}"),
                Usual::Follows(words) => format!("Default: {words}"),
                Usual::Required => "Required.".into(),
            };
            println!("{}", wrapped(&default));
        }
    }
    Ok(())
}

/// Breaks a text into indented lines of at most [`WIDTH`] columns; a longer word gets a line of its own.
fn wrapped(text: &str) -> String {
    const INDENT: &str = "    ";
    let mut lines = vec![INDENT.to_string()];
    let mut columns = INDENT.len();
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if columns > INDENT.len() && columns + 1 + length > WIDTH {
            lines.push(INDENT.to_string());
            columns = INDENT.len();
        }
        if let Some(line) = lines.last_mut() {
            if columns > INDENT.len() {
                line.push(' ');
                columns += 1;
            }
            line.push_str(word);
            columns += length;
        }
    }
    lines.join("\n")
}

/// Returns the header that opens the table of a setting in the file, and on lines of their own the kinds that the setting belongs to.
fn title(line: &SettingLine) -> Option<String> {
    let open = match line.table {
        "" => return None,
        "loss.components" => "[[loss.components]]".to_string(),
        table => format!("[{table}]"),
    };
    Some(match line.kinds {
        [] => open,
        kinds => format!("{open} with a name of\n{}", wrapped(&kinds.join(", "))),
    })
}
