//! Giving images classes.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use plimsoll::{ClassifyOptions, Context, PredictRequest};
use plimsoll_infer::PredictOptions;
use plimsoll_metrics::votes::Rule;
use plimsoll_report::contents;
use plimsoll_run::CheckpointKind;
use serde::Deserialize;

use super::arguments::Machine;
use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::Failure;

/// The share of a window between two, which images that are classified as a whole do not have.
const STEP: f64 = 0.5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassifyArguments {
    models: Vec<PathBuf>,
    images: PathBuf,
    output: PathBuf,
    checkpoint: CheckpointKind,
    mirror: bool,
    votes: Option<String>,
    pair_columns: bool,
    mistakes: Option<usize>,
    overwrite: bool,
    machine: Machine,
}

impl ClassifyArguments {
    fn options(&self) -> Result<ClassifyOptions, Failure> {
        let mistakes = self.mistakes.map(|count| {
            NonZeroUsize::new(count).ok_or_else(|| JobFailure::argument("mistakes is 0; pass at least 1"))
        });
        Ok(ClassifyOptions {
            rule: self.votes.as_deref().map(rule).transpose()?.unwrap_or_default(),
            pair_columns: self.pair_columns,
            mistakes: mistakes.transpose()?,
        })
    }
}

/// The rule by which classifiers of pairs vote, by the name that it has on the command line.
fn rule(name: &str) -> Result<Rule, Failure> {
    match name {
        "sum" => Ok(Rule::ProbabilitySum),
        "majority" => Ok(Rule::Majority),
        "coupling" => Ok(Rule::Coupling),
        "weighted" => Ok(Rule::Weighted),
        _ => Err(JobFailure::argument(format!(
            "votes is \"{name}\", but must be \"sum\", \"majority\", \"coupling\" or \"weighted\""
        ))),
    }
}

/// Classifies images, and writes the table of their probabilities.
pub(super) fn classify(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: ClassifyArguments = parsed(arguments)?;
    let options = arguments.options()?;
    let ClassifyArguments { models, images, output, machine, .. } = arguments;
    let Some((model, others)) = models.split_first() else {
        return Err(JobFailure::argument("model is an empty list; pass the folder of a model"));
    };
    for model in &models {
        expect_classifier(model)?;
    }
    let context = Files::default()
        .read("the model", &models)
        .read("the images", [&images])
        .write_as_allowed("output", &output, contents::PREDICTIONS)
        .check(context)?;
    let request = PredictRequest {
        checkpoint: arguments.checkpoint,
        overwrite: arguments.overwrite,
        options: PredictOptions::new(STEP, arguments.mirror, machine.threads()?),
        ram: machine.ram,
        backend: machine.open()?,
        ..PredictRequest::new(model, images, output).map_err(JobFailure::wrap)?
    };
    written(&plimsoll::classify(&request, others, options, &context).map_err(JobFailure::wrap)?)
}

/// Refuses a model that labels voxels.
fn expect_classifier(model: &Path) -> Result<(), Failure> {
    match plimsoll::is_classifier(model).map_err(JobFailure::wrap)? {
        true => Ok(()),
        false => Err(JobFailure::failed(
            format!("{} labels voxels, and gives images no class", model.display()),
            Some("open it with plimsoll.Model".into()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_the_names_of_the_command_line() {
        for (name, expected) in [
            ("sum", Rule::ProbabilitySum),
            ("majority", Rule::Majority),
            ("coupling", Rule::Coupling),
            ("weighted", Rule::Weighted),
        ] {
            assert_eq!(rule(name).unwrap(), expected);
        }
        assert!(rule("most").unwrap_err().to_string().starts_with("votes is \"most\""));
    }
}
