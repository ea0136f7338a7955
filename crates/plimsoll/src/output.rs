//! The one place that writes to the standard output and error streams.
//!
//! Within this crate `println!`, `print!` and `eprintln!` are the macros below, which differ from the standard library's in two ways. Output that
//! cannot be written, to a full disk or a closed terminal, is dropped and noted: the standard library's macros would end the process,
//! and a training with it. Control characters are escaped: names of cases and labels come from files of others, and a terminal would obey
//! them.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use signal_hook::consts::SIGPIPE;

use crate::failure::{Failure, Outcome};

/// Prints a line to the standard output stream.
macro_rules! println {
    () => { $crate::output::print(format_args!("\n")) };
    ($($arguments:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($arguments)*))) };
}

/// Prints to the standard output stream.
macro_rules! print {
    ($($arguments:tt)*) => { $crate::output::print(format_args!($($arguments)*)) };
}

/// Prints a line to the standard error stream.
macro_rules! eprintln {
    ($($arguments:tt)*) => { $crate::output::print_error(format_args!("{}\n", format_args!($($arguments)*))) };
}

/// The output that could not be written.
struct Lost {
    /// The first error of the standard output stream.
    stdout: Option<io::Error>,
    /// A line about the first loss of either stream, until it is noted.
    notice: Option<String>,
    /// Whether anything was lost before.
    any: bool,
}

static LOST: Mutex<Lost> = Mutex::new(Lost { stdout: None, notice: None, any: false });

/// Writes to the standard output stream.
pub fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = write(&mut io::stdout().lock(), text) {
        note("standard output", &error, |lost, error| {
            lost.stdout.get_or_insert(error);
        });
    }
}

/// Writes to the standard error stream.
pub fn print_error(text: fmt::Arguments<'_>) {
    if let Err(error) = write(&mut io::stderr().lock(), text) {
        note("standard error", &error, |_, _| {});
    }
}

fn write(stream: &mut impl Write, text: fmt::Arguments<'_>) -> io::Result<()> {
    let text = text.to_string();
    stream.write_all(escaped(&text).as_bytes())?;
    stream.flush()
}

fn note(stream: &str, error: &io::Error, keep: impl FnOnce(&mut Lost, io::Error)) {
    let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !std::mem::replace(&mut lost.any, true) {
        lost.notice = Some(format!("{stream} could not be written and is dropped: {error}"));
    }
    let kept = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
    keep(&mut lost, kept);
}

/// Returns a line about the first output that was lost, once.
pub fn take_notice() -> Option<String> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).notice.take()
}

/// Checks that all of the standard output stream was written, which is the result of most commands. If its reader has gone, ends the process by
/// SIGPIPE.
///
/// # Errors
/// If it was not.
pub fn check() -> Outcome {
    let Some(error) = LOST.lock().unwrap_or_else(PoisonError::into_inner).stdout.take() else {
        return Ok(());
    };
    if error.kind() == io::ErrorKind::BrokenPipe {
        // Where this fails, the error is reported instead.
        let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
    }
    let message = format!("standard output: {error}; what was printed is not complete");
    Err(Failure::new(message, "make room where it goes, or print to another place"))
}

/// A text without characters that a terminal obeys: control characters but ends of lines and tabs, and those that change the direction of
/// writing, are written as JSON writes them, `\u001b`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_obeyed(character) {
            true => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            }
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// A text as a part of a line: as [`escaped`], with ends of lines and tabs.
pub fn in_line(text: &str) -> String {
    escaped(&text.replace('\n', "\\n").replace('\t', "\\t")).into_owned()
}

fn is_obeyed(character: char) -> bool {
    let turns_direction =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (character.is_control() && !matches!(character, '\n' | '\t')) || turns_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream on a full disk.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn characters_that_a_terminal_obeys_are_written_as_json_writes_them() {
        assert!(matches!(escaped("läsion 1\tµm\n"), Cow::Borrowed(_)));
        let hostile = "a\u{1b}[2J\u{7}b\r\u{9b}\u{7f}\u{202e}c";
        assert_eq!(escaped(hostile), "a\\u001b[2J\\u0007b\\u000d\\u009b\\u007f\\u202ec");
        let json = format!("\"{}\"", escaped("\u{7f}\u{9b}"));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "\u{7f}\u{9b}");
        assert_eq!(in_line("a\nerror: b\t\u{1b}"), "a\\nerror: b\\t\\u001b");
    }

    #[test]
    fn a_stream_that_refuses_is_an_error_and_no_panic() {
        let error = write(&mut Full, format_args!("line\n")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
