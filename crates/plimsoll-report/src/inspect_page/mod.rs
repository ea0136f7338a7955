//! The result of `inspect` as a page: thumbnails of all cases, spacings, sizes, volumes of classes, and flagged cases. One file without
//! scripts, which needs nothing else.

mod plot;
mod units;

use std::fmt::Write;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_data::{Case, CaseFingerprint, Dataset, Inspection, Labels, Problem};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::LabelTable;

use self::plot::{Column, plot};
use self::units::Unit;
use crate::contents::OF_INSPECTION;
use crate::error::{Outcome, ReportError};
use crate::markup::{beginning, escaped};
use crate::preview::{Files, thumbnail};

/// Pixels of the longer side of a thumbnail.
const SIDE: usize = 160;

/// The most columns of a plot.
const PER_PLOT: usize = 6;

/// The bytes of a point of a plot: a number with the name of its case, and its drawing.
const POINT: usize = 512;

/// The most classes of which a card says the volume.
const LISTED: usize = 8;

/// The units of the page.
#[derive(Clone, Copy)]
struct Units {
    length: Unit,
    volume: Unit,
}

/// Axes as they are named on the page.
const AXES: [&str; 3] = ["depth (S)", "height (A)", "width (R)"];

const STYLE: &str = "svg circle{fill:#2f6fb3;fill-opacity:.55}svg .median{stroke:#c2410c;stroke-width:2}\
    .cases{display:grid;grid-template-columns:repeat(auto-fill,minmax(11.5rem,1fr));gap:1rem}\
    .case{border:1px solid #dfe4ea;border-radius:6px;padding:.6rem;font-size:.82rem}.case b{display:block;overflow-wrap:anywhere}\
    .case img{display:block;width:100%;height:10rem;object-fit:contain;background:#101216;border-radius:4px;margin-bottom:.4rem}\
    .flagged{border-color:#c2410c;box-shadow:0 0 0 1px #c2410c}.flag{color:#9a3412}\
    ul.flags{padding-left:1.2rem}ul.flags li{margin:.3rem 0}.hint{color:#55606e}";

/// Writes the page to `to`, the file `path`, part by part. `observe` is called with the number of thumbnails that are drawn.
pub fn page(
    path: &Path,
    to: &mut dyn io::Write,
    dataset: &Dataset,
    inspection: &Inspection,
    budget: &Budget,
    observe: &dyn Fn(usize),
) -> Outcome {
    let mut put =
        |part: &str| to.write_all(part.as_bytes()).map_err(|error| ReportError::at_path(path, error));
    let cases = inspection.fingerprint.as_ref().map_or(&[][..], |fingerprint| &fingerprint.cases);
    let lengths = cases.iter().flat_map(|case| case.spacing().0);
    let volumes =
        cases.iter().flat_map(|case| (1..case.label_voxels.len()).map(move |class| volume(case, class)));
    let units = Units {
        length: Unit::for_length(lengths.fold(0.0, f64::max)),
        volume: Unit::for_volume(volumes.fold(0.0, f64::max)),
    };
    put(&heading(dataset, inspection, units))?;
    put(&flags(dataset, &inspection.problems))?;
    put("<h2>Spacing, size, volume</h2>\n<div class=\"plots\">\n")?;
    plots(dataset, cases, units, budget, &mut put)?;
    put("</div>\n<h2>Cases</h2>\n<div class=\"cases\">\n")?;
    for (done, case) in dataset.cases.iter().enumerate() {
        let found = cases.iter().find(|found| found.id == case.id);
        let problems: Vec<&Problem> =
            inspection.problems.iter().filter(|problem| problem.case == case.id).collect();
        let class = if problems.is_empty() { "case" } else { "case flagged" };
        let mut card = format!("<div class=\"{class}\">");
        let image = case.image_files().next().zip(case.label.as_deref());
        if let Some((image, labels)) = image.filter(|_| found.is_some()) {
            let table = case_table(dataset, case);
            let png = thumbnail(&Files { image, labels, names: &table }, SIDE, budget)?;
            // Writing to a string cannot fail.
            let _ =
                write!(card, "<img alt=\"\" src=\"data:image/png;base64,{}\">", BASE64_STANDARD.encode(png));
        }
        let _ = write!(card, "<b>{}</b>", escaped(&case.id));
        if let Some(found) = found {
            numbers(&mut card, dataset, found, units);
        }
        for problem in problems {
            let _ = write!(
                card,
                "<br><span class=\"flag\">{}: {}</span>",
                problem.severity,
                escaped(&problem.text)
            );
        }
        card.push_str("</div>\n");
        put(&card)?;
        observe(done + 1);
    }
    put("</div>\n</body></html>\n")
}

/// Returns the heading with the properties of the data set.
fn heading(dataset: &Dataset, inspection: &Inspection, units: Units) -> String {
    let mut html = beginning(&dataset.name, OF_INSPECTION, &[STYLE]);
    let _ = writeln!(html, "<h1>{}</h1>", escaped(&dataset.name));
    let channels: Vec<&str> = dataset.channels.iter().map(|channel| channel.name.as_str()).collect();
    let _ = writeln!(
        html,
        "<p class=\"lead\">{}, {} cases; channels: {}; classes: {}</p>",
        escaped(&dataset.layout.to_string()),
        dataset.cases.len(),
        escaped(&channels.join(", ")),
        escaped(&dataset.labels.names()[1..].join(", "))
    );
    if !dataset.labels.regions().is_empty() {
        let _ = writeln!(html, "<p class=\"lead\">{}</p>", escaped(&region_line(&dataset.labels)));
    }
    if let Some(fingerprint) = &inspection.fingerprint {
        let [d, h, w] = fingerprint.median_shape;
        let _ = writeln!(
            html,
            "<p class=\"lead\">target spacing {}, median shape {d:.0} × {h:.0} × {w:.0}</p>",
            units.length.lengths(fingerprint.target_spacing.0)
        );
    }
    html
}

/// The regions that are predicted, in the values of label maps.
pub fn region_line(labels: &Labels) -> String {
    let value = |label: &u8| labels.value_in_files(*label).to_string();
    let regions = labels.regions().iter().map(|region| {
        let own = region.labels.iter().map(value).collect::<Vec<_>>().join(" + ");
        format!("{} = {own}, written as {}", region.name, value(&region.written))
    });
    format!("regions, which are predicted separately: {}", regions.collect::<Vec<_>>().join("; "))
}

/// Spacings, sizes and volumes of all cases.
fn plots(
    dataset: &Dataset,
    cases: &[CaseFingerprint],
    units: Units,
    budget: &Budget,
    put: &mut dyn FnMut(&str) -> Outcome,
) -> Outcome {
    let column = |name: &str, value: &dyn Fn(&CaseFingerprint) -> f64| Column {
        name: name.into(),
        points: cases.iter().map(|case| (case.id.clone(), value(case))).collect(),
    };
    let _held = budget.reserve("a plot", Bytes::from_len(cases.len() * PER_PLOT * POINT))?;
    let mut figure = |columns: &[Column], caption: &str, unit: &str| {
        put(&format!("<figure>{}<figcaption>{caption}</figcaption></figure>\n", plot(columns, unit)))
    };
    let Units { length, volume: of_volume } = units;
    let spacings = [0, 1, 2].map(|axis| column(AXES[axis], &|case| case.spacing().0[axis] * length.per));
    figure(&spacings, &format!("spacing in {}", length.name), length.name)?;
    drop(spacings);
    let sizes = [0, 1, 2].map(|axis| column(AXES[axis], &|case| case.shape()[axis] as f64));
    figure(&sizes, "voxels", "voxels")?;
    drop(sizes);
    let caption = format!("volume of each class in {}; cases without it are not shown", of_volume.name);
    let classes: Vec<(usize, &String)> = dataset.labels.names().iter().enumerate().skip(1).collect();
    for some in classes.chunks(PER_PLOT) {
        let columns: Vec<Column> = some
            .iter()
            .map(|(class, name)| column(name, &|case| volume(case, *class) * of_volume.per))
            .collect();
        figure(&columns, &caption, of_volume.name)?;
    }
    Ok(())
}

/// Adds the numbers of a case: its size, its spacing and the volumes of its first classes.
fn numbers(card: &mut String, dataset: &Dataset, found: &CaseFingerprint, units: Units) {
    let [d, h, w] = found.shape();
    let _ = write!(card, "{d} × {h} × {w} voxels<br>{}", units.length.lengths(found.spacing().0));
    let all = || dataset.labels.names().iter().enumerate().skip(1);
    let are_many = all().count() > LISTED;
    let present: Vec<(usize, &String)> =
        all().filter(|(class, _)| !are_many || volume(found, *class) > 0.0).collect();
    for (class, name) in present.iter().take(LISTED) {
        let _ = write!(card, "<br>{}: {}", escaped(name), units.volume.volume(volume(found, *class)));
    }
    if let more @ 1.. = present.len().saturating_sub(LISTED) {
        let _ = write!(card, "<br>and {more} more classes");
    }
}

/// Returns the list of problems and warnings.
fn flags(dataset: &Dataset, problems: &[Problem]) -> String {
    let mut html = format!("<h2>Flagged: {}</h2>\n", problems.len() + dataset.warnings.len());
    if problems.is_empty() && dataset.warnings.is_empty() {
        html.push_str("<p>No problems found.</p>\n");
        return html;
    }
    html.push_str("<ul class=\"flags\">\n");
    for warning in &dataset.warnings {
        let _ = writeln!(html, "<li><b>warning</b>: {}</li>", escaped(warning));
    }
    for problem in problems {
        let hint = problem.hint.as_deref().unwrap_or_default();
        let _ = writeln!(
            html,
            "<li><b>{}</b>: {}<br><span class=\"hint\">{}</span></li>",
            problem.severity,
            escaped(&problem.to_string()),
            escaped(hint)
        );
    }
    html.push_str("</ul>\n");
    html
}

/// The volume of a class in cubic millimetres.
fn volume(case: &CaseFingerprint, class: usize) -> f64 {
    let voxel: f64 = case.spacing().0.iter().product();
    case.label_voxels.get(class).map_or(0.0, |voxels| *voxels as f64 * voxel)
}

/// The names of the values of one label map, each class in its place: files may number them differently.
fn case_table(dataset: &Dataset, case: &Case) -> LabelTable {
    let Some(values) = &case.reading.label_values else { return label_table(dataset) };
    let value = |class: u8| {
        let own = (1..=u8::MAX).find(|value| values.class(*value) == Some(class));
        // A class that the file does not have keeps its place, with a value that no byte is.
        own.map_or(u16::MAX - u16::from(class), u16::from)
    };
    let named = dataset.labels.names().iter().zip(0..=u8::MAX).skip(1);
    LabelTable { labels: named.map(|(name, class)| (value(class), name.clone())).collect() }
}

/// The names of classes by their values in files.
pub fn label_table(dataset: &Dataset) -> LabelTable {
    let named = dataset.labels.names().iter().zip(0..=u8::MAX).skip(1);
    let labels = named.map(|(name, class)| (u16::from(dataset.labels.value_in_files(class)), name.clone()));
    LabelTable { labels: labels.collect() }
}
