//! Remedies of errors as values, which each front end renders in its own words.
//!
//! A library does not know whether a user sets the memory limit by a flag, an argument of a function or a field of a struct. Its texts therefore name
//! parameters and jobs between the marks `‹` and `›`: `raise ‹ram›`, `continue with ‹resume›`, `‹job inspect› lists them`. A [`Remedy`] reads
//! such a text once; [`Remedy::render`] writes it in the words of a front end, and [`Remedy::changes`] returns the proposed changes as values.

mod change;
mod parameter;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use change::{Change, Limit};
pub use parameter::{Job, Parameter};

/// A text that proposes what to do about an error.
///
/// It is serialised as the text with its marks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Remedy {
    pieces: Vec<Piece>,
}

/// A piece of a remedy.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Words(String),
    Change(Change),
    Job(Job, Vec<Argument>),
}

/// An argument of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A file, a folder or a name.
    Word(String),
    /// A parameter, and its value where it has one.
    Parameter(Parameter, Option<String>),
}

/// The words of a front end.
pub trait Wording {
    /// Renders a parameter, and the value that it is to have.
    fn parameter(&self, parameter: Parameter, value: Option<&str>) -> String;

    /// Renders a job and its arguments, of which there may be none: unless a front end has other words, as a command of the program.
    fn job(&self, job: Job, arguments: &[Argument]) -> String {
        let words = arguments.iter().map(|argument| match argument {
            Argument::Word(word) => word.clone(),
            Argument::Parameter(parameter, value) => self.parameter(*parameter, value.as_deref()),
        });
        let command = [format!("plimsoll {}", job.name())].into_iter().chain(words);
        format!("`{}`", command.collect::<Vec<_>>().join(" "))
    }
}

impl Remedy {
    /// The proposed changes, in the order of the text.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Change(change) => Some(change),
            Piece::Words(_) | Piece::Job(..) => None,
        })
    }

    /// The text in the words of a front end.
    pub fn render(&self, wording: &dyn Wording) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Words(words) => text.push_str(words),
                Piece::Change(change) => {
                    text.push_str(&wording.parameter(change.parameter(), change.value().as_deref()));
                }
                Piece::Job(job, arguments) => text.push_str(&wording.job(*job, arguments)),
            }
        }
        text
    }
}

/// Renders a text in which parameters and jobs are marked, such as the message of an error.
pub fn render(text: &str, wording: &dyn Wording) -> String {
    Remedy::from(text).render(wording)
}

/// Words that belong to no front end: names of parameters and jobs in backquotes.
struct Neutral;

impl Wording for Neutral {
    fn parameter(&self, parameter: Parameter, value: Option<&str>) -> String {
        match value {
            None => format!("`{}`", parameter.name()),
            Some(value) => format!("`{} = {value}`", parameter.name()),
        }
    }

    fn job(&self, job: Job, _: &[Argument]) -> String {
        format!("`{}`", job.name())
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Neutral))
    }
}

impl From<&str> for Remedy {
    fn from(text: &str) -> Remedy {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((words, behind)) = rest.split_once('‹') {
            // A name of a file may have such a mark: whatever names no parameter and no job stays as it is.
            let marked = behind.split_once('›').and_then(|(mark, rest)| Some((read(mark)?, rest)));
            match marked {
                Some((piece, behind)) => {
                    push(&mut pieces, words);
                    pieces.push(piece);
                    rest = behind;
                }
                None => {
                    push(&mut pieces, words);
                    push(&mut pieces, "‹");
                    rest = behind;
                }
            }
        }
        push(&mut pieces, rest);
        Remedy { pieces }
    }
}

/// Appends words to those before them.
fn push(pieces: &mut Vec<Piece>, words: &str) {
    match pieces.last_mut() {
        _ if words.is_empty() => {}
        Some(Piece::Words(before)) => before.push_str(words),
        _ => pieces.push(Piece::Words(words.into())),
    }
}

/// Reads the text between two marks: `ram`, `ram=2.1 GiB`, `job inspect FOLDER +write +unit=um`.
fn read(mark: &str) -> Option<Piece> {
    if let Some(call) = mark.strip_prefix("job ") {
        let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
        let arguments = arguments.split_whitespace().map(argument).collect::<Option<_>>()?;
        return Some(Piece::Job(Job::from_name(name)?, arguments));
    }
    let (parameter, value) = parameter(mark)?;
    Some(Piece::Change(Change::new(parameter, value)))
}

/// Reads an argument of a job, of which parameters begin with `+`.
fn argument(word: &str) -> Option<Argument> {
    match word.strip_prefix('+') {
        None => Some(Argument::Word(word.into())),
        Some(mark) => parameter(mark).map(|(name, value)| Argument::Parameter(name, value.map(String::from))),
    }
}

/// Reads a parameter: `ram`, `ram=2.1 GiB`.
fn parameter(mark: &str) -> Option<(Parameter, Option<&str>)> {
    let (name, value) = match mark.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (mark, None),
    };
    Some((Parameter::from_name(name)?, value))
}

impl From<String> for Remedy {
    fn from(text: String) -> Remedy {
        Remedy::from(text.as_str())
    }
}

impl From<Remedy> for String {
    fn from(remedy: Remedy) -> String {
        let mut text = String::new();
        for piece in remedy.pieces {
            match piece {
                Piece::Words(words) => text.push_str(&words),
                Piece::Change(change) => match change.value() {
                    None => text.push_str(&format!("‹{}›", change.parameter().name())),
                    Some(value) => text.push_str(&format!("‹{}={value}›", change.parameter().name())),
                },
                Piece::Job(job, arguments) => {
                    text.push_str(&format!("‹job {}", job.name()));
                    for argument in arguments {
                        match argument {
                            Argument::Word(word) => text.push_str(&format!(" {word}")),
                            Argument::Parameter(own, None) => text.push_str(&format!(" +{}", own.name())),
                            Argument::Parameter(own, Some(value)) => {
                                text.push_str(&format!(" +{}={value}", own.name()));
                            }
                        }
                    }
                    text.push('›');
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_memory::Bytes;

    use super::*;

    /// The words of a shell.
    struct Shell;

    impl Wording for Shell {
        fn parameter(&self, parameter: Parameter, value: Option<&str>) -> String {
            let flag = format!("--{}", parameter.name().replace('_', "-"));
            value.map_or(flag.clone(), |value| format!("{flag} {value}"))
        }

        fn job(&self, job: Job, arguments: &[Argument]) -> String {
            let words = arguments.iter().map(|argument| match argument {
                Argument::Word(word) => word.clone(),
                Argument::Parameter(own, value) => self.parameter(*own, value.as_deref()),
            });
            format!("`program {} {}`", job.name(), words.collect::<Vec<_>>().join(" "))
        }
    }

    #[test]
    fn parameters_and_jobs_are_rendered_and_changes_are_values() {
        let remedy =
            Remedy::from("raise ‹ram=2.00 GiB›, continue with ‹resume›, or see ‹job inspect FOLDER +write›");
        let text = "raise --ram 2GiB, continue with --resume, or see `program inspect FOLDER --write`";
        assert_eq!(remedy.render(&Shell), text);
        let changes: Vec<&Change> = remedy.changes().collect();
        let limit = Change::RaiseLimit { limit: Limit::Ram, to: Some(Bytes::mib(2048)) };
        assert_eq!(changes, [&limit, &Change::Resume]);
        assert_eq!(remedy.to_string(), "raise `ram = 2GiB`, continue with `resume`, or see `inspect`");
    }

    #[test]
    fn marks_that_name_nothing_are_words() {
        for text in ["‹", "a‹b›c", "‹ram", "‹‹ram›", "‹job nothing›", "›‹"] {
            let remedy = Remedy::from(text);
            assert_eq!(String::from(remedy.clone()), text, "{remedy:?}");
        }
    }

    #[test]
    fn a_remedy_is_read_as_it_was_written() {
        let text = "‹job evaluate A B +partial +metrics=overlap› with ‹labels=1,2›; ‹patch_size=32,64,64›, ‹precision=bf16›, ‹ram=124MiB›";
        let remedy = Remedy::from(text);
        let json = serde_json::to_string(&remedy).unwrap();
        assert_eq!(serde_json::from_str::<Remedy>(&json).unwrap(), remedy);
        let smaller = Change::SmallerPatch([32, 64, 64]);
        assert!(remedy.changes().any(|change| *change == smaller));
    }
}
