//! The picture of a comparison: for each pair and class a row with the difference of each case, their mean, and its interval.

use embedded_graphics::mono_font::iso_8859_1::{FONT_7X13, FONT_9X15_BOLD};
use embedded_graphics::text::Alignment;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::comparison::{Comparison, Difference, Outcome as Told, Paired, ScoreComparison};
use plimsoll_metrics::{Better, Metric};

use crate::failure::{Failure, Outcome};
use crate::progress_picture::axis::Axis;
use crate::progress_picture::canvas::{Canvas, Colour};

const WIDTH: usize = 1200;
/// Room for the names of pairs.
const LEFT: f64 = 410.0;
/// Room for p values.
const RIGHT: f64 = 110.0;
/// Room for the title of a score.
const TOP: f64 = 62.0;
/// Room for its axis.
const BOTTOM: f64 = 58.0;
const ROW: f64 = 34.0;
/// Of more rows the picture would be too high for viewers.
const MOST_ROWS: usize = 400;
/// Letters that have room before an axis.
const MOST_LETTERS: usize = 56;

const INK: Colour = [45, 52, 64];
const GREY: Colour = [110, 118, 130];
const GRID: Colour = [228, 231, 236];
const CASE: Colour = [150, 160, 175];
/// Of intervals whose candidates the cases separate.
const BLUE: Colour = [31, 96, 176];

/// Draws all scores one below the other, as a PNG.
pub fn draw(comparison: &Comparison, paired: &Paired, budget: &Budget) -> Outcome<Vec<u8>> {
    let rows: usize = comparison.scores.iter().map(|score| score.differences.len()).sum();
    if rows > MOST_ROWS {
        let message = format!("{rows} comparisons are more than the {MOST_ROWS} that a picture has room for");
        return Err(Failure::new(
            message,
            "choose scores with --metric, classes with --class, or fewer candidates",
        ));
    }
    let heights: f64 = comparison.scores.iter().map(height).sum();
    let height_in_all = heights as usize;
    // The pixels, and their compressed copy; the differences of the score that has most, and those of one row as they are found, each
    // with its case.
    let most = comparison.scores.iter().map(|score| score.differences.len()).max().unwrap_or(0);
    let differences = (most + 3).saturating_mul(comparison.cases.len()).saturating_mul(size_of::<f64>());
    let bytes = (2 * 3 * WIDTH * height_in_all).saturating_add(differences);
    let _held = budget.reserve("picture", Bytes::of(bytes))?;
    let mut canvas = Canvas::new(WIDTH, height_in_all);
    let mut top = 0.0;
    for score in &comparison.scores {
        draw_score(&mut canvas, top, score, comparison, paired);
        top += height(score);
    }
    canvas.png().map_err(Failure::from)
}

fn height(score: &ScoreComparison) -> f64 {
    TOP + BOTTOM + ROW * score.differences.len() as f64
}

fn draw_score(
    canvas: &mut Canvas,
    top: f64,
    score: &ScoreComparison,
    comparison: &Comparison,
    paired: &Paired,
) {
    let (left, right) = (LEFT, WIDTH as f64 - RIGHT);
    let (first_row, bottom) = (top + TOP, top + height(score) - BOTTOM);
    let cases: Vec<Vec<f64>> = score
        .differences
        .iter()
        .map(|difference| of_cases(difference, score.metric, comparison, paired))
        .collect();
    let bounds = score.differences.iter().filter_map(|difference| difference.mean_interval).flatten();
    let axis = Axis::of(cases.iter().flatten().copied().chain(bounds).chain([0.0]), 8.0);
    let across = |difference: f64| left + axis.share(difference) * (right - left);

    let unit = score.unit.map(|unit| format!(", {unit}")).unwrap_or_default();
    let title = format!("{}{unit}: differences of {} cases", score.metric.name(), comparison.cases.len());
    canvas.text(&title, [24.0, top + 26.0], &FONT_9X15_BOLD, INK, Alignment::Left);
    let percent = 100.0 * comparison.bootstrap.confidence;
    let legend = format!(
        "grey: cases; bar: mean with its {percent:.0} % interval; blue: separated by the signed-rank test"
    );
    canvas.text(&legend, [24.0, top + 46.0], &FONT_7X13, GREY, Alignment::Left);
    canvas.text("p, Holm", [WIDTH as f64 - 20.0, top + 46.0], &FONT_7X13, GREY, Alignment::Right);
    for (number, label) in axis.ticks() {
        canvas.fill([across(number), first_row], [across(number) + 1.0, bottom], GRID, 1.0);
        canvas.text(&label, [across(number), bottom + 17.0], &FONT_7X13, GREY, Alignment::Center);
    }
    canvas.fill([across(0.0), first_row], [across(0.0) + 1.0, bottom], INK, 1.0);
    let (low, high) = match score.better {
        Better::Higher => ("<- second is better", "first is better ->"),
        Better::Lower => ("<- first is better", "second is better ->"),
    };
    canvas.text(low, [left, bottom + 36.0], &FONT_7X13, GREY, Alignment::Left);
    canvas.text(high, [right, bottom + 36.0], &FONT_7X13, GREY, Alignment::Right);
    for (row, (difference, cases)) in score.differences.iter().zip(&cases).enumerate() {
        let middle = first_row + ROW * (row as f64 + 0.5);
        let before = row.checked_sub(1).and_then(|before| score.differences.get(before));
        if before.is_some_and(|before| before.class != difference.class) {
            let seam = first_row + ROW * row as f64;
            canvas.fill([24.0, seam], [WIDTH as f64 - 20.0, seam + 1.0], GRID, 1.0);
        }
        let label = format!("{}: {} - {}", difference.class.name, difference.first, difference.second);
        canvas.text(&shortened(&label), [left - 12.0, middle + 4.0], &FONT_7X13, INK, Alignment::Right);
        for (at, case) in cases.iter().enumerate() {
            // Cases of nearly the same difference lie beside each other.
            let aside = (at % 5) as f64 - 2.0;
            canvas.dot([across(*case), middle + 3.6 * aside], 2.0, CASE);
        }
        let colour = if difference.verdict.outcome == Told::Separated { BLUE } else { INK };
        if let Some([low, high]) = difference.mean_interval {
            canvas.line([across(low), middle], [across(high), middle], 3.0, colour);
            for end in [low, high] {
                canvas.line([across(end), middle - 6.0], [across(end), middle + 6.0], 2.0, colour);
            }
        }
        if let Some(mean) = difference.mean {
            canvas.dot([across(mean), middle], 5.0, colour);
        }
        let p = match difference.p_holm {
            None => "no cases".to_string(),
            Some(p) if p < 1e-4 => "< 0.0001".into(),
            Some(p) => format!("{p:.4}"),
        };
        canvas.text(&p, [WIDTH as f64 - 20.0, middle + 4.0], &FONT_7X13, colour, Alignment::Right);
    }
}

/// The differences of single cases, which a report does not repeat.
fn of_cases(difference: &Difference, metric: Metric, comparison: &Comparison, paired: &Paired) -> Vec<f64> {
    let position = |name: &str| comparison.candidates.iter().position(|candidate| candidate.name == name);
    let Some((first, second)) = position(&difference.first).zip(position(&difference.second)) else {
        return Vec::new();
    };
    let classes = match difference.class.number {
        Some(class) => vec![class],
        None => comparison.classes.clone(),
    };
    let scores = paired.scores_of_pair([first, second], &classes, metric);
    scores.differences.into_iter().map(|(_, difference)| difference).collect()
}

/// A label with its end left out where it is too long.
fn shortened(label: &str) -> String {
    match label.chars().count() > MOST_LETTERS {
        true => label.chars().take(MOST_LETTERS - 2).chain("..".chars()).collect(),
        false => label.into(),
    }
}
