//! The largest convolution of a pass as the sum of two, one for each of its sources.

use plimsoll_graph::ops::{Add, Conv};
use plimsoll_graph::{DType, Kind, Node, Op, Program, Role, TensorId, TensorInfo};

/// A part of the weights of a convolution: the weights of some of the channels that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPart {
    /// The parameter, `[O, C, kd, kh, kw]`, which no node reads any more: it is there for a weight file to fit.
    pub whole: TensorId,
    /// A state, `[O, Cᵢ, kd, kh, kw]`, which has to have the parameter's values before a run.
    pub part: TensorId,
    /// The first of its channels in the parameter.
    pub first: usize,
}

/// Has the convolution of two maps whose operands and result are the largest of a pass, as a U-Net's behind its last concatenation, computed
/// as a sum: of the map that is made first before the other is made, so that the two never exist at once. Without it that node decides what
/// the pass takes, and no recomputation takes less.
///
/// The convolution is split if the sum is not larger than the map that it replaces, and if features are f32, since a
/// sum that is stored in 16 bits is rounded once more; this is decided from shapes and types alone, whatever the number
/// of windows. Sums are taken in another order: results differ by roundings from those without. Returns the parts of
/// weights, none if nothing was changed.
pub fn split_sources(program: &mut Program) -> Vec<WeightPart> {
    let Some(Largest { at, conv, sources, whole, bias, result, before }) = Largest::find(program) else {
        return Vec::new();
    };
    let of_sources = sources.map(|(source, first)| {
        let mut shape = program.shape(whole).clone();
        shape.0[1] = program.shape(source).channels();
        let name = format!("{} from {first} on", program.tensor(whole).name);
        let part = program.state(name, shape, Kind::Weights);
        let like = program.tensor(result);
        let name = format!("{} of {}", like.name, program.tensor(source).name);
        let sum = program.declare(TensorInfo { name, role: Role::Intermediate, ..like.clone() });
        (source, WeightPart { whole, part, first }, sum)
    });
    let [(early, of_early, sum), (late, of_late, rest)] = of_sources;
    // The bias is added once, to the first sum.
    let without = Conv { bias: false, ..conv.clone() };
    let last = [
        Node { op: without.into(), inputs: vec![late, of_late.part], outputs: vec![rest] },
        Node { op: Add.into(), inputs: vec![sum, rest], outputs: vec![result] },
    ];
    program.nodes.splice(at..=at, last);
    let inputs = [early, of_early.part].into_iter().chain(bias).collect();
    program.nodes.insert(before, Node { op: conv.into(), inputs, outputs: vec![sum] });
    vec![of_early, of_late]
}

/// The convolution to split.
struct Largest {
    /// Its place.
    at: usize,
    conv: Conv,
    /// The source that is made first, and the other, each with the first of its channels in the weights.
    sources: [(TensorId, usize); 2],
    whole: TensorId,
    bias: Option<TensorId>,
    result: TensorId,
    /// The node before which the first source is convolved.
    before: usize,
}

impl Largest {
    fn find(program: &Program) -> Option<Largest> {
        let is_conv = |(_, node): &(usize, &Node)| matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_));
        let convs = || program.nodes.iter().enumerate().filter(is_conv);
        let most = convs().map(|(_, node)| volume_bytes(program, node)).max()?;
        // Where another is as large, that one decides what the pass takes, whatever becomes of this.
        let mut largest = convs().filter(|(_, node)| volume_bytes(program, node) == most);
        let (Some((at, node)), None) = (largest.next(), largest.next()) else { return None };
        let Node { op: Op::Conv(conv), inputs, outputs } = node else { return None };
        let (2, [first, second, whole, bias @ ..], [result]) =
            (conv.sources(inputs.len()), &inputs[..], &outputs[..])
        else {
            return None;
        };
        let is_f32 = |id: &TensorId| program.tensor(*id).dtype == DType::F32;
        if first == second || conv.window.taps() == 1 || ![*first, *second, *result].iter().all(is_f32) {
            return None;
        }
        let maker = |id: TensorId| program.nodes.iter().position(|node| node.outputs.contains(&id));
        let mut sources = [(*first, 0), (*second, program.shape(*first).channels())];
        if maker(*first)? > maker(*second)? {
            sources.reverse();
        }
        let [(early, _), (late, _)] = sources;
        // The sum is there in the place of the first map while the other one is made: were it larger, the pass would take more.
        if program.shape(*result).count() > program.shape(early).count() {
            return None;
        }
        // Back over what is computed voxel by voxel of a map of the same size, such as a normalisation.
        let (mut made, mut before) = (late, maker(late)?);
        loop {
            let is_volume = |id: &&TensorId| program.tensor(**id).kind == Kind::Volume;
            let mut volumes = program.nodes[before].inputs.iter().filter(is_volume);
            let (Some(only), None) = (volumes.next(), volumes.next()) else { break };
            if program.shape(*only).count() != program.shape(made).count() {
                break;
            }
            let Some(maker) = maker(*only) else { break };
            (made, before) = (*only, maker);
        }
        (maker(early)? < before).then(|| Largest {
            at,
            conv: Conv::clone(conv),
            sources,
            whole: *whole,
            bias: bias.first().copied(),
            result: *result,
            before,
        })
    }
}

/// Returns the bytes of the volumes that a node reads and writes.
fn volume_bytes(program: &Program, node: &Node) -> usize {
    let mut ids: Vec<TensorId> = node.inputs.iter().chain(&node.outputs).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let volumes = ids.into_iter().map(|id| program.tensor(id)).filter(|tensor| tensor.kind == Kind::Volume);
    volumes
        .map(|tensor| tensor.shape.count().saturating_mul(tensor.dtype.bytes()))
        .fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::ops::{AvgPool, Upsample2};
    use plimsoll_graph::{DType, Shape, Window};

    use super::*;
    use crate::{Network, NetworkName, predict};

    fn pass(name: NetworkName, windows: usize, stored: DType) -> Program {
        let net = Network::reference(name, None).unwrap();
        let net = net.as_architecture();
        predict(net, net.extents().next_larger([1; 3]), windows, stored).unwrap()
    }

    #[test]
    fn the_last_concatenation_of_a_u_net_is_never_there_at_once() {
        for name in [NetworkName::PlainConvUNet, NetworkName::DynUNet, NetworkName::ResidualEncoderUNet] {
            let whole = pass(name, 1, DType::F32);
            let mut program = whole.clone();
            let parts = split_sources(&mut program);
            program.validate().unwrap();
            let [one, other] = parts[..] else { panic!("{}: {parts:?}", name.as_str()) };
            assert_eq!(one.whole, other.whole);
            let channels = |id: TensorId| program.shape(id).dim(1);
            assert_eq!(channels(one.part) + channels(other.part), channels(one.whole));
            // The encoder's map is behind the upsampled one in a concatenation.
            assert_eq!((one.first, other.first), (channels(other.part), 0));
            assert_eq!(program.nodes.len(), whole.nodes.len() + 2);
            assert!(program.nodes.iter().all(|node| !node.inputs.contains(&one.whole)));
            let place =
                |part: TensorId| program.nodes.iter().position(|node| node.inputs.contains(&part)).unwrap();
            let between = &program.nodes[place(one.part) + 1..place(other.part)];
            assert!(between.iter().any(|node| matches!(node.op, Op::ConvTranspose(_))), "{}", name.as_str());
            // The same nodes for several windows at once.
            let mut several = pass(name, 3, DType::F32);
            assert_eq!(split_sources(&mut several), parts);
        }
    }

    #[test]
    fn features_in_16_bits_and_maps_that_other_convolutions_read_stay_as_they_are() {
        for (name, stored) in
            [(NetworkName::PlainConvUNet, DType::Bf16), (NetworkName::SwinUnetr, DType::F32)]
        {
            let whole = pass(name, 1, stored);
            let mut program = whole.clone();
            assert_eq!(split_sources(&mut program), []);
            assert_eq!(program, whole);
        }
    }

    /// A map of 4 channels, the same pooled and upsampled again, and a convolution of both.
    fn concatenation(outputs: usize) -> Program {
        let mut program = Program::new("predict");
        let conv = Conv::new(Window::same([3; 3], [1; 3]), false, DType::F32);
        let weights = |outputs, inputs| Shape(vec![outputs, inputs, 3, 3, 3]);
        let image = program.input("image", Shape::volume(1, 1, [8; 3]), Kind::Volume);
        let of_image = program.parameter("of image", weights(4, 1), Kind::Weights);
        let of_both = program.parameter("of both", weights(outputs, 8), Kind::Weights);
        let early = program.push(conv.clone(), &[image, of_image]).unwrap()[0];
        let pooled = program.push(AvgPool { window: [2; 3] }, &[early]).unwrap()[0];
        let late = program.push(Upsample2 { axes: [true; 3] }, &[pooled]).unwrap()[0];
        program.push(conv, &[early, late, of_both]).unwrap();
        program
    }

    #[test]
    fn a_sum_that_is_larger_than_the_map_that_it_replaces_is_not_made() {
        let whole = concatenation(5);
        let mut program = whole.clone();
        assert_eq!(split_sources(&mut program), []);
        assert_eq!(program, whole);
        let parts = split_sources(&mut concatenation(4));
        assert_eq!(parts.iter().map(|part| part.first).collect::<Vec<_>>(), [0, 4]);
    }
}
