//! The ops: a closed set, a file each. A line in `ops!` is all that a new file needs.

use serde::{Deserialize, Serialize};

use crate::Rule;

/// Declares the files of ops, the enum of all ops, and `for_each_op!`, with which backends make sure that they know them all.
macro_rules! ops {
    ($dollar:tt $($file:ident: $($name:ident),+;)+) => {
        $(mod $file; pub use $file::{$($name),+};)+

        /// An op with its attributes.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each is documented where it is defined")]
        pub enum Op { $($($name($name)),+),+ }

        impl Op {
            /// The names of all variants.
            pub const VARIANTS: &[&str] = &[$($(stringify!($name)),+),+];

            /// The rule of the op.
            pub fn rule(&self) -> &dyn Rule {
                match self { $($(Op::$name(op) => op),+),+ }
            }

            /// The name of its variant, one of [`Op::VARIANTS`].
            pub fn variant(&self) -> &'static str {
                match self { $($(Op::$name(_) => stringify!($name)),+),+ }
            }
        }

        $($(impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        })+)+

        /// Calls a macro with the names of all variants of [`Op`], separated by commas.
        #[macro_export]
        macro_rules! for_each_op {
            ($dollar callback:ident) => { $dollar callback! { $($($name),+),+ } };
        }
    };
}

ops! { $
    accumulate: Accumulate;
    add: Add;
    avg_pool: AvgPool, AvgPoolGrad;
    channel_scale: ChannelScale, ChannelScaleGrad;
    channel_sum: ChannelSum;
    conv: Conv;
    conv_transpose: ConvTranspose;
    conv_weight_grad: ConvWeightGrad;
    depth_to_space: DepthToSpace, DepthToSpaceGrad;
    downsample_labels: DownsampleLabels;
    dropout: Dropout;
    elu: Elu, EluGrad;
    ema: Ema;
    fill: Fill;
    gate: Gate, GateGrad;
    gelu: Gelu, GeluGrad;
    global_mean: GlobalMean, GlobalMeanGrad;
    grad_norm: GradNorm;
    hard_counts: HardCounts;
    join: Join;
    leaky_relu: LeakyRelu, LeakyReluGrad;
    loss: CompositeLoss, CompositeLossGrad;
    max_pool: MaxPool, MaxPoolGrad;
    morphology: BoxExtreme, BoxExtremeGrad, ClDice, ClDiceGrad, Counted, CrossErosion, CrossErosionGrad,
        MeanDifference, MeanDifferenceGrad, OneHot, OverlapSums, OverlapSumsGrad, SkeletonStep,
        SkeletonStepGrad, SoftRecall, SoftRecallGrad;
    norm_stats: NormStats;
    normalise: Normalise, NormaliseGrad;
    optimizer: AdamW, Sgd;
    pad_front: PadFront, PadFrontGrad;
    positions: AddPositions, AddPositionsGrad;
    prelu: Prelu, PreluGrad;
    regions: RegionCounts, RegionLossGrad, RegionStats;
    response_norm: ResponseNorm, ResponseNormGrad;
    rotary_attention: RotaryAttention, RotaryAttentionGrad;
    running: NormFromRunning, RunningFactors, RunningUpdate;
    sample_drop: SampleDrop;
    sigmoid: Sigmoid, SigmoidGrad;
    softmax_stats: SoftmaxStats;
    space_to_depth: SpaceToDepth, SpaceToDepthGrad;
    structure: BoundaryL1, BoundaryL1Grad, DistanceLoss, DistanceLossGrad, MeanPool, MeanPoolGrad,
        PredictedDistance, Probabilities, ProbabilitiesGrad;
    subpixel: Subpixel, SubpixelGrad;
    swiglu: SwiGlu, SwiGluGrad;
    token_norm: TokenNorm, TokenNormGrad;
    upsample: Upsample2, Upsample2Grad;
    upsample_aligned: UpsampleAligned;
    voxel_gate: VoxelGate, VoxelGateGrad;
    weighted_sum: WeightedSum;
    window_attention: WindowAttention, WindowAttentionGrad;
    zero_class: ZeroClass, ZeroClassGrad;
}

pub use dropout::{NOISE, Noise, philox};
pub use loss::{
    Activation, Component, CrossEntropy, Focal, FocalTversky, GeneralizedDice, Loss, Piece, SoftDice,
    Tversky, VolumeWeight, VoxelSum, WeightedBce, softmax,
};
pub use morphology::{Extreme, Union};
pub use norm_stats::{Over, SharedPlanes};
pub use optimizer::{NormUse, RATES};
pub use regions::{Regions, is_of_regions};
pub use response_norm::{ChannelSums, Response, SampleResponse};
pub use rotary_attention::{MOST_ATTENDING, RotaryPairs};
pub use structure::{DistanceTerm, SurfaceForm};
pub use window_attention::{
    AttentionWindows, MOST_WINDOW_TOKENS, OTHER_REGION, RelativePositions, WindowToken,
};
