//! The operands of an instruction as they are written.

use super::ParseError;
use super::lexer::{Token, number};

/// One operand. Names are not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand<'a> {
    /// A register, a variable or a label.
    Name(&'a str),
    /// A variable and a distance in bytes.
    Near(&'a str, i64),
    Number(u64),
    /// `!%p1`.
    Not(&'a str),
    /// `{%r1, %r2}`.
    List(Vec<Operand<'a>>),
    /// `[%rd1+16]`.
    Address(&'a str, i64),
    /// `[4096]`.
    Absolute(u64),
    /// `%p1|%p2`.
    Both(&'a str, &'a str),
}

/// A reader of tokens.
#[derive(Clone)]
pub(crate) struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'t, 'a> Cursor<'t, 'a> {
    pub fn new(tokens: &'t [Token<'a>]) -> Cursor<'t, 'a> {
        Cursor { tokens, at: 0 }
    }

    /// The next token, which stays.
    pub fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    /// The line of the next token, or the last.
    pub fn line(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    /// Takes the next token.
    pub fn take(&mut self) -> Result<&'a str, ParseError> {
        let text = self.peek().ok_or_else(|| self.error("the text ends within a statement"))?;
        self.at += 1;
        Ok(text)
    }

    /// Takes the next token if it is `text`.
    pub fn accept(&mut self, text: &str) -> bool {
        let found = self.peek() == Some(text);
        self.at += usize::from(found);
        found
    }

    /// Takes the next token, which has to be `text`.
    pub fn expect(&mut self, text: &str) -> Result<(), ParseError> {
        if self.accept(text) {
            return Ok(());
        }
        Err(self.error(format!("`{text}` was expected, not `{}`", self.peek().unwrap_or("the end"))))
    }

    /// Skips tokens up to and including the `}` that closes the `{` that was just taken.
    pub fn skip_block(&mut self) -> Result<(), ParseError> {
        let mut depth = 1;
        while depth > 0 {
            match self.take()? {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// An integer with an optional sign.
    pub fn integer(&mut self) -> Result<i64, ParseError> {
        let negative = self.accept("-");
        let word = self.take()?;
        let value =
            number(word).ok_or_else(|| self.error(format!("a number was expected, not `{word}`")))? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// A size or a count.
    pub fn count(&mut self) -> Result<usize, ParseError> {
        let value = self.integer()?;
        // More than any memory that is declared, so that sums of sizes cannot overflow.
        usize::try_from(value)
            .ok()
            .filter(|&value| value < 1 << 32)
            .ok_or_else(|| self.error(format!("{value} is no size")))
    }

    /// All operands up to and including the `;`.
    pub fn operands(&mut self) -> Result<Vec<Operand<'a>>, ParseError> {
        let mut operands = Vec::new();
        if self.accept(";") {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand()?);
            if self.accept(";") {
                return Ok(operands);
            }
            self.expect(",")?;
        }
    }

    fn distance(&mut self) -> Result<i64, ParseError> {
        // A minus belongs to the number.
        if self.accept("+") || self.peek() == Some("-") { self.integer() } else { Ok(0) }
    }

    fn operand(&mut self) -> Result<Operand<'a>, ParseError> {
        if self.accept("{") {
            let mut list = Vec::new();
            loop {
                list.push(self.operand()?);
                if self.accept("}") {
                    return Ok(Operand::List(list));
                }
                self.expect(",")?;
            }
        }
        if self.accept("[") {
            let base = self.take()?;
            let operand = match number(base) {
                Some(value) => Operand::Absolute(value),
                None => Operand::Address(base, self.distance()?),
            };
            self.expect("]")?;
            return Ok(operand);
        }
        if self.accept("!") {
            return Ok(Operand::Not(self.take()?));
        }
        if self.peek() == Some("-") {
            return Ok(Operand::Number(self.integer()? as u64));
        }
        let word = self.take()?;
        if let Some(value) = number(word) {
            return Ok(Operand::Number(value));
        }
        if self.accept("|") {
            return Ok(Operand::Both(word, self.take()?));
        }
        if self.peek() == Some("+") {
            return Ok(Operand::Near(word, self.distance()?));
        }
        Ok(Operand::Name(word))
    }

    /// An error at the line of the next token.
    pub fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError::at(self.line(), what)
    }
}
