//! A forward pass as nodes of ONNX.
//!
//! Both have tensors `[N, C, D, H, W]` and weights as in PyTorch, so a node becomes one or a few, and no value moves. An op without a
//! counterpart (normalisation by given statistics, concatenated sources) is composed of simpler ones.

use std::collections::HashMap;

use plimsoll_graph::ops::{Conv, ConvTranspose, NormStats, Op, Over};
use plimsoll_graph::{DType, Node, Program, TensorId};

use super::attention::Attended;
use super::constant::Constant;
use super::proto::{AttributeProto, NodeProto, attribute_type};

/// Nodes, and constants by their names.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<NodeProto>,
    pub(super) constants: Vec<(String, Constant)>,
}

/// Why a program is no graph of ONNX: an op without a counterpart, or one in a form that has none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoCounterpart {
    /// The name of the op.
    pub(super) op: &'static str,
    /// The part of the op without a counterpart.
    pub(super) what: String,
}

/// The statistics that a tensor holds, and of what they are.
enum Statistics<'p> {
    Own(&'p NormStats),
    /// Running mean and variance.
    Running {
        mean: TensorId,
        variance: TensorId,
        epsilon: f32,
    },
}

/// The error for a form of an op without a counterpart.
fn refused(op: &Op, what: &str) -> NoCounterpart {
    NoCounterpart { op: op.rule().name(), what: what.into() }
}

/// Returns an operand of a node.
fn operand(node: &Node, at: usize) -> Result<TensorId, NoCounterpart> {
    node.inputs.get(at).copied().ok_or_else(|| refused(&node.op, "too few operands"))
}

/// The name of a tensor: parameters, input and output keep their own names; others are numbered.
pub(super) fn name(program: &Program, id: TensorId) -> String {
    let tensor = program.tensor(id);
    match tensor.role {
        plimsoll_graph::Role::Intermediate => format!("{}#{}", tensor.name, id.0),
        _ => tensor.name.clone(),
    }
}

/// The nodes of a program.
///
/// # Errors
/// At the first op without a counterpart.
pub(super) fn graph(program: &Program) -> Result<Graph, NoCounterpart> {
    let mut writer = Writer { program, graph: Graph::default(), statistics: HashMap::new() };
    for node in &program.nodes {
        writer.node(node)?;
    }
    Ok(writer.graph)
}

pub(super) struct Writer<'p> {
    pub(super) program: &'p Program,
    graph: Graph,
    statistics: HashMap<TensorId, Statistics<'p>>,
}

impl<'p> Writer<'p> {
    fn node(&mut self, node: &'p Node) -> Result<(), NoCounterpart> {
        let refused = |what| refused(&node.op, what);
        let [result, ..] = node.outputs[..] else { return Err(refused("a form without a result")) };
        if self.program.tensor(result).dtype != DType::F32 {
            return Err(refused("a result that is stored in halves"));
        }
        let operand = |at| operand(node, at);
        let simple = |writer: &mut Writer<'_>, kind: &str, attributes: Vec<AttributeProto>| {
            let inputs = node.inputs.iter().map(|id| name(writer.program, *id)).collect();
            writer.push(kind, inputs, name(writer.program, result), attributes);
        };
        match &node.op {
            Op::Conv(conv) => self.conv(conv, node, result),
            Op::ConvTranspose(conv) => {
                let attributes = self.transposed(conv, operand(0)?, operand(1)?).ok_or_else(|| {
                    refused("a form that gives some channels, or has an extent that no padding gives")
                })?;
                simple(self, "ConvTranspose", attributes);
            }
            Op::NormStats(stats) => {
                if stats.over == Over::Batch {
                    return Err(refused("statistics of a batch, which only training has"));
                }
                self.statistics.insert(result, Statistics::Own(stats));
            }
            Op::NormFromRunning(running) => {
                let (mean, variance) = (operand(0)?, operand(1)?);
                let epsilon = running.epsilon;
                self.statistics.insert(result, Statistics::Running { mean, variance, epsilon });
            }
            Op::Normalise(normalise) => {
                let affine = match normalise.affine {
                    true => Some([operand(2)?, operand(3)?]),
                    false => None,
                };
                self.normalise(operand(0)?, operand(1)?, affine, result)
                    .ok_or_else(|| refused("statistics that are given from outside"))?;
            }
            // With a slope of 0 it is the ReLU, which runtimes do faster.
            Op::LeakyRelu(relu) if relu.slope == 0.0 => simple(self, "Relu", Vec::new()),
            Op::LeakyRelu(relu) => simple(self, "LeakyRelu", vec![float("alpha", relu.slope)]),
            Op::Elu(_) => simple(self, "Elu", vec![float("alpha", 1.0)]),
            Op::Add(_) => simple(self, "Add", Vec::new()),
            Op::Sigmoid(_) => simple(self, "Sigmoid", Vec::new()),
            Op::Gate(_) | Op::VoxelGate(_) => simple(self, "Mul", Vec::new()),
            Op::Prelu(_) => simple(self, "PRelu", Vec::new()),
            Op::GlobalMean(_) => simple(self, "GlobalAveragePool", Vec::new()),
            Op::AvgPool(pool) => {
                simple(
                    self,
                    "AveragePool",
                    vec![ints("kernel_shape", &pool.window), ints("strides", &pool.window)],
                );
            }
            Op::MaxPool(pool) => {
                let window = &pool.window;
                simple(
                    self,
                    "MaxPool",
                    vec![
                        ints("kernel_shape", &window.kernel),
                        ints("strides", &window.stride),
                        ints("pads", &[window.padding, window.padding].concat()),
                        int("ceil_mode", i64::from(pool.ceil)),
                    ],
                );
            }
            _ => return self.composed(node, result),
        }
        Ok(())
    }

    /// Writes an op that several nodes compose, or one that needs constants.
    fn composed(&mut self, node: &'p Node, result: TensorId) -> Result<(), NoCounterpart> {
        let refused = |what| refused(&node.op, what);
        let operand = |at| operand(node, at);
        match &node.op {
            Op::Upsample2(upsample) => {
                let along = upsample.axes.map(|doubled| if doubled { 2.0 } else { 1.0 });
                let scales = self.constant(Constant::Values([&[1.0; 2][..], &along].concat()));
                let inputs = vec![name(self.program, operand(0)?), String::new(), scales];
                let attributes =
                    vec![text("mode", "linear"), text("coordinate_transformation_mode", "half_pixel")];
                self.push("Resize", inputs, name(self.program, result), attributes);
            }
            Op::AvgPoolGrad(spread) => {
                let to = name(self.program, result);
                self.spread(spread, operand(0)?, &to)
                    .ok_or_else(|| refused("windows that do not fill the extent"))?;
            }
            Op::AddPositions(_) => self.positions(operand(0)?, operand(1)?, &name(self.program, result)),
            Op::RotaryAttention(attention) => {
                let operands = [operand(0)?, operand(1)?, operand(2)?];
                self.rotary_attention(attention, operands, &name(self.program, result))
                    .ok_or_else(|| refused("heads without pairs"))?;
            }
            Op::SwiGlu(_) => self.swiglu([operand(0)?, operand(1)?], &name(self.program, result)),
            Op::ChannelScale(_) => {
                self.channel_scale(operand(0)?, operand(1)?, &name(self.program, result));
            }
            Op::DepthToSpace(spread) => {
                self.depth_to_space(spread, operand(0)?, operand(1)?, &name(self.program, result));
            }
            Op::Fill(fill) if fill.value == 0.0 => self.zeroes(&fill.shape, name(self.program, result)),
            Op::Gelu(_) => self.gelu(operand(0)?, &name(self.program, result)),
            Op::TokenNorm(norm) => {
                let affine = match norm.affine {
                    true => Some([operand(1)?, operand(2)?]),
                    false => None,
                };
                self.token_norm(norm, operand(0)?, affine, &name(self.program, result));
            }
            Op::WindowAttention(attention) => {
                if attention.dropout > 0.0 {
                    return Err(refused("dropped elements, which only training has"));
                }
                let padding = match attention.padded_bias {
                    true => Some(operand(2)?),
                    false => None,
                };
                self.attention(
                    attention,
                    &Attended { qkv: operand(0)?, table: operand(1)?, padding, result },
                );
            }
            Op::SpaceToDepth(merging) => {
                self.space_to_depth(merging, operand(0)?, &name(self.program, result));
            }
            Op::Subpixel(subpixel) => self.subpixel(subpixel, operand(0)?, &name(self.program, result)),
            Op::ZeroClass(_) => self.zero_class(operand(0)?, &name(self.program, result)),
            _ => return Err(refused("all that it does")),
        }
        Ok(())
    }

    /// Appends a node that makes one tensor.
    pub(super) fn push(
        &mut self,
        kind: &str,
        input: Vec<String>,
        output: String,
        attribute: Vec<AttributeProto>,
    ) {
        self.push_several(kind, input, vec![output], attribute);
    }

    /// Appends a node.
    pub(super) fn push_several(
        &mut self,
        kind: &str,
        input: Vec<String>,
        output: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) {
        let name = format!("{kind}.{}", self.graph.nodes.len());
        self.graph.nodes.push(NodeProto { input, name, output, op_type: kind.into(), attribute });
    }

    /// Appends a node that exchanges axes.
    pub(super) fn transpose(&mut self, from: String, to: String, axes: &[usize]) {
        self.push("Transpose", vec![from], to, vec![ints("perm", axes)]);
    }

    /// The name of a constant: the same for the same values.
    pub(super) fn constant(&mut self, constant: Constant) -> String {
        if let Some((name, _)) = self.graph.constants.iter().find(|(_, known)| *known == constant) {
            return name.clone();
        }
        let name = format!("constant.{}", self.graph.constants.len());
        self.graph.constants.push((name.clone(), constant));
        name
    }

    fn conv(&mut self, conv: &Conv, node: &Node, result: TensorId) {
        let names: Vec<String> = node.inputs.iter().map(|id| name(self.program, *id)).collect();
        let (sources, others) = names.split_at(conv.sources(names.len()));
        let to = name(self.program, result);
        let source = match sources {
            [one] => one.clone(),
            several => {
                let all = format!("{to}.sources");
                self.push("Concat", several.to_vec(), all.clone(), vec![int("axis", 1)]);
                all
            }
        };
        let window = &conv.window;
        let attributes = vec![
            ints("kernel_shape", &window.kernel),
            ints("strides", &window.stride),
            ints("pads", &[window.padding, window.padding].concat()),
            ints("dilations", &window.dilation),
            int("group", conv.groups as i64),
        ];
        self.push("Conv", [&[source], others].concat(), to, attributes);
    }

    /// Attributes of a transposed convolution of all channels, if what lies behind its last step is less than a step.
    fn transposed(
        &self,
        conv: &ConvTranspose,
        source: TensorId,
        weights: TensorId,
    ) -> Option<Vec<AttributeProto>> {
        let all = self.program.shape(weights).0.get(1)?.checked_mul(conv.groups)?;
        if (conv.first_channel, conv.channels) != (0, all) {
            return None;
        }
        let window = &conv.window;
        let least = window.transposed_output(self.program.shape(source).spatial())?;
        let mut behind = [0; 3];
        for (axis, behind) in behind.iter_mut().enumerate() {
            *behind = conv.output[axis].checked_sub(least[axis])?;
            if *behind > 0 && *behind >= window.stride[axis] {
                return None;
            }
        }
        Some(vec![
            ints("kernel_shape", &window.kernel),
            ints("strides", &window.stride),
            ints("pads", &[window.padding, window.padding].concat()),
            ints("output_padding", &behind),
            ints("dilations", &window.dilation),
            int("group", conv.groups as i64),
        ])
    }

    /// A normalisation, if it is known what its statistics are of.
    fn normalise(
        &mut self,
        source: TensorId,
        statistics: TensorId,
        affine: Option<[TensorId; 2]>,
        result: TensorId,
    ) -> Option<()> {
        let channels = self.program.shape(source).channels();
        let (from, to) = (name(self.program, source), name(self.program, result));
        let named = affine.map(|pair| pair.map(|id| name(self.program, id)));
        let [scale, shift] = match named {
            Some(named) => named,
            None => [1.0, 0.0].map(|value| self.constant(Constant::Values(vec![value; channels]))),
        };
        match *self.statistics.get(&statistics)? {
            Statistics::Own(NormStats { over: Over::Instance, epsilon }) => {
                let inputs = vec![from, scale, shift];
                self.push("InstanceNormalization", inputs, to, vec![float("epsilon", *epsilon)]);
            }
            Statistics::Own(NormStats { over: Over::Group(groups), epsilon }) => {
                self.group_normalisation(
                    from,
                    GroupStatistics { groups: *groups, channels, epsilon: *epsilon },
                    [scale, shift],
                    &to,
                );
            }
            Statistics::Own(NormStats { over: Over::Batch, .. }) => return None,
            Statistics::Running { mean, variance, epsilon } => {
                let [mean, variance] = [mean, variance].map(|id| name(self.program, id));
                let inputs = vec![from, scale, shift, mean, variance];
                self.push("BatchNormalization", inputs, to, vec![float("epsilon", epsilon)]);
            }
        }
        Some(())
    }

    /// Groups of channels as instances of one channel each, and then the scale and the shift of each channel: as operators of version 17
    /// can say it.
    fn group_normalisation(
        &mut self,
        from: String,
        statistics: GroupStatistics,
        [scale, shift]: [String; 2],
        to: &str,
    ) {
        let GroupStatistics { groups, channels, epsilon } = statistics;
        // 0 keeps an extent: the batch's.
        let grouped = self.constant(Constant::Numbers(vec![0, groups as i64, -1]));
        let [ones, zeros] = [1.0, 0.0].map(|value| self.constant(Constant::Values(vec![value; groups])));
        let per_channel = self.constant(Constant::Numbers(vec![1, channels as i64, 1, 1, 1]));
        let part = |what: &str| format!("{to}.{what}");
        self.push("Reshape", vec![from.clone(), grouped], part("grouped"), Vec::new());
        let inputs = vec![part("grouped"), ones, zeros];
        self.push("InstanceNormalization", inputs, part("standardised"), vec![float("epsilon", epsilon)]);
        self.push("Shape", vec![from], part("extent"), Vec::new());
        self.push("Reshape", vec![part("standardised"), part("extent")], part("ungrouped"), Vec::new());
        self.push("Reshape", vec![scale, per_channel.clone()], part("scale"), Vec::new());
        self.push("Reshape", vec![shift, per_channel], part("shift"), Vec::new());
        self.push("Mul", vec![part("ungrouped"), part("scale")], part("scaled"), Vec::new());
        self.push("Add", vec![part("scaled"), part("shift")], to.into(), Vec::new());
    }
}

/// The numbers of a group normalisation.
struct GroupStatistics {
    groups: usize,
    channels: usize,
    epsilon: f32,
}

fn attribute(name: &str, kind: i32) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: kind, ..AttributeProto::default() }
}

pub(super) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), ..attribute(name, attribute_type::FLOAT) }
}

pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, attribute_type::INT) }
}

pub(super) fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: Some(value.as_bytes().to_vec()), ..attribute(name, attribute_type::STRING) }
}

pub(super) fn ints(name: &str, values: &[usize]) -> AttributeProto {
    AttributeProto { ints: numbers(values), ..attribute(name, attribute_type::INTS) }
}

/// Extents, offsets, strides or paddings, as ONNX has numbers. Those of tensors that fit into memory are far below what it holds.
pub(super) fn numbers(values: &[usize]) -> Vec<i64> {
    values.iter().map(|value| *value as i64).collect()
}
