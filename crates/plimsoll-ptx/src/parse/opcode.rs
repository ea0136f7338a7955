//! An opcode and its modifiers: `ld.global.nc.v4.f32`.

use super::ParseError;
use crate::function::rounding::Mode;
use crate::types::Type;

/// The parts of an opcode that nobody has asked for yet. What is left at the end is unknown.
pub(crate) struct Opcode<'a> {
    pub name: &'a str,
    parts: Vec<&'a str>,
    line: usize,
}

impl<'a> Opcode<'a> {
    pub fn new(word: &'a str, line: usize) -> Opcode<'a> {
        let mut parts = word.split('.');
        Opcode { name: parts.next().unwrap_or(""), parts: parts.collect(), line }
    }

    /// Returns `true` if the opcode has `part`, and marks it as parsed.
    pub fn has(&mut self, part: &str) -> bool {
        let found = self.parts.iter().position(|&known| known == part);
        if let Some(at) = found {
            self.parts.remove(at);
        }
        found.is_some()
    }

    /// The first of `known` that is there.
    pub fn one_of<T: Copy>(&mut self, known: &[(&str, T)]) -> Option<T> {
        known.iter().find(|(name, _)| self.has(name)).map(|&(_, value)| value)
    }

    /// Like [`Self::one_of`], but it has to be there.
    pub fn choice<T: Copy>(&mut self, known: &[(&str, T)]) -> Result<T, ParseError> {
        self.one_of(known).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            self.error(format!("`{}` needs one of .{}", self.name, names.join(", .")))
        })
    }

    /// Returns the rest of the first part with this prefix, and marks that part as parsed.
    pub fn starting(&mut self, start: &str) -> Option<&'a str> {
        let at = self.parts.iter().position(|part| part.starts_with(start))?;
        self.parts.remove(at).strip_prefix(start)
    }

    /// Parts that start so are understood, and say nothing that matters here.
    pub fn drop_starting(&mut self, start: &str) {
        self.parts.retain(|part| !part.starts_with(start));
    }

    /// All types, in order.
    pub fn types(&mut self) -> Vec<Type> {
        let types = self.parts.iter().filter_map(|part| Type::named(part)).collect();
        self.parts.retain(|part| Type::named(part).is_none());
        types
    }

    /// The first type, which is the type of the result.
    pub fn first_type(&self) -> Option<Type> {
        self.parts.iter().find_map(|part| Type::named(part))
    }

    /// The only type.
    pub fn only_type(&mut self) -> Result<Type, ParseError> {
        match self.types().as_slice() {
            [one] => Ok(*one),
            types => Err(self.error(format!("`{}` with {} types, one was expected", self.name, types.len()))),
        }
    }

    /// The next `.row` or `.col`.
    pub fn layout(&mut self) -> Result<&'a str, ParseError> {
        let found = self.parts.iter().position(|&part| part == "row" || part == "col");
        match found {
            Some(at) => Ok(self.parts.remove(at)),
            None => Err(self.error(format!("`{}` needs the layouts of A and B", self.name))),
        }
    }

    /// Returns the rounding of results, if it is given.
    pub fn rounding(&mut self) -> Option<Mode> {
        self.one_of(&[
            ("rn", Mode::NearestEven),
            ("rz", Mode::TowardsZero),
            ("rm", Mode::Down),
            ("rp", Mode::Up),
            ("rna", Mode::NearestAway),
        ])
    }

    /// An error at its line.
    pub fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError::at(self.line, what)
    }

    /// An error that says that there is no such instruction here.
    pub fn unknown(&self) -> ParseError {
        self.error(format!("the instruction `{}` in this form is not known to the interpreter", self.name))
    }

    /// Checks that all parts were parsed.
    pub fn finish(&self) -> Result<(), ParseError> {
        match self.parts.first() {
            None => Ok(()),
            Some(part) => {
                Err(self.error(format!("`.{part}` of `{}` is not known to the interpreter", self.name)))
            }
        }
    }
}
