//! One panel: curves over epochs between two axes.

use embedded_graphics::mono_font::iso_8859_1::{FONT_7X13, FONT_9X15_BOLD};
use embedded_graphics::text::Alignment;

use super::axis::{Axis, LARGEST};
use super::canvas::{Canvas, Colour};

const INK: Colour = [45, 52, 64];
const GREY: Colour = [110, 118, 130];
const GRID: Colour = [228, 231, 236];
const ALARM: Colour = [190, 30, 45];
/// Room for the labels of the axis.
const LEFT: f64 = 74.0;
/// Room to the next panel.
const RIGHT: f64 = 22.0;
/// Room for title and legend.
const TOP: f64 = 52.0;
/// Room for epochs.
const BOTTOM: f64 = 38.0;
/// With more epochs than pixels by this, the epochs of one column are drawn as their mean, between their extremes.
const PIXELS_PER_EPOCH: f64 = 2.0;

/// A curve: a number for each epoch that has one, in the order of epochs.
pub struct Series<'a> {
    pub name: &'a str,
    pub colour: Colour,
    pub points: Vec<(u64, f64)>,
}

/// The content of a panel.
pub struct Panel<'a> {
    pub title: &'a str,
    pub series: Vec<Series<'a>>,
    /// A dashed line, with its name.
    pub mark: Option<(&'a str, f64)>,
    /// `true` if the axis begins at zero.
    pub from_zero: bool,
}

/// The mean, the least and the largest of the numbers of one column of pixels.
struct Column {
    at: f64,
    mean: f64,
    least: f64,
    most: f64,
}

impl Panel<'_> {
    /// Draws it into a rectangle, over these epochs.
    pub fn draw(&self, canvas: &mut Canvas, [x, y]: [f64; 2], [width, height]: [f64; 2], epochs: &Axis) {
        let (left, right, top, bottom) = (x + LEFT, x + width - RIGHT, y + TOP, y + height - BOTTOM);
        let numbers = self.series.iter().flat_map(|series| series.points.iter().map(|(_, number)| *number));
        let zero = self.from_zero.then_some(0.0);
        let axis = Axis::new(numbers.chain(self.mark.map(|(_, number)| number)).chain(zero), 5.0);
        let across = |epoch: f64| left + epochs.share(epoch) * (right - left);
        let up = |number: f64| bottom - axis.share(number) * (bottom - top);

        canvas.text(self.title, [left, y + 22.0], &FONT_9X15_BOLD, INK, Alignment::Left);
        for (number, label) in axis.ticks() {
            canvas.fill([left, up(number)], [right, up(number) + 1.0], GRID, 1.0);
            canvas.text(&label, [left - 8.0, up(number) + 4.0], &FONT_7X13, GREY, Alignment::Right);
        }
        for (epoch, label) in epochs.ticks() {
            canvas.fill([across(epoch), bottom], [across(epoch) + 1.0, bottom + 5.0], GREY, 1.0);
            canvas.text(&label, [across(epoch), bottom + 17.0], &FONT_7X13, GREY, Alignment::Center);
        }
        canvas.fill([left, bottom], [right, bottom + 1.0], GREY, 1.0);
        canvas.text("epoch", [right, bottom + 31.0], &FONT_7X13, GREY, Alignment::Right);

        if let Some((_, number)) = self.mark {
            canvas.dashes([left, right], up(number), ALARM);
        }
        for series in &self.series {
            let columns = series.columns(across, right - left);
            for Column { at, least, most, .. } in columns.iter().filter(|column| column.most > column.least) {
                canvas.fill(
                    [*at, up(*most)],
                    [at + 1.0, up(*least).max(up(*most) + 1.0)],
                    series.colour,
                    0.22,
                );
            }
            for pair in columns.windows(2) {
                canvas.line(
                    [pair[0].at, up(pair[0].mean)],
                    [pair[1].at, up(pair[1].mean)],
                    1.8,
                    series.colour,
                );
            }
            // A single epoch is no line, and a few are seen best as what they are.
            if columns.len() <= 30 {
                columns.iter().for_each(|c| canvas.dot([c.at, up(c.mean)], 2.6, series.colour));
            }
            for (epoch, _) in series.points.iter().filter(|(_, number)| !is_shown(*number)) {
                canvas.dot([across(*epoch as f64), top - 4.0], 2.2, ALARM);
            }
        }
        self.legend(canvas, [right, y + 42.0]);
    }

    /// Names of curves with their colours, from the right end.
    fn legend(&self, canvas: &mut Canvas, [right, baseline]: [f64; 2]) {
        let lost =
            self.series.iter().flat_map(|series| &series.points).filter(|(_, n)| !is_shown(*n)).count();
        let lost = (lost > 0).then(|| (format!("not finite: {lost}"), ALARM, false));
        let mark = self.mark.map(|(name, _)| (name.to_string(), ALARM, true));
        let curves = self.series.iter().map(|series| (series.name.to_string(), series.colour, true));
        let entries: Vec<_> = curves.chain(mark).chain(lost).filter(|(name, ..)| !name.is_empty()).collect();
        let mut end = right;
        for (name, colour, is_line) in entries.iter().rev() {
            canvas.text(name, [end, baseline], &FONT_7X13, INK, Alignment::Right);
            let start = end - 7.0 * name.chars().count() as f64 - 8.0;
            let middle = baseline - 4.0;
            match is_line {
                true => canvas.line([start - 16.0, middle], [start, middle], 2.4, *colour),
                false => canvas.dot([start - 4.0, middle], 2.6, *colour),
            }
            end = start - 32.0;
        }
    }
}

/// Returns `true` if a number has a place on an axis.
fn is_shown(number: f64) -> bool {
    number.abs() <= LARGEST
}

impl Series<'_> {
    /// The numbers by columns of pixels: each by itself where there is room.
    fn columns(&self, across: impl Fn(f64) -> f64, width: f64) -> Vec<Column> {
        let together = self.points.len() as f64 * PIXELS_PER_EPOCH > width;
        let mut columns: Vec<Column> = Vec::new();
        let mut count = 0.0;
        for (epoch, number) in self.points.iter().filter(|(_, number)| is_shown(*number)) {
            let at = across(*epoch as f64);
            let at = if together { (at / PIXELS_PER_EPOCH).floor() * PIXELS_PER_EPOCH } else { at };
            match columns.last_mut().filter(|last| together && last.at == at) {
                Some(last) => {
                    count += 1.0;
                    last.mean += (number - last.mean) / count;
                    last.least = last.least.min(*number);
                    last.most = last.most.max(*number);
                }
                None => {
                    count = 1.0;
                    columns.push(Column { at, mean: *number, least: *number, most: *number });
                }
            }
        }
        columns
    }
}
