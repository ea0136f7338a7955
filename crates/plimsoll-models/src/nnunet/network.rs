//! The network that a configuration describes: by arguments of its class, or, in plans from before 2024, by arguments of a U-Net.

use plimsoll_nn::bounds::{
    LARGEST_KERNEL, LARGEST_STRIDE, MOST_CONVOLUTIONS, MOST_FEATURES, MOST_PATCH_EXTENT, MOST_STAGES,
};
use plimsoll_nn::{Architecture, Network, PlainConvUNet, Primus, ResidualEncoderUNet, UNet, UNetNorm};

use super::NnUnetError;
use super::entry::Entry;
use super::plans::{Configuration, one_of};
use super::trainers::Trainer;

const PLAIN: &str = "PlainConvUNet";
const RESIDUAL: &str = "ResidualEncoderUNet";

/// The number of channels of a network's image, and of its outputs.
pub(super) struct Ends {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// The window of a configuration, and along how many axes it is cut.
pub(super) fn patch(configuration: &Configuration<'_>) -> Result<([usize; 3], usize), NnUnetError> {
    let entry = configuration.need("patch_size")?;
    let list = entry.list()?;
    let extents: Vec<usize> =
        list.iter().map(|extent| extent.whole(1, MOST_PATCH_EXTENT)).collect::<Result<_, _>>()?;
    let patch = flat(&extents).ok_or_else(|| entry.refuse("it must be a list of two or three"))?;
    plimsoll_nn::bounds::check_patch_size(patch).map_err(|source| entry.refuse(source.to_string()))?;
    Ok((patch, extents.len()))
}

/// Extents along three axes of what has two or three.
fn flat(extents: &[usize]) -> Option<[usize; 3]> {
    match *extents {
        [height, width] => Some([1, height, width]),
        [depth, height, width] => Some([depth, height, width]),
        _ => None,
    }
}

/// The network of a configuration, as a trainer makes it.
pub(super) fn network(
    configuration: &Configuration<'_>,
    ends: Ends,
    patch: ([usize; 3], usize),
    trainer: Trainer,
) -> Result<Network, NnUnetError> {
    if let Trainer::Primus { size, version } = trainer {
        // These trainers take the patch of the plans, and not their network.
        let network = Primus::new(ends.inputs, ends.outputs, size, version, patch.0);
        network.check().map_err(|source| NnUnetError::Network {
            path: configuration.path().into(),
            key: configuration.key("patch_size"),
            source: Box::new(source),
        })?;
        return Ok(network.into());
    }
    let described = match configuration.get("architecture") {
        Some(architecture) => {
            let (class, arguments) =
                (architecture.need("network_class_name")?, architecture.need("arch_kwargs")?);
            from_arguments(&class, &arguments, patch.1, trainer)?
        }
        None => from_old_plans(configuration, patch.1, trainer)?,
    };
    let key = described.key.clone();
    let network = described.network(ends);
    let refused = |source| NnUnetError::Network {
        path: configuration.path().into(),
        key: key.clone(),
        source: Box::new(source),
    };
    network.check().map_err(refused)?;
    network.check_patch(patch.0).map_err(|source| NnUnetError::Network {
        path: configuration.path().into(),
        key: configuration.key("patch_size"),
        source: Box::new(source),
    })?;
    Ok(network)
}

/// A U-Net without its ends, and the entry that describes it.
struct Described {
    is_residual: bool,
    shape: UNet,
    key: String,
}

impl Described {
    fn network(self, ends: Ends) -> Network {
        let shape = UNet { in_channels: ends.inputs, classes: ends.outputs, ..self.shape };
        match self.is_residual {
            true => ResidualEncoderUNet { shape }.into(),
            false => PlainConvUNet { shape }.into(),
        }
    }
}

/// The network of volumes that a class makes with arguments, with one head.
pub(super) fn pretrained(
    class: &Entry<'_>,
    arguments: &Entry<'_>,
    ends: Ends,
) -> Result<Network, NnUnetError> {
    let mut described = from_arguments(class, arguments, 3, Trainer::AsPlanned)?;
    described.shape.deep_supervision = 0;
    let network = described.network(ends);
    network.check().map_err(|source| NnUnetError::Network {
        path: arguments.path().into(),
        key: arguments.key().into(),
        source: Box::new(source),
    })?;
    Ok(network)
}

/// Windows of each stage: a list for each, or a number for all axes, or for all stages.
fn windows(
    entry: &Entry<'_>,
    stages: usize,
    axes: usize,
    most: usize,
) -> Result<Vec<[usize; 3]>, NnUnetError> {
    let one = |entry: &Entry<'_>| {
        let extents = entry.wholes(axes, 1, most)?;
        flat(&extents).ok_or_else(|| entry.refuse("it must be a list of two or three"))
    };
    if entry.value().is_number() {
        return Ok(vec![one(entry)?; stages]);
    }
    entry.list_of(stages)?.iter().map(one).collect()
}

/// The network whose class and arguments are written out.
fn from_arguments(
    class: &Entry<'_>,
    arguments: &Entry<'_>,
    axes: usize,
    trainer: Trainer,
) -> Result<Described, NnUnetError> {
    // Modules were moved; classes kept their names.
    let name = class.text()?.rsplit('.').next().unwrap_or_default();
    if ![PLAIN, RESIDUAL].contains(&name) {
        let (path, name) = (class.path().into(), class.text()?.into());
        return Err(NnUnetError::Unknown {
            path,
            what: "network",
            name,
            known: [PLAIN, RESIDUAL].join(", "),
        });
    }
    let is_residual = name == RESIDUAL;
    let stages = arguments.need("n_stages")?.whole(2, MOST_STAGES)?;
    let list = |key: &str, count: usize, most: usize| arguments.need(key)?.wholes(count, 1, most);
    // nnssl has one name for both.
    let is_of_nnssl =
        arguments.get("n_conv_per_stage")?.is_none() && arguments.get("n_blocks_per_stage")?.is_some();
    let blocks = if is_residual || is_of_nnssl { "n_blocks_per_stage" } else { "n_conv_per_stage" };
    expect_operation(arguments, "conv_op", &[["Conv2d", "Conv3d"][axes - 2]])?;
    let conv_bias = arguments.get("conv_bias")?.map_or(Ok(false), |bias| bias.truth())?;
    let (norm, epsilon, affine) = normalisation(arguments, axes, conv_bias, trainer)?;
    expect_only(arguments, blocks)?;
    let shape = UNet {
        in_channels: 1,
        classes: 1,
        features: list("features_per_stage", stages, MOST_FEATURES)?,
        kernels: windows(&arguments.need("kernel_sizes")?, stages, axes, LARGEST_KERNEL)?,
        strides: windows(&arguments.need("strides")?, stages, axes, LARGEST_STRIDE)?,
        encoder_convs: list(blocks, stages, MOST_CONVOLUTIONS)?,
        decoder_convs: finest_first(list("n_conv_per_stage_decoder", stages - 1, MOST_CONVOLUTIONS)?),
        affine,
        epsilon,
        slope: slope(arguments)?,
        norm,
        transposed_bias: conv_bias,
        deep_supervision: stages - 2,
        dropout: 0.0,
    };
    Ok(Described { is_residual, shape, key: arguments.key().into() })
}

/// Plans list what the decoder has from its coarsest stage on.
fn finest_first(mut convolutions: Vec<usize>) -> Vec<usize> {
    convolutions.reverse();
    convolutions
}

/// Refuses arguments that would make another network, or of which nothing is known.
fn expect_only(arguments: &Entry<'_>, blocks: &str) -> Result<(), NnUnetError> {
    // Read elsewhere, or without effect on a prediction.
    let used = [
        "n_stages",
        "features_per_stage",
        "conv_op",
        "kernel_sizes",
        "strides",
        "n_conv_per_stage_decoder",
        "conv_bias",
        "norm_op",
        "norm_op_kwargs",
        "nonlin",
        "nonlin_kwargs",
        "dropout_op",
        "dropout_op_kwargs",
        "deep_supervision",
        blocks,
    ];
    let Some(object) = arguments.value().as_object() else {
        return Err(arguments.refuse("it must have entries of names"));
    };
    for name in object.keys().filter(|name| !used.contains(&name.as_str())) {
        let Some(value) = arguments.get(name)? else { continue };
        let is_usual = match name.as_str() {
            "nonlin_first" => value.value().as_bool() == Some(false),
            "block" => value.value().as_str().is_some_and(|block| block.ends_with("BasicBlockD")),
            _ => false,
        };
        if !is_usual {
            return Err(value.refuse("networks with this argument are not supported"));
        }
    }
    Ok(())
}

/// Checks that an operation is one of some, by the last part of its name.
fn expect_operation<'a>(arguments: &Entry<'a>, key: &str, known: &[&str]) -> Result<&'a str, NnUnetError> {
    let entry = arguments.need(key)?;
    let name = entry.text()?.rsplit('.').next().unwrap_or_default();
    if known.contains(&name) {
        return Ok(name);
    }
    Err(entry.refuse(format!("it must be {}", known.join(" or "))))
}

/// The statistics of a normalisation, the term that is added to the variance, and the presence of scales and shifts.
fn normalisation(
    arguments: &Entry<'_>,
    axes: usize,
    conv_bias: bool,
    trainer: Trainer,
) -> Result<(UNetNorm, f32, bool), NnUnetError> {
    const EPSILON: f32 = 1e-5;
    if trainer == Trainer::BatchNorm {
        return Ok((UNetNorm::Batch { conv_bias }, EPSILON, true));
    }
    let (instance, batch) =
        (["InstanceNorm2d", "InstanceNorm3d"][axes - 2], ["BatchNorm2d", "BatchNorm3d"][axes - 2]);
    let is_batch = expect_operation(arguments, "norm_op", &[instance, batch])? == batch;
    let (mut epsilon, mut affine) = (EPSILON, is_batch);
    if let Some(options) = arguments.get("norm_op_kwargs")? {
        if let Some(value) = options.get("eps")? {
            epsilon = value.number()? as f32;
        }
        if let Some(value) = options.get("affine")? {
            affine = value.truth()?;
        }
        if let Some(value) = options.get("track_running_stats")?
            && value.truth()? != is_batch
        {
            return Err(value.refuse(format!("for this normalisation it must be {is_batch}")));
        }
    }
    let norm = if is_batch { UNetNorm::Batch { conv_bias } } else { UNetNorm::Instance };
    Ok((norm, epsilon, affine))
}

/// The slope of the leaky ReLU; 0 for the ReLU.
fn slope(arguments: &Entry<'_>) -> Result<f32, NnUnetError> {
    // PyTorch's default.
    const SLOPE: f32 = 0.01;
    if expect_operation(arguments, "nonlin", &["LeakyReLU", "ReLU"])? == "ReLU" {
        return Ok(0.0);
    }
    let options = arguments.get("nonlin_kwargs")?;
    let slope = options.map_or(Ok(None), |options| options.get("negative_slope"))?;
    slope.map_or(Ok(SLOPE), |slope| Ok(slope.number()? as f32))
}

/// The network of plans from before networks were written out in them.
fn from_old_plans(
    configuration: &Configuration<'_>,
    axes: usize,
    trainer: Trainer,
) -> Result<Described, NnUnetError> {
    let class = configuration.need("UNet_class_name")?;
    let is_residual = one_of(&class, "network", &[PLAIN, RESIDUAL])? == RESIDUAL;
    let encoder = configuration.need("n_conv_per_stage_encoder")?;
    let stages = encoder.list()?.len();
    if !(2..=MOST_STAGES).contains(&stages) {
        return Err(encoder.refuse(format!("it must be a list of 2 to {MOST_STAGES}")));
    }
    let base = configuration.need("UNet_base_num_features")?.whole(1, MOST_FEATURES)?;
    let most = configuration.need("unet_max_num_features")?.whole(1, MOST_FEATURES)?;
    let decoder = configuration.need("n_conv_per_stage_decoder")?.wholes(stages - 1, 1, MOST_CONVOLUTIONS)?;
    let norm = match trainer {
        Trainer::AsPlanned | Trainer::Primus { .. } => UNetNorm::Instance,
        Trainer::BatchNorm => UNetNorm::Batch { conv_bias: true },
    };
    let shape = UNet {
        in_channels: 1,
        classes: 1,
        // At most 2¹² · 2¹⁵.
        features: (0..stages).map(|stage| (base << stage).min(most)).collect(),
        kernels: windows(&configuration.need("conv_kernel_sizes")?, stages, axes, LARGEST_KERNEL)?,
        strides: windows(&configuration.need("pool_op_kernel_sizes")?, stages, axes, LARGEST_STRIDE)?,
        encoder_convs: encoder.wholes(stages, 1, MOST_CONVOLUTIONS)?,
        decoder_convs: finest_first(decoder),
        affine: true,
        epsilon: 1e-5,
        slope: 0.01,
        norm,
        transposed_bias: true,
        deep_supervision: stages - 2,
        dropout: 0.0,
    };
    Ok(Described { is_residual, shape, key: configuration.key("UNet_class_name") })
}
