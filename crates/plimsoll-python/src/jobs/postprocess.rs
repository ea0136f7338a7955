//! Steps on finished label maps, and the choice of steps for a run.

use std::path::PathBuf;

use plimsoll::{Change, Context, PostprocessRequest};
use plimsoll_data::LengthUnit;
use plimsoll_memory::Bytes;
use plimsoll_postprocess::Step;
use plimsoll_report::contents;
use plimsoll_run::RunFolder;
use serde::Deserialize;
use serde_json::Value;

use super::arguments::{Machine, without_place};
use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostprocessArguments {
    input: PathBuf,
    output: PathBuf,
    /// A file of steps, or the steps themselves.
    steps: Option<Value>,
    orthogonal: bool,
    unit: Option<LengthUnit>,
    overwrite: bool,
    ram: Option<Bytes>,
    threads: Option<usize>,
}

impl PostprocessArguments {
    fn change(&self) -> Result<Change, Failure> {
        match (&self.steps, self.orthogonal) {
            (Some(_), true) => Err(JobFailure::argument("orthogonal replaces steps; pass one of them")),
            (None, false) => Err(JobFailure::argument("steps is missing; pass steps, or orthogonal=True")),
            (None, true) if self.unit.is_some() => {
                Err(JobFailure::argument("unit has no effect with orthogonal: no step measures lengths"))
            }
            (None, true) => Ok(Change::Orthogonal),
            (Some(Value::String(path)), false) => Ok(Change::Steps(path.into())),
            (Some(steps), false) => match serde_json::from_value::<Vec<Step>>(steps.clone()) {
                Ok(steps) => Ok(Change::Given(steps)),
                Err(error) => {
                    Err(JobFailure::argument(format!("steps is invalid: {}", without_place(&error))))
                }
            },
        }
    }

    fn files(&self, change: &Change) -> Files {
        let file = match change {
            Change::Steps(file) => Some(file),
            Change::Given(_) | Change::Orthogonal => None,
        };
        let files = Files::default().read("the label maps", [&self.input]).read("the steps", file);
        match self.input.is_dir() {
            true => files.write_into("output", Some(&self.output)),
            false => files.write_as_allowed("output", &self.output, contents::OTHER),
        }
    }
}

/// Does steps on label maps.
pub(super) fn postprocess(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: PostprocessArguments = parsed(arguments)?;
    let change = arguments.change()?;
    let context = arguments.files(&change).check(context)?;
    let PostprocessArguments { input, output, unit, overwrite, ram, threads, .. } = arguments;
    let threads = Machine { threads, ..Machine::default() }.threads()?;
    let request = PostprocessRequest { input, output, change, unit, overwrite, ram, threads };
    written(&plimsoll::postprocess(&request, &context).map_err(JobFailure::wrap)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceArguments {
    run: PathBuf,
    unit: Option<LengthUnit>,
    ram: Option<Bytes>,
    threads: Option<usize>,
}

/// Chooses steps for a run by the predictions of its validation cases, and writes them into it.
pub(super) fn choose(arguments: &str, context: &Context) -> Result<String, Failure> {
    let ChoiceArguments { run, unit, ram, threads } = parsed(arguments)?;
    let threads = Machine { threads, ..Machine::default() }.threads()?;
    let context = Files::default()
        .write_at_fixed_path("run", &RunFolder::new(&run).postprocessing(), contents::STEPS)
        .check(context)?;
    let chosen = plimsoll::choose_postprocessing(&run, unit, ram, threads, &context);
    written(&chosen.map_err(JobFailure::wrap)?)
}
