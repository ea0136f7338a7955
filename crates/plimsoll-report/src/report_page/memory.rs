//! Planned and resident memory, drawn against the limit.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_run::Part;

use super::read::Fold;
use super::record::{Cache, Record};
use super::samples;
use super::table::{Cell, Table};
use crate::error::{Outcome, ReportError};
use crate::markup::escaped;
use crate::svg::{Anchor, Drawing, Path, path, rect, text};

/// Pixels of the drawing.
const WIDTH: f64 = 1100.0;
const LEFT: f64 = 120.0;
const BAR: f64 = 30.0;
const GAP: f64 = 12.0;
const TOP: f64 = 30.0;

/// Parts that are narrower have no name in the bar.
const NAMED: f64 = 46.0;

/// Colours of parts, by their places in the plan.
pub const COLOURS: [&str; 9] =
    ["#8c8c8c", "#b8b8b8", "#d9d9d9", "#56b4e9", "#e69f00", "#f0e442", "#009e73", "#cc79a7", "#0072b2"];

/// The least share of the drawing that bars must fill for the memory limit to be drawn in it.
const LEAST_SHARE: f64 = 0.3;

/// A part of a bar.
struct Piece {
    name: String,
    bytes: Bytes,
    colour: &'static str,
}

/// The longest drawing of an arena that is put on a page.
const MOST_ARENA: u64 = 600 << 10;

/// The plan and what was held, of all folds.
pub fn section(folds: &[Fold], budget: &Budget, put: &mut dyn FnMut(&str) -> Outcome) -> Outcome {
    put("<h2 id=\"memory\">Memory: planned and used</h2>\n")?;
    put(&records_section(folds))?;
    put(&samples_section(folds))?;
    put(&samples::drawings(folds))?;
    arena(folds, budget, put)
}

/// Returns the memory of folds that have not ended in order, from samples.
fn samples_section(folds: &[Fold]) -> String {
    let mut html = String::new();
    let open = folds.iter().filter(|fold| fold.record.is_none() && !fold.history.samples.is_empty());
    for fold in open {
        let samples = &fold.history.samples;
        let planned = fold
            .history
            .plan
            .map_or(String::new(), |[limit, planned]| format!("Limit {limit}; planned {planned}; "));
        let _ = writeln!(
            html,
            "<p>{}, as far as samples saw it: {planned}resident at most {}.</p>",
            escaped(&fold.name()),
            shown(samples.peak)
        );
        let mut table = Table::new(["holder", "peak"]);
        for (holder, most) in &samples.most {
            table.row([Cell::text(holder), Cell::bytes(Some(*most))]);
        }
        html.push_str(&table.html());
    }
    html
}

/// The arena while a step runs, of the fold that held most, or of any that has it drawn.
fn arena(folds: &[Fold], budget: &Budget, put: &mut dyn FnMut(&str) -> Outcome) -> Outcome {
    let peak = |fold: &&Fold| fold.record.as_ref().and_then(|record| record.peak_rss_bytes);
    let drawn = folds.iter().filter(|fold| fold.folder.arena().is_file());
    let Some(fold) = drawn.max_by_key(peak) else { return Ok(()) };
    let path = fold.folder.arena();
    let of_path = |error| ReportError::at_path(&path, error);
    let length = plimsoll_disk::metadata(&path).map_err(of_path)?.len();
    put(&format!("<details open><summary>{}: the arena while a step runs", escaped(&fold.name())))?;
    if length > MOST_ARENA {
        let place = escaped(&path.display().to_string());
        return put(&format!("</summary><p>It is drawn in <code>{place}</code>.</p></details>\n"));
    }
    put(": predicted time across, addresses up, a box for each value in memory</summary><figure>")?;
    // As it is read, as letters, and as part of a tag.
    let _held = budget.reserve("a drawing", Bytes(4 * length))?;
    let svg = plimsoll_disk::read(&path, length).map_err(of_path)?;
    // An image runs no scripts, whoever wrote the file.
    put("<img alt=\"the arena while a step runs\" src=\"data:image/svg+xml;base64,")?;
    put(&BASE64_STANDARD.encode(svg))?;
    put("\"></figure></details>\n")
}

/// Returns the memory of folds that have ended, from their records.
fn records_section(folds: &[Fold]) -> String {
    let mut html = String::new();
    let known: Vec<(&Fold, &Record)> =
        folds.iter().filter_map(|fold| Some((fold, fold.record.as_ref()?))).collect();
    let peak = |record: &Record| record.peak_rss_bytes;
    let Some((fold, record)) = known.iter().max_by_key(|(_, record)| peak(record)).copied() else {
        html.push_str("<p>No fold has finished normally yet, so peak memory is not recorded.</p>\n");
        return html;
    };
    let which = if folds.len() > 1 { format!(", {}, which used most", fold.name()) } else { String::new() };
    let limit = record.ram_budget_bytes;
    let _ = writeln!(
        html,
        "<p>Limit {limit}; planned {}; resident at most {}{which}. {} heap allocations in steps.</p>\n<figure>{}</figure>",
        record.planned_bytes,
        shown(record.peak_rss_bytes),
        record.heap_allocations_in_steps,
        bars(record)
    );
    let mut table = Table::new(["part", "planned", "peak"]);
    for part in &record.planned {
        table.row([
            Cell::text(&part.name),
            Cell::bytes(Some(part.bytes)),
            Cell::bytes(record.held(&part.name)),
        ]);
    }
    table.row([
        Cell::text("all, resident"),
        Cell::bytes(Some(record.planned_bytes)),
        Cell::bytes(record.peak_rss_bytes),
    ]);
    html.push_str(&table.html());
    let Cache { hits, misses, bypasses, evictions } = record.cache;
    let _ = writeln!(
        html,
        "<p>Of the cache: {hits} hits, {misses} volumes read into it, {bypasses} read by regions because they did not fit, {evictions} \
         evicted.</p>"
    );
    if let Some(device) = &record.device {
        let mut table = Table::new(["part of the device's memory", "planned"]);
        device.planned.iter().for_each(|part| {
            table.row([Cell::text(&part.name), Cell::bytes(Some(part.bytes))]);
        });
        let _ = writeln!(
            html,
            "<p>Limit of the device {}; planned {}; used {}.</p>{}",
            device.vram_budget_bytes,
            device.planned_bytes,
            shown(device.used_bytes),
            table.html()
        );
    }
    if known.len() > 1 {
        let mut table = Table::new(["fold", "limit", "planned", "resident at most", "while planning"]);
        for (fold, record) in known {
            table.row([
                Cell::text(&fold.folder.name().to_string()),
                Cell::bytes(Some(record.ram_budget_bytes)),
                Cell::bytes(Some(record.planned_bytes)),
                Cell::bytes(record.peak_rss_bytes),
                Cell::bytes(record.planning_peak_rss_bytes),
            ]);
        }
        html.push_str(&table.html());
    }
    html
}

fn shown(bytes: Option<Bytes>) -> String {
    bytes.map_or("an unknown number".into(), |bytes| bytes.to_string())
}

/// Two bars, one below the other, with the limit.
fn bars(record: &Record) -> String {
    let piece = |place: usize, part: &Part, bytes: Bytes| Piece {
        name: part.name.clone(),
        bytes,
        colour: COLOURS[place % COLOURS.len()],
    };
    let numbered = || record.planned.iter().enumerate();
    let planned: Vec<Piece> = numbered().map(|(place, part)| piece(place, part, part.bytes)).collect();
    let held: Vec<Piece> =
        numbered().filter_map(|(place, part)| Some(piece(place, part, record.held(&part.name)?))).collect();
    let sum = |pieces: &[Piece]| pieces.iter().map(|piece| piece.bytes).sum::<Bytes>();
    let most = sum(&planned).max(sum(&held)).max(record.peak_rss_bytes.unwrap_or(Bytes::ZERO));
    let limit = record.ram_budget_bytes;
    let is_near = most.0 as f64 >= LEAST_SHARE * limit.0 as f64;
    let all = if is_near { most.max(limit) } else { most };
    let x = |bytes: Bytes| LEFT + bytes.0 as f64 / all.0.max(1) as f64 * (WIDTH - LEFT - 130.0);
    let height = TOP + 2.0 * BAR + GAP + 34.0;
    let mut drawing = Drawing::new([WIDTH, height]);
    for (row, (what, pieces)) in [("planned", &planned), ("peak", &held)].into_iter().enumerate() {
        let y = TOP + row as f64 * (BAR + GAP);
        let baseline = y + BAR / 2.0 + 4.0;
        drawing.push(text([LEFT - 8.0, baseline], Anchor::End, what));
        let mut before = Bytes::ZERO;
        for Piece { name, bytes, colour } in pieces {
            let (left, right) = (x(before), x(before + *bytes));
            let piece = rect([left, y], [right - left, BAR]).set("fill", *colour);
            let piece = piece.set("stroke", "#fff").set("stroke-width", 0.6);
            drawing.push(piece.tooltip(&format!("{name}: {bytes}")));
            if right - left > NAMED.max(7.0 * name.len() as f64) {
                let ink = if matches!(*colour, "#0072b2" | "#009e73") { "fill:#fff" } else { "fill:#1d232b" };
                let name = text([(left + right) / 2.0, baseline], Anchor::Middle, name);
                drawing.push(name.set("style", ink));
            }
            before += *bytes;
        }
        drawing.push(text([x(before) + 6.0, baseline], Anchor::Start, &before.to_string()));
    }
    let bottom = TOP + 2.0 * BAR + GAP;
    if let Some(peak) = record.peak_rss_bytes {
        let at = x(peak);
        let mark = path(Path::from([at, TOP + BAR + GAP - 4.0]).down_to(bottom + 6.0));
        drawing.push(mark.set("stroke", "#1d232b").set("stroke-width", 1.5));
        drawing.push(text([at, bottom + 20.0], Anchor::Middle, &format!("resident at most {peak}")));
    }
    match is_near {
        true => {
            let at = x(limit);
            drawing.push(path(Path::from([at, 14.0]).down_to(bottom + 6.0)).set("class", "mark"));
            let name = text([at, 11.0], Anchor::Middle, &format!("limit {limit}"));
            drawing.push(name.set("class", "marked"));
        }
        false => {
            let share = 100.0 * most.0 as f64 / limit.0.max(1) as f64;
            let words = format!("limit {limit}, of which this is {share:.0} % →");
            drawing.push(text([WIDTH, 16.0], Anchor::End, &words).set("class", "marked"));
        }
    }
    drawing.in_page()
}
