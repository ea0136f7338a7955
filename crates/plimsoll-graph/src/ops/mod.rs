//! The ops, one file each.

mod accumulate;
mod add;
mod channel_sum;
mod conv;
mod conv_transpose;
mod conv_weight_grad;
mod downsample_labels;
mod dropout;
mod fill;
mod grad_norm;
mod hard_counts;
mod head;
mod join;
mod leaky_relu;
mod load;
mod loss;
mod morphology;
mod norm;
mod norm_act;
mod optimizer;
mod softmax_stats;
mod structure;
mod weighted_sum;

pub use accumulate::Accumulate;
pub use add::Add;
pub use channel_sum::ChannelSum;
pub use conv::Conv;
pub use conv_transpose::ConvTranspose;
pub use conv_weight_grad::ConvWeightGrad;
pub use downsample_labels::DownsampleLabels;
pub use dropout::{Dropout, NOISE, Noise, philox};
pub use fill::Fill;
pub use grad_norm::GradNorm;
pub use hard_counts::HardCounts;
pub use head::{Head, HeadCounts, HeadGrad, HeadStats};
pub use join::Join;
pub use leaky_relu::{LeakyRelu, LeakyReluGrad};
pub use load::{Load, SourceOperands};
pub use loss::{
    Activation, Component, CompositeLoss, CompositeLossGrad, CrossEntropy, Focal, FocalTversky,
    GeneralizedDice, Loss, Piece, SoftDice, Tversky, VolumeWeight, VoxelSum, WeightedBce, softmax,
};
pub use morphology::{
    BoxExtreme, BoxExtremeGrad, ClDice, ClDiceGrad, Counted, CrossErosion, CrossErosionGrad, Extreme,
    MeanDifference, MeanDifferenceGrad, OneHot, OverlapSums, OverlapSumsGrad, SkeletonStep, SkeletonStepGrad,
    SoftRecall, SoftRecallGrad, Union,
};
pub use norm::NormStats;
pub use norm_act::{NormAct, NormActGrad};
pub use optimizer::{AdamW, RATES, Sgd};
pub use softmax_stats::SoftmaxStats;
pub use structure::{
    BoundaryL1, BoundaryL1Grad, DistanceLoss, DistanceLossGrad, DistanceTerm, MeanPool, MeanPoolGrad,
    PredictedDistance, Probabilities, ProbabilitiesGrad, SurfaceForm,
};
pub use weighted_sum::WeightedSum;
