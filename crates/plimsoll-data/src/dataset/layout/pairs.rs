//! Pairs of folders: images in one, or in one for each channel, and label maps in another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::dataset::files::split_channel;
use crate::dataset::layout::location::images_in;
use crate::dataset::layout::matching::{Named, matched};
use crate::dataset::layout::{DataLocation, FoundData, Layout, channels, usual_ending, words};
use crate::dataset::names::{enumerated, file_name};
use crate::dataset::{Case, ChannelFile, DatasetError, LayoutName, Names, Reading};
use crate::files_memory::FilesMemory;

/// Images of a folder, by the names of cases.
type Images = BTreeMap<String, PathBuf>;

pub(crate) fn read(place: &DataLocation<'_>) -> Result<FoundData, DatasetError> {
    place.expect_unused(LayoutName::Pairs, &["case"])?;
    let (image_places, label_place) = folders(place)?;
    let labels = named(place, &label_place)?;
    // If label maps are numbered as well, a number denotes a case.
    let are_cases_numbered = labels.keys().any(|stem| split_channel(words::core(stem)).is_some());
    let mut warnings = Vec::new();
    let mut of_channels = Vec::new();
    let mut names = Vec::new();
    for listed in &image_places {
        let found = named(place, listed)?;
        let numbered: Option<Vec<(&str, usize)>> = found.keys().map(|stem| split_channel(stem)).collect();
        match numbered {
            // CASE_0000, CASE_0001, … are channels, as nnU-Net names them.
            Some(numbered) if !listed.contains('*') && !are_cases_numbered => {
                let count = numbered.iter().map(|(_, channel)| channel + 1).max().unwrap_or(0);
                let mut split: Vec<Images> = vec![Images::new(); count];
                for ((id, channel), path) in numbered.iter().zip(found.values()) {
                    split[*channel].insert((*id).to_string(), path.clone());
                }
                let one = count == 1;
                names.extend(
                    (0..count).map(
                        |channel| {
                            if one { channel_name(listed) } else { format!("channel_{channel}") }
                        },
                    ),
                );
                of_channels.extend(split);
            }
            _ => {
                names.push(channel_name(listed));
                of_channels.push(found);
            }
        }
    }
    unique(&mut names);
    let cases = cases(place, &of_channels, &names)?;
    let ids: Vec<String> = cases.iter().map(|case| case.id.clone()).collect();
    let labels = labels.into_iter().map(|(stem, path)| Named { stem, path }).collect();
    let mut matches = matched(&place.folder, &ids, labels)?;
    for path in matches.unused {
        warnings.push(format!("{} is left out: there is no image for it", path.display()));
    }
    let missing: Vec<&String> = ids.iter().filter(|id| !matches.labels.contains_key(*id)).collect();
    if let Some(first) = missing.first() {
        let folder = label_place.rsplit_once('/').map_or(&*label_place, |(folder, _)| folder);
        return Err(DatasetError::NoPartner {
            case: first.to_string(),
            folder: place.folder.join(folder.trim_end_matches('/')),
            others: missing.len() - 1,
        });
    }
    let cases: Vec<Case> =
        cases.into_iter().map(|case| Case { label: matches.labels.remove(&case.id), ..case }).collect();
    if cases.is_empty() {
        let folder = place.folder.join(image_places.first().map_or("", String::as_str));
        return Err(DatasetError::NoCases { folder, file_ending: "the endings of images".into() });
    }
    Ok(FoundData {
        folder: place.folder.clone(),
        name: place.name(),
        channels: channels(place, &names)?,
        unit: None,
        labels: None,
        segments: None,
        folds: BTreeMap::new(),
        file_ending: usual_ending(&cases, &mut warnings),
        layout: Layout::Pairs { images: image_places, labels: label_place },
        cases,
        test_cases: Vec::new(),
        warnings,
        memory: FilesMemory::default(),
    })
}

fn texts<'a>(names: impl IntoIterator<Item = &'a String>) -> impl Iterator<Item = &'a str> {
    names.into_iter().map(String::as_str)
}

/// The folders, or patterns, of images and of label maps.
fn folders(place: &DataLocation<'_>) -> Result<(Vec<String>, String), DatasetError> {
    let data = &place.options.data;
    let mut there: Vec<String> = Vec::new();
    // Where both are named, nothing is to be found, and another folder need not even be readable.
    let is_said = data.labels.is_some() && data.images.is_some();
    for path in place.folders.iter().filter(|_| !is_said) {
        let name = file_name(path);
        if !words::is_of_tests(&name) && !images_in(path)?.is_empty() {
            there.push(format!("{name}/"));
        }
    }
    let hint = &example(&there);
    let bare = |name: &String| name.trim_end_matches('/').to_string();
    let labels = match &data.labels {
        Some(labels) => labels.clone(),
        None => {
            let said: Vec<&String> = there.iter().filter(|name| words::is_of_labels(&bare(name))).collect();
            match said[..] {
                [one] => one.clone(),
                _ => {
                    let (which, list) = match said.is_empty() {
                        true => {
                            ("no folder has the name of a folder of label maps", enumerated(texts(&there)))
                        }
                        false => (
                            "several folders have names of folders of label maps",
                            enumerated(texts(said.iter().copied())),
                        ),
                    };
                    return Err(place.fault(format!("{which}; there are: {list}"), hint));
                }
            }
        }
    };
    let images = match &data.images {
        Some(names) => Names::list(names).to_vec(),
        None => {
            let root = |text: &str| text.split('/').next().unwrap_or(text).to_string();
            let others: Vec<String> = there.into_iter().filter(|name| root(name) != root(&labels)).collect();
            let said: Vec<&String> = others.iter().filter(|name| words::is_of_images(&bare(name))).collect();
            match (&said[..], &others[..]) {
                ([one], _) => vec![(*one).clone()],
                ([], [one]) => vec![one.clone()],
                _ => {
                    let problem = format!(
                        "more than one folder beside {labels} may hold the images: {}",
                        enumerated(texts(&others))
                    );
                    return Err(place.fault(problem, hint));
                }
            }
        }
    };
    Ok((images, labels))
}

/// The remedy that names a folder of images and one of label maps: two of the existing folders, if there are two.
fn example(there: &[String]) -> String {
    let bare = |name: &'_ String| name.trim_end_matches('/').to_string();
    let labels = there.iter().find(|name| words::is_of_labels(&bare(name))).or(there.last());
    let of_images = |name: &&String| Some(*name) != labels;
    let is_named = |name: &&String| words::is_of_images(&bare(name));
    let images = there.iter().filter(of_images).find(is_named).or(there.iter().find(of_images));
    let (images, labels) = match (images, labels) {
        (Some(images), Some(labels)) => (bare(images), bare(labels)),
        _ => ("raw".into(), "seg".into()),
    };
    format!("name them in plimsoll.toml, such as: under [data], images = {images:?} and labels = {labels:?}")
}

/// The images of a folder, or those that match a pattern, by the text that matches `*`.
fn named(place: &DataLocation<'_>, listed: &str) -> Result<Images, DatasetError> {
    let (folder, pattern) = match listed.contains('*') {
        true => listed.rsplit_once('/').unwrap_or((".", listed)),
        false => (listed, "*"),
    };
    let Some((before, after)) = pattern.split_once('*').filter(|(_, rest)| !rest.contains('*')) else {
        let hint = "a pattern has one * in the name of files, in place of the case: raw/*_im.nii.gz";
        return Err(place.fault(format!("`{listed}` is not a pattern"), hint));
    };
    if folder.contains('*') {
        let hint = "a pattern has one * in the name of files, and none in folders: raw/*_im.nii.gz";
        return Err(place.fault(format!("`{listed}` is not a pattern"), hint));
    }
    let is_here = folder == ".";
    let folder = if is_here { place.folder.clone() } else { place.path(&place.folder, folder)? };
    let mut found = Images::new();
    for (stem, path) in images_in(&folder)? {
        let name = file_name(&path);
        // A pattern ends where the name does, or before the ending of images.
        let key = match after.is_empty() || !name.ends_with(after) {
            true => stem.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)),
            false => name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)),
        };
        let Some(key) = key.filter(|key| !key.is_empty()) else { continue };
        if let Some(other) = found.insert(key.to_string(), path.clone()) {
            let problem = format!("{} and {} have the same name", file_name(&other), file_name(&path));
            return Err(place.fault(problem, "leave one of the two out, or write a pattern that ends in one"));
        }
    }
    Ok(found)
}

/// The name of the channel of a folder: a modality where the folder has the name of one.
fn channel_name(listed: &str) -> String {
    let folder = listed.split('*').next().unwrap_or(listed).trim_end_matches('/');
    let name = folder.rsplit('/').next().unwrap_or(folder);
    match name.to_lowercase().as_str() {
        "ct" => "CT".into(),
        "mr" | "mri" => "MR".into(),
        "pet" => "PET".into(),
        "us" => "US".into(),
        lower if words::is_of_images(lower) || name.is_empty() => "image".into(),
        _ => name.into(),
    }
}

fn unique(names: &mut [String]) {
    let set: BTreeSet<&String> = names.iter().collect();
    if set.len() < names.len() {
        names.iter_mut().enumerate().for_each(|(number, name)| *name = format!("channel_{number}"));
    }
}

/// Cases with an image in each of some folders.
fn cases(
    place: &DataLocation<'_>,
    of_channels: &[Images],
    names: &[String],
) -> Result<Vec<Case>, DatasetError> {
    let ids: BTreeSet<&String> = of_channels.iter().flat_map(BTreeMap::keys).collect();
    let mut cases = Vec::new();
    for id in ids {
        let mut images = Vec::new();
        for (channel, (of_channel, name)) in of_channels.iter().zip(names).enumerate() {
            match of_channel.get(id) {
                Some(path) => images.push(ChannelFile { path: path.clone(), index: 0 }),
                None => {
                    let some = of_channel.values().next().and_then(|path| path.parent());
                    return Err(DatasetError::MissingChannel {
                        case: id.clone(),
                        channel,
                        name: name.clone(),
                        path: some.unwrap_or(&place.folder).join(format!("{id}…")),
                        others: 0,
                    });
                }
            }
        }
        cases.push(Case { id: id.clone(), images, label: None, reading: Reading::default() });
    }
    Ok(cases)
}
