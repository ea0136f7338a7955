//! Names of labels with their colours, in columns below the slices.

use std::collections::BTreeSet;

use embedded_graphics::mono_font::iso_8859_1::FONT_7X13;
use embedded_graphics::text::Alignment;

use super::Colours;
use crate::progress_picture::canvas::{Canvas, Colour};

const INK: Colour = [225, 228, 232];
/// Pixels of a line, of a square of colour, of a letter, and around all.
const LINE: usize = 18;
const SQUARE: usize = 11;
const LETTER: usize = 7;
const MARGIN: usize = 10;
/// Letters of a name that are shown, and the most lines.
const LETTERS: usize = 30;
const MOST_LINES: usize = 10;

/// The names of labels in a picture.
pub struct Legend {
    /// In order.
    labels: Vec<u16>,
    /// Labels of the map that are not named, for want of room or because no slice shows them.
    others: usize,
    columns: usize,
}

impl Legend {
    /// Lays out a legend of the labels in the shown slices, and of all labels of the map, on a picture of a width.
    pub fn new(shown: &BTreeSet<u16>, all: &BTreeSet<u16>, width: usize) -> Legend {
        let columns = (width.saturating_sub(2 * MARGIN) / Legend::column()).max(1);
        // The last place says how many are left out.
        let most = columns * MOST_LINES - 1;
        let labels: Vec<u16> = shown.iter().copied().take(most).collect();
        Legend { others: all.len().saturating_sub(labels.len()), labels, columns }
    }

    /// Pixels of a column.
    fn column() -> usize {
        SQUARE + MARGIN + (LETTERS + 1) * LETTER
    }

    fn lines(&self) -> usize {
        (self.labels.len() + usize::from(self.others > 0 || self.labels.is_empty())).div_ceil(self.columns)
    }

    /// Pixels down.
    pub fn height(&self) -> usize {
        2 * MARGIN + LINE * self.lines()
    }

    /// Draws it from a row on, column by column.
    pub fn draw(&self, canvas: &mut Canvas, top: usize, colours: &Colours<'_>) {
        let lines = self.lines().max(1);
        let place = |number: usize| {
            let left = MARGIN + number / lines * Legend::column();
            [left as f64, (top + MARGIN + number % lines * LINE) as f64]
        };
        let text = |canvas: &mut Canvas, [left, upper]: [f64; 2], text: &str| {
            let at = [left + (SQUARE + 6) as f64, upper + 12.0];
            canvas.text(text, at, &FONT_7X13, INK, Alignment::Left);
        };
        for (number, label) in self.labels.iter().enumerate() {
            let [left, upper] = place(number);
            let side = SQUARE as f64;
            canvas.fill([left, upper + 2.0], [left + side, upper + 2.0 + side], colours.colour(*label), 1.0);
            text(canvas, [left, upper], &shortened(&colours.name(*label)));
        }
        let rest = match (self.labels.is_empty(), self.others) {
            (true, 0) => "no labels".to_string(),
            (_, 0) => return,
            (true, others) => format!("{others} labels, in other slices"),
            (false, others) => format!("and {others} more"),
        };
        text(canvas, place(self.labels.len()), &rest);
    }
}

/// A name that fits a column.
fn shortened(name: &str) -> String {
    match name.chars().count() > LETTERS {
        true => format!("{}...", name.chars().take(LETTERS - 3).collect::<String>()),
        false => name.to_string(),
    }
}
