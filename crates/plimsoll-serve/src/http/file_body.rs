//! Bodies that are files.

use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Frame, SizeHint};
use plimsoll_disk::File;
use tokio::task::JoinHandle;

use crate::shares::CHUNK;

/// A file, read in chunks by a thread that may wait for the disk. It holds what must last until it is sent.
pub(crate) struct FileBody<H> {
    /// Bytes before the file, until they are sent.
    head: Bytes,
    /// Bytes of the file that are not sent.
    left: u64,
    /// Bytes behind the file, until they are sent.
    tail: Bytes,
    state: State,
    _holding: H,
}

enum State {
    Idle(File),
    Reading(JoinHandle<io::Result<(File, Vec<u8>)>>),
    Ended,
}

impl<H> FileBody<H> {
    /// A file of this length.
    pub(crate) fn new(file: File, length: u64, holding: H) -> FileBody<H> {
        let (head, tail) = (Bytes::new(), Bytes::new());
        FileBody { head, left: length, tail, state: State::Idle(file), _holding: holding }
    }

    /// The same between other bytes.
    pub(crate) fn between(self, head: Bytes, tail: Bytes) -> FileBody<H> {
        FileBody { head, tail, ..self }
    }

    fn poll_file(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
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
                    return Poll::Ready(Ok(chunk.into()));
                }
            }
        }
    }
}

impl<H: Unpin> hyper::body::Body for FileBody<H> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = &mut *self;
        if !body.head.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut body.head)))));
        }
        if body.left > 0 {
            return body.poll_file(context).map(|read| Some(read.map(Frame::data)));
        }
        let tail = std::mem::take(&mut body.tail);
        Poll::Ready((!tail.is_empty()).then(|| Ok(Frame::data(tail))))
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_empty() && self.left == 0 && self.tail.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.head.len() as u64 + self.left + self.tail.len() as u64)
    }
}
