//! The remainder of a request that was answered before all of it arrived.
//!
//! A connection that is closed while its client sends is reset, and the client may lose the answer: it would see a broken pipe where the
//! answer says that the token is wrong. So the remainder is read and dropped for a while.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout;

/// The longest time in which a remainder is read.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of a remainder.
const MOST: usize = 64 << 20;

/// The body of a request, whose remainder is read when it is dropped.
pub(super) struct Remainder(Option<Incoming>);

impl Remainder {
    pub(super) fn new(body: Incoming) -> Remainder {
        Remainder(Some(body))
    }
}

impl Body for Remainder {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Remainder {
    fn drop(&mut self) {
        if let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) {
            // The task ends with the connection, which holds a permit of its own.
            tokio::spawn(timeout(PATIENCE, drain(body)));
        }
    }
}

async fn drain(mut body: Incoming) {
    let mut left = MOST;
    while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let count = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(count) {
            Some(less) => left = less,
            None => return,
        }
    }
}
