//! PTX text to a [`Module`].
//!
//! An unsupported construct is an error that names it: an instruction that was skipped would be a check that was not
//! made.

mod body;
mod control;
mod directives;
mod lexer;
mod lookup;
mod memory;
mod opcode;
mod operand;
mod registers;
mod sync;
mod tensor;
mod warpgroup;

use crate::module::Module;

pub(crate) use opcode::Opcode;

/// Why a text is no PTX that can be run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the PTX: {what}{}", if text.is_empty() { String::new() } else { format!(" (`{text}`)") })]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// The line itself.
    pub text: String,
    /// The construct that is wrong or unknown.
    pub what: String,
}

impl ParseError {
    pub(crate) fn at(line: usize, what: impl Into<String>) -> ParseError {
        ParseError { line, text: String::new(), what: what.into() }
    }
}

impl Module {
    /// Parses `text`.
    ///
    /// # Errors
    /// Anything that is not understood: syntax, an unknown instruction, modifier, register or variable, a call.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        directives::module(text).map_err(|mut error| {
            let line = text.lines().nth(error.line.saturating_sub(1)).unwrap_or("");
            error.text = line.trim().to_owned();
            error
        })
    }
}
