//! An open data set: its samples, and the memory of batches of them.

use std::sync::Arc;

use plimsoll::{Context, FoldRequest, open_fold};
use plimsoll_data::{FilesMemory, Fold, LoaderConfig, Mode, SampleNumbers, SampleShape, Samples, Targets};
use plimsoll_memory::{Budget, Bytes, Digest, Digester};
use plimsoll_train::RunData;
use serde_json::{Map, Value};

use super::batch::LabelForm;
use super::settings::{PatchOptions, PatchSettings};
use super::stream::StreamFacts;
use super::{failure, pictures, volumes};
use crate::{Failure, Resources};

/// An open data set.
pub(super) struct Opened {
    pub(super) samples: Arc<dyn Samples>,
    pub(super) config: LoaderConfig,
    /// The memory of the loader.
    pub(super) memory: Budget,
    pub(super) labels: LabelForm,
    /// `true` if samples are whole images with classes.
    pub(super) is_of_images: bool,
    /// The settings that batches depend on.
    pub(super) settings: Map<String, Value>,
    /// The names of all cases, by the places that batches name.
    pub(super) names: Vec<String>,
    pub(super) facts: StreamFacts,
    /// The digest of everything in the data set that batches depend on.
    pub(super) data: Digest,
    /// The usual number of batches of an epoch.
    pub(super) batches: u64,
    /// The reservation for the names of the files, if the samples do not hold it.
    pub(super) _files: Option<FilesMemory>,
}

/// The request for a stream, with all that its caller gives.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) request: &'a FoldRequest,
    pub(super) settings: &'a PatchSettings,
    pub(super) options: PatchOptions,
    pub(super) resources: &'a Resources,
    pub(super) context: &'a Context,
}

impl Opened {
    /// Opens a data set of either kind, and reserves the memory of the threads, the batches and the cache.
    pub(super) fn open(given: Given<'_>) -> Result<Opened, Failure> {
        given.expect_one_kind()?;
        let mut request = given.request.clone();
        request.settings.images.clone_from(&given.settings.images);
        let data = open_fold(&request, &given.resources.budget, given.context)
            .map_err(|error| failure::opening_failure(&error))?;
        match &data.data {
            RunData::Volumes { .. } => volumes::open(given, data),
            RunData::Images { .. } => pictures::open(given, data),
        }
    }
}

impl Given<'_> {
    /// Refuses descriptions of volumes and of images with classes at once. Each decides the kind of data set that a folder is.
    fn expect_one_kind(&self) -> Result<(), Failure> {
        let described = &self.request.settings;
        let channels = described.data.as_ref().and_then(|data| data.channels.as_ref());
        let of_volumes = [("channels", channels.is_some()), ("labels", described.labels.is_some())];
        match of_volumes.iter().find(|(_, is_given)| *is_given && self.settings.images.is_some()) {
            Some((argument, _)) => Err(Failure::argument(
                argument,
                "describes volumes with label maps, and images describes images with classes; pass one of them",
            )),
            None => Ok(()),
        }
    }

    /// The cases of the section.
    pub(super) fn cases<'f>(&self, fold: &'f Fold) -> &'f [String] {
        match self.settings.section {
            Mode::Training => &fold.train,
            Mode::Validation => &fold.val,
        }
    }

    /// The configuration of the loader, whose threads have so much scratch memory each, and the budget of all of it.
    pub(super) fn loader(
        &self,
        scratch: Bytes,
        sample: SampleShape,
    ) -> Result<(LoaderConfig, Budget), Failure> {
        let Given { settings, options, resources, .. } = self;
        let config = LoaderConfig {
            mode: settings.section,
            seed: settings.seed,
            first_step: 0,
            batch_size: settings.batch_size,
            numbers: SampleNumbers::ALL,
            slots: resources.threads.saturating_add(options.prefetch),
            threads: resources.threads,
            scratch,
        };
        let bytes =
            config.bytes(sample, &Targets::default()).map_err(|error| failure::loader_failure(&error))?;
        let memory = resources.budget.part("batches and threads", bytes).map_err(Failure::OverLimit)?;
        Ok((config, memory))
    }
}

/// Adds a text to a digest, so that no two lists of texts have the same bytes.
pub(super) fn add_text(digest: &mut Digester, text: &str) {
    digest.update(&(text.len() as u64).to_le_bytes());
    digest.update(text.as_bytes());
}

/// Adds the names of the cases of a fold to a digest.
pub(super) fn add_fold(digest: &mut Digester, fold: &Fold) {
    for cases in [&fold.train, &fold.val] {
        add_text(digest, &cases.len().to_string());
        cases.iter().for_each(|case| add_text(digest, case));
    }
}
