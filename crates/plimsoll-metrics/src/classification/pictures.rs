//! Pictures of a classification, as SVG: the confusion matrix, or the counts of each of several labels, ROC curves and the reliability of probabilities side by side.

use std::io::{self, Write};

use super::counts::ClassCounts;
use super::curves::Curves;
use super::report::{ClassReport, Report};
use crate::markup::escaped;

/// The side of a plot, in pixels; a matrix of many classes is larger.
const SIDE: f64 = 320.0;
/// The least side of a cell of the matrix.
const CELL: f64 = 26.0;
/// What is above plots, for their titles, and what is between them.
const TOP: f64 = 44.0;
const GAP: f64 = 36.0;
/// Left of and below plots with numbers at their axes.
const NUMBERS: f64 = 58.0;
/// The width of a letter of text of 11 pixels, about, and the height of a line of it.
const LETTER: f64 = 6.4;
const LINE: f64 = 17.0;
/// The longest name that is written out.
const LONGEST: usize = 20;

const STYLE: &str = "text{font:11px sans-serif;fill:#333}.title{font-weight:bold;font-size:13px}\
    .axis{stroke:#bbb;fill:none}.even{stroke:#888;stroke-dasharray:4 3;fill:none}\
    .bar{fill:#9ec5e8;stroke:#1f5f99}.dot{fill:#0b2e4f}";

/// Colours that are distinguishable with colour-blind eyes (after Okabe and Ito); yellow is too pale for lines on white.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// How lines are broken once all colours are used.
const DASHES: [&str; 4] = ["none", "6 3", "2 2", "8 3 2 3"];

/// Numbers of cases in rows and columns.
struct Matrix {
    title: &'static str,
    /// Names of the columns, and of both axes.
    columns: Vec<String>,
    axes: [&'static str; 2],
    counts: Vec<Vec<u64>>,
}

impl Report {
    /// The confusion matrix, or what each label comes to by itself.
    fn matrix(&self, names: &[String]) -> Matrix {
        if let Some(counts) = &self.confusion_matrix {
            return Matrix {
                title: "Confusion matrix",
                columns: names.to_vec(),
                axes: ["predicted class", "label"],
                counts: counts.clone(),
            };
        }
        let of = |class: &ClassReport| {
            let ClassCounts { true_positives, false_positives, false_negatives, true_negatives } =
                class.counts;
            vec![true_positives, false_negatives, false_positives, true_negatives]
        };
        Matrix {
            title: "Labels",
            columns: ["found", "missed", "false", "rightly not"].map(String::from).to_vec(),
            axes: ["what was given", "label"],
            counts: self.classes.iter().map(of).collect(),
        }
    }

    /// Writes the confusion matrix (the counts of each label, where cases have several), the ROC curve of each class against the rest, and the share of right predictions against their
    /// probability.
    ///
    /// # Errors
    /// If writing to `to` fails.
    pub fn write_pictures(&self, curves: &Curves, to: &mut dyn Write) -> io::Result<()> {
        let names: Vec<String> = self.classes.iter().map(|class| shortened(&class.name)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * LETTER;
        let counts = self.matrix(&names);
        let matrix = SIDE.max(CELL * names.len().max(counts.columns.len()) as f64);
        let longest_column =
            counts.columns.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * LETTER;
        // Names of columns are turned by 45°.
        let (left, below) = (longest + 34.0, longest_column * 0.72 + 46.0);
        let legend_width = longest + 13.0 * LETTER + 34.0;
        let roc_at = left + matrix + GAP + NUMBERS;
        let reliability_at = roc_at + SIDE + legend_width + GAP + NUMBERS;
        let width = reliability_at + SIDE + 24.0;
        let legend = LINE * names.len() as f64;
        let height = TOP + (matrix + below).max(SIDE + NUMBERS).max(legend) + 12.0;
        writeln!(
            to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
        )?;
        let mut plot = |x: f64, draw: &dyn Fn(&mut dyn Write) -> io::Result<()>| -> io::Result<()> {
            writeln!(to, "<g transform=\"translate({x:.1},{TOP})\">")?;
            draw(to)?;
            writeln!(to, "</g>")
        };
        plot(left, &|to| self.write_matrix(&counts, &names, (matrix, left, below), to))?;
        plot(roc_at, &|to| self.write_roc(&names, curves, to))?;
        plot(reliability_at, &|to| self.write_reliability(curves, to))?;
        writeln!(to, "</svg>")
    }

    /// Numbers of cases, and the shares of a class's cases as colours.
    fn write_matrix(
        &self,
        matrix: &Matrix,
        names: &[String],
        (side, left, below): (f64, f64, f64),
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let [height, width] = [names.len(), matrix.columns.len()].map(|count| side / count.max(1) as f64);
        let cell = height.min(width);
        let title = matrix.title;
        writeln!(to, "<text class=\"title\" y=\"-14\">{title}, {} cases</text>", self.cases)?;
        for (row, counts) in matrix.counts.iter().enumerate() {
            let all: u64 = counts.iter().sum();
            for (column, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let share = *count as f64 / all as f64;
                let (x, y) = (column as f64 * width, row as f64 * height);
                // From white to a dark blue.
                let [r, g, b] = [(255.0, 8.0), (255.0, 64.0), (255.0, 129.0)]
                    .map(|(none, all)| none + share * (all - none));
                writeln!(
                    to,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                     fill=\"rgb({r:.0},{g:.0},{b:.0})\"/>"
                )?;
                let text = count.to_string();
                let size = (0.85 * cell / (0.62 * text.len() as f64)).min(13.0);
                let ink = if share > 0.5 { "#fff" } else { "#222" };
                let (x, y) = (x + width / 2.0, y + height / 2.0 + size * 0.35);
                writeln!(
                    to,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" \
                     style=\"font-size:{size:.1}px;fill:{ink}\">{text}</text>"
                )?;
            }
        }
        writeln!(to, "<rect class=\"axis\" width=\"{side:.1}\" height=\"{side:.1}\"/>")?;
        for (place, name) in names.iter().enumerate() {
            let middle = height * (place as f64 + 0.5);
            let name = escaped(name);
            writeln!(to, "<text x=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", middle + 4.0)?;
        }
        for (place, name) in matrix.columns.iter().enumerate() {
            let (x, y) = (width * (place as f64 + 0.5) + 4.0, side + 12.0);
            let name = escaped(name);
            writeln!(
                to,
                "<text transform=\"translate({x:.1},{y:.1}) rotate(-45)\" text-anchor=\"end\">{name}</text>"
            )?;
        }
        let [across, down] = matrix.axes;
        titles(to, side, (across, side + below - 10.0), (down, left - 16.0))
    }

    /// A line for each class.
    fn write_roc(&self, names: &[String], curves: &Curves, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "<text class=\"title\" y=\"-14\">ROC, each class against the rest</text>")?;
        unit_axes(to)?;
        let x_title = ("1 − specificity", SIDE + 36.0);
        titles(to, SIDE, x_title, ("sensitivity", 40.0))?;
        for (place, ((name, class), points)) in names.iter().zip(&self.classes).zip(&curves.roc).enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let dash = DASHES[place / COLOURS.len() % DASHES.len()];
            let line =
                format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" stroke-dasharray=\"{dash}\"");
            if !points.is_empty() {
                write!(to, "<polyline {line} points=\"")?;
                for [x, y] in points {
                    write!(to, "{:.1},{:.1} ", SIDE * x, SIDE * (1.0 - y))?;
                }
                writeln!(to, "\"/>")?;
            }
            let (x, y) = (SIDE + 16.0, 6.0 + LINE * place as f64);
            let area = class.scores.get("auroc").and_then(|found| found.value);
            let area = area.map_or("undefined".into(), |area| format!("AUC {area:.3}"));
            writeln!(to, "<path {line} d=\"M{x} {y:.1}h22\"/>")?;
            let (x, y) = (x + 28.0, y + 4.0);
            writeln!(to, "<text x=\"{x}\" y=\"{y:.1}\">{}: {area}</text>", escaped(name))?;
        }
        Ok(())
    }

    /// A bar for each bin, and a dot where its mean probability is.
    fn write_reliability(&self, curves: &Curves, to: &mut dyn Write) -> io::Result<()> {
        let error = self.overall.get("ece").and_then(|found| found.value);
        let error = error.map_or(String::new(), |error| format!(", calibration error {error:.3}"));
        writeln!(to, "<text class=\"title\" y=\"-14\">Reliability{error}</text>")?;
        for bin in &curves.reliability {
            let (Some(confidence), Some(frequency)) = (bin.confidence, bin.frequency) else { continue };
            let (x, width) = (SIDE * bin.above, SIDE * (bin.up_to - bin.above));
            let (y, height) = (SIDE * (1.0 - frequency), SIDE * frequency);
            writeln!(
                to,
                "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
                 <title>{} cases</title></rect>\n<circle class=\"dot\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\"/>",
                bin.cases,
                SIDE * confidence,
            )?;
        }
        unit_axes(to)?;
        let (confident, right) = match self.confusion_matrix {
            Some(_) => ("probability of the predicted class", "share that is right"),
            None => ("probability of a label", "share that has it"),
        };
        let x_title = (confident, SIDE + 36.0);
        titles(to, SIDE, x_title, (right, 40.0))
    }
}

/// Names of both axes: with how far that below is from the top of the plot, and that at the left from its left.
fn titles(to: &mut dyn Write, side: f64, below: (&str, f64), left: (&str, f64)) -> io::Result<()> {
    let middle = side / 2.0;
    writeln!(to, "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", below.1, below.0)?;
    let (x, name) = (-left.1, left.0);
    writeln!(
        to,
        "<text transform=\"translate({x:.1},{middle:.1}) rotate(-90)\" text-anchor=\"middle\">{name}</text>"
    )
}

/// Axes from 0 to 1, with quarters, and the diagonal.
fn unit_axes(to: &mut dyn Write) -> io::Result<()> {
    for quarter in 0..=4 {
        let value = f64::from(quarter) / 4.0;
        let (at, up) = (SIDE * value, SIDE * (1.0 - value));
        writeln!(
            to,
            "<path class=\"axis\" d=\"M0 {up:.1}H{SIDE}M{at:.1} 0V{SIDE}\" stroke-opacity=\"0.5\"/>\n\
             <text x=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
            up + 4.0,
            SIDE + 16.0
        )?;
    }
    writeln!(to, "<path class=\"even\" d=\"M0 {SIDE}L{SIDE} 0\"/>")
}

fn shortened(name: &str) -> String {
    match name.chars().count() > LONGEST {
        true => name.chars().take(LONGEST - 1).chain(['…']).collect(),
        false => name.into(),
    }
}
