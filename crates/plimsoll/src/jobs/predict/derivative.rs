//! The files that describe predictions as a derivative data set of BIDS.
//!
//! Specification: <https://bids-specification.readthedocs.io/en/stable/derivatives/imaging.html#segmentations>.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use plimsoll_data::{BIDS_DESCRIPTION, BIDS_GENERATOR, is_predicted};
use plimsoll_disk::atomic;
use serde_json::{Value, json};

use super::label_folder::UNPROCESSED;
use super::model::Opened;
use super::previews::names;
use super::record_files::PARTS;
use super::request::PredictRequest;
use crate::error::{Error, Outcome};
use crate::files::make_folder;

/// The version of the specification that names follow.
const VERSION: &str = "1.10.0";

/// The longest description that is read of another data set.
const LONGEST: u64 = 1 << 20;

/// The table of label names, one for all subjects.
const TABLE: &str = "desc-plimsoll_dseg.tsv";
const SIDECAR: &str = "desc-plimsoll_dseg.json";
const IGNORED: &str = ".bidsignore";

/// The description of the source data set; null if it has none.
fn source_description(input: &Path) -> Outcome<Value> {
    let path = input.join(BIDS_DESCRIPTION);
    let text = match plimsoll_disk::read(&path, LONGEST) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Value::Null),
        read => read.map_err(|error| Error::at_path(&path, &error))?,
    };
    let text = plimsoll_disk::without_mark(text);
    serde_json::from_slice(&text).map_err(|problem| {
        let message = format!("{} is not valid JSON: {problem}", path.display());
        Error::new(message, "correct it: it gives the name and the DOI of the derivatives' source")
    })
}

/// Writes what describes the derivative data set of a prediction: who made it, and what its labels are called.
pub(super) fn describe(request: &PredictRequest, opened: &Opened, has_unprocessed: bool) -> Outcome {
    let folder = &request.output;
    if folder.join(BIDS_DESCRIPTION).exists() && !is_predicted(folder)? {
        let message = format!("{} is a data set written by another program", folder.display());
        let hint = format!(
            "choose another folder, like ‹output={}›",
            request.input.join("derivatives/plimsoll").display()
        );
        return Err(Error::new(message, hint));
    }
    let source = source_description(&request.input)?;
    make_folder(folder)?;
    let of_folder =
        || request.input.canonicalize().ok()?.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = source["Name"].as_str().map(str::to_string).or_else(of_folder);
    // Where it is on this machine is nobody's business.
    let model_name = request.model.file_name().map_or(request.model.as_path(), Path::new);
    let mut described = json!({
        "Name": format!("Labels of {}", name.as_deref().unwrap_or("a data set")),
        "BIDSVersion": VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{
            "Name": BIDS_GENERATOR,
            "Version": env!("CARGO_PKG_VERSION"),
            "Description": format!("plimsoll predict, model {}", model_name.display()),
        }],
    });
    if let Some(doi) = source["DatasetDOI"].as_str() {
        described["SourceDatasets"] = json!([{ "DOI": doi }]);
    }
    let mut table = String::from("index\tname\n0\tbackground\n");
    for (value, name) in &names(&opened.model).labels {
        let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(table, "{value}\t{name}");
    }
    let mut ignored = String::from("*.preview.png\n");
    if has_unprocessed {
        let _ = writeln!(ignored, "{UNPROCESSED}/");
    }
    if request.part.is_some() {
        let _ = writeln!(ignored, "{PARTS}/");
    }
    // Labels of the earlier stage of a cascade are a data set of their own.
    if let Some(previous) = &opened.previous {
        let _ = writeln!(ignored, "{previous}/");
    }
    let sidecar = json!({
        "Description": "Labels that a network has predicted, on the grid of the image",
        "Manual": false,
        "SpatialReference": "orig",
    });
    let text = |value: &Value| format!("{value:#}\n");
    let files = [
        (TABLE, table),
        (SIDECAR, text(&sidecar)),
        (IGNORED, ignored),
        // The last, by which the folder is known.
        (BIDS_DESCRIPTION, text(&described)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        atomic::write(&path, |file| file.write_all(text.as_bytes()))
            .map_err(|error| Error::at_path(&path, &error))?;
    }
    Ok(())
}
