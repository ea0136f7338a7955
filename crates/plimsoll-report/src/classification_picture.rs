//! Pictures of a classification, as SVG: the confusion matrix, or the counts of each of several labels, ROC curves and the reliability of probabilities side by side.

use plimsoll_metrics::classification::{ClassCounts, ClassReport, ClassificationReport, Curves};

use crate::svg::{Anchor, Drawing, Element, Path, circle, group, path, rect, text, turned_text};

/// The side of a plot, in pixels; a matrix of many classes is larger.
const SIDE: f64 = 320.0;
/// The least side of a cell of the matrix.
const CELL: f64 = 26.0;
/// The height above plots, for their titles, and the gap between plots.
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
/// The dashes of lines once all colours are used.
const DASHES: [&str; 4] = ["none", "6 3", "2 2", "8 3 2 3"];

/// Numbers of cases in rows and columns.
struct Matrix {
    title: &'static str,
    /// Names of the columns, and of both axes.
    columns: Vec<String>,
    axes: [&'static str; 2],
    counts: Vec<Vec<u64>>,
}

impl Matrix {
    /// The confusion matrix, or the counts of each label alone.
    fn new(report: &ClassificationReport, names: &[String]) -> Matrix {
        if let Some(counts) = &report.confusion_matrix {
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
            counts: report.classes.iter().map(of).collect(),
        }
    }
}

/// Draws the confusion matrix (the counts of each label, where cases have several), the ROC curve of each class against the rest, and the
/// share of right predictions against their probability.
pub fn classification_picture(report: &ClassificationReport, curves: &Curves) -> Drawing {
    let names: Vec<String> = report.classes.iter().map(|class| shortened(&class.name)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * LETTER;
    let counts = Matrix::new(report, &names);
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
    let mut drawing = Drawing::new([width.round(), height.round()]).styled(STYLE);
    let room = Room { side: matrix, left, below };
    drawing.push(counts.drawn(report, &names, &room, group([left, TOP])));
    drawing.push(roc(report, &names, curves, group([roc_at, TOP])));
    drawing.push(calibration(report, curves, group([reliability_at, TOP])));
    drawing
}

/// The room of a matrix, in pixels.
struct Room {
    /// The length of a side of its cells.
    side: f64,
    /// Left of them, for names of rows.
    left: f64,
    /// Below them, for names of columns.
    below: f64,
}

impl Matrix {
    /// Draws numbers of cases, and the shares of a class's cases as colours.
    fn drawn(
        &self,
        report: &ClassificationReport,
        names: &[String],
        room: &Room,
        mut at: Element,
    ) -> Element {
        let [height, width] = [names.len(), self.columns.len()].map(|count| room.side / count.max(1) as f64);
        let cell = height.min(width);
        let title = format!("{}, {} cases", self.title, report.cases);
        at.push(text([0.0, -14.0], Anchor::Start, &title).set("class", "title"));
        for (row, counts) in self.counts.iter().enumerate() {
            let all: u64 = counts.iter().sum();
            for (column, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let share = *count as f64 / all as f64;
                let (x, y) = (column as f64 * width, row as f64 * height);
                // From white to a dark blue.
                let [r, g, b] = [(255.0, 8.0), (255.0, 64.0), (255.0, 129.0)]
                    .map(|(none, all)| none + share * (all - none));
                let colour = format!("rgb({r:.0},{g:.0},{b:.0})");
                at.push(rect([x, y], [width, height]).set("fill", colour.as_str()));
                let count = count.to_string();
                let size = (0.85 * cell / (0.62 * count.len() as f64)).min(13.0);
                let ink = if share > 0.5 { "#fff" } else { "#222" };
                let style = format!("font-size:{size:.1}px;fill:{ink}");
                let centre = [x + width / 2.0, y + height / 2.0 + size * 0.35];
                at.push(text(centre, Anchor::Middle, &count).set("style", style.as_str()));
            }
        }
        at.push(rect([0.0; 2], [room.side; 2]).set("class", "axis"));
        for (place, name) in names.iter().enumerate() {
            let middle = height * (place as f64 + 0.5);
            at.push(text([-6.0, middle + 4.0], Anchor::End, name));
        }
        for (place, name) in self.columns.iter().enumerate() {
            let corner = [width * (place as f64 + 0.5) + 4.0, room.side + 12.0];
            at.push(turned_text(corner, -45.0, Anchor::End, name));
        }
        let [across, down] = self.axes;
        titles(&mut at, room.side, (across, room.side + room.below - 10.0), (down, room.left - 16.0));
        at
    }
}

/// Draws the ROC curve of each class.
fn roc(report: &ClassificationReport, names: &[String], curves: &Curves, mut at: Element) -> Element {
    let title = "ROC, each class against the rest";
    at.push(text([0.0, -14.0], Anchor::Start, title).set("class", "title"));
    unit_axes(&mut at);
    titles(&mut at, SIDE, ("1 − specificity", SIDE + 36.0), ("sensitivity", 40.0));
    for (place, ((name, class), points)) in names.iter().zip(&report.classes).zip(&curves.roc).enumerate() {
        let styled = |course: Path| {
            path(course)
                .set("fill", "none")
                .set("stroke", COLOURS[place % COLOURS.len()])
                .set("stroke-width", 1.6)
                .set("stroke-dasharray", DASHES[place / COLOURS.len() % DASHES.len()])
        };
        if !points.is_empty() {
            at.push(styled(Path::through(points.iter().map(|[x, y]| [SIDE * x, SIDE * (1.0 - y)]))));
        }
        let (x, y) = (SIDE + 16.0, 6.0 + LINE * place as f64);
        let area = class.scores.get("auroc").and_then(|found| found.value);
        let area = area.map_or("undefined".into(), |area| format!("AUC {area:.3}"));
        at.push(styled(Path::from([x, y]).across_to(x + 22.0)));
        at.push(text([x + 28.0, y + 4.0], Anchor::Start, &format!("{name}: {area}")));
    }
    at
}

/// Draws a bar for each bin of probabilities, and a dot at its mean probability.
fn calibration(report: &ClassificationReport, curves: &Curves, mut at: Element) -> Element {
    let error = report.overall.get("ece").and_then(|found| found.value);
    let error = error.map_or(String::new(), |error| format!(", calibration error {error:.3}"));
    let title = format!("Reliability{error}");
    at.push(text([0.0, -14.0], Anchor::Start, &title).set("class", "title"));
    for bin in &curves.reliability {
        let (Some(confidence), Some(frequency)) = (bin.confidence, bin.frequency) else { continue };
        let (x, width) = (SIDE * bin.above, SIDE * (bin.up_to - bin.above));
        let (y, height) = (SIDE * (1.0 - frequency), SIDE * frequency);
        let bar = rect([x, y], [width, height]).set("class", "bar");
        at.push(bar.tooltip(&format!("{} cases", bin.cases)));
        at.push(circle([SIDE * confidence, y], 3.0).set("class", "dot"));
    }
    unit_axes(&mut at);
    let (confident, right) = match report.confusion_matrix {
        Some(_) => ("probability of the predicted class", "share that is right"),
        None => ("probability of a label", "share that has it"),
    };
    titles(&mut at, SIDE, (confident, SIDE + 36.0), (right, 40.0));
    at
}

/// Names of both axes: with how far that below is from the top of the plot, and that at the left from its left.
fn titles(at: &mut Element, side: f64, below: (&str, f64), left: (&str, f64)) {
    let middle = side / 2.0;
    at.push(text([middle, below.1], Anchor::Middle, below.0));
    at.push(turned_text([-left.1, middle], -90.0, Anchor::Middle, left.0));
}

/// Axes from 0 to 1, with quarters, and the diagonal.
fn unit_axes(at: &mut Element) {
    for quarter in 0..=4 {
        let value = f64::from(quarter) / 4.0;
        let (along, up) = (SIDE * value, SIDE * (1.0 - value));
        let grid = Path::from([0.0, up]).across_to(SIDE).jump([along, 0.0]).down_to(SIDE);
        at.push(path(grid).set("class", "axis").set("stroke-opacity", 0.5));
        at.push(text([-6.0, up + 4.0], Anchor::End, &value.to_string()));
        at.push(text([along, SIDE + 16.0], Anchor::Middle, &value.to_string()));
    }
    at.push(path(Path::from([0.0, SIDE]).to([SIDE, 0.0])).set("class", "even"));
}

fn shortened(name: &str) -> String {
    match name.chars().count() > LONGEST {
        true => name.chars().take(LONGEST - 1).chain(['…']).collect(),
        false => name.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use plimsoll_memory::{Budget, Bytes};
    use plimsoll_metrics::classification::{Bootstrap, Labelling, Table, classify};

    use super::*;

    fn drawn(table: &str, labelling: Labelling) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.csv");
        std::fs::write(&path, table).unwrap();
        let budget = Budget::new(Bytes::mib(16));
        let table = Table::read(&path, labelling, &budget).unwrap();
        let report = classify(&table, &Bootstrap { resamples: 10, ..Bootstrap::default() }, &budget).unwrap();
        classification_picture(&report, &Curves::new(&table, &budget).unwrap()).in_page()
    }

    #[test]
    fn several_labels_have_counts_each_and_one_class_has_a_confusion_matrix() {
        let several =
            drawn("case,label,a,b\nx,a|b,0.9,0.8\ny,a,0.7,0.1\nz,,0.2,0.3\n", Labelling::SeveralLabels);
        assert!(several.contains("rightly not") && !several.contains("Confusion"), "{several}");
        let one = drawn("case,label,<a>,b\nx,<a>,0.9,0.1\ny,b,0.3,0.7\nz,b,0.6,0.4\n", Labelling::OneClass);
        assert!(one.contains(">Confusion matrix, 3 cases<") && one.contains(">&lt;a&gt;<"), "{one}");
        // One image in each cell except the cell of a class that is never predicted as the other.
        assert_eq!(one.matches("fill=\"rgb(").count(), 3, "{one}");
    }
}
