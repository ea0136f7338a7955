//! Following a program from call to call.

use std::collections::BTreeMap;

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};
use plimsoll_nn::weights::{TorchScriptFile, WeightError};

use super::code::{Class, Expression, Method, Statement, classes};
use super::graph::{Argument, Graph, Node};

/// The most calls of a program, and their depth.
const MOST_CALLS: usize = 1024;
const MOST_DEPTH: usize = 24;
/// The most code that is read.
const MOST_CODE: usize = 1 << 20;
/// The most heap that a byte of code takes once it is read.
const HEAP_PER_BYTE: u64 = 64;
/// The method of a module that is called.
const FORWARD: &str = "forward";

/// The reason for which a program is not followed to its end.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Its code cannot be read.
    Code(WeightError),
    /// It does something else than the network that is known.
    Other(String),
    /// There is no room for its code.
    OverBudget(OverBudget),
}

/// Follows a program that is called with an image, and finds its operations in a graph. Returns the node of its result.
///
/// # Errors
/// Returns an error if it has an operation that the graph does not have, is of other statements than assignments and calls, does not end, or there
/// is no room for its code.
pub(crate) fn trace(
    script: &mut TorchScriptFile,
    graph: &mut Graph,
    image: Node,
    budget: &Budget,
) -> Result<Node, Refused> {
    let mut tracer =
        Tracer { script, graph, budget, code: BTreeMap::new(), held: Vec::new(), bytes: 0, calls: 0 };
    match tracer.call(String::new(), FORWARD, vec![Value::Argument(Argument::Node(image))], 0)? {
        Value::Argument(Argument::Node(node)) => Ok(node),
        _ => Err(Refused::Other("its result is no tensor".into())),
    }
}

/// A value of a program.
#[derive(Clone)]
enum Value {
    /// A module, by its name.
    Module(String),
    /// An operand or attribute of operations.
    Argument(Argument),
}

struct Tracer<'a> {
    script: &'a mut TorchScriptFile,
    graph: &'a mut Graph,
    budget: &'a Budget,
    /// The classes that were read, by their whole names.
    code: BTreeMap<String, Class>,
    held: Vec<Reservation>,
    bytes: usize,
    calls: usize,
}

impl Tracer<'_> {
    /// Calls a method of a module.
    fn call(
        &mut self,
        module: String,
        method: &str,
        arguments: Vec<Value>,
        depth: usize,
    ) -> Result<Value, Refused> {
        self.calls += 1;
        if self.calls > MOST_CALLS || depth > MOST_DEPTH {
            return Err(Refused::Other("its calls do not end".into()));
        }
        let class = self.script.class(&module).map(str::to_string);
        let class = class.ok_or_else(|| Refused::Other(format!("there is no module `{module}`")))?;
        let other = |why: String| Refused::Other(format!("{why}, in the code of `{class}`"));
        let Method { parameters, statements } = self.method(&class, method)?;
        if parameters.len() != arguments.len() + 1 {
            return Err(other(format!("`{method}` is called with {} arguments", arguments.len())));
        }
        let own = std::iter::once(Value::Module(module)).chain(arguments);
        let mut names: BTreeMap<String, Value> = parameters.into_iter().zip(own).collect();
        for statement in statements {
            match statement {
                Ok(Statement::Assign { name, value }) => {
                    let value = self.value(&value, &names, &class, depth)?;
                    names.insert(name, value);
                }
                Ok(Statement::Return(value)) => return self.value(&value, &names, &class, depth),
                Err(line) => return Err(other(format!("`{line}` is neither an assignment nor a call"))),
            }
        }
        Err(other(format!("`{method}` returns nothing")))
    }

    /// The method of a class.
    fn method(&mut self, class: &str, method: &str) -> Result<Method, Refused> {
        if !self.code.contains_key(class) {
            let text = self.script.code_of(class).map_err(Refused::Code)?;
            self.bytes += text.len();
            if self.bytes > MOST_CODE {
                return Err(Refused::Other(format!("it has more than {MOST_CODE} bytes of code")));
            }
            let bytes = Bytes(text.len() as u64 * HEAP_PER_BYTE);
            self.held.push(self.budget.reserve("code of a network", bytes).map_err(Refused::OverBudget)?);
            let within = class.rsplit_once('.').map_or("", |(within, _)| within);
            let found = classes(&text).into_iter().map(|(name, class)| (format!("{within}.{name}"), class));
            self.code.extend(found);
        }
        let found = self.code.get(class).and_then(|class| class.methods.get(method));
        found.cloned().ok_or_else(|| Refused::Other(format!("`{class}` has no method `{method}`")))
    }

    fn value(
        &mut self,
        expression: &Expression,
        names: &BTreeMap<String, Value>,
        class: &str,
        depth: usize,
    ) -> Result<Value, Refused> {
        let other = |why: String| Refused::Other(format!("{why}, in the code of `{class}`"));
        Ok(match expression {
            Expression::Name(name) => {
                names.get(name).cloned().ok_or_else(|| other(format!("`{name}` is not defined")))?
            }
            Expression::Nothing => Value::Argument(Argument::Nothing),
            Expression::Truth(truth) => Value::Argument(Argument::Truth(*truth)),
            Expression::Number(number) => Value::Argument(Argument::Number(*number)),
            Expression::Text(text) => return Err(other(format!("\"{text}\" is no operand"))),
            Expression::List(_) => Value::Argument(self.argument(expression, names, class, depth)?),
            Expression::Attribute { object, name } => match self.value(object, names, class, depth)? {
                Value::Module(module) => self.part(&module, name).map_err(other)?,
                Value::Argument(_) => return Err(other(format!("`{name}` is a part of no module"))),
            },
            Expression::Call { function, arguments } => match &**function {
                Expression::Attribute { object, name } if **object == Expression::Name("torch".into()) => {
                    let arguments = arguments.iter().map(|item| self.argument(item, names, class, depth));
                    let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
                    Value::Argument(Argument::Node(self.graph.find(name, &arguments).map_err(other)?))
                }
                Expression::Attribute { object, name } => {
                    let Value::Module(module) = self.value(object, names, class, depth)? else {
                        return Err(other(format!("`{name}` is called of no module")));
                    };
                    let arguments = arguments.iter().map(|item| self.value(item, names, class, depth));
                    let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
                    self.call(module, name, arguments, depth + 1)?
                }
                Expression::Name(name) if name == "getattr" => match &arguments[..] {
                    [object, Expression::Text(part)] => match self.value(object, names, class, depth)? {
                        Value::Module(module) => self.part(&module, part).map_err(other)?,
                        Value::Argument(_) => return Err(other(format!("`{part}` is a part of no module"))),
                    },
                    _ => return Err(other("`getattr` is called with something else than a name".into())),
                },
                Expression::Name(name) => return Err(other(format!("`{name}` is called"))),
                _ => return Err(other("what is called has no name".into())),
            },
        })
    }

    /// A value that operations take.
    fn argument(
        &mut self,
        expression: &Expression,
        names: &BTreeMap<String, Value>,
        class: &str,
        depth: usize,
    ) -> Result<Argument, Refused> {
        if let Expression::List(items) = expression {
            let items = items.iter().map(|item| self.argument(item, names, class, depth));
            return Ok(Argument::List(items.collect::<Result<_, _>>()?));
        }
        match self.value(expression, names, class, depth)? {
            Value::Argument(argument) => Ok(argument),
            Value::Module(module) => Err(Refused::Other(format!("the module `{module}` is an operand"))),
        }
    }

    /// A module or a parameter within a module.
    fn part(&self, module: &str, name: &str) -> Result<Value, String> {
        let whole = if module.is_empty() { name.to_string() } else { format!("{module}.{name}") };
        if self.script.class(&whole).is_some() {
            return Ok(Value::Module(whole));
        }
        match self.script.weights().contains(&whole) {
            true => Ok(Value::Argument(Argument::Parameter(whole))),
            false => Err(format!("there is no module or tensor `{whole}`")),
        }
    }
}
