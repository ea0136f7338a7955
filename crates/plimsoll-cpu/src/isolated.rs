//! A convolution by itself, on a part of its volume: what is measured.
#![forbid(unsafe_code)]

use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{DType, Kind, Op, Program, Role, Shape, TensorId, TensorInfo, Window};

use crate::layout::{Layout, VolumeLayout};
use crate::options::Products;

/// The most operations that are measured: some milliseconds.
const FLOPS: u64 = 1 << 30;
/// Extents along depth and height that are not cut further: borders should not count for more than they do.
const EXTENT: usize = 8;

/// The beginning of the names of sources.
const SOURCE: &str = "source";

/// The direction of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvKind {
    /// Its result.
    Forward,
    /// The gradient by a source.
    Transposed,
    /// The gradient by its weights.
    WeightGrad,
}

/// A convolution by itself, of plain sources, on as much of its volume as is needed to see how fast it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Isolated {
    kind: ConvKind,
    window: Window,
    groups: usize,
    /// The channels of each source; of the result if transposed.
    channels: Vec<usize>,
    /// The channels of the result; of the source if transposed.
    outputs: usize,
    batch: usize,
    /// The extent of the side that the window is laid over.
    extent: [usize; 3],
    /// `true` if that side is an image in rows.
    image: bool,
    dtype: DType,
    /// `true` if its products are of bf16.
    bf16_products: bool,
}

/// A convolution as a node of a program.
pub(crate) struct ConvNode<'a> {
    pub(crate) kind: ConvKind,
    /// The first operand.
    pub(crate) input: &'a TensorInfo,
    /// The result.
    pub(crate) output: &'a TensorInfo,
    pub(crate) input_layout: &'a Layout,
    /// The channels of each source; of the result where transposed.
    pub(crate) channels: &'a [usize],
    pub(crate) window: Window,
    pub(crate) groups: usize,
    /// The operations of the node.
    pub(crate) flops: u64,
}

impl Isolated {
    /// The part of a node that is measured.
    pub(crate) fn new(node: ConvNode<'_>) -> Isolated {
        let ConvNode { kind, input, output, input_layout, channels, window, groups, flops } = node;
        let (mut extent, outputs) = match kind {
            ConvKind::Forward => (input.shape.spatial(), output.shape.channels()),
            ConvKind::WeightGrad => (input.shape.spatial(), output.shape.dim(0)),
            ConvKind::Transposed => (output.shape.spatial(), input.shape.channels()),
        };
        let mut batch = input.shape.batch();
        let whole = (batch * extent.iter().product::<usize>()) as f64;
        loop {
            let part = (batch * extent.iter().product::<usize>()) as f64 / whole;
            if flops as f64 * part <= FLOPS as f64 {
                break;
            }
            let axis = if extent[0] >= extent[1] { 0 } else { 1 };
            if batch > 1 {
                batch = batch.div_ceil(2);
            } else if extent[axis] > EXTENT {
                extent[axis] = extent[axis].div_ceil(2);
            } else {
                break;
            }
        }
        Isolated {
            kind,
            window,
            groups,
            channels: channels.to_vec(),
            outputs,
            batch,
            extent,
            image: kind != ConvKind::Transposed && *input_layout == Layout::Given,
            dtype: input.dtype,
            bf16_products: false,
        }
    }

    /// The same with products of bf16, or not.
    pub(crate) fn with_bf16_products(self, bf16_products: bool) -> Isolated {
        Isolated { bf16_products, ..self }
    }

    /// The same with products of f32.
    pub(crate) fn in_f32(self) -> Isolated {
        self.with_bf16_products(false)
    }

    /// The type of its products.
    pub(crate) fn products(&self) -> Products {
        if self.bf16_products { Products::Bf16 } else { Products::F32 }
    }

    /// A name that no other convolution has.
    pub(crate) fn name(&self) -> String {
        format!("{self:?}")
    }

    /// Its program, if the part fits the window.
    pub(crate) fn program(&self) -> Option<Program> {
        let mut program = Program::new("a convolution");
        let strided = self.window.output(self.extent)?;
        let (window, groups, dtype) = (self.window, self.groups, self.dtype);
        let mut volume = |name: String, channels: usize, spatial: [usize; 3]| {
            let shape = Shape::volume(self.batch, channels, spatial);
            program.declare(TensorInfo { name, shape, dtype, role: Role::Input, kind: Kind::Volume })
        };
        let sources: Vec<TensorId> = match self.kind {
            ConvKind::Transposed => vec![volume(SOURCE.into(), self.outputs, strided)],
            ConvKind::Forward | ConvKind::WeightGrad => {
                let sources = self.channels.iter().enumerate();
                sources.map(|(i, channels)| volume(format!("{SOURCE} {i}"), *channels, self.extent)).collect()
            }
        };
        let [d, h, w] = window.kernel;
        let inputs: usize = self.channels.iter().sum();
        let weights = Shape(vec![self.outputs, inputs / groups, d, h, w]);
        let (op, last): (Op, TensorId) = match self.kind {
            ConvKind::Forward => (
                Conv { window, groups, bias: false, dtype }.into(),
                program.input("weights", weights, Kind::Weights),
            ),
            ConvKind::Transposed => {
                let (first_channel, channels, output) = (0, inputs, self.extent);
                let bias = false;
                let op = ConvTranspose { window, groups, first_channel, channels, output, bias, dtype };
                (op.into(), program.input("weights", weights, Kind::Weights))
            }
            ConvKind::WeightGrad => {
                (ConvWeightGrad { window, groups }.into(), volume("gradient".into(), self.outputs, strided))
            }
        };
        let result = program.push(op, &[&sources[..], &[last]].concat()).ok()?[0];
        program.mark_output(result, "result");
        Some(program)
    }

    /// The layouts of the volumes of its program.
    pub(crate) fn volumes(&self, program: &Program) -> Vec<VolumeLayout> {
        let layout = |tensor: &TensorInfo| match tensor.name.starts_with(SOURCE) {
            true if self.image => VolumeLayout::Rows,
            _ => VolumeLayout::Blocks,
        };
        program.tensors.iter().map(layout).collect()
    }
}
