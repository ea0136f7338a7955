//! Inspecting data sets, and making one up.

use std::path::PathBuf;

use plimsoll::{Context, InspectRequest, Inspected, PhantomConfig, write_phantoms};
use plimsoll_memory::Bytes;
use plimsoll_report::contents;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::arguments::{Machine, settings};
use super::files::Files;
use super::{JobFailure, parsed, written};
use crate::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InspectArguments {
    dataset: PathBuf,
    settings: Map<String, Value>,
    config: Option<PathBuf>,
    allow_outside: bool,
    write: bool,
    page: Option<PathBuf>,
    ram: Option<Bytes>,
    threads: Option<usize>,
}

#[derive(Serialize)]
struct InspectResult<'a> {
    /// `volumes` or `images`.
    kind: &'static str,
    #[serde(flatten)]
    inspected: &'a Inspected,
    /// The error of a data set that cannot be trained on.
    problem: Option<Value>,
}

/// Inspects a data set. Cases that cannot be used are part of the result.
pub(super) fn inspect(arguments: &str, context: &Context) -> Result<String, Failure> {
    let arguments: InspectArguments = parsed(arguments)?;
    let numbers = arguments.page.as_ref().map(|page| page.with_extension("json"));
    let context = Files::default()
        .read("the data set", [&arguments.dataset])
        .read("the settings", &arguments.config)
        .write("page", arguments.page.as_deref(), contents::INSPECTION_PAGE)
        .write(
            "page",
            numbers.as_deref().filter(|numbers| Some(*numbers) != arguments.page.as_deref()),
            contents::INSPECTION,
        )
        .check(context)?;
    let machine = Machine { threads: arguments.threads, ..Machine::default() };
    let request = InspectRequest {
        settings: settings(arguments.settings, arguments.config.as_deref())?,
        dataset: arguments.dataset,
        allow_outside: arguments.allow_outside,
        describe: arguments.write,
        page: arguments.page,
        ram: arguments.ram,
        threads: machine.threads()?,
        part: None,
    };
    let inspected = plimsoll::inspect(&request, &context).map_err(JobFailure::wrap)?;
    let kind = match inspected {
        Inspected::Volumes { .. } => "volumes",
        Inspected::Images { .. } => "images",
        Inspected::Part(_) => "part",
    };
    let problem = inspected.check(&request.dataset).err().map(|error| problem(&JobFailure::wrap(error)));
    written(&InspectResult { kind, inspected: &inspected, problem })
}

/// A failure as part of a result.
pub(super) fn problem(failure: &Failure) -> Value {
    json!({ "message": failure.to_string(), "remedy": failure.remedy() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhantomArguments {
    folder: PathBuf,
    cases: usize,
    test_cases: usize,
    size: [usize; 2],
    outlier: bool,
    seed: u64,
}

/// Writes a data set of made-up vessel trees.
pub(super) fn phantoms(arguments: &str, _: &Context) -> Result<String, Failure> {
    let PhantomArguments { folder, cases, test_cases, size, outlier, seed } = parsed(arguments)?;
    write_phantoms(&folder, &PhantomConfig { cases, test_cases, size, outlier, seed })
        .map_err(JobFailure::wrap)?;
    written(&())
}
