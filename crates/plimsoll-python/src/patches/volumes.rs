//! Patches of volumes with label maps.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll::{Context, FoldData};
use plimsoll_data::{
    CaseFingerprint, Dataset, Fold, Inspection, Patches, SampleShape, Sampler, Scratch, VolumeCache,
};
use plimsoll_memory::{Budget, Bytes, Digest, Digester};
use plimsoll_train::RunData;

use super::batch::LabelForm;
use super::failure;
use super::opened::{Given, Opened, add_fold, add_text};
use super::settings::LabelType;
use super::state::written_settings;
use super::stream::StreamFacts;
use crate::Failure;

/// The batches of an epoch where nothing else is set: nnU-Net's.
const USUAL_BATCHES: u64 = 250;

/// Opens the patches of a fold. The cache gets what is left of the budget, at most what all volumes take.
pub(super) fn open(given: Given<'_>, data: FoldData) -> Result<Opened, Failure> {
    let FoldData { data: RunData::Volumes { dataset, inspection }, fold, .. } = data else {
        return Err(Failure::Failed { message: format!("{} has no volumes", data.name), remedy: None });
    };
    let budget = &given.resources.budget;
    let settings = given.settings.of_volumes()?;
    let Some(fingerprint) = &inspection.fingerprint else {
        let message = format!("{} has no case that can be used", dataset.folder.display());
        return Err(Failure::Failed { message, remedy: None });
    };
    let cases = &fingerprint.cases;
    let config = given.settings.sampler(&settings, fingerprint.target_spacing)?;
    let patch = config.grid.patch;
    let facts = facts(&dataset, given.cases(&fold), config.grid.spacing.lengths());
    let digest = digest_of(&dataset, &inspection, &fold);
    let sampler = Sampler::new(Arc::clone(&inspection), &fold, config)
        .map_err(|error| failure::sampler_failure(&error))?
        .on_regions(dataset.labels.scored_regions());
    let largest = cases.iter().map(|case| case.geometry.voxel_count()).max().unwrap_or(0);
    let sample = SampleShape::patch(dataset.channels.len(), patch);
    let (config, memory) = given.loader(Scratch::for_patches(patch, largest), sample)?;
    let labels = match given.options.labels {
        LabelType::Usual | LabelType::Bytes => LabelForm::Bytes,
        LabelType::Words => LabelForm::words(&config, sample, budget)?,
    };
    let cache = cache(cases, &facts.cases, budget, given.context)?;
    let patches =
        Patches::new(&dataset, sampler, Arc::new(cache)).map_err(|error| failure::loader_failure(&error))?;
    Ok(Opened {
        samples: Arc::new(patches),
        config,
        memory,
        labels,
        is_of_images: false,
        settings: written_settings(&settings)?,
        names: cases.iter().map(|case| case.id.clone()).collect(),
        facts,
        data: digest,
        batches: USUAL_BATCHES,
        _files: Some(dataset.memory),
    })
}

/// Facts about the stream of some cases.
fn facts(dataset: &Dataset, cases: &[String], spacing: &[f64]) -> StreamFacts {
    let labels = &dataset.labels;
    let named = labels.names().iter().cloned().zip(0..);
    let ignored = labels.ignore().map(|label| ("ignore".to_string(), label));
    StreamFacts {
        cases: cases.to_vec(),
        channels: dataset.channels.iter().map(|channel| channel.name.clone()).collect(),
        classes: labels.names().to_vec(),
        labels: named.chain(ignored).collect(),
        spacing: spacing.to_vec(),
    }
}

/// The cache of the volumes of `used` cases, in what is left of the budget.
fn cache(
    cases: &[CaseFingerprint],
    used: &[String],
    budget: &Budget,
    context: &Context,
) -> Result<VolumeCache, Failure> {
    let decoding = cases.iter().map(|case| case.decoding_bytes).max().unwrap_or(Bytes::ZERO);
    let decoding = budget.part("decoding", decoding).map_err(Failure::OverLimit)?;
    let used: BTreeSet<&String> = used.iter().collect();
    let of_used = cases.iter().filter(|case| used.contains(&case.id));
    let volumes: Bytes = of_used.map(CaseFingerprint::decoded_bytes).sum();
    let room = budget.part("cache", volumes.min(budget.free())).map_err(Failure::OverLimit)?;
    let cache = VolumeCache::new(room).decoding_within(decoding);
    Ok(match context.cache() {
        Some(folder) => cache.indexed_in(folder.points()),
        None => cache,
    })
}

/// The digest of everything in a data set that patches depend on.
fn digest_of(dataset: &Dataset, inspection: &Inspection, fold: &Fold) -> Digest {
    let mut digest = Digester::default();
    for channel in &dataset.channels {
        add_text(&mut digest, &channel.name);
        add_text(&mut digest, &format!("{:?}", channel.normalisation));
    }
    dataset.labels.names().iter().for_each(|name| add_text(&mut digest, name));
    for case in inspection.fingerprint.iter().flat_map(|all| &all.cases) {
        add_text(&mut digest, &case.id);
        add_text(&mut digest, &case.content.to_string());
    }
    add_fold(&mut digest, fold);
    digest.finish()
}
