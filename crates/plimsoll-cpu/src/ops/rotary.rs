//! Attention of all voxels to each other, with rotary positions.

use plimsoll_graph::Shape;
use plimsoll_graph::ops::{RotaryAttention, RotaryAttentionGrad, RotaryPairs};
use plimsoll_plan::Unsupported;

use crate::kernels::attention::rotary::{self, Attending, RotaryShape, Turns};
use crate::layout::rule::VolumeRule;
use crate::lower::{Context, Kernels, Lower, NodeOperands, Places, by_storage, bytes_of, product, single};
use crate::simd::Element;

fn shape(op: RotaryAttention, of: &Shape) -> RotaryShape {
    RotaryShape { op, batch: of.batch(), channels: of.channels(), extent: of.spatial() }
}

fn turns(cx: &Context<'_>, shape: &RotaryShape) -> Result<Turns, Unsupported> {
    let head_channels = shape.channels / shape.op.heads;
    let pairs = RotaryPairs::new(head_channels).ok_or_else(|| {
        cx.unsupported(format!("heads of {head_channels} channels, which must be a multiple of six"))
    })?;
    Ok(Turns::new(shape.extent, pairs))
}

/// Queries, keys and values, of which the first operand is `first`.
fn attending<T: Element>(shape: RotaryShape, turns: &Turns, first: usize, places: &Places) -> Attending<T> {
    Attending {
        shape,
        turns: turns.clone(),
        queries: places.input(first),
        keys: places.input(first + 1),
        values: places.input(first + 2),
    }
}

/// The pairs of result and operand whose operand is no other one too: tasks read of keys and values what others write of queries.
fn alone<const N: usize>(cx: &Context<'_>, pairs: [(usize, usize); N]) -> Vec<(usize, usize)> {
    let is_alone = |operand: usize| cx.inputs.iter().filter(|id| **id == cx.inputs[operand]).count() == 1;
    pairs.into_iter().filter(|(_, operand)| is_alone(*operand)).collect()
}

impl Lower for RotaryAttention {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, shape: RotaryShape, turns: Turns) -> Kernels {
            let scratch = [bytes_of::<f32>(product([cx.threads, shape.per_thread()]))];
            Kernels::new(scratch, move |places| {
                single(rotary::RotaryAttention::<T> {
                    of: attending(shape, &turns, 0, places),
                    result: places.output(0),
                    logs: places.output(1),
                    scratch: places.scratch(0),
                })
            })
        }
        let shape = shape(*self, &cx.input(0).shape);
        let turns = turns(cx, &shape)?;
        Ok(by_storage!(cx.input(0), with(cx, shape, turns)).in_place(alone(cx, [(0, 0)])))
    }
}

impl Lower for RotaryAttentionGrad {
    fn volumes(&self, _: &NodeOperands<'_>) -> VolumeRule {
        VolumeRule::Blocks
    }

    fn lower(&self, cx: &Context<'_>) -> Result<Kernels, Unsupported> {
        fn with<T: Element>(cx: &Context<'_>, shape: RotaryShape, turns: Turns) -> Kernels {
            let scratch = [bytes_of::<f32>(product([cx.threads, shape.gradient_per_thread()]))];
            Kernels::new(scratch, move |places| {
                single(rotary::RotaryAttentionGrad::<T> {
                    of: attending(shape, &turns, 2, places),
                    upstream: places.input(0),
                    logs: places.input(1),
                    of_queries: places.output(0),
                    of_keys: places.output(1),
                    of_values: places.output(2),
                    scratch: places.scratch(0),
                })
            })
        }
        let shape = shape(self.of, &cx.input(2).shape);
        let turns = turns(cx, &shape)?;
        Ok(by_storage!(cx.input(0), with(cx, shape, turns)).in_place(alone(cx, [(0, 2), (1, 3), (2, 4)])))
    }
}
