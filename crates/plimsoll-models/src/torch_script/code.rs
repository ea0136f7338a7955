//! The text of TorchScript: classes with methods of assignments and calls.

use std::collections::BTreeMap;

/// The methods of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Class {
    pub(super) methods: BTreeMap<String, Method>,
}

/// A method.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Method {
    /// The names of its parameters, the object first.
    pub(super) parameters: Vec<String>,
    /// Its body, of which statements that are not understood are kept as their text.
    pub(super) statements: Vec<Result<Statement, String>>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    /// A name is given to a value.
    Assign { name: String, value: Expression },
    /// The value of the method.
    Return(Expression),
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    /// A name.
    Name(String),
    /// `None`.
    Nothing,
    /// A truth.
    Truth(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Expression>),
    /// A part of an object.
    Attribute { object: Box<Expression>, name: String },
    /// A call.
    Call { function: Box<Expression>, arguments: Vec<Expression> },
}

/// The deepest nesting of expressions.
const MOST_DEPTH: usize = 24;

/// Reads the classes of a text. Lines that are neither a class nor a method, such as types of attributes, are passed over.
pub(super) fn classes(text: &str) -> BTreeMap<String, Class> {
    let mut all: BTreeMap<String, Class> = BTreeMap::new();
    let mut class = String::new();
    let mut method: Option<(String, Method)> = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let indentation = line.len() - trimmed.len();
        if trimmed.is_empty() {
            continue;
        }
        if let (Some((_, method)), true) = (&mut method, indentation >= 4) {
            method.statements.push(statement(trimmed).ok_or_else(|| trimmed.to_string()));
            continue;
        }
        if let Some((name, method)) = method.take() {
            all.entry(class.clone()).or_default().methods.insert(name, method);
        }
        if let (Some(rest), 0) = (trimmed.strip_prefix("class "), indentation) {
            class = rest.split(['(', ':']).next().unwrap_or(rest).to_string();
            all.entry(class.clone()).or_default();
        } else if let Some(rest) = trimmed.strip_prefix("def ") {
            // Parameters follow on lines of their own.
            let mut head = rest.to_string();
            while !head.ends_with(':') {
                let Some(next) = lines.next() else { break };
                head.push(' ');
                head.push_str(next.trim());
            }
            method = head_of(&head);
        }
    }
    if let Some((name, method)) = method {
        all.entry(class).or_default().methods.insert(name, method);
    }
    all
}

/// The name and the parameters of a method: `forward(self: __torch__.Net, x: Tensor) -> Tensor:`.
fn head_of(head: &str) -> Option<(String, Method)> {
    let (name, rest) = head.split_once('(')?;
    let (parameters, _) = rest.rsplit_once(") ->")?;
    let names = parameters.split(',').map(|parameter| parameter.split(':').next().unwrap_or("").trim());
    let parameters = names.filter(|name| !name.is_empty()).map(str::to_string).collect();
    Some((name.trim().to_string(), Method { parameters, statements: Vec::new() }))
}

/// Reads a statement; `None` if it is neither an assignment to one name nor the end of a method.
fn statement(line: &str) -> Option<Statement> {
    if let Some(value) = line.strip_prefix("return ") {
        return Some(Statement::Return(whole(value)?));
    }
    let (name, value) = line.split_once(" = ")?;
    is_name(name).then_some(())?;
    Some(Statement::Assign { name: name.into(), value: whole(value)? })
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Reads an expression that is all of a text.
fn whole(text: &str) -> Option<Expression> {
    let mut reader = Reader { rest: text.trim() };
    let found = reader.expression(0)?;
    reader.rest.is_empty().then_some(found)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, sign: char) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// The characters from here on for which `is_part` holds.
    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        taken
    }

    fn expression(&mut self, depth: usize) -> Option<Expression> {
        if depth == MOST_DEPTH {
            return None;
        }
        let mut found = self.operand(depth)?;
        loop {
            if self.skip('.') {
                let name = self.take(|letter| letter.is_ascii_alphanumeric() || letter == '_');
                is_name(name).then_some(())?;
                found = Expression::Attribute { object: Box::new(found), name: name.into() };
            } else if self.skip('(') {
                let arguments = self.items(')', depth)?;
                found = Expression::Call { function: Box::new(found), arguments };
            } else {
                return Some(found);
            }
        }
    }

    fn operand(&mut self, depth: usize) -> Option<Expression> {
        if self.skip('(') {
            let found = self.expression(depth + 1)?;
            return self.skip(')').then_some(found);
        }
        if self.skip('[') {
            return self.items(']', depth).map(Expression::List);
        }
        if let Some(rest) = self.rest.strip_prefix('"') {
            let (text, rest) = rest.split_once('"')?;
            self.rest = rest.trim_start();
            return (!text.contains('\\')).then(|| Expression::Text(text.into()));
        }
        if self.rest.starts_with(|sign: char| sign.is_ascii_digit() || sign == '-') {
            let number = self.take(|sign| sign.is_ascii_alphanumeric() || "+-.".contains(sign));
            return number.parse().ok().map(Expression::Number);
        }
        let name = self.take(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        match name {
            "None" => Some(Expression::Nothing),
            "True" => Some(Expression::Truth(true)),
            "False" => Some(Expression::Truth(false)),
            name => is_name(name).then(|| Expression::Name(name.into())),
        }
    }

    /// Expressions with commas between them, and perhaps behind the last.
    fn items(&mut self, end: char, depth: usize) -> Option<Vec<Expression>> {
        let mut items = Vec::new();
        loop {
            if self.skip(end) {
                return Some(items);
            }
            items.push(self.expression(depth + 1)?);
            if !self.skip(',') && !self.rest.starts_with(end) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Expression {
        Expression::Name(text.into())
    }

    #[test]
    fn methods_are_read_with_parameters_over_several_lines() {
        let text = "class ReLU(Module):\n  training : bool\n  def forward(self: __torch__.ReLU,\n    x: Tensor) -> Tensor:\n    \
                    y = torch.relu_(x)\n    return y\nclass Other(Module):\n  __parameters__ = []\n";
        let found = classes(text);
        let forward = &found["ReLU"].methods["forward"];
        assert_eq!(forward.parameters, ["self", "x"]);
        let function = Expression::Attribute { object: Box::new(name("torch")), name: "relu_".into() };
        let call = Expression::Call { function: Box::new(function), arguments: vec![name("x")] };
        let assigned = Statement::Assign { name: "y".into(), value: call };
        assert_eq!(forward.statements, [Ok(assigned), Ok(Statement::Return(name("y")))]);
        assert!(found["Other"].methods.is_empty());
    }

    #[test]
    fn other_statements_are_kept_as_what_is_not_understood() {
        for line in ["if x:", "a, b, = y", "x[0] = y", "y = x + 1", "y = torch.relu(x", "y = \"\\n\"", "pass"]
        {
            assert_eq!(statement(line), None, "{line}");
        }
        assert!(statement("y = (a).forward(torch.add(b, [1, -2.5e-3], alpha), )").is_some());
        let nested = format!("y = {}x{}", "(".repeat(1000), ")".repeat(1000));
        assert_eq!(statement(&nested), None);
    }
}
