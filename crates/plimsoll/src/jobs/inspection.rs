//! Inspecting a data set: its cases, its classes, and what is wrong with them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::pictures::ImageDataset;
use plimsoll_data::{Dataset, Fingerprint, FoundData, Inspection, Labels, Problem, Region, Severity};
use plimsoll_image::SampleRange;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_report::inspect_page::page;
use plimsoll_run::Settings;
use serde::{Serialize, Serializer};

use super::inspect::{census, inspect as inspect_volumes, inspect_images};
use super::inspection_parts::inspect_part;
use super::listed::{Listed, Opening};
use super::listed_files;
use super::memory_limit::MemoryLimit;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::files::{write, write_json};
use crate::part::Part;

/// The file that describes a data set.
const DESCRIPTION: &str = "dataset.json";

/// A data set to inspect.
#[derive(Clone, Debug, Default)]
pub struct InspectRequest {
    /// The folder or the table of the data set.
    pub dataset: PathBuf,
    /// The layout of the data set and its images, where its folder does not say so.
    pub settings: Settings,
    /// Allows lists to name files outside of the data set's folder.
    pub allow_outside: bool,
    /// Writes a dataset.json into the folder, which must have none.
    pub describe: bool,
    /// The page that is written, with its numbers beside it as .json.
    pub page: Option<PathBuf>,
    /// The memory limit; none for what the machine leaves.
    pub ram: Option<Bytes>,
    /// Cases that are read at a time; at least 1.
    pub threads: usize,
    /// The part of the cases that is read; `None` for all. The last of several processes to finish merges all parts, in the cache folder.
    pub part: Option<Part>,
}

/// An inspected data set.
pub enum Inspected {
    /// Volumes with a label for each voxel.
    Volumes {
        /// The data set.
        dataset: Box<Dataset>,
        /// Its cases and their problems.
        inspection: Box<Inspection>,
    },
    /// Pictures with classes.
    Images {
        /// The name of the data set.
        name: String,
        /// The data set.
        dataset: Arc<ImageDataset>,
        /// The problems of its pictures.
        inspection: Box<plimsoll_data::pictures::Inspection>,
    },
    /// A part of the cases of volumes, while other parts are missing.
    Part(Part),
}

impl Inspected {
    /// The problems that no training can work around.
    pub fn errors(&self) -> Vec<String> {
        match self {
            Inspected::Volumes { inspection, .. } => {
                let errors = inspection.problems.iter().filter(|problem| problem.severity == Severity::Error);
                errors.map(ToString::to_string).collect()
            }
            Inspected::Images { inspection, .. } => {
                let errors = inspection.problems.iter().filter(|problem| problem.kind.is_error());
                errors.map(ToString::to_string).collect()
            }
            // The last part to finish reports the problems of all.
            Inspected::Part(_) => Vec::new(),
        }
    }

    /// Checks that every case can be used.
    ///
    /// # Errors
    /// Returns an error if one cannot; the error names the first.
    pub fn check(&self, place: &Path) -> Outcome {
        let errors = self.errors();
        let Some(first) = errors.first() else { return Ok(()) };
        let plural = if errors.len() == 1 { "error" } else { "errors" };
        let message = format!("{} {plural} in {}: {first}", errors.len(), place.display());
        Err(Error::new(message, "repair or remove the cases named above"))
    }
}

impl Serialize for Inspected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Inspected::Volumes { dataset, inspection } => {
                InspectionReport::new(dataset, inspection).serialize(serializer)
            }
            Inspected::Images { name, dataset, inspection } => ImageReport {
                name,
                cases: dataset.cases.len(),
                classes: class_counts(dataset),
                problems: inspection.problems.iter().map(ToString::to_string).collect(),
                largest_pixels: inspection.largest.pixels,
                range_16_bit: inspection.range_16_bit,
                warnings: &dataset.warnings,
            }
            .serialize(serializer),
            Inspected::Part(part) => PartReport { part: *part }.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct PartReport {
    part: Part,
}

/// Inspects a data set, and writes its description and its page if the request names them.
///
/// # Errors
/// Returns an error if the data set cannot be read, or a file cannot be written. Cases that cannot be used are no error here: see
/// [`Inspected::check`].
pub fn inspect(request: &InspectRequest, context: &Context) -> Outcome<Inspected> {
    let InspectRequest { dataset: place, settings, allow_outside, ram, threads, .. } = request;
    request.page.as_deref().map_or(Ok(()), check_page)?;
    if let Some(part) = request.part.filter(|_| request.describe) {
        let message = format!("‹write› describes all cases, but part {part} is to be inspected");
        return Err(Error::new(message, "describe the data set by one process first, without ‹part›"));
    }
    let memory = MemoryLimit::set(*ram, *threads, context)?;
    let opening = Opening { settings, allow_outside: *allow_outside, threads: *threads, context };
    let listed = match request.describe {
        true => Listed::Volumes(describe(place, &opening, &memory.budget)?),
        false => Listed::open(place, &opening, &memory.budget)?,
    };
    match listed {
        Listed::Volumes(dataset) => {
            let inspection = match request.part {
                Some(part) => match inspect_part(&dataset, part, *threads, &memory.budget, context)? {
                    Some(inspection) => inspection,
                    None => return Ok(Inspected::Part(part)),
                },
                None => inspect_volumes(&dataset, *threads, &memory.budget, context)?,
            };
            if let Some(path) = &request.page {
                write_page(path, &dataset, &inspection, &memory.budget, context)?;
            }
            Ok(Inspected::Volumes { dataset: Box::new(dataset), inspection: Box::new(inspection) })
        }
        Listed::Images { .. } if request.part.is_some() => {
            let message =
                format!("‹part› applies to volumes, but {} has images with classes", place.display());
            Err(Error::new(message, "inspect it by one process"))
        }
        Listed::Images { .. } if request.page.is_some() => {
            let message =
                format!("‹page› applies to volumes, but {} has images with classes", place.display());
            Err(Error::new(message, "leave ‹page› out"))
        }
        Listed::Images { name, place, dataset } => {
            let images = settings.images.clone().unwrap_or_default();
            let inspection =
                inspect_images(&place, &dataset, &images, *threads, &memory.budget, &context.silent())?;
            Ok(Inspected::Images { name, dataset, inspection: Box::new(inspection) })
        }
    }
}

#[derive(Serialize)]
struct InspectionReport<'a> {
    name: &'a str,
    layout: String,
    cases: usize,
    /// Classes with their values in label maps.
    labels: Vec<(&'a str, u8)>,
    /// The regions that are predicted, with their labels.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    regions: &'a [Region],
    problems: &'a [Problem],
    /// Classes that no case has.
    absent_classes: Vec<&'a str>,
    fingerprint: Option<&'a Fingerprint>,
    index_bytes: Bytes,
    warnings: &'a [String],
}

impl<'a> InspectionReport<'a> {
    fn new(dataset: &'a Dataset, inspection: &'a Inspection) -> InspectionReport<'a> {
        let labels = &dataset.labels;
        let named = labels.names().iter().zip(0..=u8::MAX);
        InspectionReport {
            name: &dataset.name,
            layout: dataset.layout.to_string(),
            cases: dataset.cases.len(),
            labels: named.map(|(name, class)| (name.as_str(), labels.value_in_files(class))).collect(),
            regions: labels.regions(),
            problems: &inspection.problems,
            absent_classes: absent_classes(dataset, inspection),
            fingerprint: inspection.fingerprint.as_ref(),
            index_bytes: inspection.index_bytes(),
            warnings: &dataset.warnings,
        }
    }
}

#[derive(Serialize)]
struct ImageReport<'a> {
    name: &'a str,
    cases: usize,
    classes: Vec<(&'a str, usize)>,
    problems: Vec<String>,
    largest_pixels: usize,
    /// The samples of 16 bits that become 0 and 255.
    #[serde(skip_serializing_if = "Option::is_none")]
    range_16_bit: Option<SampleRange>,
    warnings: &'a [String],
}

/// Writes a description of what is found, and opens it.
fn describe(place: &Path, opening: &Opening<'_>, budget: &Budget) -> Outcome<Dataset> {
    let options = opening.settings.data_options(opening.allow_outside);
    let Some(found) = FoundData::find(place, &options, budget)? else {
        let message = format!("{} has nothing that looks like images with label maps", place.display());
        return Err(Error::new(
            message,
            "‹write› describes such data sets; set their folders under [data] in plimsoll.toml",
        ));
    };
    opening.context.expect_unlisted(listed_files::DATA_SET, listed_files::volume_files(&found))?;
    let path = found.folder.join(DESCRIPTION);
    if path.exists() {
        let hint =
            "leave ‹write› out to inspect the data set that it describes, or move it to write a new one";
        return Err(Error::new(format!("{} already exists", path.display()), hint));
    }
    let labels = match &found.labels {
        Some(labels) => labels.clone(),
        None => {
            let classes = census(&found, opening.threads, budget, opening.context)?.classes();
            let values = classes.iter().map(|(name, value)| (name.clone(), u64::from(*value))).collect();
            Labels::from_values(&path, &values)?
        }
    };
    let described = found.description(&labels);
    write(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, &described)?;
        file.write_all(b"\n")
    })?;
    let (listed, _) = labels.described(true);
    let said: Vec<String> = listed.0.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    opening.context.note(format_args!(
        "wrote {}: {}, {} cases, labels {}",
        path.display(),
        found.layout,
        found.cases.len(),
        said.join(", ")
    ));
    Ok(found.with_labels(labels))
}

/// Writes the page, and its numbers beside it.
fn write_page(
    path: &Path,
    dataset: &Dataset,
    inspection: &Inspection,
    budget: &Budget,
    context: &Context,
) -> Outcome {
    let progress = context.work("drawing", dataset.cases.len() as u64);
    let observe = |done: usize| progress.set(done as u64, String::new());
    let mut fault = None;
    let written = write(path, |file| {
        page(path, file, dataset, inspection, budget, &observe).map_err(|failure| {
            fault = Some(failure);
            io::Error::other("the page is incomplete")
        })
    });
    drop(progress);
    fault.map_or(written, |error| Err(error.into()))?;
    write(&path.with_extension("json"), |file| write_json(file, &InspectionReport::new(dataset, inspection)))
}

/// Checks that neither the page nor the numbers beside it replace a description.
fn check_page(path: &Path) -> Outcome {
    let beside = path.with_extension("json");
    if beside == path || beside.file_name().is_some_and(|name| name == DESCRIPTION) {
        let message = format!(
            "‹page={}› would have the same name as its file of numbers, {}",
            path.display(),
            beside.display()
        );
        return Err(Error::new(message, "choose another name, like report.html"));
    }
    Ok(())
}

/// Classes with their numbers of images.
fn class_counts(dataset: &ImageDataset) -> Vec<(&str, usize)> {
    let counts = dataset.class_counts(&dataset.in_split(None));
    dataset.classes.iter().map(String::as_str).zip(counts).collect()
}

/// The names of classes that no case has; empty if no case can be used.
pub fn absent_classes<'a>(dataset: &'a Dataset, inspection: &Inspection) -> Vec<&'a str> {
    let Some(fingerprint) = &inspection.fingerprint else { return Vec::new() };
    let is_absent = |class: usize| {
        fingerprint.cases.iter().all(|case| case.label_voxels.get(class).is_none_or(|voxels| *voxels == 0))
    };
    let named = dataset.labels.names().iter().enumerate().skip(1);
    named.filter(|(class, _)| is_absent(*class)).map(|(_, name)| name.as_str()).collect()
}
