//! The graph of deepbet's networks.

use crate::torch_script::{Argument, Graph, Node};

/// Stages of the encoder.
const STAGES: usize = 4;

/// Adds the operations of deepbet's LinkNet to a graph, as `torch.jit.trace` records them in evaluation mode. Returns the image and the
/// probabilities.
pub(super) fn topology(graph: &mut Graph) -> [Node; 2] {
    let image = graph.image();
    let mut net = Net { graph };
    let stem = net.conv("init.0", image, Conv { stride: 2, padding: 3, ..Conv::POINT });
    let stem = net.norm_relu(stem);
    let pool = [3.0, 2.0, 1.0, 1.0].map(triple);
    let mut map = net.op("max_pool3d", std::iter::once(Argument::Node(stem)).chain(pool).collect());
    let mut skips = Vec::new();
    for stage in 0..STAGES {
        skips.push(map);
        for block in ["block1", "block2"] {
            let halves = stage > 0 && block == "block1";
            map = net.block(&format!("down{stage}.{block}"), map, halves);
        }
    }
    for (stage, skip) in skips.into_iter().enumerate().rev() {
        let up = net.up(&format!("up{}", STAGES - 1 - stage), map, if stage == 0 { 1 } else { 2 });
        map = net.op("add", vec![Argument::Node(up), Argument::Node(skip)]);
    }
    let doubled = Conv { stride: 2, padding: 1, is_transposed: true, more: 1, has_bias: true };
    map = net.conv("tp_conv1.0", map, doubled);
    map = net.norm_relu(map);
    map = net.conv("conv.0", map, Conv { padding: 1, has_bias: true, ..Conv::POINT });
    map = net.norm_relu(map);
    map = net.conv("tp_conv2", map, Conv { padding: 0, more: 0, ..doubled });
    let probabilities = net.op("softmax", vec![Argument::Node(map), Argument::Number(1.0)]);
    graph.complete();
    [image, probabilities]
}

/// The attributes of a convolution, alike along all axes.
#[derive(Clone, Copy)]
struct Conv {
    stride: u8,
    padding: u8,
    is_transposed: bool,
    /// Voxels that a transposed one adds behind the last.
    more: u8,
    has_bias: bool,
}

impl Conv {
    /// Without padding, a stride and a bias.
    const POINT: Conv = Conv { stride: 1, padding: 0, is_transposed: false, more: 0, has_bias: false };
}

struct Net<'a> {
    graph: &'a mut Graph,
}

impl Net<'_> {
    fn op(&mut self, name: &str, arguments: Vec<Argument>) -> Node {
        self.graph.add(name, &arguments)
    }

    fn conv(&mut self, name: &str, map: Node, conv: Conv) -> Node {
        let Conv { stride, padding, is_transposed, more, has_bias } = conv;
        let bias = Argument::Parameter(format!("{name}.bias"));
        let arguments = vec![
            Argument::Node(map),
            Argument::Parameter(format!("{name}.weight")),
            if has_bias { bias } else { Argument::Nothing },
            triple(stride.into()),
            triple(padding.into()),
            triple(1.0),
            Argument::Truth(is_transposed),
            triple(more.into()),
            Argument::Number(1.0),
        ];
        self.op("_convolution", arguments)
    }

    /// Normalisation by a map's own statistics.
    fn norm(&mut self, map: Node) -> Node {
        let mut arguments = vec![Argument::Node(map)];
        arguments.extend([const { Argument::Nothing }; 4]);
        arguments.extend([Argument::Truth(true), Argument::Number(1e-5)]);
        self.op("instance_norm", arguments)
    }

    fn norm_relu(&mut self, map: Node) -> Node {
        let map = self.norm(map);
        self.op("relu", vec![Argument::Node(map)])
    }

    fn block(&mut self, name: &str, map: Node, halves: bool) -> Node {
        let stride = if halves { 2 } else { 1 };
        let first = Conv { stride, padding: 1, ..Conv::POINT };
        let y = self.conv(&format!("{name}.double_conv.0"), map, first);
        let y = self.norm_relu(y);
        let y = self.conv(&format!("{name}.double_conv.3"), y, Conv { padding: 1, ..Conv::POINT });
        let y = self.norm(y);
        let shortcut = if halves {
            let short = Conv { stride: 2, ..Conv::POINT };
            let short = self.conv(&format!("{name}.downsample.0"), map, short);
            self.norm(short)
        } else {
            map
        };
        let sum = self.op("add", vec![Argument::Node(y), Argument::Node(shortcut)]);
        self.op("relu", vec![Argument::Node(sum)])
    }

    fn up(&mut self, name: &str, map: Node, stride: u8) -> Node {
        let y = self.conv(&format!("{name}.conv1.0"), map, Conv::POINT);
        let y = self.norm_relu(y);
        let transposed = Conv { stride, padding: 1, is_transposed: true, more: stride - 1, has_bias: false };
        let y = self.conv(&format!("{name}.tp_conv.0"), y, transposed);
        let y = self.norm_relu(y);
        let y = self.conv(&format!("{name}.conv2.0"), y, Conv::POINT);
        self.norm_relu(y)
    }
}

/// A number for each axis.
fn triple(number: f64) -> Argument {
    Argument::List(vec![Argument::Number(number); 3])
}
