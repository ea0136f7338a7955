//! Answers: JSON, and files in chunks.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use plimsoll_disk::File;
use serde::Serialize;

use super::file_body::FileBody;
use crate::job::{LabelForm, Labels};
use crate::problem::Problem;

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
    let body = FileBody::new(file, length, Arc::clone(&labels.workspace));
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
