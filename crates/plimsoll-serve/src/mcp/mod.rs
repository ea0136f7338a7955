//! The Model Context Protocol on standard streams: one message of JSON-RPC 2.0 in each line
//! (<https://modelcontextprotocol.io/specification/2026-07-28>).
//!
//! Clients of the revision of 2026-07-28 state its name in every request. Earlier ones begin with `initialize`; both are answered. Images and
//! labels are files of the user who starts the program, named by path.

mod message;
mod session;
mod tools;

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plimsoll::StopToken;
use serde_json::Value;

/// The answer to a text that is no message; `None` if it is one.
pub(crate) fn refused_message(text: &str) -> Option<Value> {
    message::Message::read(text).err()
}

use crate::error::ServeError;
use crate::mcp::message::{ErrorCode, failure};
use crate::mcp::session::Session;
use crate::service::Service;

/// The most bytes of a message.
const MOST: u64 = 1 << 20;
/// Messages that wait to be handled; the client waits with more.
const WAITING: usize = 16;
/// The stack of the thread that reads messages.
const STACK: usize = 256 << 10;
/// The time between two looks at the stop token.
const TICK: Duration = Duration::from_millis(100);

/// The stream of answers, of which one is written at a time.
#[derive(Clone)]
pub(crate) struct Answers {
    stream: Arc<Mutex<dyn Write + Send>>,
}

impl Answers {
    /// Writes an answer as a line.
    fn write(&self, answer: &Value) {
        let mut line = answer.to_string();
        line.push('\n');
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that is gone closes its end of the other stream too, which ends the service.
        let _ = stream.write_all(line.as_bytes()).and_then(|()| stream.flush());
    }
}

/// A line of the client.
enum Line {
    Message(String),
    /// It is longer than the limit, or no text.
    Unreadable,
}

/// Answers messages until the input ends or the stop token is set.
///
/// # Errors
/// Returns an error if the input cannot be read.
pub fn serve_mcp(
    service: Service,
    input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
    stop: &StopToken,
) -> Result<(), ServeError> {
    let service = Arc::new(service);
    let answers = Answers { stream: Arc::new(Mutex::new(output)) };
    let mut session = Session::new(Arc::clone(&service), answers.clone());
    let (sender, lines) = mpsc::sync_channel(WAITING);
    let reading = move || read_lines(input, |line| sender.send(line).is_ok());
    let reader = thread::Builder::new().name("messages".into()).stack_size(STACK);
    reader.spawn(reading).map_err(|source| ServeError::System { what: "a thread", source })?;
    while !stop.is_asked() {
        match lines.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(Line::Message(text)) => session.handle(&text),
            Ok(Line::Unreadable) => {
                let text = format!("the message is no text, or longer than {MOST} bytes");
                answers.write(&failure(&Value::Null, ErrorCode::PARSE, &text));
            }
        }
    }
    service.worker().close();
    service.worker().wait_until_idle();
    Ok(())
}

/// Reads lines until the input ends or `take` returns `false`.
fn read_lines(mut input: impl BufRead, mut take: impl FnMut(Line) -> bool) {
    loop {
        let mut line = Vec::new();
        // An input that fails is one that has ended.
        let count = input.by_ref().take(MOST).read_until(b'\n', &mut line).unwrap_or(0);
        if count == 0 {
            return;
        }
        let is_cut = line.last() != Some(&b'\n') && count as u64 == MOST;
        if is_cut && skip_line(&mut input).is_err() {
            return;
        }
        let line = match String::from_utf8(line) {
            Ok(text) if !is_cut => {
                if text.trim().is_empty() {
                    continue;
                }
                Line::Message(text)
            }
            _ => Line::Unreadable,
        };
        if !take(line) {
            return;
        }
    }
}

/// Drops the rest of a line, of any length.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (count, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(count);
        if is_end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_that_are_too_long_or_no_text_are_passed_over() {
        let long = "x".repeat(MOST as usize + 10);
        let input = [b"one\n\n", long.as_bytes(), b"\ntwo\n\xff\nthree"].concat();
        let mut found = Vec::new();
        read_lines(BufReader::new(&*input), |line| {
            found.push(match line {
                Line::Message(text) => text.trim().to_string(),
                Line::Unreadable => "-".into(),
            });
            true
        });
        assert_eq!(found, ["one", "-", "two", "-", "three"]);
    }
}
