//! Whole images with classes.

use std::sync::Arc;

use plimsoll::FoldData;
use plimsoll_data::pictures::{ImageDataset, PreparedCache};
use plimsoll_data::{Fold, ImageSamples, LoaderError, SampleShape};
use plimsoll_memory::{Budget, Bytes, Digest, Digester};
use plimsoll_run::{ClassificationTask, ImageSource, Task};
use plimsoll_train::RunData;

use super::batch::LabelForm;
use super::failure;
use super::opened::{Given, Opened, add_fold, add_text};
use super::settings::LabelType;
use super::state::written_settings;
use super::stream::StreamFacts;
use crate::Failure;

/// Opens the images of a fold. The cache gets what is left of the budget, at most what all images take once they have their size.
pub(super) fn open(given: Given<'_>, data: FoldData) -> Result<Opened, Failure> {
    let FoldData { name, data: RunData::Images { dataset, inspection, .. }, .. } = &data else {
        return Err(Failure::Failed { message: format!("{} has no images", data.name), remedy: None });
    };
    let budget = &given.resources.budget;
    let settings = given.settings.of_images()?;
    let source = ImageSource { name, dataset, range_16_bit: inspection.range_16_bit };
    let task = ClassificationTask::new(&settings.of_images(), source)
        .map_err(|error| failure::image_failure(&error))?;
    let task = Task::Classification(task);
    let fold = data.data.used(&task, &data.fold);
    let Task::Classification(task) = task else {
        return Err(Failure::Failed { message: format!("{name} has no images"), remedy: None });
    };
    let setting = |error| failure::loader_failure(&LoaderError::Pipeline(error));
    let pipeline = task.pipeline(inspection.largest).map_err(setting)?;
    let partner = ImageSamples::partner_bytes(&pipeline, &task.augmentation, &task.answer())?;
    let scratch = pipeline.scratch_bytes().map_err(setting)? + partner;
    let extent = pipeline.extent();
    let sample = SampleShape {
        channels: pipeline.channels(),
        patch: [1, extent.height, extent.width],
        labels: [1; 3],
        soft: task.soft_outputs(),
    };
    let (config, memory) = given.loader(scratch, sample)?;
    let labels = match (sample.soft, given.options.labels) {
        (0, LabelType::Usual | LabelType::Words) => LabelForm::words(&config, sample, budget)?,
        (0, LabelType::Bytes) => {
            let message = "is torch.uint8, but classes of images are torch.int64";
            return Err(Failure::argument("label_dtype", message));
        }
        (_, LabelType::Usual) => LabelForm::shares(&config, sample, budget)?,
        (_, LabelType::Bytes | LabelType::Words) => {
            let message = "has no effect here: images have shares of classes, which are torch.float32";
            return Err(Failure::argument("label_dtype", message));
        }
    };
    let facts = facts(&task, given.cases(&fold));
    let cache = cache(dataset, &fold, pipeline.output_length(), budget)?;
    let images = task
        .image_fold(dataset, &fold, given.settings.batch_size)
        .map_err(|error| failure::loader_failure(&error))?;
    let augmentation = task.augmentation.clone();
    let samples = ImageSamples::new(Arc::clone(dataset), images, pipeline, augmentation, cache, budget)
        .map_err(|error| failure::loader_failure(&error))?;
    Ok(Opened {
        samples: Arc::new(samples),
        config,
        memory,
        labels,
        is_of_images: true,
        settings: written_settings(&settings)?,
        names: dataset.cases.iter().map(|case| case.name.clone()).collect(),
        data: digest_of(&data.data, dataset, &fold),
        batches: facts.cases.len().div_ceil(given.settings.batch_size.max(1)) as u64,
        facts,
        _files: None,
    })
}

/// Facts about the stream of some images.
fn facts(task: &ClassificationTask, cases: &[String]) -> StreamFacts {
    let classes: Vec<String> = task.classes().map(String::from).collect();
    let channels: &[&str] = match task.pipeline.channels {
        1 => &["grey"],
        _ => &["red", "green", "blue"],
    };
    StreamFacts {
        cases: cases.to_vec(),
        channels: channels.iter().map(ToString::to_string).collect(),
        labels: classes.iter().cloned().zip(0..=u8::MAX).collect(),
        classes,
        spacing: Vec::new(),
    }
}

/// The cache of the prepared images of a fold, of `length` bytes each, in what is left of the budget.
fn cache(
    dataset: &ImageDataset,
    fold: &Fold,
    length: usize,
    budget: &Budget,
) -> Result<PreparedCache, Failure> {
    let cases = dataset.cases.len();
    let lists = PreparedCache::list_bytes(cases) + ImageSamples::list_bytes(cases);
    let used = fold.train.len().max(fold.val.len());
    let all = Bytes::from_len(used.saturating_mul(length));
    let room = budget.part("cache", all.min(budget.free() - lists)).map_err(Failure::OverLimit)?;
    PreparedCache::new(room, cases, budget).map_err(Failure::OverLimit)
}

/// The digest of everything in a data set that its images depend on.
fn digest_of(data: &RunData, dataset: &ImageDataset, fold: &Fold) -> Digest {
    let mut digest = Digester::default();
    dataset.classes.iter().for_each(|class| add_text(&mut digest, class));
    let contents = data.contents();
    for case in &dataset.cases {
        add_text(&mut digest, &case.name);
        let content = contents.get(&case.name[..]).map(Digest::to_string);
        add_text(&mut digest, content.as_deref().unwrap_or("unread"));
    }
    add_fold(&mut digest, fold);
    digest.finish()
}
