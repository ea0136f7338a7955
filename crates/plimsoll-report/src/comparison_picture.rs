//! The picture of a comparison: for each pair and class a row with the difference, its interval, and, of label maps, the difference of each case.

use embedded_graphics::mono_font::iso_8859_1::{FONT_7X13, FONT_9X15_BOLD};
use embedded_graphics::text::Alignment;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classifiers::ClassifierComparison;
use plimsoll_metrics::comparison::{Comparison, Difference, Outcome as VerdictOutcome, Paired};
use plimsoll_metrics::{Better, Metric, Missing};

use crate::error::{Outcome, ReportError};
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
/// The most rows: a higher picture is too large for viewers.
const MOST_ROWS: usize = 400;
/// Letters that have room before an axis.
const MOST_LETTERS: usize = 56;

const INK: Colour = [45, 52, 64];
const GREY: Colour = [110, 118, 130];
const GRID: Colour = [228, 231, 236];
const CASE: Colour = [150, 160, 175];
/// The colour of intervals whose candidates differ significantly.
const BLUE: Colour = [31, 96, 176];

/// A score, drawn below the one before it.
struct Panel {
    title: String,
    legend: String,
    better: Better,
    rows: Vec<Row>,
}

/// A pair and a class.
struct Row {
    class: String,
    pair: String,
    /// The differences of single cases; none of images, which have no scores of their own.
    cases: Vec<f64>,
    difference: Option<f64>,
    interval: Option<[f64; 2]>,
    is_separated: bool,
    p_holm: Option<f64>,
}

/// Draws the comparison of label maps, as a PNG.
pub fn draw_label_maps(comparison: &Comparison, paired: &Paired, budget: &Budget) -> Outcome<Vec<u8>> {
    let rows: usize = comparison.scores.iter().map(|score| score.differences.len()).sum();
    expect_room(rows)?;
    // Of each row those that are drawn, and of one row as they are found, each with its case.
    let differences = (rows + 2).saturating_mul(comparison.cases.len()).saturating_mul(size_of::<f64>());
    let _held = budget.reserve("differences", Bytes::from_len(differences))?;
    let percent = 100.0 * comparison.bootstrap.confidence;
    let panel = |score: &plimsoll_metrics::comparison::ScoreComparison| {
        let unit = score.unit.map_or(String::new(), |unit| format!(", {unit}"));
        let row = |difference: &Difference| Row {
            class: difference.class.name.clone(),
            pair: format!("{} - {}", difference.first, difference.second),
            cases: case_differences(difference, score.metric, comparison, paired),
            difference: difference.mean,
            interval: difference.mean_interval,
            is_separated: difference.verdict.outcome == VerdictOutcome::Separated,
            p_holm: difference.p_holm,
        };
        Panel {
            title: format!("{}{unit}: differences of {} cases", score.metric.name(), comparison.cases.len()),
            legend: format!(
                "grey: cases, missing ones {}; bar: mean with its {percent:.0} % interval; blue: separated by the signed-rank test",
                missing_cases(comparison.missing)
            ),
            better: score.better,
            rows: score.differences.iter().map(row).collect(),
        }
    };
    draw(&comparison.scores.iter().map(panel).collect::<Vec<_>>(), budget)
}

/// Draws the comparison of classifiers, as a PNG.
pub fn draw_classifiers(comparison: &ClassifierComparison, budget: &Budget) -> Outcome<Vec<u8>> {
    expect_room(comparison.scores.iter().map(|score| score.differences.len()).sum())?;
    let percent = 100.0 * comparison.bootstrap.confidence;
    let panels = comparison.scores.iter().map(|score| Panel {
        title: format!("{}: differences over {} images", score.score.name(), comparison.images.len()),
        legend: format!("dot: difference of scores; bar: its {percent:.0} % interval; blue: separated"),
        better: score.better,
        rows: score
            .differences
            .iter()
            .map(|found| Row {
                class: found.class.clone().unwrap_or_else(|| "all classes".into()),
                pair: format!("{} - {}", found.first, found.second),
                cases: Vec::new(),
                difference: found.difference,
                interval: found.interval,
                is_separated: found.verdict.outcome == VerdictOutcome::Separated,
                p_holm: found.p_holm,
            })
            .collect(),
    });
    draw(&panels.collect::<Vec<_>>(), budget)
}

fn expect_room(rows: usize) -> Outcome {
    if rows > MOST_ROWS {
        return Err(ReportError::TooManyRows { rows, most: MOST_ROWS });
    }
    Ok(())
}

fn draw(panels: &[Panel], budget: &Budget) -> Outcome<Vec<u8>> {
    let height = panels.iter().map(Panel::height).sum::<f64>() as usize;
    // The pixels, and their compressed copy.
    let _held = budget.reserve("picture", Bytes::from_len(2 * 3 * WIDTH * height))?;
    let mut canvas = Canvas::new(WIDTH, height);
    let mut top = 0.0;
    for panel in panels {
        panel.draw(&mut canvas, top);
        top += panel.height();
    }
    canvas.png().map_err(ReportError::Pixels)
}

impl Panel {
    fn height(&self) -> f64 {
        TOP + BOTTOM + ROW * self.rows.len() as f64
    }

    fn draw(&self, canvas: &mut Canvas, top: f64) {
        let (left, right) = (LEFT, WIDTH as f64 - RIGHT);
        let (first_row, bottom) = (top + TOP, top + self.height() - BOTTOM);
        let bounds = self.rows.iter().filter_map(|row| row.interval).flatten();
        let own = self.rows.iter().flat_map(|row| row.cases.iter().copied().chain(row.difference));
        let axis = Axis::new(own.chain(bounds).chain([0.0]), 8.0);
        // Infinite differences are at the edge: one of both lacks the score.
        let across = |difference: f64| left + axis.share(difference).clamp(0.0, 1.0) * (right - left);

        canvas.text(&self.title, [24.0, top + 26.0], &FONT_9X15_BOLD, INK, Alignment::Left);
        canvas.text(&self.legend, [24.0, top + 46.0], &FONT_7X13, GREY, Alignment::Left);
        canvas.text("p, Holm", [WIDTH as f64 - 20.0, top + 46.0], &FONT_7X13, GREY, Alignment::Right);
        for (number, label) in axis.ticks() {
            canvas.fill([across(number), first_row], [across(number) + 1.0, bottom], GRID, 1.0);
            canvas.text(&label, [across(number), bottom + 17.0], &FONT_7X13, GREY, Alignment::Center);
        }
        canvas.fill([across(0.0), first_row], [across(0.0) + 1.0, bottom], INK, 1.0);
        let (low, high) = match self.better {
            Better::Higher => ("<- second is better", "first is better ->"),
            Better::Lower => ("<- first is better", "second is better ->"),
        };
        canvas.text(low, [left, bottom + 36.0], &FONT_7X13, GREY, Alignment::Left);
        canvas.text(high, [right, bottom + 36.0], &FONT_7X13, GREY, Alignment::Right);
        for (at, row) in self.rows.iter().enumerate() {
            let middle = first_row + ROW * (at as f64 + 0.5);
            let before = at.checked_sub(1).and_then(|before| self.rows.get(before));
            if before.is_some_and(|before| before.class != row.class) {
                let seam = first_row + ROW * at as f64;
                canvas.fill([24.0, seam], [WIDTH as f64 - 20.0, seam + 1.0], GRID, 1.0);
            }
            let label = shortened(&format!("{}: {}", row.class, row.pair));
            canvas.text(&label, [left - 12.0, middle + 4.0], &FONT_7X13, INK, Alignment::Right);
            for (at, case) in row.cases.iter().enumerate() {
                // Cases of nearly the same difference lie beside each other.
                let aside = (at % 5) as f64 - 2.0;
                canvas.dot([across(*case), middle + 3.6 * aside], 2.0, CASE);
            }
            let colour = if row.is_separated { BLUE } else { INK };
            if let Some([low, high]) = row.interval {
                canvas.line([across(low), middle], [across(high), middle], 3.0, colour);
                for end in [low, high] {
                    canvas.line([across(end), middle - 6.0], [across(end), middle + 6.0], 2.0, colour);
                }
            }
            if let Some(difference) = row.difference {
                canvas.dot([across(difference), middle], 5.0, colour);
            }
            let p = match row.p_holm {
                None => "no cases".to_string(),
                Some(p) if p < 1e-4 => "< 0.0001".into(),
                Some(p) => format!("{p:.4}"),
            };
            canvas.text(&p, [WIDTH as f64 - 20.0, middle + 4.0], &FONT_7X13, colour, Alignment::Right);
        }
    }
}

/// Returns the treatment of cases in which a score is missing, in words.
fn missing_cases(missing: Missing) -> &'static str {
    match missing {
        Missing::Ignore => "left out",
        Missing::Worst => "worst, distances at the edge",
        Missing::Diagonal => "worst",
    }
}

/// The differences of single cases, which a report does not repeat.
fn case_differences(
    difference: &Difference,
    metric: Metric,
    comparison: &Comparison,
    paired: &Paired,
) -> Vec<f64> {
    let position = |name: &str| comparison.candidates.iter().position(|candidate| candidate.name == name);
    let Some((first, second)) = position(&difference.first).zip(position(&difference.second)) else {
        return Vec::new();
    };
    let classes = match difference.class.number {
        Some(class) => vec![class],
        None => comparison.classes.clone(),
    };
    kept(&paired.scores_of_pair([first, second], &classes, metric, comparison.missing).differences)
}

/// Differences without their cases, in no more memory than they take: collected from pairs that are owned, they would stay in the pairs' own.
fn kept(differences: &[(usize, f64)]) -> Vec<f64> {
    let mut kept = Vec::with_capacity(differences.len());
    kept.extend(differences.iter().map(|(_, difference)| *difference));
    kept
}

/// A label with its end left out where it is too long.
fn shortened(label: &str) -> String {
    match label.chars().count() > MOST_LETTERS {
        true => label.chars().take(MOST_LETTERS - 2).chain("..".chars()).collect(),
        false => label.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_that_are_drawn_take_the_bytes_that_are_reserved_for_them() {
        let found: Vec<(usize, f64)> = (0..1000).map(|case| (case, case as f64)).collect();
        let drawn = kept(&found);
        assert_eq!((drawn.len(), drawn.capacity(), drawn[999]), (1000, 1000, 999.0));
    }
}
