//! The provenance of a result: versions, machine, seed, and digests of specification, data and weights.

use std::fmt::Write;

use plimsoll_memory::Digest;
use plimsoll_run::Specification;

use super::read::Fold;
use super::table::{Cell, Table};
use crate::error::Outcome;
use crate::markup::escaped;

/// The most cases of which the page has the digest.
const MOST_CASES: usize = 2000;

/// Returns the section on provenance.
pub fn section(folds: &[Fold]) -> Outcome<String> {
    let mut html = String::from("<h2 id=\"provenance\">Provenance</h2>\n");
    let mut table = Table::new([
        "fold",
        "specification",
        "data",
        "initial weights",
        "final weights",
        "seed",
        "started on",
        "machine",
        "version",
    ]);
    for fold in folds {
        let specification = &fold.specification;
        let process = fold.history.process.as_ref();
        let weights = fold.weights.as_ref().map_or("–".into(), |(_, digest)| digest.to_string());
        table.row([
            Cell::text(&fold.folder.name().to_string()),
            Cell::html(format!("<code>{}</code>", fold.identity)),
            Cell::html(format!("<code>{}</code>", data_digest(specification)?)),
            Cell::text(&specification.initial.to_string()),
            Cell::html(format!("<code>{weights}</code>")),
            Cell::count(specification.config.seed),
            Cell::text(&specification.backend),
            Cell::text(process.map_or("–", |process| &process.host)),
            Cell::text(process.map_or("–", |process| &process.version)),
        ]);
    }
    html.push_str(&table.html());
    // Writing to a string cannot fail.
    let _ = writeln!(
        html,
        "<p>Digests are 64-bit XXH3: of the specification, which determines all results; of the data, from the names of all cases and the \
         digests of their contents; of the weights, from the final checkpoint's file. This page was written by plimsoll {}.</p>",
        env!("CARGO_PKG_VERSION")
    );
    for fold in folds.iter().filter(|fold| !fold.specification.amendments.is_empty()) {
        let amendments = fold.specification.amendments.iter().map(|amendment| {
            let changes = escaped(&amendment.to_string());
            format!(
                "<li>after step {}: {changes} (before: <code>{}</code>)</li>",
                amendment.steps, amendment.before
            )
        });
        let _ = writeln!(
            html,
            "<p>{} was changed since it began:</p><ul>{}</ul>",
            escaped(&fold.name()),
            amendments.collect::<String>()
        );
    }
    if let Some(first) = folds.first() {
        let data = &first.specification.data;
        let lines =
            data.iter().take(MOST_CASES).map(|(case, digest)| format!("{digest}  {}\n", escaped(case)));
        let more = data.len().saturating_sub(MOST_CASES);
        let rest = if more > 0 { format!("and {more} more, in specification.json\n") } else { String::new() };
        let _ = writeln!(
            html,
            "<details><summary>Digests of the cases of {}</summary><pre>{}{rest}</pre></details>",
            escaped(&first.name()),
            lines.collect::<String>()
        );
    }
    Ok(html)
}

/// One digest of all cases.
fn data_digest(specification: &Specification) -> Outcome<Digest> {
    Ok(Digest::compute(&serde_json::to_vec(&specification.data)?))
}
