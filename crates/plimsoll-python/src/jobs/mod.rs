//! Jobs of the library `plimsoll`, which take their arguments and return their results as JSON.
//!
//! The names of arguments are the keyword arguments of the functions in Python, which are the fields of the library's requests and the keys
//! of the settings file. An unknown argument is an error, never ignored. Parameters that texts of results mark are worded by
//! [`Keywords`](crate::Keywords).

mod arguments;
mod classify;
mod data;
mod error;
mod events;
mod export;
mod files;
mod machine;
mod models;
mod plan;
mod postprocess;
mod ranks;
mod running;
mod runs;
mod scores;
mod sweep;
mod train;
mod wrong_value;

use plimsoll::Context;
use plimsoll_remedy::render;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use error::{JobFailure, Kind};
pub(crate) use files::Files;
pub use ranks::launched_ranks;
pub use running::{Pending, Running};

use crate::{Failure, Keywords};

/// A job: takes its arguments as JSON, and returns its result as JSON.
pub type Job = fn(&str, &Context) -> Result<String, Failure>;

/// Returns the job with this name.
pub fn job(name: &str) -> Option<Job> {
    Some(match name {
        "choose_postprocessing" => postprocess::choose,
        "classify" => classify::classify,
        "compare" => scores::compare,
        "doctor" => machine::doctor,
        "evaluate" => scores::evaluate,
        "export" => export::export,
        "import_models" => models::import,
        "inspect" => data::inspect,
        "phantoms" => data::phantoms,
        "plan" => plan::plan,
        "postprocess" => postprocess::postprocess,
        "read_run" => runs::read_run,
        "report" => runs::report,
        "show_models" => models::show,
        "status" => runs::status,
        "sweep" => sweep::sweep,
        "train" => train::train,
        "verify_model" => models::verify,
        _ => return None,
    })
}

/// Reads the arguments of a job.
fn parsed<T: DeserializeOwned>(arguments: &str) -> Result<T, Failure> {
    serde_json::from_str(arguments)
        .map_err(|error| JobFailure::argument(wrong_value::message(arguments, &error)))
}

/// Writes a result of a job, whose texts are put into the words of Python.
fn written(result: &impl Serialize) -> Result<String, Failure> {
    let broken =
        |error: serde_json::Error| JobFailure::failed(format!("the result cannot be written: {error}"), None);
    let mut value = serde_json::to_value(result).map_err(broken)?;
    word(&mut value);
    serde_json::to_string(&value).map_err(broken)
}

/// Puts all texts of a value into the words of Python.
fn word(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('‹') => *text = render(text, &Keywords),
        Value::Array(values) => values.iter_mut().for_each(word),
        Value::Object(values) => values.values_mut().for_each(word),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_results_are_worded_and_others_stay() {
        let result =
            serde_json::json!({ "ways_out": [{ "flags": "‹precision=bf16›" }], "name": "a‹b›c", "bytes": 3 });
        let text = written(&result).unwrap();
        assert_eq!(text, r#"{"bytes":3,"name":"a‹b›c","ways_out":[{"flags":"precision=\"bf16\""}]}"#);
    }
}
