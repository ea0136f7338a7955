//! The messages of one client.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use plimsoll::StopToken;
use plimsoll_disk::{File, atomic};
use serde_json::{Value, json};

use super::Answers;
use super::message::{Era, ErrorCode, LEGACY, MODERN, Message, failure, named_version, success, unsupported};
use super::tools::{Call, tools};
use crate::archive::full;
use crate::job::{Job, LabelForm, Labels};
use crate::problem::Problem;
use crate::service::Service;
use crate::shares::CHUNK;
use crate::worker::Turn;

/// The milliseconds for which a client may keep what it was told about this program.
const KEPT_MS: u32 = 3_600_000;

const INSTRUCTIONS: &str = "Labels the voxels of medical images within a memory limit. `plan` states memory and time before `label` computes; images are \
                            named by path, and labels are written to a file.";

/// The stop tokens of calls that are not answered, by id.
type Calls = Arc<Mutex<BTreeMap<String, StopToken>>>;

/// The state of the conversation with a client.
pub(super) struct Session {
    service: Arc<Service>,
    answers: Answers,
    calls: Calls,
    /// `true` once a client has begun with the handshake of earlier revisions.
    is_initialized: bool,
}

impl Session {
    pub(super) fn new(service: Arc<Service>, answers: Answers) -> Session {
        Session { service, answers, calls: Calls::default(), is_initialized: false }
    }

    /// Handles a message.
    pub(super) fn handle(&mut self, text: &str) {
        match Message::read(text) {
            Err(answer) => self.answers.write(&answer),
            Ok(Message::Notification { method, params }) => self.notice(&method, &params),
            Ok(Message::Request { id, method, params }) => self.answer(id, &method, &params),
        }
    }

    fn notice(&self, method: &str, params: &Value) {
        if method != "notifications/cancelled" {
            return;
        }
        let Some(id) = params.get("requestId") else { return };
        if let Some(stop) = lock(&self.calls).remove(&id.to_string()) {
            stop.ask();
            self.service.worker().drop_cancelled();
        }
    }

    fn answer(&mut self, id: Value, method: &str, params: &Value) {
        let era = match named_version(params) {
            Some(MODERN) => Era::Modern,
            Some(other) if method != "initialize" => return self.answers.write(&unsupported(&id, other)),
            _ => Era::Legacy,
        };
        let result = match (method, era) {
            ("server/discover", Era::Modern) => discovered(),
            ("initialize", Era::Legacy) => {
                self.is_initialized = true;
                initialized(params)
            }
            ("ping", Era::Legacy) => json!({}),
            ("tools/list" | "tools/call", Era::Legacy) if !self.is_initialized => {
                let text = format!(
                    "the request names no protocol version such as {MODERN}, and there was no `initialize`"
                );
                return self.answers.write(&failure(&id, ErrorCode::INVALID_PARAMETERS, &text));
            }
            ("tools/list", _) => complete(json!({"tools": tools()}), era, true),
            ("tools/call", _) => return self.call(id, params, era),
            _ => {
                let text = format!("there is no method {method:?}");
                return self.answers.write(&failure(&id, ErrorCode::UNKNOWN_METHOD, &text));
            }
        };
        self.answers.write(&success(&id, &result));
    }

    fn call(&self, id: Value, params: &Value, era: Era) {
        let call = match Call::read(params) {
            Ok(call) => call,
            Err(fault) => {
                return self.answers.write(&failure(&id, ErrorCode::INVALID_PARAMETERS, &fault));
            }
        };
        let stop = StopToken::default();
        if lock(&self.calls).insert(id.to_string(), stop.clone()).is_some() {
            let text = "another request of this id is not answered yet";
            return self.answers.write(&failure(&id, ErrorCode::INVALID_REQUEST, text));
        }
        let reply = Reply {
            id,
            era,
            stop,
            answers: self.answers.clone(),
            calls: Arc::clone(&self.calls),
            is_written: false,
        };
        match call {
            Call::Models => {
                let cards: Vec<_> = self.service.models().iter().map(|model| &model.card).collect();
                reply.write(Ok(json!({"models": cards})));
            }
            Call::Status => {
                reply.write(serde_json::to_value(self.service.status()).map_err(|_| Problem::internal()))
            }
            Call::Plan { model, image, form } => self.submit(reply, &model, image, form, None),
            Call::Label { model, image, form, output, overwrite } => {
                match expect_free(&output, form, overwrite) {
                    Ok(()) => self.submit(reply, &model, image, form, Some(output)),
                    Err(problem) => reply.write(Err(problem)),
                }
            }
        }
    }

    /// Plans an image, and labels it if there is an output.
    fn submit(&self, reply: Reply, model: &str, image: PathBuf, form: LabelForm, output: Option<PathBuf>) {
        let job = self.service.model(model).and_then(|model| {
            let workspace = self.service.enter()?;
            let service = Arc::clone(&self.service);
            if !image.exists() {
                let error = format!("{} does not exist", image.display());
                return Err(Problem::new(StatusCode::NOT_FOUND, error, "check the path"));
            }
            Ok(Job { service, model, workspace, source: image, form, stop: reply.stop.clone() })
        });
        let job = match job {
            Ok(job) => job,
            Err(problem) => return reply.write(Err(problem)),
        };
        let (service, stop) = (Arc::clone(&self.service), reply.stop.clone());
        // Answers are written where the work is done, by the reply itself.
        drop(self.service.worker().submit(Turn::First, &stop.clone(), move || {
            let prepared = match job.prepare() {
                Ok(prepared) => prepared,
                Err(problem) => return reply.write(Err(problem)),
            };
            let Some(output) = output else {
                return reply.write(serde_json::to_value(&prepared.plan).map_err(|_| Problem::internal()));
            };
            let turn = Turn::InOrder { seconds: prepared.plan.predicted_seconds };
            drop(service.worker().submit(turn, &stop, move || {
                let result = prepared.predict().and_then(|labels| keep(&labels, &output));
                reply.write(result);
            }));
        }));
    }
}

/// Checks the name of a file of labels.
fn expect_free(output: &Path, form: LabelForm, overwrite: bool) -> Result<(), Problem> {
    let endings: &[&str] = match form {
        LabelForm::Nifti => &[".nii.gz", ".nii"],
        LabelForm::DicomSeg => &[".dcm"],
    };
    let (name, shown) = (output.to_string_lossy(), output.display());
    if !endings.iter().any(|ending| name.ends_with(ending)) {
        let error = format!("{shown} does not end in {}", endings.join(" or "));
        return Err(Problem::new(StatusCode::BAD_REQUEST, error, "name the file so"));
    }
    match output.exists() && !overwrite {
        true => Err(Problem::new(
            StatusCode::CONFLICT,
            format!("{shown} exists"),
            "name another file, or set `overwrite`",
        )),
        false => Ok(()),
    }
}

/// Copies labels to the file of the user: whole, or not at all.
fn keep(labels: &Labels, output: &Path) -> Result<Value, Problem> {
    let is_compressed = |path: &Path| path.extension().is_some_and(|ending| ending == "gz");
    if labels.form == LabelForm::Nifti && is_compressed(&labels.file) != is_compressed(output) {
        let own = if is_compressed(&labels.file) { ".nii.gz" } else { ".nii" };
        let error = format!("labels of this image end in {own}, as the image does");
        return Err(Problem::new(StatusCode::BAD_REQUEST, error, "name the output so"));
    }
    let copy = || -> io::Result<()> {
        let mut from = File::open(&labels.file)?;
        atomic::write(output, |to| {
            let mut chunk = vec![0; CHUNK];
            loop {
                let count = from.read(&mut chunk)?;
                match chunk.get(..count) {
                    Some(read) if !read.is_empty() => to.write_all(read)?,
                    _ => return Ok(()),
                }
            }
        })
    };
    copy().map_err(|error| match full(&error) {
        problem if problem == Problem::internal() => Problem::new(
            StatusCode::BAD_REQUEST,
            format!("{}: {error}", output.display()),
            "check the path and the permissions",
        ),
        problem => problem,
    })?;
    Ok(json!({
        "output": output, "seconds": labels.seconds, "plan": labels.plan, "warnings": labels.warnings,
    }))
}

/// The answer to a call, which is written once: if nothing else is, an error when it is dropped. A cancelled call has none.
struct Reply {
    id: Value,
    era: Era,
    stop: StopToken,
    answers: Answers,
    calls: Calls,
    is_written: bool,
}

impl Reply {
    fn write(mut self, result: Result<Value, Problem>) {
        self.is_written = true;
        let (is_error, value) = match result {
            Ok(value) => (false, value),
            Err(problem) => (true, serde_json::to_value(&problem).unwrap_or(Value::Null)),
        };
        let result = json!({
            "content": [{"type": "text", "text": value.to_string()}],
            "structuredContent": value,
            "isError": is_error,
        });
        self.send(&success(&self.id, &complete(result, self.era, false)));
    }

    fn send(&self, answer: &Value) {
        // Its entry is gone if it was cancelled.
        if lock(&self.calls).remove(&self.id.to_string()).is_some() {
            self.answers.write(answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_written {
            self.send(&failure(&self.id, ErrorCode::INTERNAL, "the call ended without a result"));
        }
    }
}

/// Adds the fields that results of the present revision have, and the fields of lists that may be kept.
fn complete(mut result: Value, era: Era, is_kept: bool) -> Value {
    if era == Era::Modern {
        result["resultType"] = "complete".into();
        if is_kept {
            result["ttlMs"] = KEPT_MS.into();
            result["cacheScope"] = "public".into();
        }
    }
    result
}

fn server() -> Value {
    json!({"name": "plimsoll", "title": "Plimsoll", "version": env!("CARGO_PKG_VERSION")})
}

/// The result of `server/discover`.
fn discovered() -> Value {
    let versions: Vec<&str> = std::iter::once(MODERN).chain(LEGACY).collect();
    let result = json!({
        "supportedVersions": versions,
        "capabilities": {"tools": {}},
        "instructions": INSTRUCTIONS,
        "_meta": {"io.modelcontextprotocol/serverInfo": server()},
    });
    complete(result, Era::Modern, true)
}

/// The result of `initialize`: the requested revision, or the newest with a handshake.
fn initialized(params: &Value) -> Value {
    let requested = params.get("protocolVersion").and_then(Value::as_str);
    let version = LEGACY.into_iter().find(|own| requested == Some(own)).unwrap_or(LEGACY[0]);
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": server(),
        "instructions": INSTRUCTIONS,
    })
}

fn lock(calls: &Calls) -> std::sync::MutexGuard<'_, BTreeMap<String, StopToken>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
