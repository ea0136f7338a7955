//! TotalSegmentator's tasks: the nnU-Net models of each task, their grids, and the meaning of their labels.
//!
//! The table, `tasks.json`, is the table of [TotalSegmentator](https://github.com/wasserth/TotalSegmentator) 2.18, of all tasks whose weights
//! everybody may download. No weights are part of this program.

mod changes;
mod weights;

use plimsoll_run::RunError;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use plimsoll_volume::Spacing;
use serde::Deserialize;

use crate::ModelError;

pub use changes::{Change, Refinement};
pub use weights::weights_in_home;

/// The tasks of TotalSegmentator whose weights need a licence.
const LICENSED: [&str; 18] = [
    "aorta_annulus",
    "aortic_dissection",
    "aortic_sinuses",
    "appendicular_bones",
    "appendicular_bones_mr",
    "brain_structures",
    "coronary_arteries",
    "coronary_arteries_LEGACY",
    "face",
    "face_mr",
    "heartchambers_highres",
    "pulmonary_artery_landmarks",
    "renal_arteries",
    "thigh_shoulder_muscles",
    "thigh_shoulder_muscles_mr",
    "tissue_4_types",
    "tissue_types",
    "tissue_types_mr",
];

/// Names in TotalSegmentator 2.18 that are no tasks which can be run, with the reason.
const UNAVAILABLE: [(&str, &str); 8] = [
    (
        "appendicular_bones_auxiliary",
        "these are labels that the networks of appendicular_bones find beside its own, and TotalSegmentator drops them",
    ),
    ("covid", "TotalSegmentator 2 has switched the task off, and its weights have no published version"),
    (
        "face_mr_auxiliary",
        "these are labels that the networks of face_mr find beside its own, and TotalSegmentator drops them",
    ),
    (
        "kidney_cysts_auxiliary",
        "these are labels that the networks of kidney_cysts find beside its own, and TotalSegmentator drops them; the task total has \
         the kidneys",
    ),
    (
        "renal_arteries_auxiliary",
        "these are labels that the networks of renal_arteries find beside its own, and TotalSegmentator drops them; the task total has \
         the aorta",
    ),
    ("test", "it belongs to TotalSegmentator's own tests"),
    ("total_highres_test", "its weights are unpublished"),
    (
        "total_v1",
        "these are the labels of TotalSegmentator 1, for which TotalSegmentator 2 has no networks; the task total has their successors",
    ),
];

/// A task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentatorTask {
    /// The licence of its weights.
    pub license: String,
    /// The names of its labels, from value 1 on.
    pub classes: Vec<String>,
    /// Names of labels behind these, which a network is trained with but which are not written.
    #[serde(default)]
    pub auxiliary: Vec<String>,
    /// `true` if masks of the whole body and of its skin are derived from its labels.
    #[serde(default)]
    pub has_skin: bool,
    /// The refinement of its labels.
    pub refinement: Option<Refinement>,
    modes: BTreeMap<Mode, TaskModels>,
}

/// The resolution of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The finest resolution of the task.
    #[default]
    Default,
    /// At 3 mm, or 6 mm where there is nothing else that is coarser.
    Fast,
    /// At 6 mm.
    Fastest,
}

/// The size of a task's networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelSize {
    /// The one that every task has.
    #[default]
    Big,
    /// A smaller residual one, which `total_v3` has.
    Small,
}

/// The models of a task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskModels {
    /// The spacing that images are resampled to before a network's own steps, along depth, height and width of the canonical orientation;
    /// `None` if these steps resample.
    spacing: Option<[f64; 3]>,
    /// The class of nnU-Net's that trained them, which is part of the folder's name.
    pub trainer: String,
    /// Their configuration, likewise.
    pub configuration: String,
    /// Their folds; `None` for all existing ones.
    pub folds: Option<Vec<u32>>,
    /// The region that images are cut to.
    pub crop: Option<Crop>,
    /// The changes of labels, in order.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// The models, in the order in which labels of one are written over those before.
    pub parts: Vec<PartModel>,
}

/// The region that images are cut to: a box around labels of a coarser model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    /// The labels that the box is around.
    pub to: Vec<String>,
    /// The margin around them in millimetres.
    pub margin_mm: f64,
    /// `true` if they are found at 3 mm instead of 6 mm.
    pub robust: bool,
    /// The task that has these labels; `None` for `total`, or `total_mr` for tasks of MR images.
    pub task: Option<String>,
    /// The resolution of that task, if it is fixed.
    #[serde(default)]
    pub mode: Mode,
}

/// A model of a task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartModel {
    /// The number of its data set, with which its folder's name begins.
    pub dataset: u32,
    /// The names of its labels, from value 1 on, where they are not the task's.
    classes: Option<Vec<String>>,
}

impl TaskModels {
    /// The spacing that images are resampled to before a network's own steps; `None` if these steps resample.
    pub fn spacing(&self) -> Option<Spacing> {
        self.spacing.map(Spacing)
    }
}

impl SegmentatorTask {
    /// All tasks by name.
    ///
    /// # Errors
    /// Returns an error if the table is not sound: a fault of this program.
    pub fn all() -> Result<&'static BTreeMap<String, SegmentatorTask>, ModelError> {
        static TASKS: OnceLock<Result<BTreeMap<String, SegmentatorTask>, String>> = OnceLock::new();
        let parse = || {
            let tasks: BTreeMap<String, SegmentatorTask> =
                serde_json::from_str(include_str!("tasks.json")).map_err(|error| error.to_string())?;
            let too_many = tasks.iter().find(|(_, task)| task.classes.len() > usize::from(u8::MAX));
            match too_many {
                Some((name, task)) => Err(format!("{name} has {} labels; 255 fit", task.classes.len())),
                None => Ok(tasks),
            }
        };
        let tasks = TASKS.get_or_init(parse).as_ref();
        tasks.map_err(|why| RunError::Json { path: "tasks.json".into(), why: why.clone() }.into())
    }

    /// The task of a name.
    ///
    /// # Errors
    /// Returns an error if there is none, it cannot be run, or its weights need a licence.
    pub fn named(name: &str) -> Result<&'static SegmentatorTask, ModelError> {
        let all = SegmentatorTask::all()?;
        all.get(name).ok_or_else(|| {
            let found = name.to_string();
            match UNAVAILABLE.iter().find(|(unavailable, _)| *unavailable == name) {
                Some((_, why)) => ModelError::UnavailableTask { found, why },
                None if LICENSED.contains(&name) => ModelError::LicensedTask { found },
                None => ModelError::NoTask { found },
            }
        })
    }

    /// Its models when it looks so finely; where a task has nothing that coarse, as TotalSegmentator does, the next coarser that it has.
    ///
    /// # Errors
    /// Returns an error if it looks in one way alone, and this is another.
    pub fn models(&self, name: &str, mode: Mode) -> Result<&TaskModels, ModelError> {
        let found = match mode {
            Mode::Fastest => self.modes.get(&Mode::Fastest).or_else(|| self.modes.get(&Mode::Fast)),
            mode => self.modes.get(&mode),
        };
        found.ok_or_else(|| ModelError::NoMode { task: name.into() })
    }

    /// Its models, looking as finely as it can first.
    pub fn all_models(&self) -> impl Iterator<Item = &TaskModels> {
        self.modes.values()
    }

    /// The value of a label.
    pub fn value(&self, class: &str) -> Option<u8> {
        // Tables with more labels than values are refused as they are read.
        (1..=u8::MAX).zip(&self.classes).find_map(|(value, name)| (name == class).then_some(value))
    }

    /// For each value that a model of this task writes, the task's value: 0 for what is not to be written.
    ///
    /// # Errors
    /// Returns an error if a model's label is none of the task's: a fault of the table.
    pub fn lookup(&self, part: &PartModel) -> Result<Vec<u8>, ModelError> {
        let values = match &part.classes {
            Some(classes) => {
                let value = |class: &String| self.value(class).ok_or_else(|| no_class(part, class));
                classes.iter().map(value).collect::<Result<Vec<_>, _>>()?
            }
            None => {
                let own =
                    self.classes.iter().map(|class| self.value(class).ok_or_else(|| no_class(part, class)));
                own.chain(self.auxiliary.iter().map(|_| Ok(0))).collect::<Result<Vec<_>, _>>()?
            }
        };
        Ok(std::iter::once(0).chain(values).collect())
    }

    /// Returns `true` if a model has one of these labels of the task.
    pub fn has_any(&self, part: &PartModel, classes: &[String]) -> bool {
        part.classes.as_ref().unwrap_or(&self.classes).iter().any(|class| classes.contains(class))
    }
}

fn no_class(part: &PartModel, class: &str) -> ModelError {
    RunError::Json {
        path: "tasks.json".into(),
        why: format!("{}: `{class}` is not a label of the task", part.dataset),
    }
    .into()
}

impl Crop {
    /// Around labels of the task itself, as far as TotalSegmentator does it.
    pub fn around(labels: Vec<String>) -> Crop {
        Crop { to: labels, margin_mm: 20.0, robust: false, task: None, mode: Mode::Default }
    }

    /// Around the body, where the task of that name finds it at 6 mm.
    ///
    /// # Errors
    /// Returns an error if the table does not have that task: a fault of this program.
    pub fn body() -> Result<Crop, ModelError> {
        let task = "body".to_string();
        let to = SegmentatorTask::named(&task)?.classes.clone();
        Ok(Crop { to, margin_mm: 3.0, robust: false, task: Some(task), mode: Mode::Fast })
    }

    /// Returns `true` if another task would find its labels at the finer resolution.
    pub fn may_be_robust(&self) -> bool {
        self.task.is_none()
    }

    /// The task and the mode that look for its labels, for a task of this name.
    pub fn task_and_mode(&self, name: &str) -> (String, Mode) {
        let is_mr = name.ends_with("_mr");
        match &self.task {
            Some(task) => (task.clone(), self.mode),
            None if is_mr => ("total_mr".into(), Mode::Fast),
            None if self.robust => ("total".into(), Mode::Fast),
            None => ("total".into(), Mode::Fastest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_of_every_model_is_one_of_its_task() {
        let all = SegmentatorTask::all().unwrap();
        assert!(all.len() >= 33, "{}", all.len());
        for (name, task) in all {
            for models in task.modes.values() {
                let mut found = vec![false; task.classes.len() + 1];
                for part in &models.parts {
                    let lookup = task.lookup(part).unwrap();
                    assert_eq!(lookup[0], 0);
                    lookup.iter().for_each(|value| found[usize::from(*value)] = true);
                }
                assert!(found.iter().all(|found| *found), "{name}: a label that no model has");
                for change in &models.changes {
                    if let Change::KeepLargest { labels } | Change::DropSmall { labels, .. } = change {
                        assert!(labels.iter().all(|label| task.value(label).is_some()), "{name}: {labels:?}");
                    }
                }
                if let Some(Refinement { inside, task, .. }) = &task.refinement {
                    assert!(
                        SegmentatorTask::named(task).unwrap().value(inside).is_some(),
                        "{name}: {inside}"
                    );
                }
                if let Some(crop) = &models.crop {
                    let (task, mode) = crop.task_and_mode(name);
                    let other = SegmentatorTask::named(&task).unwrap();
                    other.models(&task, mode).unwrap();
                    assert!(
                        crop.to.iter().all(|class| other.value(class).is_some()),
                        "{name}: {:?}",
                        crop.to
                    );
                }
            }
        }
    }

    #[test]
    fn the_whole_body_takes_five_models_or_one() {
        let total = SegmentatorTask::named("total").unwrap();
        let parts = |mode| {
            total.models("total", mode).unwrap().parts.iter().map(|part| part.dataset).collect::<Vec<_>>()
        };
        assert_eq!(parts(Mode::Default), [291, 292, 293, 294, 295]);
        assert_eq!((parts(Mode::Fast), parts(Mode::Fastest)), (vec![297], vec![298]));
        assert_eq!(total.classes.len(), 117);
        assert_eq!(
            (total.value("spleen"), total.value("costal_cartilages"), total.value("x")),
            (Some(1), Some(117), None)
        );
        let ribs = &total.models("total", Mode::Default).unwrap().parts[4];
        assert!(total.has_any(ribs, &["sternum".into()]) && !total.has_any(ribs, &["spleen".into()]));
        let cysts = SegmentatorTask::named("kidney_cysts").unwrap();
        let models = cysts.models("kidney_cysts", Mode::Default).unwrap();
        assert_eq!(cysts.lookup(&models.parts[0]).unwrap(), [0, 1, 2, 0, 0]);
        assert!(cysts.models("kidney_cysts", Mode::Fast).is_err());
        assert!(matches!(
            SegmentatorTask::named("heartchambers_highres"),
            Err(ModelError::LicensedTask { .. })
        ));
        assert!(matches!(SegmentatorTask::named("heart"), Err(ModelError::NoTask { .. })));
        assert!(LICENSED.iter().all(|name| !SegmentatorTask::all().unwrap().contains_key(*name)));
    }
}
