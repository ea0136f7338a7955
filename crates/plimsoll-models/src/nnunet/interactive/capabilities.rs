//! `inference_info.json`, and `inference_session_class.json` of older folders: which prompts a model knows, and their channels.

use std::path::Path;

use plimsoll_memory::Budget;
use serde_json::Value;

use super::super::NnUnetError;
use super::super::entry::Entry;
use super::super::plans::{Described, read};
use crate::ModelError;

/// The class whose sessions are followed here, and its newest version that is known.
const CLASS: &str = "nnInteractiveInferenceSession";
const VERSION: [u64; 3] = [2, 6, 0];
/// The largest radius of a point in voxels.
const MOST_RADIUS: usize = 32;
/// The most channels of prompts.
const MOST_CHANNELS: usize = 64;
/// The number of channels of a model whose file says nothing about channels.
const USUAL_CHANNELS: i64 = 7;

/// The channels of a kind of prompt, counted from the first channel after the image's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelPair {
    /// The channel of prompts that belong to the object.
    pub include: usize,
    /// The channel of prompts that do not.
    pub exclude: usize,
}

impl ChannelPair {
    /// The channel of a prompt.
    pub fn channel(self, include: bool) -> usize {
        if include { self.include } else { self.exclude }
    }
}

/// The channels of prompts: `None` for a kind of prompt that the model does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptChannels {
    /// The number of channels.
    pub count: usize,
    /// The channel of the previous segmentation.
    pub previous: usize,
    /// Points.
    pub point: Option<ChannelPair>,
    /// Scribbles.
    pub scribble: Option<ChannelPair>,
    /// Closed contours, filled.
    pub lasso: Option<ChannelPair>,
    /// Boxes of one voxel along an axis at least.
    pub flat_box: Option<ChannelPair>,
    /// Other boxes.
    pub solid_box: Option<ChannelPair>,
    /// `true` if a session may begin with a segmentation.
    pub initial: bool,
}

/// The drawing of prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptSettings {
    /// The radius of a point in voxels.
    pub point_radius: usize,
    /// The thickness in voxels along each axis that scribbles should have.
    pub scribble_thickness: [f64; 3],
    /// The share of its intensity that a prompt keeps when another one follows, above 0 and at most 1.
    pub decay: f64,
}

/// The contents of the file.
pub(super) struct Capabilities {
    pub(super) channels: PromptChannels,
    pub(super) prompts: PromptSettings,
}

impl Capabilities {
    /// The names of the file, the newer first.
    pub(super) const FILES: [&str; 2] = ["inference_info.json", "inference_session_class.json"];

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// Returns an error if there is none, or it describes what nnInteractive 2.6.0 does not know.
    pub(super) fn read(folder: &Path, budget: &Budget) -> Result<Capabilities, ModelError> {
        let [newer, older] = Capabilities::FILES.map(|file| folder.join(file));
        if newer.is_file() {
            let file: Described<Value> = read(newer, budget)?;
            let root = Entry::new(&file.path, "", &file.value);
            expect_version(&root)?;
            let channels = channels(&root)?;
            return Ok(Capabilities { channels, prompts: settings(&root)? });
        }
        if !older.is_file() {
            return Err(NnUnetError::NotInteractive { folder: folder.into() }.into());
        }
        let file: Described<Value> = read(older, budget)?;
        let (empty, root) = (Value::Object(serde_json::Map::new()), Entry::new(&file.path, "", &file.value));
        let channels = channels(&Entry::new(&file.path, "", &empty))?;
        // The first releases wrote the name of a class alone.
        let prompts = match file.value.is_string() {
            true => PromptSettings { decay: 0.9, ..settings(&Entry::new(&file.path, "", &empty))? },
            false => settings(&root)?,
        };
        Ok(Capabilities { channels, prompts })
    }
}

/// Checks that a file is for the sessions that are followed here.
fn expect_version(root: &Entry<'_>) -> Result<(), NnUnetError> {
    if let Some(class) = root.get("inference_class")?
        && class.text()? != CLASS
    {
        return Err(class.refuse(format!("only {CLASS} is supported")));
    }
    let Some(least) = root.get("inference_class_min_version")? else { return Ok(()) };
    let numbers = least.text()?.split(|letter: char| !letter.is_ascii_digit());
    let needed: Vec<u64> = numbers.filter(|part| !part.is_empty()).flat_map(str::parse).collect();
    match needed.as_slice() <= VERSION.as_slice() {
        true => Ok(()),
        false => Err(least.refuse("the newest supported version is 2.6.0")),
    }
}

fn settings(root: &Entry<'_>) -> Result<PromptSettings, NnUnetError> {
    let point_radius = match root.get("point_radius")? {
        None => 4,
        Some(radius) => radius.whole(1, MOST_RADIUS)?,
    };
    let scribble_thickness = match root.get("preferred_scribble_thickness")? {
        None => [2.0; 3],
        Some(thickness) if thickness.value().is_number() => [thickness.number()?; 3],
        Some(thickness) => {
            let list = thickness.list_of(3)?;
            let numbers: Vec<f64> = list.iter().map(Entry::number).collect::<Result<_, _>>()?;
            [numbers[0], numbers[1], numbers[2]]
        }
    };
    let decay = match root.get("interaction_decay")? {
        None => 0.98,
        Some(entry) => match entry.number()? {
            decay if decay > 0.0 && decay <= 1.0 => decay,
            _ => return Err(entry.refuse("it must be above 0 and at most 1")),
        },
    };
    if let Some(padding) = root.get("pad_mode_image")?
        && padding.text()? != "constant"
    {
        return Err(padding.refuse("only images padded with \"constant\" are supported"));
    }
    Ok(PromptSettings { point_radius, scribble_thickness, decay })
}

/// Indices of channels as a file has them: negative ones count from the end.
struct Written {
    include: i64,
    exclude: i64,
}

fn channels(root: &Entry<'_>) -> Result<PromptChannels, NnUnetError> {
    let mapping = root.get("channel_mapping")?;
    let supported = root.get("supported_interactions")?;
    let kinds = ["points", "scribble", "lasso", "bbox2d", "bbox3d"];
    if let Some(object) = mapping.as_ref().and_then(|mapping| mapping.value().as_object())
        && let Some(name) = object.keys().find(|name| !kinds.contains(&name.as_str()) && *name != "prev_seg")
    {
        return Err(unknown(root, "channel of prompts", name));
    }
    if let Some(object) = supported.as_ref().and_then(|supported| supported.value().as_object())
        && let Some(name) = object.keys().find(|name| !kinds.contains(&name.as_str()))
    {
        return Err(unknown(root, "prompt", name));
    }
    let entry = |name: &str| mapping.as_ref().map_or(Ok(None), |mapping| mapping.get(name));
    let pair = |name: &str, usual: [i64; 2]| -> Result<Written, NnUnetError> {
        let Some(entry) = entry(name)? else { return Ok(Written { include: usual[0], exclude: usual[1] }) };
        let list = entry.list_of(2)?;
        Ok(Written { include: signed(&list[0])?, exclude: signed(&list[1])? })
    };
    let previous = entry("prev_seg")?.map_or(Ok(0), |entry| signed(&entry))?;
    let written = [
        pair("points", [3, 4])?,
        pair("scribble", [5, 6])?,
        pair("lasso", [1, 2])?,
        pair("bbox2d", [1, 2])?,
        pair("bbox3d", [1, 2])?,
    ];
    let count = match (root.get("interaction_channels")?, &mapping) {
        (Some(entry), _) => entry.whole(1, MOST_CHANNELS - 1)? + 1,
        (None, None) => USUAL_CHANNELS as usize,
        (None, Some(_)) => inferred(previous, &written),
    };
    let placed = |index: i64| {
        let from = if index < 0 { index + count as i64 } else { index };
        usize::try_from(from).ok().filter(|index| *index < count).ok_or_else(|| {
            let found = index.to_string();
            let expected = format!("the model has {count} channels of prompts");
            let key = "channel_mapping".into();
            NnUnetError::Value { path: root.path().into(), key, found, expected }
        })
    };
    let known = |name: &str, usual: bool| -> Result<bool, NnUnetError> {
        let entry = supported.as_ref().map_or(Ok(None), |supported| supported.get(name))?;
        entry.map_or(Ok(usual), |entry| entry.truth())
    };
    let mut pairs = [None; 5];
    for ((to, name), Written { include, exclude }) in pairs.iter_mut().zip(kinds).zip(&written) {
        let pair = ChannelPair { include: placed(*include)?, exclude: placed(*exclude)? };
        *to = known(name, name != "bbox3d")?.then_some(pair);
    }
    let [point, scribble, lasso, flat_box, solid_box] = pairs;
    let initial = root.get("supports_initial_label")?.map_or(Ok(true), |entry| entry.truth())?;
    let previous = placed(previous)?;
    Ok(PromptChannels { count, previous, point, scribble, lasso, flat_box, solid_box, initial })
}

fn unknown(root: &Entry<'_>, what: &'static str, name: &str) -> NnUnetError {
    let known = "points, scribble, lasso, bbox2d, bbox3d".into();
    NnUnetError::Unknown { path: root.path().into(), what, name: name.into(), known }
}

/// The least number of channels that has all indices.
fn inferred(previous: i64, written: &[Written]) -> usize {
    let all = written.iter().flat_map(|pair| [pair.include, pair.exclude]).chain([previous]);
    let least = all.map(|index| if index < 0 { -index } else { index + 1 }).max();
    // Indices were checked to be small.
    least.map_or(1, |least| least as usize)
}

fn signed(entry: &Entry<'_>) -> Result<i64, NnUnetError> {
    let most = MOST_CHANNELS as i64;
    let number = entry.value().as_i64().filter(|number| (-most..most).contains(number));
    number.ok_or_else(|| entry.refuse(format!("it must be a whole number from -{most} to {}", most - 1)))
}

impl PromptChannels {
    /// The name of each channel.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = vec![Vec::new(); self.count];
        let mut name = |channel: usize, name: String| {
            if let Some(names) = names.get_mut(channel) {
                names.push(name);
            }
        };
        name(self.previous, "previous segmentation".into());
        for (kind, pair) in self.pairs() {
            if let Some(pair) = pair {
                name(pair.include, format!("{kind} +"));
                name(pair.exclude, format!("{kind} -"));
            }
        }
        names.into_iter().map(|names| names.join(", ")).collect()
    }

    /// The names of the kinds of prompts that the model knows.
    pub fn kinds(&self) -> Vec<&'static str> {
        let known = self.pairs().into_iter().filter(|(_, pair)| pair.is_some()).map(|(kind, _)| kind);
        known.chain(self.initial.then_some("initial segmentation")).collect()
    }

    fn pairs(&self) -> [(&'static str, Option<ChannelPair>); 5] {
        [
            ("points", self.point),
            ("scribbles", self.scribble),
            ("lassos", self.lasso),
            ("flat boxes", self.flat_box),
            ("solid boxes", self.solid_box),
        ]
    }

    /// Returns `true` if a channel has thin prompts, which would fade if a patch were averaged down without being dilated first.
    pub fn is_thin(&self, channel: usize) -> bool {
        let thin = [self.point, self.scribble].into_iter().flatten();
        thin.into_iter().any(|pair| pair.include == channel || pair.exclude == channel)
    }
}
