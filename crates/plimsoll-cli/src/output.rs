//! The one place that writes to the standard output and error streams.
//!
//! Within this crate `println!`, `print!` and `eprintln!` are the macros below, which differ from the standard library's in three ways. Parameters and jobs that texts of libraries mark become flags and commands. Output that
//! cannot be written, to a full disk or a closed terminal, is dropped and noted: the standard library's macros would end the process,
//! and a training with it. Control characters are escaped: names of cases and labels come from files of others, and a terminal would obey
//! them.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use plimsoll_remedy::render;
use plimsoll_report::text::escaped;

use crate::failure::{Failure, Outcome};
use crate::signals;
use crate::wording::Flags;

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
    /// `true` if output was lost before.
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
    let text = render(&text.to_string(), &Flags);
    stream.write_all(escaped(&text).as_bytes())?;
    stream.flush()
}

fn note(stream: &str, error: &io::Error, keep: impl FnOnce(&mut Lost, io::Error)) {
    if error.kind() == io::ErrorKind::BrokenPipe {
        signals::pipe_is_closed();
    }
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
/// SIGPIPE, or with status 1 where there is no such signal.
///
/// # Errors
/// Returns an error if it was not.
pub fn check() -> Outcome {
    let Some(error) = LOST.lock().unwrap_or_else(PoisonError::into_inner).stdout.take() else {
        return Ok(());
    };
    if error.kind() == io::ErrorKind::BrokenPipe {
        signals::end_by_closed_pipe();
    }
    let message = format!("standard output: {error}; what was printed is not complete");
    Err(Failure::new(message, "make room where it goes, or print to another place"))
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
    fn a_stream_that_refuses_is_an_error_and_no_panic() {
        let error = write(&mut Full, format_args!("line\n")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
