//! The layers of a MeshNet.
//!
//! A chain: an input of one channel or more; convolutions (`Conv3D`) of 3×3×3 voxels with stride 1, padding `same` and any dilation, each
//! followed by an `Activation`; and a convolution of 1×1×1 without one. Names that end in `_gn` mark convolutions whose result brainchop
//! normalises: each channel by its own mean and variance, without a scale and a shift.

use plimsoll_graph::Shape;
use plimsoll_nn::{MeshActivation, MeshNet};
use serde::Deserialize;
use serde_json::Value;

use super::weights::Tensors;

/// The most layers that are read.
const MOST_LAYERS: usize = 1000;
/// The ending of the names of normalised convolutions.
const NORMALISED: &str = "_gn";

/// A layer of `modelTopology.model_config.config.layers`.
#[derive(Deserialize)]
struct Layer {
    class_name: String,
    config: Value,
    #[serde(default)]
    inbound_nodes: Value,
}

/// The configuration of a convolution.
#[derive(Deserialize)]
struct ConvConfig {
    name: String,
    filters: usize,
    kernel_size: [usize; 3],
    strides: [usize; 3],
    padding: String,
    data_format: String,
    dilation_rate: [usize; 3],
    #[serde(default = "one")]
    groups: usize,
    activation: String,
    use_bias: bool,
}

fn one() -> usize {
    1
}

/// A convolution of the chain.
struct Conv {
    name: String,
    features: usize,
    dilation: usize,
    has_bias: bool,
}

/// A MeshNet as TensorFlow.js has it.
pub(super) struct Topology {
    in_channels: usize,
    hidden: Vec<Conv>,
    head: Conv,
    activation: MeshActivation,
    is_normalised: bool,
}

/// The layers of a model, wherever a version of the converter has put them.
fn layers(topology: &Value) -> Result<Vec<Layer>, String> {
    let model = topology.get("model_config").unwrap_or(topology);
    let found = model.get("config").and_then(|config| config.get("layers"));
    let found = found.ok_or("it has no modelTopology.model_config.config.layers")?;
    let layers = Vec::<Layer>::deserialize(found).map_err(|problem| format!("layers: {problem}"))?;
    match layers.len() {
        0..=MOST_LAYERS => Ok(layers),
        many => Err(format!("{many} layers, more than {MOST_LAYERS}")),
    }
}

/// The name of a layer.
fn name_of(layer: &Layer) -> Result<&str, String> {
    layer.config.get("name").and_then(Value::as_str).ok_or_else(|| "a layer has no name".into())
}

/// Checks that a layer reads the one before it and no other.
fn expect_in_chain(layer: &Layer, before: &str) -> Result<(), String> {
    let name = name_of(layer)?;
    let only = layer.inbound_nodes.get(0).and_then(Value::as_array).filter(|inputs| inputs.len() == 1);
    let input = only.and_then(|inputs| inputs[0].get(0)).and_then(Value::as_str);
    match input == Some(before) && layer.inbound_nodes.get(1).is_none() {
        true => Ok(()),
        false => Err(format!("layer `{name}` does not follow `{before}` alone, so the layers are no chain")),
    }
}

/// The function of an `Activation`.
fn activation(name: &str, function: &str) -> Result<MeshActivation, String> {
    match function {
        "relu" => Ok(MeshActivation::Relu),
        "elu" => Ok(MeshActivation::Elu),
        "gelu" => Ok(MeshActivation::Gelu),
        _ => Err(format!("layer `{name}`: the activation `{function}` is not relu, elu or gelu")),
    }
}

impl ConvConfig {
    /// Checks all but the kernel and the bias, and returns the dilation.
    fn dilation(&self) -> Result<usize, String> {
        let ConvConfig { name, strides, padding, data_format, dilation_rate, groups, activation, .. } = self;
        let refuse = |what: String| Err(format!("layer `{name}`: {what}"));
        if *strides != [1; 3] || *groups != 1 {
            return refuse(format!("strides {strides:?} and {groups} groups, but only 1 is supported"));
        }
        if padding != "same" || data_format != "channels_last" || activation != "linear" {
            return refuse(format!(
                "padding {padding}, {data_format}, activation {activation}, but only same, channels_last and linear are supported"
            ));
        }
        let [depth, height, width] = *dilation_rate;
        if depth == 0 || depth != height || depth != width {
            return refuse(format!("dilations {dilation_rate:?}, but they must be alike and at least 1"));
        }
        Ok(depth)
    }
}

impl Topology {
    /// Reads the layers of a model.
    pub(super) fn read(topology: &Value) -> Result<Topology, String> {
        let layers = layers(topology)?;
        let Some((input, chain)) = layers.split_first().filter(|(first, _)| first.class_name == "InputLayer")
        else {
            return Err("the first layer is not an InputLayer".into());
        };
        let shape = input.config.get("batch_input_shape").and_then(Value::as_array);
        let channels = shape.filter(|shape| shape.len() == 5).and_then(|shape| shape[4].as_u64());
        let in_channels = channels.and_then(|channels| usize::try_from(channels).ok());
        let in_channels =
            in_channels.ok_or("the input has no batch_input_shape of five numbers, channels last")?;
        let mut convs: Vec<(Conv, [usize; 3], Option<MeshActivation>)> = Vec::new();
        let mut before = name_of(input)?;
        for layer in chain {
            expect_in_chain(layer, before)?;
            before = name_of(layer)?;
            match layer.class_name.as_str() {
                "Conv3D" => {
                    let config = ConvConfig::deserialize(&layer.config)
                        .map_err(|problem| format!("layer `{before}`: {problem}"))?;
                    let dilation = config.dilation()?;
                    let ConvConfig { name, filters: features, use_bias: has_bias, kernel_size, .. } = config;
                    convs.push((Conv { name, features, dilation, has_bias }, kernel_size, None));
                }
                "Activation" => {
                    let function = layer.config.get("activation").and_then(Value::as_str);
                    let function = function.ok_or_else(|| format!("layer `{before}` names no activation"))?;
                    let function = activation(before, function)?;
                    match convs.last_mut() {
                        Some((_, _, activation @ None)) => *activation = Some(function),
                        _ => return Err(format!("layer `{before}` does not follow a convolution")),
                    }
                }
                other => {
                    return Err(format!(
                        "layer `{before}` is a {other}; MeshNets have Conv3D and Activation"
                    ));
                }
            }
        }
        Topology::of_convolutions(in_channels, convs)
    }

    fn of_convolutions(
        in_channels: usize,
        mut convs: Vec<(Conv, [usize; 3], Option<MeshActivation>)>,
    ) -> Result<Topology, String> {
        let Some((head, [1, 1, 1], None)) = convs.pop().filter(|(head, ..)| head.has_bias) else {
            return Err(
                "the last layer is not a 1×1×1 convolution with a bias and without an activation".into()
            );
        };
        let Some((first, _, activation)) = convs.first() else {
            return Err("it has a single convolution".into());
        };
        let Some(activation) = *activation else {
            return Err(format!("no activation follows `{}`", first.name));
        };
        let is_normalised = first.name.ends_with(NORMALISED);
        for (conv, kernel, own) in &convs {
            let name = &conv.name;
            if *kernel != [3; 3] {
                let [depth, height, width] = kernel;
                return Err(format!(
                    "layer `{name}`: a kernel of {depth}×{height}×{width}, but 3×3×3 is expected"
                ));
            }
            if own.is_none() {
                return Err(format!("no activation follows `{name}`"));
            }
            if *own != Some(activation) {
                return Err(format!("layer `{name}`: its activation differs from the first layer's"));
            }
            if name.ends_with(NORMALISED) != is_normalised || conv.has_bias == is_normalised {
                return Err(format!(
                    "layer `{name}`: either all layers are normalised and have no biases, or none is and all have them"
                ));
            }
        }
        let hidden = convs.into_iter().map(|(conv, ..)| conv).collect();
        Ok(Topology { in_channels, hidden, head, activation, is_normalised })
    }

    /// The network.
    pub(super) fn network(&self) -> MeshNet {
        let features: Vec<usize> = self.hidden.iter().map(|conv| conv.features).collect();
        let dilations: Vec<usize> = self.hidden.iter().map(|conv| conv.dilation).collect();
        MeshNet {
            instance_norm: self.is_normalised,
            activation: self.activation,
            ..MeshNet::new(self.in_channels, self.head.features, &features, &dilations)
        }
    }

    /// The parameters of the network, with their names and shapes.
    pub(super) fn tensors(&self, stored: &Tensors) -> Result<Vec<(String, Shape, Vec<f32>)>, String> {
        let mut tensors = Vec::new();
        let mut inputs = self.in_channels;
        let hidden = self.hidden.iter().enumerate().map(|(layer, conv)| (format!("layers.{layer}"), conv, 3));
        for (name, conv, extent) in hidden.chain([("output".to_string(), &self.head, 1)]) {
            let kernel = stored
                .get(&format!("{}/kernel", conv.name), &[extent, extent, extent, inputs, conv.features])?;
            let shape = Shape(vec![conv.features, inputs, extent, extent, extent]);
            tensors.push((
                format!("{name}.weight"),
                shape,
                in_canonical_axes(kernel, extent, inputs, conv.features),
            ));
            if conv.has_bias {
                let bias = stored.get(&format!("{}/bias", conv.name), &[conv.features])?;
                tensors.push((format!("{name}.bias"), Shape(vec![conv.features]), bias.to_vec()));
            }
            inputs = conv.features;
        }
        match stored.len() == tensors.len() {
            true => Ok(tensors),
            false => Err(format!("{} tensors, but its layers have {}", stored.len(), tensors.len())),
        }
    }
}

/// The weights of a kernel, `[output][input][x][y][z]`, for images whose axes go to the right, forwards and upwards, of
/// `[axis 0][axis 1][axis 2][input][output]` for images as brainchop conforms them: to the left, downwards and forwards.
///
/// A network of convolutions with such a padding sees a turned image as it sees the image, if its kernels are turned with it.
fn in_canonical_axes(kernel: &[f32], extent: usize, inputs: usize, outputs: usize) -> Vec<f32> {
    let mut turned = Vec::with_capacity(kernel.len());
    for output in 0..outputs {
        for input in 0..inputs {
            for x in 0..extent {
                for y in 0..extent {
                    for z in 0..extent {
                        let [left, down, forwards] = [extent - 1 - x, extent - 1 - z, y];
                        let tap = (left * extent + down) * extent + forwards;
                        turned.push(kernel[(tap * inputs + input) * outputs + output]);
                    }
                }
            }
        }
    }
    turned
}
