//! The words that a command line was started with.

use std::ffi::OsString;
use std::io;
use std::path::{PathBuf, absolute};

/// A call of the command line.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program that was started; `None` if the system does not name it.
    program: Option<PathBuf>,
    /// The words after the program.
    arguments: Vec<OsString>,
}

impl Invocation {
    /// A call by a program in another language, like a script of Python. Jobs of batch systems start `program` again.
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Invocation {
        Invocation { program: Some(program), arguments }
    }

    /// The call that has started this process.
    pub fn of_this_process() -> Invocation {
        Invocation { program: std::env::current_exe().ok(), arguments: std::env::args_os().skip(1).collect() }
    }

    /// The absolute path of the program.
    ///
    /// # Errors
    /// Returns an error if the system does not name the program or the current folder.
    pub(crate) fn program(&self) -> io::Result<PathBuf> {
        let unnamed =
            || io::Error::new(io::ErrorKind::NotFound, "the system does not name the file of this program");
        absolute(self.program.as_deref().ok_or_else(unnamed)?)
    }

    /// The words after the program.
    pub(crate) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}
