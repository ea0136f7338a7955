//! Forward passes that end before their head.

use plimsoll_graph::ops::Conv;
use plimsoll_graph::{Kind, Node, Op, Program, Shape, TensorId, Window};

use super::names;
use crate::ConfigError;

/// A forward pass without its head: a convolution of one tap with which the network ends, so that the logits of a voxel are one linear
/// function of its features. Means of features over windows, to which the head is applied afterwards, lead to the means of logits.
///
/// In the head's place is a convolution by the identity. It changes no number that kernels multiply as it is stored (tf32
/// rounds it to 11 bits, as it would for the head), and has the features stored as logits would be, by the same kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Headless {
    /// The pass. Its output is [`names::HEAD_INPUT`]. The head's parameters are parameters of it that no node reads, so that a weight
    /// file fits it as it does the whole network.
    pub program: Program,
    /// The input of the head, `[N, F, D, H, W]`.
    pub features: TensorId,
    /// A state `[F, F, 1, 1, 1]` which has to be the identity before the first run.
    pub identity: TensorId,
    /// The head's weights, `[C, F, 1, 1, 1]`.
    pub weights: TensorId,
    /// The head's bias, `[C]`, if it has one.
    pub bias: Option<TensorId>,
}

impl Headless {
    /// The features and the classes of the head with which the program of [`predict`](crate::predict) ends; none where logits are made
    /// otherwise than by a convolution of one tap from one map.
    pub fn extent(program: &Program) -> Option<[usize; 2]> {
        let (_, operands) = head_of(program)?;
        let [map, weights, ..] = operands else { return None };
        Some([program.shape(*map).channels(), program.shape(*weights).dim(0)])
    }

    /// Takes the head off the program of [`predict`](crate::predict).
    ///
    /// # Errors
    /// Returns an error if the network has no extent: see [`extent`](Headless::extent).
    pub fn new(mut program: Program) -> Result<Headless, ConfigError> {
        let none = || ConfigError::Value {
            setting: "net",
            found: "a network".into(),
            expected: "its logits do not come from a convolution with a kernel of 1".into(),
        };
        let (conv, operands) = head_of(&program).ok_or_else(none)?;
        let (conv, operands) = (Conv { bias: false, ..conv.clone() }, operands.to_vec());
        let [map, weights, ref bias @ ..] = operands[..] else { return Err(none()) };
        // The last of both: no other node or tensor is numbered behind them.
        program.nodes.pop();
        program.tensors.pop();
        let features = program.shape(map).channels();
        let shape = Shape(vec![features, features, 1, 1, 1]);
        let identity = program.state("the identity of features", shape, Kind::Weights);
        let output = program.push_one(conv, &[map, identity])?;
        program.mark_output(output, names::HEAD_INPUT);
        Ok(Headless { program, features: output, identity, weights, bias: bias.first().copied() })
    }
}

/// The convolution that a program's last node is, and its operands, if it makes the logits, the last tensor, voxel by voxel from one map.
fn head_of(program: &Program) -> Option<(&Conv, &[TensorId])> {
    let Node { op: Op::Conv(conv), inputs, outputs } = program.nodes.last()? else { return None };
    let logits = program.find(names::LOGITS)?;
    let is_last = outputs[..] == [logits] && program.ids().last() == Some(logits);
    let is_head = conv.window == Window::point() && conv.groups == 1 && conv.sources(inputs.len()) == 1;
    (is_last && is_head).then_some((conv, inputs))
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::{DType, Role};

    use super::*;
    use crate::{Classifies, Network, NetworkName, predict};

    /// The head's input of each network, and its number of classes.
    #[test]
    fn the_head_of_every_network_of_one_tap_is_found_and_replaced_by_the_identity() {
        let mut found = Vec::new();
        for name in NetworkName::ALL {
            let net = Network::reference(*name, None).unwrap();
            let net = net.as_architecture();
            if net.classifies() == Classifies::Images {
                continue;
            }
            let patch = net.extents().next_larger([1; 3]);
            let program = predict(net, patch, 1, DType::F32).unwrap();
            let Some(extent) = Headless::extent(&program) else {
                assert!(Headless::new(program).is_err(), "{}", name.as_str());
                continue;
            };
            let whole: Vec<String> =
                program.with_role(Role::Parameter).map(|id| program.tensor(id).name.clone()).collect();
            let headless = Headless::new(program).unwrap();
            let Headless { program, features, identity, weights, bias } = headless;
            program.validate().unwrap();
            let own: Vec<String> =
                program.with_role(Role::Parameter).map(|id| program.tensor(id).name.clone()).collect();
            assert_eq!(own, whole, "a weight file fits both");
            assert_eq!(*program.shape(features), Shape::volume(1, extent[0], patch));
            assert_eq!(program.shape(identity).0[..2], [extent[0]; 2]);
            assert_eq!(program.shape(weights).0[..2], [extent[1], extent[0]]);
            assert!(bias.is_none_or(|bias| program.shape(bias).count() == extent[1]));
            found.push((name.as_str(), extent));
        }
        let of = |name: &str| found.iter().find(|(found, _)| *found == name).map(|(_, extent)| *extent);
        assert_eq!(of("plain"), Some([32, 2]));
        assert_eq!(of("dynunet"), Some([32, 2]));
        assert_eq!(of("resenc"), Some([32, 2]));
    }
}
