//! Attention within windows.

use plimsoll_graph::ops::{WindowAttention, WindowAttentionGrad};
use plimsoll_plan::Unsupported;

use crate::kernel::{Machine, Ptr};
use crate::kernels::attention::{Attended, Attention, AttentionGrad, AttentionShape, SumTables, Window};
use crate::kernels::sum_parts::SumParts;
use crate::layout::rule::VolumeRule;
use crate::lower::{
    BoundNode, Context, Kernels, Lower, NodeOperands, Places, by_storage, bytes_of, product, single,
};
use crate::simd::Element;

/// Voxels are numbered in 32 bits, the last number left free.
const MOST_VOXELS: usize = u32::MAX as usize;

/// The shape of attention to the queries, keys and values of an operand.
fn shape(cx: &Context<'_>, op: WindowAttention, qkv: usize) -> Result<AttentionShape, Unsupported> {
    let shape = &cx.input(qkv).shape;
    if shape.voxels() >= MOST_VOXELS {
        return Err(cx.unsupported(format!("grids of {} tokens", shape.voxels())));
    }
    let (batch, channels, extent) = (shape.batch(), shape.channels() / 3, shape.spatial());
    Ok(AttentionShape { op, batch, channels, extent })
}

/// The operands of the forward op, which begin at `first`.
fn window<T: Element>(shape: AttentionShape, first: usize, places: &Places) -> Window<T> {
    let op = &shape.op;
    Window {
        shape,
        qkv: places.input(first),
        table: places.input(first + 1),
        bias: op.padded_bias.then(|| places.input(first + 2)),
        noise: (op.dropout > 0.0).then(|| places.input(first + op.operands() - 1)),
    }
}

impl Lower for WindowAttention {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, shape: AttentionShape) -> Kernels {
            let scratch = [bytes_of::<f32>(product([cx.threads, shape.per_thread()]))];
            Kernels::new(scratch, move |places| {
                single(Attention::<T> {
                    window: window(shape, 0, places),
                    result: places.output(0),
                    logs: places.output(1),
                    scratch: places.scratch(0),
                })
            })
        }
        let shape = shape(cx, *self, 0)?;
        Ok(by_storage!(cx.input(0), with(cx, shape)))
    }
}

/// The gradients of a chunk of windows each, then the sums of their parts.
struct Grad<T> {
    grad: AttentionGrad<T>,
    table: SumTables,
    bias: Option<SumParts>,
}

impl<T: Element> BoundNode for Grad<T> {
    unsafe fn run(&self, machine: &Machine) {
        // SAFETY: the arena is alive and untouched by others until this returns, as this function's contract says; each kernel
        // has ended before the next begins.
        unsafe {
            machine.launch(&self.grad);
            machine.launch(&self.table);
            self.bias.iter().for_each(|sum| machine.launch(sum));
        }
    }
}

impl Lower for WindowAttentionGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, shape: AttentionShape) -> Kernels {
            let bias = shape.op.padded_bias;
            let bias_parts = if bias { product([shape.chunks(), shape.bias_lanes()]) } else { 0 };
            let scratch = [
                bytes_of::<f32>(product([cx.threads, shape.gradient_per_thread()])),
                bytes_of::<f32>(shape.table_parts()),
                bytes_of::<f32>(bias_parts),
            ];
            Kernels::new(scratch, move |places| {
                let (table_parts, bias_parts): (Ptr<f32>, Ptr<f32>) = (places.scratch(1), places.scratch(2));
                Box::new(Grad {
                    grad: AttentionGrad::<T> {
                        window: window(shape, 2, places),
                        attended: Attended { upstream: places.input(0), logs: places.input(1) },
                        result: places.output(0),
                        table: table_parts,
                        bias: bias.then_some(bias_parts),
                        scratch: places.scratch(0),
                    },
                    table: SumTables {
                        partial: table_parts,
                        result: places.output(1),
                        parts: shape.chunks(),
                        count: shape.rows() * shape.op.heads,
                    },
                    bias: bias.then(|| SumParts {
                        partial: bias_parts,
                        result: places.output(2),
                        parts: shape.chunks(),
                        count: shape.bias_lanes(),
                    }),
                })
            })
        }
        let shape = shape(cx, self.of, 2)?;
        Ok(by_storage!(cx.input(0), with(cx, shape)))
    }
}
