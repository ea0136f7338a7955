//! Uploads, written to the disk chunk by chunk.

use std::future::poll_fn;
use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use plimsoll_disk::File;
use plimsoll_memory::Bytes;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::archive::full;
use crate::problem::Problem;
use crate::settings::Bounds;

/// The least mean rate of an upload, in bytes per second.
const LEAST_RATE: u64 = 4 << 10;
/// Bytes of the disk that an upload of known length must leave.
const LEFT_ON_DISK: u64 = 64 << 20;

/// Refuses an upload by the length that it claims, before any of it is read.
pub(super) fn expect_room(claimed: Option<u64>, bounds: &Bounds, folder: &Path) -> Result<(), Problem> {
    let Some(claimed) = claimed else { return Ok(()) };
    if claimed > bounds.upload.0 {
        return Err(too_large(bounds.upload));
    }
    match plimsoll_disk::free_bytes(folder) {
        Ok(free) if free < claimed.saturating_add(LEFT_ON_DISK) => {
            Err(full(&io::ErrorKind::StorageFull.into()))
        }
        // Where the room is unknown, writing fails if there is none.
        _ => Ok(()),
    }
}

/// Writes the body of a request to a new file. Returns its length.
pub(super) async fn receive(mut body: Body, to: &Path, bounds: &Bounds) -> Result<u64, Problem> {
    let start = Instant::now();
    let mut file = File::create_new(to).map_err(|error| full(&error))?;
    let mut length = 0u64;
    loop {
        let next = timeout(bounds.idle, poll_fn(|context| Pin::new(&mut body).poll_frame(context))).await;
        let frame = match next {
            Err(_) => return Err(too_slow(bounds.idle)),
            Ok(None) => return Ok(length),
            Ok(Some(Err(_))) => return Err(incomplete()),
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers are not part of the file.
        let Ok(chunk) = frame.into_data() else { continue };
        length += chunk.len() as u64;
        if length > bounds.upload.0 {
            return Err(too_large(bounds.upload));
        }
        let allowed = bounds.idle + Duration::from_secs(length / LEAST_RATE);
        if start.elapsed() > allowed {
            return Err(too_slow(bounds.idle));
        }
        let written = spawn_blocking(move || file.write_all(&chunk).map(|()| file)).await;
        file = written.map_err(|_| Problem::closing())?.map_err(|error| full(&error))?;
    }
}

fn too_large(limit: Bytes) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the upload has more than {limit}, the limit of the server"),
        "compress the image as .nii.gz, send one image alone, or raise `--upload-limit` of the server",
    )
}

fn too_slow(idle: Duration) -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        format!("the upload is too slow: no byte within {} s, or less than 4 KiB/s in all", idle.as_secs()),
        "send the request again over a better connection",
    )
}

fn incomplete() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "the upload ended before it was complete, or its encoding is damaged",
        "send the request again",
    )
}
