//! An archive of images that speaks DICOMweb (DICOM PS3.18): a series is found (QIDO-RS) and fetched (WADO-RS), and its labels are stored (STOW-RS).
//!
//! The address is a setting of the service: no client can let it connect elsewhere.

mod connect;
mod multipart;

use std::future::poll_fn;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use axum::http::{Method, Request, StatusCode, header};
use hyper::body::Incoming;
use plimsoll_disk::File;
use plimsoll_memory::Bytes;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

pub(crate) use self::connect::Endpoint;
use self::connect::unavailable;
use self::multipart::{Malformed, Parts, Piece, boundary};
pub use self::multipart::{PartLengths, part_lengths};
use crate::archive::{full, too_large};
use crate::http::FileBody;
use crate::problem::Problem;

/// The attribute that counts the instances of a series.
const INSTANCES: &str = "00201209";
/// The most bytes of an answer in JSON.
const MOST_JSON: usize = 256 << 10;
/// The most instances of a series.
const MOST_FILES: usize = 65_534;
/// The boundary of what is stored. A segmentation that had it in its pixels would be refused by the archive.
const BOUNDARY: &str = "plimsoll-segmentation-7d1f0c52b9e84a36";

/// The unique identifiers of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeriesUid {
    study: String,
    series: String,
}

impl SeriesUid {
    /// Checks both identifiers: digits and dots, up to 64.
    pub(crate) fn new(study: String, series: String) -> Result<SeriesUid, Problem> {
        let is_uid = |text: &str| {
            (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        };
        match is_uid(&study) && is_uid(&series) {
            true => Ok(SeriesUid { study, series }),
            false => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "the address has no unique identifiers of a study and a series",
                "write StudyInstanceUID and SeriesInstanceUID as digits and dots",
            )),
        }
    }
}

/// Fetches a series into a new folder: all instances that the archive counts, and at most `most` bytes.
pub(crate) async fn fetch(from: &Endpoint, uid: &SeriesUid, to: &Path, most: Bytes) -> Result<(), Problem> {
    let SeriesUid { study, series } = uid;
    let count = count(from, uid).await?;
    let target = from.path(&format!("/studies/{study}/series/{series}"));
    let accept = "multipart/related; type=\"application/dicom\"; transfer-syntax=*";
    let response = from.send(get(&target, accept)?).await?;
    expect_success(response.status(), "fetched")?;
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let mut parts = Parts::new(kind.and_then(boundary).ok_or_else(|| unavailable("it sends no parts"))?);
    plimsoll_disk::create_dir_all(to).map_err(|error| full(&error))?;
    let mut slices = Slices { folder: to.into(), open: None, count: 0, left: most.0, most };
    let mut body = response.into_body();
    while let Some(chunk) = next(from, &mut body).await? {
        // The thread of connections never waits for the disk.
        let written = spawn_blocking(move || {
            let result = parts.read::<Fault>(&chunk, &mut |piece| slices.take(piece));
            (parts, slices, result)
        });
        let result;
        (parts, slices, result) = written.await.map_err(|_| Problem::closing())?;
        result.map_err(|Fault(problem)| problem)?;
    }
    if !parts.is_ended() || slices.count < count {
        let (found, what) = (slices.count, if parts.is_ended() { "" } else { ", and the last was cut" });
        return Err(unavailable(&format!("it sent {found} of {count} instances{what}")));
    }
    Ok(())
}

/// Stores a file in the study of a series.
pub(crate) async fn store(to: &Endpoint, uid: &SeriesUid, file: &Path) -> Result<(), Problem> {
    let file = File::open(file).map_err(|_| Problem::internal())?;
    let length = file.len().map_err(|_| Problem::internal())?;
    let head = format!("--{BOUNDARY}\r\nContent-Type: application/dicom\r\n\r\n");
    let tail = format!("\r\n--{BOUNDARY}--\r\n");
    let body = FileBody::new(file, length, ()).between(head.into(), tail.into());
    let kind = format!("multipart/related; type=\"application/dicom\"; boundary={BOUNDARY}");
    let request = Request::builder()
        .method(Method::POST)
        .uri(to.path(&format!("/studies/{}", uid.study)))
        .header(header::CONTENT_TYPE, kind)
        .header(header::ACCEPT, "application/dicom+json")
        .body(Body::new(body));
    let response = to.send(request.map_err(|_| Problem::internal())?).await?;
    expect_success(response.status(), "stored")
}

/// The number of instances that the archive has of a series.
async fn count(from: &Endpoint, uid: &SeriesUid) -> Result<usize, Problem> {
    let SeriesUid { study, series } = uid;
    let query = format!("/studies/{study}/series?SeriesInstanceUID={series}&includefield={INSTANCES}");
    let response = from.send(get(&from.path(&query), "application/dicom+json")?).await?;
    let missing = || {
        Problem::new(
            StatusCode::NOT_FOUND,
            "the archive has no such series",
            "check StudyInstanceUID and SeriesInstanceUID",
        )
    };
    if response.status() == StatusCode::NO_CONTENT {
        return Err(missing());
    }
    expect_success(response.status(), "found")?;
    let (mut text, mut body) = (Vec::new(), response.into_body());
    while let Some(chunk) = next(from, &mut body).await? {
        if text.len() + chunk.len() > MOST_JSON {
            return Err(unavailable("it answers a query with too much"));
        }
        text.extend_from_slice(&chunk);
    }
    let found: Value =
        serde_json::from_slice(&text).map_err(|_| unavailable("it answers a query with no JSON"))?;
    let first = found.get(0).ok_or_else(missing)?;
    let number = &first[INSTANCES]["Value"][0];
    // Some archives write numbers as texts.
    let number = number.as_u64().or_else(|| number.as_str()?.parse().ok());
    let number = number.and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| unavailable("it does not count the instances of the series"))
}

fn get(target: &str, accept: &str) -> Result<Request<Body>, Problem> {
    let request = Request::builder().uri(target).header(header::ACCEPT, accept).body(Body::empty());
    request.map_err(|_| Problem::internal())
}

/// The next bytes of an answer.
async fn next(from: &Endpoint, body: &mut Incoming) -> Result<Option<axum::body::Bytes>, Problem> {
    loop {
        let frame = timeout(from.idle(), poll_fn(|context| Pin::new(&mut *body).poll_frame(context))).await;
        match frame {
            Err(_) => return Err(unavailable("it sends nothing any more")),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(unavailable("it closed the connection before the end")),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn expect_success(status: StatusCode, what: &str) -> Result<(), Problem> {
    match status {
        StatusCode::NOT_FOUND => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "the archive has no such study or series",
            "check StudyInstanceUID and SeriesInstanceUID",
        )),
        status if status.is_success() => Ok(()),
        status => Err(unavailable(&format!("nothing was {what}, with status {}", status.as_u16()))),
    }
}

/// The files of the parts.
struct Slices {
    folder: PathBuf,
    open: Option<File>,
    count: usize,
    left: u64,
    most: Bytes,
}

/// An error of a part.
struct Fault(Problem);

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Fault {
        Fault(unavailable("its parts are malformed"))
    }
}

impl Slices {
    fn take(&mut self, piece: Piece<'_>) -> Result<(), Fault> {
        let disk = |error| Fault(full(&error));
        match piece {
            Piece::Begin if self.count == MOST_FILES => Err(Fault(too_large(self.most.0, self.most))),
            Piece::Begin => {
                let file = File::create_new(self.folder.join(format!("{:05}.dcm", self.count)));
                self.open = Some(file.map_err(disk)?);
                Ok(())
            }
            Piece::Data(data) => {
                self.left = (self.left.checked_sub(data.len() as u64))
                    .ok_or_else(|| Fault(too_large(self.most.0, self.most)))?;
                match &mut self.open {
                    Some(file) => file.write_all(data).map_err(disk),
                    None => Err(Malformed.into()),
                }
            }
            Piece::End => {
                self.open = None;
                self.count += 1;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_and_dots_become_part_of_an_address() {
        SeriesUid::new("1.2.840".into(), "2.25.7".into()).unwrap();
        for wrong in ["", "1.2/../3", "1 2", "ä", &"1".repeat(65)] {
            assert!(SeriesUid::new(wrong.into(), "1".into()).is_err(), "{wrong}");
        }
    }
}
