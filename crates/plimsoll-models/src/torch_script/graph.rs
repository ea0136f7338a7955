//! Graphs of operations, in which equal ones are one.

use std::collections::{BTreeMap, BTreeSet};

/// A tensor of a graph: its image, or the result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(usize);

/// The operations of a network. An operation is known by its name, its operands and its attributes, so that two graphs are equal if their
/// results are the same node of one [`Graph`].
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<String, Node>,
    /// The nodes that were changed in place, of which only the results may be used.
    changed: BTreeSet<Node>,
    /// `true` once all operations that are known were added.
    is_complete: bool,
}

/// The operand or attribute of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    /// A tensor.
    Node(Node),
    /// A parameter, by its name.
    Parameter(String),
    /// `None`.
    Nothing,
    /// A truth.
    Truth(bool),
    /// A number.
    Number(f64),
    /// A list of such.
    List(Vec<Argument>),
}

impl Argument {
    fn text(&self) -> String {
        match self {
            Argument::Node(Node(number)) => format!("%{number}"),
            Argument::Parameter(name) => name.clone(),
            Argument::Nothing => "None".into(),
            Argument::Truth(truth) => truth.to_string(),
            Argument::Number(number) => number.to_string(),
            Argument::List(items) => {
                format!("[{}]", items.iter().map(Argument::text).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl Graph {
    /// The node of the image.
    pub(crate) fn image(&mut self) -> Node {
        self.node("image".into())
    }

    fn node(&mut self, key: String) -> Node {
        let next = Node(self.nodes.len());
        *self.nodes.entry(key).or_insert(next)
    }

    /// Adds an operation of the network that is known.
    pub(crate) fn add(&mut self, name: &str, arguments: &[Argument]) -> Node {
        self.node(key(name, arguments))
    }

    /// Ends the network that is known.
    pub(crate) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Finds an operation of a program in the network that is known; one whose name ends with `_` changes its first operand.
    ///
    /// # Errors
    /// Returns the reason why it is not there.
    pub(crate) fn find(&mut self, name: &str, arguments: &[Argument]) -> Result<Node, String> {
        debug_assert!(self.is_complete, "operations are still added");
        let is_changed =
            |argument: &Argument| matches!(argument, Argument::Node(node) if self.changed.contains(node));
        if arguments.iter().any(is_changed) {
            return Err(format!("`torch.{name}` reads a tensor that was changed in place before"));
        }
        let plain = name.strip_suffix('_').unwrap_or(name);
        let arguments = canonical(plain, arguments).ok_or_else(|| format!("`torch.{name}` is unknown"))?;
        let key = key(plain, &arguments);
        let Some(found) = self.nodes.get(&key) else {
            return Err(format!("`torch.{key}` is not in the network"));
        };
        if let (Some(Argument::Node(first)), true) = (arguments.first(), plain != name) {
            self.changed.insert(*first);
        }
        Ok(*found)
    }
}

fn key(name: &str, arguments: &[Argument]) -> String {
    format!("{name}({})", arguments.iter().map(Argument::text).collect::<Vec<_>>().join(", "))
}

/// The arguments of an operation on which its result depends, in one form; `None` for an operation that is unknown, or with another number
/// of arguments. Left out are switches of libraries and the momentum of running statistics, of which there are none.
fn canonical(name: &str, arguments: &[Argument]) -> Option<Vec<Argument>> {
    match (name, arguments) {
        // Input, weights, bias, stride, padding, dilation, transposed, output padding, groups; switches.
        ("_convolution", [used @ .., _, _, _]) if used.len() == 9 => Some(used.to_vec()),
        ("_convolution", [used @ .., _, _, _, _]) if used.len() == 9 => Some(used.to_vec()),
        // Input, weights, bias, running mean and variance, own statistics; momentum, epsilon, a switch.
        ("instance_norm", [used @ .., _, epsilon, _]) if used.len() == 6 => {
            Some(used.iter().chain([epsilon]).cloned().collect())
        }
        // Input, kernel, stride, padding, dilation, rounding up.
        ("max_pool3d", [used @ .., Argument::Truth(false)]) if used.len() == 5 => Some(used.to_vec()),
        ("max_pool3d", used) if used.len() == 5 => Some(used.to_vec()),
        ("softmax", [input, axis] | [input, axis, Argument::Nothing]) => {
            Some(vec![input.clone(), axis.clone()])
        }
        ("relu", [_]) | ("add", [_, _]) => Some(arguments.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_operations_are_one_node_and_what_was_changed_is_not_read_again() {
        let mut graph = Graph::default();
        let image = Argument::Node(graph.image());
        let rectified = graph.add("relu", std::slice::from_ref(&image));
        let sum = graph.add("add", &[Argument::Node(rectified), image.clone()]);
        graph.complete();
        assert_eq!(graph.find("relu", std::slice::from_ref(&image)), Ok(rectified));
        assert_eq!(graph.find("add", &[Argument::Node(rectified), image.clone()]), Ok(sum));
        let other = graph.find("add", &[image.clone(), Argument::Node(rectified)]).unwrap_err();
        assert_eq!(other, "`torch.add(%0, %1)` is not in the network");
        assert_eq!(
            graph.find("sigmoid", std::slice::from_ref(&image)),
            Err("`torch.sigmoid` is unknown".into())
        );
        assert_eq!(graph.find("relu_", std::slice::from_ref(&image)), Ok(rectified));
        let read = graph.find("add", &[Argument::Node(rectified), image]).unwrap_err();
        assert!(read.contains("changed in place"), "{read}");
    }
}
