//! Every key of `plimsoll.toml` with its default and meaning: what `plimsoll settings` prints.
//!
//! A new setting is a line here. The tests of this crate walk all keys that [`Settings`](crate::Settings) reads: a key
//! without a line fails them, and so do a line without a key, and a default that is not what a run gets.

use std::collections::BTreeSet;

use serde::Serialize;

/// The default of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Usual {
    /// This value, as it would be written.
    Is(&'static str),
    /// A value that follows from other settings or the data set, in words.
    Follows(&'static str),
    /// Nothing: where its table is given, it must be.
    Required,
}

/// A setting: one key of one table, or of tables of several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SettingLine {
    /// The table; empty for keys at the top of the file.
    pub table: &'static str,
    /// The values of `name` with which the table has the key; empty if it always has it.
    pub kinds: &'static [&'static str],
    /// The key.
    pub key: &'static str,
    /// The default.
    pub default: Usual,
    /// A description of the setting.
    pub meaning: &'static str,
}

impl SettingLine {
    /// The paths of its keys: `patch_size`, `network.features`, `optimizer[sgd].momentum`.
    pub fn paths(&self) -> BTreeSet<String> {
        let SettingLine { table, key, .. } = self;
        match (*table, self.kinds) {
            ("", _) => BTreeSet::from([key.to_string()]),
            (table, []) => BTreeSet::from([format!("{table}.{key}")]),
            (table, kinds) => kinds.iter().map(|kind| format!("{table}[{kind}].{key}")).collect(),
        }
    }
}

use Usual::{Follows, Is, Required};

const fn line(
    table: &'static str,
    kinds: &'static [&'static str],
    key: &'static str,
    default: Usual,
    meaning: &'static str,
) -> SettingLine {
    SettingLine { table, kinds, key, default, meaning }
}

/// Components of the loss that share options.
const DICE: &[&str] = &["soft_dice", "log_cosh_dice"];
const HAUSDORFF: &[&str] = &["hausdorff_dt", "log_hausdorff_dt"];
const BATCHED: &[&str] =
    &["soft_dice", "log_cosh_dice", "generalized_dice", "tversky", "focal_tversky", "skeleton_recall"];
const WITH_BACKGROUND: &[&str] =
    &["soft_dice", "log_cosh_dice", "generalized_dice", "tversky", "focal_tversky", "focal"];
const CLASS_WEIGHTS: &[&str] = &["soft_dice", "log_cosh_dice", "cross_entropy", "weighted_bce", "focal"];
/// Components that see shapes, and may be computed on some steps only.
const SHAPES: &[&str] = &[
    "boundary",
    "hausdorff_dt",
    "log_hausdorff_dt",
    "surface_distance",
    "cldice",
    "morph_skeleton",
    "toploss_simple",
    "skeleton_recall",
];
/// The names of all components of the loss.
pub const ALL_COMPONENTS: &[&str] = &[
    "soft_dice",
    "log_cosh_dice",
    "generalized_dice",
    "tversky",
    "focal_tversky",
    "cross_entropy",
    "weighted_bce",
    "focal",
    "boundary",
    "hausdorff_dt",
    "log_hausdorff_dt",
    "surface_distance",
    "cldice",
    "morph_skeleton",
    "toploss_simple",
    "skeleton_recall",
];
const LOSS: &str = "loss.components";

/// All settings, table by table.
#[rustfmt::skip]
pub const SETTING_LINES: &[SettingLine] = &[
    line("", &[], "preset", Follows("none"), "nnU-Net's planner that chooses network, patch and batch where they are not set: \"nnunet\", its \
                                               default; \"resenc-m\", \"resenc-l\" or \"resenc-xl\", its presets with a residual encoder for \
                                               GPUs of 8, 24 and 40 GB"),
    line("", &[], "lowres", Is("false"), "whether the preset's 3d_lowres is trained, with a coarser spacing, where images are so large that it has one"),
    line("", &[], "dimensions", Follows("2 for patches of one slice, and where images have one; else 3"), "2: patches are slices across the depth, resampled in their plane; 3: they are volumes"),
    line("", &[], "patch_size", Follows("the largest of nnU-Net's sequence that fits the limit, at most 128³ voxels"), "depth, height, width of a patch in voxels; 1,H,W of slices"),
    line("", &[], "spacing", Follows("nnU-Net's rule"), "spacing that images are brought to, in millimetres: depth, height, width; of slices height, width; or \"native\": none is resampled"),
    line("", &[], "batch_size", Follows("2; more where a patch holds the median image, and of slices"), "samples of a step"),
    line("", &[], "shards", Is("1"), "equal parts of the batch whose gradients are summed in their order; a divisor of the batch"),
    line("", &[], "micro_batch", Follows("the one with the fastest step within the limit"), "samples that go through the network at a time; a divisor of the batch, or of a shard"),
    line("", &[], "precision", Follows("\"f32\" on processors, \"bf16\" on GPUs, and \"f16\" on GPUs before compute capability 8.0"), "how features are stored: \"f32\", \"bf16\" or, on GPUs, \"f16\"; arithmetic, weights and loss stay f32. \"bf16-dot\", on processors: as bf16, and convolutions between features multiply bf16 as well, where that is measured to be faster. \"tf32\", on GPUs since Ampere: as f32, and convolutions round to tf32 what they multiply"),
    line("", &[], "epochs", Is("1000"), "epochs of the run"),
    line("", &[], "iterations_per_epoch", Is("250"), "steps of an epoch"),
    line("", &[], "validation_iterations", Is("50"), "batches that are validated after each epoch"),
    line("", &[], "learning_rate", Follows("0.01 for sgd, 0.001 for adamw and adam"), "the highest learning rate"),
    line("", &[], "min_learning_rate", Is("0.0"), "the least learning rate after the warm-up"),
    line("", &[], "warmup_steps", Is("0"), "steps over which the learning rate rises"),
    line("", &[], "learning_rate_interval", Is("\"step\""), "how often the learning rate changes: \"step\", or \"epoch\" as in nnU-Net"),
    line("", &[], "max_grad_norm", Is("12.0"), "the norm that gradients are scaled down to, or inf"),
    line("", &[], "ema", Follows("no averages are taken"), "decay of averages of the parameters, with which is validated and predicted"),
    line("", &[], "frozen", Follows("none"), "a list of prefixes of names of parameters that keep their values"),
    line("", &[], "oversample_foreground", Is("0.33"), "the share of patches that are centred on the foreground, from 0 to 1"),
    line("", &[], "oversampling", Is("\"last\""), "the choice of these patches: \"last\", the last of each batch, their number rounded as \
                                                   in nnU-Net; \"random\", each with the probability of the share"),
    line("", &[], "seed", Is("0"), "of initial weights, patches and augmentation"),

    line("", &[], "labels", Follows("the labels of the data set's description; else `background` is 0 and other values have their numbers \
                                     as names"), "classes by name with their values in label maps, like { vessel = 255 }; `ignore` takes part in nothing"),

    line("", &[], "regions", Follows("the regions of the data set's description, if it has any"), "a table of classes that overlap: names with the values of their voxels, and `order`, the names as they are decided"),

    line("data", &[], "layout", Follows("found by inspection"), "how files are laid out: \"described\" (dataset.json), \"pairs\" of folders, \"cases\" (a folder for each), \"bids\" or \"table\""),
    line("data", &[], "images", Follows("found by names"), "where images are, one name for each channel: folders or patterns like \"raw/*_im.nii.gz\" of pairs, columns of a table, ends of names in cases and BIDS"),
    line("data", &[], "labels", Follows("found by names"), "where label maps are, in the same way: a folder or pattern, a column, the end of names"),
    line("data", &[], "case", Follows("a column like `case` or `id`; else the name of the image"), "the column of a table that names cases"),
    line("data", &[], "channels", Follows("names of folders, columns or files"), "the names of channels, which decide how they are normalised: a list; \"CT\" as CT, others by their own mean and deviation"),
    line("data", &[], "segments", Follows("the classes of the same names"), "which classes names in label maps are (.seg.nrrd, NIfTI with a table of labels, dseg.tsv of BIDS): { \"Segment_1\" = \"vessel\" }; \"values\" to go by values instead"),
    line("data", &[], "unit", Follows("as headers say"), "the unit that lengths in headers are in, whatever they say: \"µm\", \"mm\" or \"m\""),

    line("network", &[], "net", Is("\"plain\""), "\"plain\" or \"resenc\", nnU-Net's PlainConvUNet and ResidualEncoderUNet; \"dynunet\", \
                                                  \"segresnet\", \"segresnetds\", \"swinunetr\", \"unetr\", \"mednext\" or \"attentionunet\", MONAI's; \"stunet\", STU-Net; \"primus\", nnU-Net's Primus; \"meshnet\", dilated \
                                                  convolutions at the extent of the image; \"seresnext50\", SE-ResNeXt50 \
                                                  32×4d, which classifies images"),
    line("network", &[], "features", Follows("32, doubled from stage to stage to at most 320, of slices 512; 16, 32, 64, 128, 256 of attentionunet; of the size of stunet, 16 to 256"), "channels of each stage, the finest first, or of each layer, 16 (U-Nets, attentionunet, stunet, seresnext50, meshnet)"),
    line("network", &[], "dilations", Follows("1, 2, 4, 8, 16, 8, 4, 2, 1"), "voxels from one voxel of each layer's kernel to the next (meshnet)"),
    line("network", &[], "kernels", Follows("from spacing and patch; 3 of stunet"), "kernel of each stage: depth, height, width; odd (U-Nets, stunet)"),
    line("network", &[], "strides", Follows("from spacing and patch; 2 of attentionunet"), "stride into each stage; into the first 1 (U-Nets, attentionunet, stunet)"),
    line("network", &[], "encoder_convs", Follows("2 for each stage"), "convolutions of each stage of the encoder (plain)"),
    line("network", &[], "decoder_convs", Follows("2 for each stage; 1 of resenc"), "convolutions of each stage of the decoder, which has none for the coarsest (plain, resenc)"),
    line("network", &[], "encoder_blocks", Follows("1, 3, 4, 6, 6, ... of resenc; 1, 2, 2, 4 of segresnet and segresnetds; 2 of mednext and 1 of stunet, or of their size"), "residual blocks of each stage of the encoder, of stunet of both ways (resenc, segresnet, segresnetds, mednext, stunet)"),
    line("network", &[], "decoder_blocks", Follows("1 for each stage; 2 of mednext, or of its size"), "residual blocks of each stage of the decoder, which has none for the coarsest (segresnet, segresnetds, mednext)"),
    line("network", &[], "init_filters", Follows("16 of segresnet, 32 of segresnetds and mednext"), "channels of the finest stage, doubled from stage to stage (segresnet, segresnetds, mednext)"),
    line("network", &[], "size", Follows("\"s\""), "the size of the paper, from which blocks, and expansions, features, or channels and heads, follow: \"s\", \"b\", \"m\" or \"l\"; stunet has no \"m\" (mednext, stunet, primus)"),
    line("network", &[], "version", Follows("1"), "the version of the network: tokens come from one convolution (1), from residual blocks (2), or from these and their skips (3) (primus)"),
    line("network", &[], "kernel_size", Follows("3"), "extent of the depthwise kernels of mednext, or of the kernels of all stages, odd (mednext, attentionunet)"),
    line("network", &[], "encoder_expansion", Follows("2 for each stage, or of the size"), "channels inside of the blocks of each stage of the encoder, as a multiple of their input's (mednext)"),
    line("network", &[], "decoder_expansion", Follows("2 for each stage, or of the size"), "channels inside of the blocks of each stage of the decoder, which has none for the coarsest, as a multiple of their input's (mednext)"),
    line("network", &[], "grn", Follows("false"), "whether blocks have global response normalisation (mednext)"),
    line("network", &[], "norm_groups", Follows("8"), "groups of channels of group normalisation (segresnet)"),
    line("network", &[], "upsample", Follows("\"nontrainable\" of segresnet, \"deconv\" of segresnetds"), "the upsampling of the decoder: \
                                                                                                           \"nontrainable\", \"deconv\" \
                                                                                                           or \"pixelshuffle\" \
                                                                                                           (segresnet, segresnetds)"),
    line("network", &[], "resolution", Follows("all axes alike"), "spacing along depth, height, width by which finer axes are halved first (segresnetds)"),
    line("network", &[], "affine", Is("true"), "whether normalisations have a scale and a shift (U-Nets)"),
    line("network", &[], "deep_supervision", Follows("all but the two coarsest stages; 0 of segresnetds and mednext"), "the number of coarser stages \
                                                                                                            with their own head in \
                                                                                                            training (U-Nets, segresnetds, mednext, stunet)"),
    line("network", &[], "dropout", Is("0.0"), "the probability with which an element of a convolution's or linear layer's result, a channel of segresnet's first or of meshnet's, or an element of the vector that seresnext50 classifies, is dropped while training (plain, dynunet, attentionunet, segresnet, swinunetr, unetr, meshnet, seresnext50)"),
    line("network", &[], "feature_size", Follows("24; 16 of unetr"), "channels behind the patch embedding, doubled from stage to stage, any that `num_heads` divide; of unetr those of the finest stage of its decoder (swinunetr, unetr)"),
    line("network", &[], "hidden_size", Follows("768 of unetr; of the size of primus, 396 to 1056"), "channels of tokens (unetr, primus)"),
    line("network", &[], "depths", Follows("[2, 2, 2, 2]; of the size of primus, [12] to [24]"), "transformer blocks of each of four stages, of primus one number (swinunetr, primus)"),
    line("network", &[], "num_heads", Follows("[3, 6, 12, 24]; [12] of unetr; of the size of primus, [6] to [16]"), "heads of the attention of each stage, of unetr and primus one number (swinunetr, unetr, primus)"),
    line("network", &[], "window_size", Follows("7"), "tokens of an attention window along each axis (swinunetr)"),
    line("network", &[], "qkv_bias", Follows("true; false of unetr"), "whether the layer that makes queries, keys and values has a bias (swinunetr, unetr)"),
    line("network", &[], "mlp_ratio", Follows("4.0"), "channels of a block's hidden layer, as a multiple of the block's channels (swinunetr, unetr)"),
    line("network", &[], "patch_norm", Follows("false"), "whether tokens are normalised behind the patch embedding (swinunetr)"),
    line("network", &[], "normalize", Follows("true"), "whether skip connections are normalised (swinunetr)"),
    line("network", &[], "use_v2", Follows("false"), "whether each stage begins with a residual block of convolutions, as in SwinUNETR-V2 (swinunetr)"),
    line("network", &[], "merging", Follows("\"merging\""), "the order in which patch merging reads: \"merging\" (MONAI from 1.5 on), \"merging-1.4\" (before) or \"mergingv2\" (swinunetr)"),
    line("network", &[], "attention", Follows("true"), "whether stages have transformer blocks at all (swinunetr)"),
    line("network", &[], "attention_dropout", Follows("0.0"), "the probability with which an element of an attention matrix is dropped while training (swinunetr)"),
    line("network", &[], "path_dropout", Follows("0.0; 0.2 of primus"), "the probability with which the last transformer block is skipped for a sample while training, those before it with less (swinunetr, primus)"),
    line("network", &[], "pool", Follows("\"padded\""), "the max pool of the stem: \"padded\", as in timm, or \"ceil\", as in \
                                                         pretrainedmodels and MONAI (seresnext50)"),
    line("network", &[], "head", Follows("\"linear\""), "the head that classifies the vector of an image: \"linear\", or \"mlp\" with 512 \
                                                         and 128 features between (seresnext50)"),
    line("network", &[], "single_logit", Follows("false"), "whether two classes share one logit, for the second against the first (seresnext50)"),

    line("optimizer", &[], "name", Follows("\"sgd\"; required if the table is given"), "\"sgd\", with Nesterov momentum, \"adamw\", or \"adam\""),
    line("optimizer", &["sgd"], "momentum", Is("0.99"), "decay of the momentum"),
    line("optimizer", &["sgd"], "weight_decay", Is("3e-5"), "added to the gradient, times the parameter"),
    line("optimizer", &["adamw", "adam"], "beta1", Is("0.9"), "decay of the first moment"),
    line("optimizer", &["adamw", "adam"], "beta2", Is("0.999"), "decay of the second moment"),
    line("optimizer", &["adamw", "adam"], "epsilon", Is("1e-8"), "added to the root of the second moment"),
    line("optimizer", &["adamw"], "weight_decay", Is("0.01"), "pull towards zero, per unit of learning rate"),
    line("optimizer", &["adam"], "weight_decay", Is("0.0"), "added to the gradient, times the parameter"),

    line("decay", &[], "name", Follows("\"poly\" with power 0.9; required if the table is given"), "how the learning rate falls: \"poly\", \"cosine\", \"plateau\" or \"constant\" (not at all)"),
    line("decay", &["poly"], "power", Required, "of the rest of the run; nnU-Net uses 0.9"),
    line("decay", &["plateau"], "factor", Is("0.1"), "the factor of the learning rate"),
    line("decay", &["plateau"], "patience", Is("10"), "the number of epochs without an improvement before it is applied"),
    line("decay", &["plateau"], "threshold", Is("0.0001"), "the relative improvement that counts; the score is the average pseudo-Dice"),

    line("loss", &[], "dice", Is("1.0"), "weight of the soft Dice loss"),
    line("loss", &[], "cross_entropy", Is("1.0"), "weight of the cross-entropy"),
    line("loss", &[], "batch", Follows("false; without a [loss] table true for slices, and for volumes of many patches if no patch_size is set"), "Dice over all samples of a batch together"),
    line("loss", &[], "include_background", Follows("true; false without a [loss] table"), "whether the background counts in Dice"),
    line("loss", &[], "squared", Is("false"), "squares in the denominator of Dice"),
    line("loss", &[], "smooth_numerator", Is("1e-5"), "added to the numerator of Dice"),
    line("loss", &[], "smooth_denominator", Is("1e-5"), "added to the denominator of Dice"),
    line("loss", &[], "ignore", Follows("the data set's, if it has one"), "a label that counts in no component"),

    line(LOSS, &[], "name", Required, "the component; a list of [[loss.components]] replaces the keys of [loss] except `ignore`"),
    line(LOSS, ALL_COMPONENTS, "weight", Is("1.0"), "factor of the component"),
    line(LOSS, BATCHED, "batch", Is("false"), "quotients over all samples of a batch together"),
    line(LOSS, WITH_BACKGROUND, "include_background", Is("true"), "whether the background counts"),
    line(LOSS, &["weighted_bce"], "include_background", Is("false"), "whether the background counts"),
    line(LOSS, DICE, "squared", Is("false"), "squares in the denominator"),
    line(LOSS, BATCHED, "smooth_numerator", Is("1e-5"), "added to the numerator"),
    line(LOSS, BATCHED, "smooth_denominator", Is("1e-5"), "added to the denominator"),
    line(LOSS, CLASS_WEIGHTS, "class_weights", Is("[]"), "a number for each class, the background first; or none"),
    line(LOSS, &["cross_entropy"], "label_smoothing", Is("0.0"), "the share of the target that all classes have alike, from 0 to 1"),
    line(LOSS, &["generalized_dice"], "volume_weight", Is("\"square\""), "of a class by its volume: \"square\", \"simple\" or \"uniform\""),
    line(LOSS, &["tversky"], "alpha", Is("0.5"), "weight of false positives"),
    line(LOSS, &["tversky"], "beta", Is("0.5"), "weight of false negatives"),
    line(LOSS, &["focal_tversky"], "alpha", Is("0.3"), "weight of false positives"),
    line(LOSS, &["focal_tversky"], "beta", Is("0.7"), "weight of false negatives"),
    line(LOSS, &["focal_tversky"], "gamma", Is("1.3333334"), "the power that is taken"),
    line(LOSS, &["focal"], "gamma", Is("2.0"), "the power of 1 - p"),
    line(LOSS, &["focal"], "alpha", Follows("none"), "weight of the foreground; of the background 1 - alpha"),
    line(LOSS, &["focal", "weighted_bce"], "activation", Is("\"softmax\""), "the function that gives probabilities: \"softmax\" or \"sigmoid\""),
    line(LOSS, &["weighted_bce"], "pos_weight", Is("1.0"), "weight of voxels of the class"),
    line(LOSS, &["boundary", "hausdorff_dt", "log_hausdorff_dt"], "unit", Is("\"mm\""), "of distances: \"mm\", or \"voxels\" as MONAI"),
    line(LOSS, HAUSDORFF, "alpha", Is("2.0"), "the power of distances"),
    line(LOSS, &["surface_distance"], "tolerance_mm", Is("2.0"), "distances up to this cost nothing"),
    line(LOSS, &["surface_distance"], "form", Is("\"symmetric\""), "which formula: \"symmetric\" or \"as_published\""),
    line(LOSS, &["cldice", "morph_skeleton"], "iterations", Is("3"), "erosions of a skeleton, 1 to 64"),
    line(LOSS, &["cldice"], "smooth_numerator", Is("1.0"), "added to the numerators of both shares"),
    line(LOSS, &["cldice"], "smooth_denominator", Is("1.0"), "added to their denominators"),
    line(LOSS, &["cldice"], "smooth", Is("1e-4"), "added to the denominator of the harmonic mean"),
    line(LOSS, &["toploss_simple"], "threshold", Is("0.2"), "below which what erosion leaves is a hole or thin, from 0 to 1"),
    line(LOSS, SHAPES, "every", Is("1"), "from one step with the component to the next"),
    line(LOSS, SHAPES, "phase", Is("0"), "the first such step, counted from 0; below `every`"),
    line(LOSS, SHAPES, "from_epoch", Is("0"), "the first epoch with the component, counted from 0"),
    line(LOSS, SHAPES, "scale", Is("1"), "the factor by which probabilities and labels are downsampled along each axis"),
    line(LOSS, SHAPES, "mode", Is("\"both\""), "where it applies: \"both\", \"train\" or \"validation\""),
    line(LOSS, SHAPES, "rescale", Is("false"), "whether the weight is multiplied with `every`"),
    line(LOSS, SHAPES, "otherwise", Is("\"nothing\""), "on other steps: \"nothing\", or \"boundary_l1\", a cheap difference of boundaries"),

    line("images", &[], "size", Follows("[224, 224]"), "height and width that images are resized to, in pixels"),
    line("images", &[], "channels", Follows("3"), "1, grey, or 3, RGB"),
    line("images", &[], "range_16_bit", Follows("the range of all images except test images"), "the range of samples of 16 bits that becomes 0 to 255: [low, high]; samples outside are clipped"),
    line("images", &[], "filter", Follows("\"bilinear\""), "of resizing: \"bilinear\", \"bicubic\" or \"lanczos\""),
    line("images", &[], "circle_crop", Follows("nothing is cropped"), "the grey up to which the border of a photograph of the retina is dark, and cropped"),
    line("images", &[], "clahe", Follows("not equalised"), "equalises lightness locally before resizing: the most that a level may have, as a multiple of a uniform histogram"),
    line("images", &[], "ben_graham", Follows("not filtered"), "Ben Graham's filter after resizing: the deviation of its blur, in pixels"),
    line("images", &[], "sampling", Follows("\"shuffled\""), "how the images of a step are chosen: \"shuffled\", or \"balanced\", each class alike"),
    line("images", &[], "target", Follows("\"any_of\" where images have several labels, else \"one_of\""), "the task: \"one_of\", one \
                                                                                                            class; \"any_of\", each label \
                                                                                                            separately; \"ordinal\", one \
                                                                                                            of several ordered classes"),
    line("images", &[], "class_weights", Follows("each image alike"), "\"balanced\": n / (K nₖ) of the images that the run's first fold trains on, in the cross-entropy"),
    line("images", &[], "classes", Follows("all"), "the classes to distinguish, by name: a list"),

    line("images.augmentation", &[], "degrees", Follows("10; 0 where the table is given"), "rotates by up to this many degrees, either way"),
    line("images.augmentation", &[], "shift", Follows("[0.0, 0.0]"), "shifts by up to these shares of width and height, either way"),
    line("images.augmentation", &[], "scale", Follows("[1.0, 1.0]"), "scales by a factor between these"),
    line("images.augmentation", &[], "shear", Follows("[0.0, 0.0]"), "shears by up to this many degrees parallel to x and y, either way"),
    line("images.augmentation", &[], "flip_horizontal", Follows("0.5; 0 where the table is given"), "the probability that left and right are exchanged"),
    line("images.augmentation", &[], "flip_vertical", Follows("0.0"), "the probability that top and bottom are exchanged"),
    line("images.augmentation", &[], "brightness", Follows("0.1; 0 where the table is given"), "the largest deviation of the brightness \
                                                                                                factor from 1"),
    line("images.augmentation", &[], "contrast", Follows("0.1; 0 where the table is given"), "the same for contrast"),
    line("images.augmentation", &[], "saturation", Follows("0.0"), "the same for saturation"),
    line("images.augmentation", &[], "hue", Follows("0.0"), "turns the hue by up to this share of the circle, either way"),
    line("images.augmentation", &[], "mixup", Follows("0.0"), "mixes each image with another of its batch: α of the beta distribution of their shares, 0 for none (cross_entropy or weighted_bce alone, without weights)"),
    line("images.augmentation.blur", &[], "probability", Follows("0.0"), "of a blur"),
    line("images.augmentation.blur", &[], "sigma", Follows("[0.1, 2.0]"), "its deviation is between these, in pixels"),
    line("images.augmentation.erase", &[], "probability", Follows("0.0"), "that a rectangle is erased"),
    line("images.augmentation.erase", &[], "area", Follows("[0.02, 0.33]"), "its share of the image is between these"),
    line("images.augmentation.erase", &[], "ratio", Follows("[0.3, 3.3]"), "its height over its width is between these"),
    line("images.augmentation.erase", &[], "noise", Follows("false"), "whether it is filled with noise, or with the mean"),

    line("images.table", &[], "image", Follows("\"image\"; required if the table is given"), "the column of images in a .csv file"),
    line("images.table", &[], "label", Follows("one = \"label\"; required if the table is given"), "where labels are: one = COLUMN, several = { column, separator }, or columns = a list"),
    line("images.table", &[], "group", Follows("none"), "cases that stay in one fold: column = COLUMN, or name_up_to = TEXT"),
    line("images.table", &[], "split", Follows("none"), "the column with train, val or test"),
    line("images.table", &[], "folder", Follows("the table's folder"), "of images, relative to the table"),
    line("images.table", &[], "ending", Follows("nothing"), "the ending that is appended to names that lack it"),
    line("images.table", &[], "classes", Follows("all that occur"), "the classes, in order"),
    line("images.table", &[], "skip_unlabelled", Follows("false"), "whether rows without a label are left out; otherwise they are an error"),

    line("bad_numbers", &[], "name", Follows("\"stop\"; required if the table is given"), "the reaction to a loss or gradient \
                                                                                                      that is not finite: \"stop\", \
                                                                                                      \"skip\" the step, or \"rollback\" \
                                                                                                      to the last checkpoint"),
    line("bad_numbers", &["skip", "rollback"], "limit", Is("10"), "the number of steps in a row that are skipped, or of rollbacks, before \
                                                                   the run stops"),

    line("groups", &[], "prefix", Required, "a prefix of names of parameters, in a list [[groups]] with their own rates"),
    line("groups", &[], "rate", Required, "the factor of the learning rate of these parameters"),

    line("early_stopping", &[], "patience", Required, "epochs without a better score after which the run ends"),
    line("early_stopping", &[], "score", Follows("\"ema_pseudo_dice\", of images \"balanced_accuracy\""), "which: \"ema_pseudo_dice\", \"pseudo_dice\" or \"validation_loss\"; of images \"accuracy\", \"balanced_accuracy\", \"kappa\" or \"validation_loss\""),
    line("early_stopping", &[], "min_delta", Is("0.0"), "the improvement of a score that counts"),

    line("augmentation", &[], "p_rotation", Is("0.2"), "the probability of a rotation"),
    line("augmentation", &[], "rotation", Is("[-30.0, 30.0]"), "degrees about each axis"),
    line("augmentation", &[], "rotation_in_plane", Follows("[-180.0, 180.0]; [-15.0, 15.0] for slices of which one edge is more than 1.5 times the other"), "degrees, for slices and anisotropic patches, which are rotated within their plane"),
    line("augmentation", &[], "p_scaling", Is("0.2"), "the probability of scaling"),
    line("augmentation", &[], "scaling", Is("[0.7, 1.4]"), "factor of the extent that a patch covers; above 1 objects look smaller"),
    line("augmentation", &[], "p_shear", Is("0.0"), "the probability of shearing"),
    line("augmentation", &[], "shear", Is("[-0.1, 0.1]"), "millimetres along one axis by which a millimetre along another is displaced, by pair of axes"),
    line("augmentation", &[], "p_elastic", Is("0.0"), "the probability of an elastic deformation"),
    line("augmentation", &[], "elastic_spacing", Is("[0.2, 0.5]"), "the distance between its control points, as a share of the patch's edge"),
    line("augmentation", &[], "elastic_magnitude", Is("[0.0, 4.0]"), "its longest displacement along each axis, in voxels of the patch"),
    line("augmentation", &[], "interpolation", Is("\"linear\""), "how images are interpolated: \"linear\", or \"cubic\" by Keys' convolution; labels are the arg max of their linearly interpolated one-hot encoding"),
    line("augmentation", &[], "p_mirror", Is("0.5"), "the probability of mirroring along each of the axes below"),
    line("augmentation", &[], "mirror_axes", Is("[true, true, true]"), "depth, height, width: which axes may be mirrored, in training and by predict; of slices never the depth. The width runs from left to right: false where labels tell sides apart"),
    line("augmentation", &[], "p_gaussian_noise", Is("0.1"), "the probability of noise"),
    line("augmentation", &[], "gaussian_noise", Is("[0.0, 0.1]"), "its standard deviation, in units of the normalised image"),
    line("augmentation", &[], "p_gaussian_blur", Is("0.2"), "the probability of a blur"),
    line("augmentation", &[], "p_gaussian_blur_per_channel", Is("0.5"), "the probability that it blurs a channel"),
    line("augmentation", &[], "gaussian_blur", Is("[0.5, 1.0]"), "the standard deviation of its Gaussian in voxels, by channel and axis"),
    line("augmentation", &[], "p_brightness", Is("0.15"), "the probability of a brightness change"),
    line("augmentation", &[], "brightness", Is("[0.75, 1.25]"), "factor of intensities, by channel"),
    line("augmentation", &[], "p_contrast", Is("0.15"), "the probability of a contrast change"),
    line("augmentation", &[], "contrast", Is("[0.75, 1.25]"), "factor of differences from the mean, by channel"),
    line("augmentation", &[], "p_low_resolution", Is("0.25"), "the probability of a lower resolution"),
    line("augmentation", &[], "p_low_resolution_per_channel", Is("0.5"), "the probability that a channel has it"),
    line("augmentation", &[], "low_resolution", Is("[0.5, 1.0]"), "the resolution as a share of the patch's, by channel"),
    line("augmentation", &[], "p_gamma", Is("0.3"), "the probability that values, scaled to 0 ... 1, are raised to a power"),
    line("augmentation", &[], "p_inverted_gamma", Is("0.1"), "the probability of the same on the inverted image"),
    line("augmentation", &[], "gamma", Is("[0.7, 1.5]"), "the power, by channel"),
    line("augmentation", &[], "p_bias_field", Is("0.0"), "the probability of a bias field"),
    line("augmentation", &[], "bias_field", Is("[0.0, 0.1]"), "its coefficients, as of MONAI's RandBiasField"),
];
