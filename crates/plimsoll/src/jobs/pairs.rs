//! One-vs-one: a classifier for each pair of classes, each a run of its own.

use std::io;
use std::path::Path;

use plimsoll_data::pictures::ImageDataset;
use plimsoll_memory::Bytes;
use plimsoll_run::{FolderUse, ImageTarget, RunError, RunFolder, RunPlan, Settings, Specification};
use serde::Serialize;

use super::listed::Listed;
use super::plan::{Opened, PlanRequest};
use super::train::{Checked, TrainRequest, Trained, describe_opened, train_opened};
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::events::Event;
use crate::files::{write, write_json};

/// A classifier of two classes.
#[derive(Serialize)]
pub struct TrainedPair {
    /// The two, by the numbers of their labels.
    pub pair: (u32, u32),
    /// The result of its training.
    #[serde(flatten)]
    pub trained: Trained,
}

/// The specification of the classifier of one pair.
#[derive(Serialize)]
pub struct DescribedPair {
    /// The two, by the numbers of their labels.
    pub pair: (u32, u32),
    /// The specification of the first requested fold.
    pub specification: Specification,
}

/// The checked request of one pair.
struct CheckedPair {
    pair: (u32, u32),
    request: TrainRequest,
    checked: Checked,
}

/// Trains a classifier for each pair of classes, one after the other, each a run of its own in a folder of its own: what one held is
/// given back before the next begins.
pub fn train_pairs(request: &TrainRequest, context: &Context) -> Outcome<Vec<TrainedPair>> {
    let (pairs, mut opened) = open(request, context)?;
    let folder = request.run.path();
    record_classes(folder, &pairs)?;
    let mut all = Vec::new();
    for CheckedPair { pair, request, checked } in pairs {
        let title = format!("classes {} and {}, in {}", pair.0, pair.1, request.run.path().display());
        context.emit(&Event::Part { title: &title });
        let trained = match train_opened(&request, checked, &mut opened, context) {
            Ok(trained) => trained,
            Err(failure) => {
                forget_classes(folder)?;
                return Err(failure);
            }
        };
        let is_stopped = trained.is_stopped;
        all.push(TrainedPair { pair, trained });
        if is_stopped {
            break;
        }
    }
    Ok(all)
}

/// Returns the specification of each pair without training it.
pub fn describe_pairs(request: &TrainRequest, context: &Context) -> Outcome<Vec<DescribedPair>> {
    let (pairs, mut opened) = open(request, context)?;
    let described = pairs.into_iter().map(|CheckedPair { pair, request, checked }| {
        let specification = describe_opened(&request, checked, &mut opened, context)?;
        Ok(DescribedPair { pair, specification })
    });
    described.collect()
}

/// Checks the requests of all pairs, and inspects the data set.
fn open(request: &TrainRequest, context: &Context) -> Outcome<(Vec<CheckedPair>, Opened)> {
    let memory = request.plan.set_limit(context)?;
    let listed = request.plan.open_dataset(&memory, context)?;
    FolderUse::Pairs.expect_in(request.run.path())?;
    let mut pairs = Vec::new();
    let begun = first_begun(request)?;
    for (pair, own) in pair_requests(request, begun.as_ref(), &listed)? {
        let mut checked = own.check(&listed, &memory.budget, context)?;
        // Pairs that are begun now begin as the others did.
        if let Some(begun) = begun.as_ref().filter(|_| request.plan.start.is_none()) {
            checked = checked.with_initial(begun.initial.clone());
        }
        pairs.push(CheckedPair { pair, request: own, checked });
    }
    Ok((pairs, request.plan.inspect(listed, memory, context)?))
}

/// The specification of the first pair that has begun, if the request resumes a run.
fn first_begun(request: &TrainRequest) -> Outcome<Option<Specification>> {
    if !request.resume {
        return Ok(None);
    }
    for pair in pairs_of(request.run.path())? {
        if let Some(fold) = pair_run(request.run.path(), pair).folds()?.first() {
            return Ok(Some(Specification::read(fold)?));
        }
    }
    Ok(None)
}

/// The requests of all pairs of classes. Pairs whose runs have begun are resumed.
fn pair_requests(
    request: &TrainRequest,
    begun: Option<&Specification>,
    listed: &Listed,
) -> Outcome<Vec<((u32, u32), TrainRequest)>> {
    let dataset = images_in_pairs(&request.plan.settings, listed)?;
    let given = request.plan.settings.images.as_ref().and_then(|images| images.classes.clone());
    let names = match (given, recorded_classes(request)?) {
        (Some(given), Some(recorded)) if is_other(&given, &recorded) => {
            let message = format!(
                "the pairs in {} are of {}, not of {}",
                request.run.path().display(),
                recorded.join(", "),
                given.join(", ")
            );
            return Err(Error::new(
                message,
                "leave `images.classes` out to continue, or start again with another ‹out›",
            ));
        }
        (_, Some(recorded)) => recorded,
        (Some(given), None) => given,
        (None, None) => dataset.classes.clone(),
    };
    let mut all = Vec::new();
    for ClassPair { labels: pair, names: classes } in pairs_among(dataset, &names)? {
        let mut own = request.clone();
        own.run = pair_run(request.run.path(), pair);
        // A pair that has begun is resumed; any other begins.
        own.resume = request.resume && !own.run.folds()?.is_empty();
        if let Some(begun) = begun {
            own.plan.settings = own.plan.settings.or(begun.settings.clone());
        }
        own.plan.settings.images.get_or_insert_default().classes = Some(classes.into());
        all.push((pair, own));
    }
    if request.resume && all.iter().all(|(_, request)| !request.resume) {
        let specification = request.run.path().join("pair_0_1");
        return Err(RunError::NothingToResume { specification }.into());
    }
    Ok(all)
}

/// The images of a data set, whose classes can be paired.
fn images_in_pairs<'a>(settings: &Settings, listed: &'a Listed) -> Outcome<&'a ImageDataset> {
    let Listed::Images { dataset, .. } = listed else {
        return Err(Error::new(
            "‹one_vs_one› classifies images, but this data set has a label for each voxel",
            "leave it out",
        ));
    };
    let target = settings.images.as_ref().and_then(|images| images.target);
    if dataset.multi_label || target.is_some_and(|target| target != ImageTarget::OneOf) {
        return Err(Error::new(
            "‹one_vs_one› needs one class for each image, but these labels are several or ordered",
            "leave it out, or set `images.target` to one_of",
        ));
    }
    Ok(dataset)
}

/// Two classes of a data set.
struct ClassPair {
    /// The numbers of their labels.
    labels: (u32, u32),
    names: [String; 2],
}

/// All pairs of some classes of a data set.
fn pairs_among(dataset: &ImageDataset, names: &[String]) -> Outcome<Vec<ClassPair>> {
    if let Some(unknown) = names.iter().find(|name| !dataset.classes.contains(name)) {
        let message = format!("`images.classes`: the data set has no class {unknown}");
        return Err(Error::new(message, format!("it has {}", dataset.classes.join(", "))));
    }
    let numbers: Vec<(u32, &String)> =
        (0..).zip(&dataset.classes).filter(|(_, name)| names.contains(name)).collect();
    let mut all = Vec::new();
    for (first, (a, one)) in numbers.iter().enumerate() {
        for (b, other) in numbers.iter().skip(first + 1) {
            all.push(ClassPair { labels: (*a, *b), names: [(*one).clone(), (*other).clone()] });
        }
    }
    Ok(all)
}

/// The plan of training one pair of classes.
#[derive(Serialize)]
pub struct PlannedPair {
    /// The two, by the numbers of their labels.
    pub pair: (u32, u32),
    /// The names of both.
    pub classes: [String; 2],
    /// The plan of the first fold.
    pub plan: RunPlan,
}

/// The plans of all pairs, which are trained one after the other.
#[derive(Serialize)]
pub struct PlannedPairs {
    /// The pairs of classes.
    pub pairs: Vec<PlannedPair>,
    /// Planned memory of the largest pair: each gives its memory back before the next begins.
    pub planned_bytes: Bytes,
    /// The least limit under which every pair fits.
    pub minimum_ram_bytes: Bytes,
    /// Steps of all pairs together.
    pub steps: u64,
    /// Predicted time of all pairs together.
    pub predicted_seconds: f64,
}

/// Plans a run for each pair of classes. Pairs of the same shape share one plan of their programs.
pub fn plan_pairs(request: &PlanRequest, context: &Context) -> Outcome<PlannedPairs> {
    let memory = request.set_limit(context)?;
    let listed = request.open_dataset(&memory, context)?;
    let dataset = images_in_pairs(&request.settings, &listed)?;
    let given = request.settings.images.as_ref().and_then(|images| images.classes.as_ref());
    let asked = pairs_among(dataset, given.unwrap_or(&dataset.classes))?;
    let fold = listed.first_fold()?;
    let folds = listed.own_folds_needs(&memory.budget)?;
    let opened = Opened { folds, ..request.inspect(listed, memory, context)? };
    let progress = context.work("planning", asked.len() as u64);
    let mut pairs = Vec::new();
    for ClassPair { labels: pair, names: classes } in asked {
        progress.set(pairs.len() as u64, format!("{} and {}", classes[0], classes[1]));
        let mut settings = request.settings.clone();
        settings.images.get_or_insert_default().classes = Some(classes.to_vec());
        let config = request.resolve(&settings, &opened, &fold, opened.machine)?;
        let used = opened.data.used(&config.task, &fold);
        let planned =
            request.plan(&opened, &config, &used, settings.micro_batch.is_some(), &context.silent())?;
        pairs.push(PlannedPair { pair, classes, plan: planned.numbers });
    }
    drop(progress);
    let largest = |bytes: fn(&RunPlan) -> Bytes| pairs.iter().map(|pair| bytes(&pair.plan)).max();
    let (Some(planned_bytes), Some(minimum_ram_bytes)) =
        (largest(|plan| plan.total_bytes), largest(|plan| plan.minimum_ram_bytes))
    else {
        return Err(Error::new(
            "‹one_vs_one› needs at least two classes",
            "name at least two classes in `images.classes`, or leave it out",
        ));
    };
    Ok(PlannedPairs {
        planned_bytes,
        minimum_ram_bytes,
        steps: pairs.iter().map(|pair| pair.plan.steps).sum(),
        predicted_seconds: pairs.iter().map(|pair| pair.plan.predicted_seconds).sum(),
        pairs,
    })
}

/// The file beside the runs of pairs that lists their classes.
const CLASSES: &str = "classes.json";

/// The classes of the pairs of a run that is resumed.
fn recorded_classes(request: &TrainRequest) -> Outcome<Option<Vec<String>>> {
    let path = request.run.path().join(CLASSES);
    if !request.resume || !path.is_file() {
        return Ok(None);
    }
    let text =
        plimsoll_disk::read_to_string(&path, LONGEST).map_err(|error| Error::at_path(&path, &error))?;
    let classes = serde_json::from_str(&text);
    classes.map(Some).map_err(|problem| {
        let message = format!("{} is not a list of classes: {problem}", path.display());
        Error::new(message, "restore the file from a copy, or start again with another ‹out›")
    })
}

/// The longest file of classes that is read: names of 256 classes.
const LONGEST: u64 = 1 << 20;

/// Records the classes of all pairs before the first begins, so that a resumed run trains the same pairs.
fn record_classes(folder: &Path, pairs: &[CheckedPair]) -> Outcome {
    let mut classes: Vec<&String> = Vec::new();
    for name in
        pairs.iter().filter_map(|pair| pair.request.plan.settings.images.as_ref()?.classes.as_ref()).flatten()
    {
        if !classes.contains(&name) {
            classes.push(name);
        }
    }
    plimsoll_disk::create_dir_all(folder).map_err(|error| Error::at_path(folder, &error))?;
    write(&folder.join(CLASSES), |file| write_json(file, &classes))
}

/// Leaves nothing behind where no pair was begun.
fn forget_classes(folder: &Path) -> Outcome {
    if !pairs_of(folder)?.is_empty() {
        return Ok(());
    }
    let path = folder.join(CLASSES);
    plimsoll_disk::remove_file(&path).map_err(|error| Error::at_path(&path, &error))?;
    // A folder with something else in it stays.
    match plimsoll_disk::remove_folder(folder) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(Error::at_path(folder, &error)),
        _ => Ok(()),
    }
}

/// Returns `true` if two lists have different classes, in any order.
fn is_other(a: &[String], b: &[String]) -> bool {
    let sorted = |classes: &[String]| {
        let mut classes = classes.to_vec();
        classes.sort();
        classes
    };
    sorted(a) != sorted(b)
}

/// The pairs of labels that a folder has runs of, in order.
pub fn pairs_of(folder: &Path) -> Outcome<Vec<(u32, u32)>> {
    Ok(plimsoll_run::pairs_in(folder)?)
}

/// The folder of the run of a pair.
pub fn pair_run(run: &Path, pair: (u32, u32)) -> RunFolder {
    RunFolder::for_pair(run, pair)
}
