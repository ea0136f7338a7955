//! `plimsoll settings`

use plimsoll_run::{SETTING_LINES, SettingLine, Usual};

use crate::failure::Outcome;
use crate::report::{Table, json};

/// Prints every setting of `plimsoll.toml` with its default and meaning.
pub fn run(as_json: bool) -> Outcome {
    if as_json {
        return json(&SETTING_LINES);
    }
    println!("plimsoll.toml, in the current folder or named by --config; everything may be left out");
    for group in SETTING_LINES.chunk_by(|a, b| (a.table, a.kinds) == (b.table, b.kinds)) {
        if let Some(title) = group.first().and_then(title) {
            println!("\n{title}");
        }
        let mut table = Table::new(["setting", "default", "what it is"]);
        for SettingLine { key, default, meaning, .. } in group {
            let default = match default {
                Usual::Is(value) => value.to_string(),
                Usual::Follows(words) => format!("({words})"),
                Usual::Required => "(must be given)".into(),
            };
            table.row([key.to_string(), default, meaning.to_string()]);
        }
        table.print();
    }
    Ok(())
}

/// What opens the table of a setting in the file.
fn title(line: &SettingLine) -> Option<String> {
    let open = match line.table {
        "" => return None,
        "loss.components" => "[[loss.components]]".to_string(),
        table => format!("[{table}]"),
    };
    Some(match line.kinds {
        [] => open,
        kinds => format!("{open} of name {}", kinds.join(", ")),
    })
}
