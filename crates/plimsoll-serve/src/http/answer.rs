//! Answers: JSON, and files in chunks.

use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use plimsoll_disk::File;
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::job::{LabelForm, Labels};
use crate::problem::Problem;
use crate::shares::CHUNK;
use crate::workspace::Workspace;

/// The planned memory of a prediction in bytes.
const PLANNED: HeaderName = HeaderName::from_static("plimsoll-planned-ram-bytes");
/// The seconds of a prediction.
const SECONDS: HeaderName = HeaderName::from_static("plimsoll-seconds");
/// A warning about an image.
const WARNING: HeaderName = HeaderName::from_static("plimsoll-warning");

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => Problem::internal().into_response(),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = match serde_json::to_vec(&self) {
            Ok(text) => (self.status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
            // Texts and numbers are always JSON.
            Err(_) => self.status.into_response(),
        };
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == axum::http::StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A file of labels. The folder of the request lasts until it is sent.
pub(super) fn labels(labels: &Labels) -> Result<Response, Problem> {
    let file = File::open(&labels.file).map_err(|_| Problem::internal())?;
    let length = file.len().map_err(|_| Problem::internal())?;
    let is_compressed = labels.file.extension().is_some_and(|ending| ending == "gz");
    let (kind, name) = match (labels.form, is_compressed) {
        (LabelForm::DicomSeg, _) => ("application/dicom", "labels.dcm"),
        (LabelForm::Nifti, true) => ("application/gzip", "labels.nii.gz"),
        (LabelForm::Nifti, false) => ("application/octet-stream", "labels.nii"),
    };
    let body = FileBody { left: length, state: State::Idle(file), _workspace: Arc::clone(&labels.workspace) };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_LENGTH, length.into());
    let disposition = format!("attachment; filename=\"{name}\"");
    let numbers = [
        (header::CONTENT_DISPOSITION, disposition),
        (PLANNED, labels.plan.planned_ram_bytes.0.to_string()),
        (SECONDS, format!("{:.3}", labels.seconds)),
    ];
    for (name, value) in numbers {
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| Problem::internal())?);
    }
    for warning in &labels.warnings {
        // Headers have printable ASCII alone.
        let plain: String = warning
            .chars()
            .map(|letter| if letter == ' ' || letter.is_ascii_graphic() { letter } else { '?' })
            .collect();
        headers.append(WARNING, HeaderValue::try_from(plain).map_err(|_| Problem::internal())?);
    }
    Ok(response)
}

/// A file, read in chunks by a thread that may wait for the disk.
struct FileBody {
    left: u64,
    state: State,
    _workspace: Arc<Workspace>,
}

enum State {
    Idle(File),
    Reading(JoinHandle<io::Result<(File, Vec<u8>)>>),
    Ended,
}

impl hyper::body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                State::Idle(mut file) => {
                    let most = usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK);
                    self.state = State::Reading(tokio::task::spawn_blocking(move || {
                        let mut chunk = vec![0; most];
                        file.read_exact(&mut chunk)?;
                        Ok((file, chunk))
                    }));
                }
                State::Reading(mut reading) => {
                    let Poll::Ready(read) = Pin::new(&mut reading).poll(context) else {
                        self.state = State::Reading(reading);
                        return Poll::Pending;
                    };
                    let (file, chunk) = read.map_err(io::Error::other).flatten()?;
                    self.left -= chunk.len() as u64;
                    self.state = State::Idle(file);
                    return Poll::Ready(Some(Ok(Frame::data(chunk.into()))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
