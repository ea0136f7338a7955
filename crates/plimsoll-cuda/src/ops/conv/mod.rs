//! Convolutions, transposed convolutions and the gradients of weights: which kernels they take.
//!
//! On cards with tensor cores for bf16 or f16, a convolution of all channels with all runs on them if one of its operands or its result is
//! stored in that type and a tile of its results fits into shared memory with all voxels that it reads; see [`tiling`]. Operands of f32,
//! which are images and the gradients of logits, are rounded to it, as by PyTorch's autocast.
//! So does one of f32 whose products are to be of tf32. All others take the plain kernels: convolutions of f32 alone, those
//! within groups of channels, dilated ones, and those with kernels or strides so large that nothing can be reused. That decision
//! depends on shapes, types and the architecture alone, and is made here.

mod choice;
mod packing;
mod plain;
mod source;
mod tensor;
mod tensor_weight_grad;
mod tiling;

use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{DType, Window};
use plimsoll_plan::Unsupported;

pub(crate) use self::choice::{tiles, tiles_digest};
use self::source::Source;
pub(crate) use self::source::normalises_channels;
use super::NormAct;
use crate::architecture::Generation;
use crate::device::WARP;
use crate::lower::{BLOCK, Context, Lower, Operand, Work};

/// Warps of a block.
const WARPS: usize = BLOCK / WARP as usize;

/// Sources of a convolution, `MOST_SOURCES` of the kernels.
const MOST_SOURCES: usize = 4;

/// The addresses and channels of sources.
fn sources(
    cx: &Context<'_>,
    sources: &[Operand<'_>],
) -> Result<([u64; MOST_SOURCES], [u32; MOST_SOURCES]), Unsupported> {
    if sources.len() > MOST_SOURCES {
        return Err(cx.unsupported(format!("{} sources, of at most {MOST_SOURCES}", sources.len())));
    }
    let (mut addresses, mut channels) = ([0; MOST_SOURCES], [0; MOST_SOURCES]);
    for (i, source) in sources.iter().enumerate() {
        cx.elements(source)?;
        addresses[i] = source.address();
        channels[i] = cx.count(&[source.info.shape.channels()])?;
    }
    Ok((addresses, channels))
}

/// A convolution, some of whose sources are computed when they are staged. Operands: the sources' operands in turn, then the
/// convolution's others.
#[derive(Clone, Debug)]
pub(crate) struct FusedConv<'a> {
    pub(crate) conv: &'a Conv,
    pub(crate) loads: Vec<Option<NormAct>>,
}

/// A transposed convolution whose source is computed when it is staged. Operands: the source's operands, then the convolution's others.
#[derive(Clone, Debug)]
pub(crate) struct FusedTranspose<'a> {
    pub(crate) conv: &'a ConvTranspose,
    pub(crate) load: Option<NormAct>,
}

/// A gradient by weights, some of whose operands are computed when they are staged: the last load belongs to the gradient of the result, which
/// is a map where the convolution is a transposed one. Operands: the operands of the sources, then of the result.
#[derive(Clone, Debug)]
pub(crate) struct FusedWeightGrad<'a> {
    pub(crate) grad: &'a ConvWeightGrad,
    pub(crate) loads: Vec<Option<NormAct>>,
}

/// Returns the type of the numbers that tensor cores multiply in a convolution with some operands and a result, or `None` if it is not for them: the one
/// half precision among them, to which operands of f32 are rounded; or f32, if it is multiplied as tf32.
fn multiplied(
    cx: &Context<'_>,
    window: &Window,
    groups: usize,
    stored: impl IntoIterator<Item = DType>,
) -> Option<DType> {
    let mut dtype = DType::F32;
    for stored in stored {
        match stored {
            DType::F32 => {}
            DType::Bf16 | DType::F16 if [DType::F32, stored].contains(&dtype) => dtype = stored,
            _ => return None,
        }
    }
    (cx.architecture.multiplies(dtype) && groups == 1 && window.is_dense()).then_some(dtype)
}

/// The types in which maps are stored.
fn stored<'a>(sources: &'a [Source<'_>]) -> impl Iterator<Item = DType> + use<'a> {
    sources.iter().map(|source| source.map.info.dtype)
}

/// A convolution on tensor cores, if they can take it.
fn conv(op: &Conv, loads: &[Option<NormAct>], cx: &Context<'_>) -> Result<Option<Work>, Unsupported> {
    let (sources, rest) = Source::all(&cx.inputs, loads);
    let all = stored(&sources).chain([cx.output(0).info.dtype]);
    match multiplied(cx, &op.window, op.groups, all) {
        Some(dtype) => tensor::conv(op, &sources, rest, dtype, cx),
        None => Ok(None),
    }
}

/// The same of a transposed convolution.
fn transpose(
    op: &ConvTranspose,
    load: Option<NormAct>,
    cx: &Context<'_>,
) -> Result<Option<Work>, Unsupported> {
    let (sources, rest) = Source::all(&cx.inputs, &[load]);
    let all = stored(&sources).chain([cx.output(0).info.dtype]);
    match multiplied(cx, &op.window, op.groups, all) {
        Some(dtype) => tensor::conv_transpose(op, &sources, rest, dtype, cx),
        None => Ok(None),
    }
}

/// The same of a gradient by weights, which is f32 always.
fn weight_grad(
    op: &ConvWeightGrad,
    loads: &[Option<NormAct>],
    cx: &Context<'_>,
) -> Result<Option<Work>, Unsupported> {
    let (operands, _) = Source::all(&cx.inputs, loads);
    let Some(dtype) = multiplied(cx, &op.window, op.groups, stored(&operands)) else { return Ok(None) };
    // On Volta the kernel has no registers left to round operands.
    let rounds = stored(&operands).any(|stored| stored != dtype);
    if rounds && cx.architecture.generation() == Generation::Volta {
        return Ok(None);
    }
    let Some((result, sources)) = operands.split_last() else { return Ok(None) };
    tensor_weight_grad::conv_weight_grad(op, sources, result, dtype, cx)
}

/// The plain kernels where tensor cores cannot take it for whatever reason: what is beyond both is refused by the latter.
fn or_plain(
    work: Result<Option<Work>, Unsupported>,
    plain: impl FnOnce() -> Result<Work, Unsupported>,
) -> Result<Work, Unsupported> {
    work.ok().flatten().map_or_else(plain, Ok)
}

impl Lower for Conv {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let loads = vec![None; self.sources(cx.inputs.len())];
        let work = conv(self, &loads, cx);
        or_plain(work, || plain::conv(self, cx))
    }
}

impl Lower for ConvTranspose {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let work = transpose(self, None, cx);
        or_plain(work, || plain::conv_transpose(self, cx))
    }
}

impl Lower for ConvWeightGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let loads = vec![None; cx.inputs.len()];
        let work = weight_grad(self, &loads, cx);
        or_plain(work, || plain::conv_weight_grad(self, cx))
    }
}

/// Nothing is fused into what plain kernels compute.
fn not_fused(cx: &Context<'_>) -> Unsupported {
    cx.unsupported("internal error: its sources are computed on the way in, which needs tensor cores")
}

impl Lower for FusedConv<'_> {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        conv(self.conv, &self.loads, cx)?.ok_or_else(|| not_fused(cx))
    }
}

impl Lower for FusedTranspose<'_> {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        transpose(self.conv, self.load, cx)?.ok_or_else(|| not_fused(cx))
    }
}

impl Lower for FusedWeightGrad<'_> {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        weight_grad(self.grad, &self.loads, cx)?.ok_or_else(|| not_fused(cx))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use plimsoll_graph::{Kind, Role, Shape, TensorInfo};

    use super::*;
    use crate::Architecture;

    fn info(shape: Shape, kind: Kind, dtype: DType) -> TensorInfo {
        TensorInfo { name: "tensor".into(), shape, dtype, role: Role::Input, kind }
    }

    /// The last kernel of a convolution of a map, and bytes of scratch.
    fn kernel(
        architecture: &str,
        window: Window,
        extent: usize,
        [inputs, outputs]: [usize; 2],
        dtype: DType,
    ) -> (String, usize) {
        let architecture = architecture.parse::<Architecture>().unwrap();
        kernel_on(architecture, window, extent, [inputs, outputs], [dtype; 2])
    }

    /// The same where the map and the result are stored differently.
    fn kernel_on(
        architecture: Architecture,
        window: Window,
        extent: usize,
        [inputs, outputs]: [usize; 2],
        [dtype, stored]: [DType; 2],
    ) -> (String, usize) {
        let result = window.output([extent; 3]).unwrap();
        let x = info(Shape::volume(2, inputs, [extent; 3]), Kind::Volume, dtype);
        let [kd, kh, kw] = window.kernel;
        let weights = info(Shape(vec![outputs, inputs, kd, kh, kw]), Kind::Weights, DType::F32);
        let y = info(Shape::volume(2, outputs, result), Kind::Volume, stored);
        let cx = Context {
            name: "conv",
            architecture,
            inputs: vec![Operand::new(&x, 0), Operand::new(&weights, 0)],
            outputs: vec![Operand::new(&y, 0)],
            scratch: 0,
        };
        let work = Conv::new(window, false, stored).lower(&cx).unwrap();
        (work.launches.last().unwrap().kernel.clone(), work.scratch)
    }

    #[test]
    fn tiles_are_wide_where_there_are_places_enough_and_small_where_not() {
        let same = Window::same([3; 3], [1; 3]);
        let halved = Window::same([3; 3], [2; 3]);
        let multiplied =
            [("sm_70", DType::F16), ("sm_75", DType::F16), ("sm_80", DType::F16), ("sm_80", DType::Bf16)];
        for (architecture, dtype) in multiplied {
            for (window, extent, channels, tile) in [
                (same, 128, [32, 32], "256x32"),
                (same, 64, [64, 64], "128x64"),
                (same, 8, [16, 64], "64x32"),
                (halved, 128, [32, 64], "64x64"),
            ] {
                let found = kernel(architecture, window, extent, channels, dtype).0;
                assert_eq!(found, format!("tensor_conv_{tile}_{dtype}_{dtype}"), "{architecture}");
            }
        }
    }

    /// Sums of few places over many channels are divided until multiprocessors are busy, which a second launch adds up.
    #[test]
    fn deep_layers_divide_their_channels() {
        let same = Window::same([3; 3], [1; 3]);
        let weights = 27 * 320 * 320 * 2;
        for (architecture, dtype, extent, parts) in [
            ("sm_80", DType::Bf16, 8, 4),
            ("sm_80", DType::Bf16, 4, 10),
            ("sm_90", DType::Bf16, 8, 5),
            ("sm_70", DType::F16, 4, 4),
        ] {
            let (last, scratch) = kernel(architecture, same, extent, [320, 320], dtype);
            assert_eq!(last, format!("sum_few_parts_{dtype}"), "{architecture}, {extent}");
            let sums = parts * 2 * extent * extent * extent * 320 * 4;
            assert_eq!(scratch, weights + sums, "{architecture}, {extent}");
        }
        let (last, scratch) = kernel("sm_80", same, 32, [320, 320], DType::Bf16);
        assert!(last.starts_with("tensor_conv_") && scratch == weights, "{last}, {scratch}");
    }

    /// On 9.0, and on no later card.
    #[test]
    fn warp_groups_multiply_for_many_channels_where_that_is_predicted_to_pay() {
        let same = Window::same([3; 3], [1; 3]);
        let of = |name: &str, window, extent, channels, types| {
            kernel_on(name.parse().unwrap(), window, extent, channels, types).0
        };
        let bf16 = [DType::Bf16; 2];
        assert_eq!(of("sm_90", same, 64, [64, 64], bf16), "warpgroup_conv_256x64_bf16_bf16");
        assert_eq!(of("sm_90", same, 24, [128, 64], bf16), "warpgroup_conv_128x64_bf16_bf16");
        let f16_to_f32 = [DType::F16, DType::F32];
        assert_eq!(of("sm_90", same, 64, [16, 320], f16_to_f32), "warpgroup_conv_256x64_f16_f32");
        // Few channels, few places, steps between places, one tap.
        for (window, extent, channels) in [
            (same, 128, [32, 32]),
            (same, 8, [16, 64]),
            (Window::same([3; 3], [2; 3]), 128, [32, 64]),
            (Window::point(), 64, [64, 64]),
        ] {
            let found = of("sm_90", window, extent, channels, bf16);
            assert!(found.starts_with("tensor_conv_"), "{found}");
        }
        for later in ["sm_100", "sm_120"] {
            let found = of(later, same, 64, [64, 64], bf16);
            assert!(found.starts_with("tensor_conv_"), "{later}: {found}");
        }
        let rounding = "sm_90".parse::<Architecture>().unwrap().with_tf32_products().unwrap();
        let found = kernel_on(rounding, same, 64, [64, 64], [DType::F32; 2]).0;
        assert!(found.starts_with("tensor_conv_"), "{found}");
    }

    #[test]
    fn a_tile_that_is_chosen_is_taken_where_it_fits() {
        let architecture = "sm_90".parse::<Architecture>().unwrap();
        let bf16 = [DType::Bf16; 2];
        for tile in tiles(architecture) {
            let same = Window::same([3; 3], [1; 3]);
            let of = |channels| kernel_on(architecture.with_tile(tile), same, 9, [17, channels], bf16).0;
            assert_eq!(of(70), format!("{tile}_bf16_bf16"));
            assert_eq!(of(40).starts_with(tile), tile.starts_with("tensor_"), "{tile}");
        }
        assert_eq!(tiles(architecture).count(), 7);
        assert_eq!(tiles("sm_100".parse().unwrap()).count(), 4);
    }

    #[test]
    fn kernels_without_tensor_cores_remain_for_what_these_cannot_take() {
        let same = Window::same([3; 3], [1; 3]);
        let plain = |dtype: DType| (format!("conv_{dtype}_{dtype}"), 0);
        let of = |architecture, window, dtype| kernel(architecture, window, 16, [32, 32], dtype);
        assert_eq!(of("sm_75", same, DType::Bf16), plain(DType::Bf16));
        assert_eq!(of("sm_70", same, DType::Bf16), plain(DType::Bf16));
        for dtype in [DType::Bf16, DType::F16] {
            assert_eq!(of("sm_80", Window::same([9; 3], [1; 3]), dtype), plain(dtype));
            // Weights of 27 taps, 32 by 32, in two bytes each.
            assert_eq!(kernel("sm_80", same, 64, [32, 32], dtype).1, 27 * 32 * 32 * 2);
        }
        assert_eq!(of("sm_80", same, DType::F32).0, "conv_f32_f32");
    }

    #[test]
    fn images_and_gradients_of_logits_are_rounded_to_the_half_precision_of_the_other_operands() {
        let of = |name: &str, channels, types| {
            kernel_on(name.parse().unwrap(), Window::same([3; 3], [1; 3]), 128, channels, types).0
        };
        // The first layer, whose images are f32.
        let first = [DType::F32, DType::Bf16];
        assert_eq!(of("sm_80", [1, 32], first), "tensor_conv_256x32_bf16_bf16");
        assert_eq!(of("sm_70", [1, 32], [DType::F32, DType::F16]), "tensor_conv_256x32_f16_f16");
        // Warp groups round nothing, and no tensor cores before Ampere multiply bf16.
        assert_eq!(of("sm_90", [4, 64], first), "tensor_conv_128x64_bf16_bf16");
        assert_eq!(of("sm_75", [1, 32], first), "conv_f32_bf16");
        let point = |name: &str, types: [DType; 2]| {
            let architecture = name.parse::<Architecture>().unwrap();
            let volume =
                |channels: usize, dtype| info(Shape::volume(2, channels, [16; 3]), Kind::Volume, dtype);
            let (x, dy) = (volume(32, types[0]), volume(3, types[1]));
            let dw = info(Shape(vec![3, 32, 1, 1, 1]), Kind::Weights, DType::F32);
            let inputs = vec![Operand::new(&x, 0), Operand::new(&dy, 0)];
            let outputs = vec![Operand::new(&dw, 0)];
            let cx = Context { name: "conv_weight_grad", architecture, inputs, outputs, scratch: 0 };
            let grad = ConvWeightGrad { window: Window::point(), groups: 1 };
            grad.lower(&cx).unwrap().launches[0].kernel.clone()
        };
        assert_eq!(point("sm_80", [DType::Bf16, DType::F32]), "tensor_weight_grad_bf16");
        assert_eq!(point("sm_75", [DType::F16, DType::F32]), "tensor_weight_grad_f16");
        // Volta has no registers to round operands there.
        assert_eq!(point("sm_70", [DType::F16, DType::F32]), "conv_weight_grad_f16_f32");
        assert_eq!(point("sm_80", [DType::F32; 2]), "conv_weight_grad_f32_f32");
    }

    #[test]
    fn f32_is_rounded_only_where_that_is_asked_for_and_the_result_is_f32() {
        let rounding = |name: &str| name.parse::<Architecture>().unwrap().with_tf32_products();
        assert_eq!([rounding("sm_70"), rounding("sm_75")], [None; 2]);
        let same = Window::same([3; 3], [1; 3]);
        let of = |types| kernel_on(rounding("sm_86").unwrap(), same, 64, [32, 32], types);
        // Weights of 27 taps, 32 by 32, in four bytes each.
        assert_eq!(of([DType::F32; 2]), ("tensor_conv_256x32_f32_f32".into(), 27 * 32 * 32 * 4));
        assert_eq!(of([DType::F32, DType::Bf16]).0, "tensor_conv_256x32_bf16_bf16");
        assert_eq!(of([DType::Bf16; 2]).0, "tensor_conv_256x32_bf16_bf16");
    }
}
