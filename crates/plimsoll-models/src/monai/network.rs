//! Networks by the arguments of MONAI's constructors, under MONAI's names and with its defaults; and MeshNet, which MONAI does not have.

use plimsoll_nn::{DynUNet, Merging, MonaiUNet, Network, SegResNet, SwinUnetr, UNetNorm, UpsampleMode};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::attention_unet::AttentionUnetArguments;
use super::layer::{Each, Layer};
use super::mednext::MedNextArguments;
use super::meshnet::MeshArguments;
use super::unetr::UnetrArguments;

/// The network of a model. An argument that is not among these is refused by its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "name")]
#[non_exhaustive]
pub enum NetworkArguments {
    /// `monai.networks.nets.DynUNet`
    DynUNet(DynUnetArguments),
    /// `monai.networks.nets.UNet`
    UNet(UnetArguments),
    /// `monai.networks.nets.SegResNet`
    SegResNet(SegResNetArguments),
    /// `monai.networks.nets.SwinUNETR`
    SwinUNETR(SwinArguments),
    /// `monai.networks.nets.UNETR`
    #[serde(rename = "UNETR")]
    Unetr(UnetrArguments),
    /// `monai.networks.nets.MedNeXt`
    MedNeXt(MedNextArguments),
    /// `monai.networks.nets.AttentionUnet`
    AttentionUnet(AttentionUnetArguments),
    /// MeshNet, which MONAI does not have.
    MeshNet(MeshArguments),
}

/// Arguments of `DynUNet`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynUnetArguments {
    spatial_dims: usize,
    in_channels: usize,
    out_channels: usize,
    kernel_size: Vec<Each>,
    strides: Vec<Each>,
    upsample_kernel_size: Vec<Each>,
    filters: Option<Vec<usize>>,
    #[serde(rename = "dropout")]
    _dropout: Option<f64>,
    norm_name: Option<Layer>,
    act_name: Option<Layer>,
    #[serde(default)]
    deep_supervision: bool,
    #[serde(default = "one")]
    deep_supr_num: usize,
    #[serde(default)]
    res_block: bool,
    #[serde(default)]
    trans_bias: bool,
}

/// Arguments of `UNet`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnetArguments {
    spatial_dims: usize,
    in_channels: usize,
    out_channels: usize,
    channels: Vec<usize>,
    strides: Vec<Each>,
    #[serde(default = "three")]
    kernel_size: Each,
    #[serde(default = "three")]
    up_kernel_size: Each,
    #[serde(default)]
    num_res_units: usize,
    act: Option<Layer>,
    norm: Option<Layer>,
    #[serde(rename = "dropout")]
    _dropout: Option<f64>,
    #[serde(default = "yes")]
    bias: bool,
    adn_ordering: Option<String>,
}

/// Arguments of `SegResNet`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegResNetArguments {
    #[serde(default = "dimensions")]
    spatial_dims: usize,
    #[serde(default = "eight")]
    init_filters: usize,
    #[serde(default = "one")]
    in_channels: usize,
    #[serde(default = "two")]
    out_channels: usize,
    #[serde(rename = "dropout_prob")]
    _dropout_prob: Option<f64>,
    act: Option<Layer>,
    norm: Option<Layer>,
    norm_name: Option<String>,
    num_groups: Option<usize>,
    #[serde(default = "yes")]
    use_conv_final: bool,
    blocks_down: Option<Vec<usize>>,
    blocks_up: Option<Vec<usize>>,
    upsample_mode: Option<UpsampleMode>,
}

/// Arguments of `SwinUNETR`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwinArguments {
    /// An argument that versions before 1.5 require without using it.
    #[serde(rename = "img_size")]
    _img_size: Option<IgnoredAny>,
    in_channels: usize,
    out_channels: usize,
    patch_size: Option<usize>,
    depths: Option<Vec<usize>>,
    num_heads: Option<Vec<usize>>,
    window_size: Option<Each>,
    qkv_bias: Option<bool>,
    mlp_ratio: Option<f32>,
    feature_size: Option<usize>,
    norm_name: Option<Layer>,
    #[serde(rename = "drop_rate")]
    _drop_rate: Option<f64>,
    #[serde(rename = "attn_drop_rate")]
    _attn_drop_rate: Option<f64>,
    #[serde(rename = "dropout_path_rate")]
    _dropout_path_rate: Option<f64>,
    normalize: Option<bool>,
    patch_norm: Option<bool>,
    /// Changes memory, not results.
    #[serde(rename = "use_checkpoint")]
    _use_checkpoint: Option<bool>,
    #[serde(default = "dimensions")]
    spatial_dims: usize,
    downsample: Option<String>,
    #[serde(default)]
    use_v2: bool,
}

pub(super) fn one() -> usize {
    1
}

pub(super) fn two() -> usize {
    2
}

pub(super) fn dimensions() -> usize {
    3
}

fn eight() -> usize {
    8
}

pub(super) fn three() -> Each {
    Each::All(3)
}

pub(super) fn yes() -> bool {
    true
}

/// The activation after the normalisations of a UNet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UnetActivation {
    /// PReLUs, whose slopes are with the weights.
    Learned,
    /// A leaky ReLU, or with 0 a ReLU.
    Leaky(f32),
}

/// The default slope of PyTorch's leaky ReLU.
const LEAKY: f32 = 0.01;

/// The slope of an activation that is not learned, or why there is none.
fn slope(act: &Layer) -> Result<f32, String> {
    let (name, arguments) = act.parts();
    match name.as_str() {
        "relu" => Ok(0.0),
        "leakyrelu" => Ok(arguments.negative_slope.unwrap_or(LEAKY)),
        _ => Err(format!("the activation `{name}` is not prelu, relu or leakyrelu")),
    }
}

impl UnetArguments {
    fn activation(&self) -> Result<UnetActivation, String> {
        match &self.act {
            None => Ok(UnetActivation::Learned),
            Some(act) if act.parts().0 == "prelu" => Ok(UnetActivation::Learned),
            Some(act) => slope(act).map(UnetActivation::Leaky),
        }
    }

    fn network(&self) -> Result<Built, String> {
        three_dimensions(self.spatial_dims)?;
        if self.adn_ordering.as_deref().is_some_and(|order| order != "NDA") {
            return Err("adn_ordering must be NDA: normalisation, dropout, activation".into());
        }
        let activation = self.activation()?;
        let (norm, affine) = norm(self.norm.as_ref(), false)?;
        // As MONAI, which leaves out what is too much.
        let wanted = self.channels.len().saturating_sub(1);
        let strides: Vec<[usize; 3]> = self.strides.iter().take(wanted).map(Each::axes).collect();
        let usual = MonaiUNet::new(self.in_channels, self.out_channels, &[], &[]);
        let mut net = MonaiUNet {
            features: self.channels.clone(),
            strides,
            kernel: self.kernel_size.axes(),
            up_kernel: self.up_kernel_size.axes(),
            residual_units: self.num_res_units,
            norm,
            affine,
            bias: self.bias,
            ..usual
        };
        net.check_shape().map_err(|fault| fault.to_string())?;
        // A placeholder until the weights are known.
        net.slopes = vec![0.0; net.activations().len()];
        Ok(Built { net: net.into(), activation: Some(activation) })
    }
}

/// The statistics of a normalisation of U-Nets, and `true` if it has a scale and a shift.
fn norm(layer: Option<&Layer>, usual_affine: bool) -> Result<(UNetNorm, bool), String> {
    let Some(layer) = layer else { return Ok((UNetNorm::Instance, usual_affine)) };
    let (name, arguments) = layer.parts();
    match (name.as_str(), arguments.affine) {
        ("instance", affine) => Ok((UNetNorm::Instance, affine.unwrap_or(false))),
        ("batch", None | Some(true)) => Ok((UNetNorm::Batch { conv_bias: true }, true)),
        ("batch", Some(false)) => {
            Err("batch normalisation without a scale and a shift is not supported".into())
        }
        _ => Err(format!("the normalisation `{name}` is not instance or batch")),
    }
}

pub(super) fn three_dimensions(found: usize) -> Result<(), String> {
    match found {
        3 => Ok(()),
        _ => Err(format!("spatial_dims is {found}, but only 3 is supported")),
    }
}

impl DynUnetArguments {
    fn network(&self) -> Result<Network, String> {
        three_dimensions(self.spatial_dims)?;
        if self.res_block {
            return Err("res_block is true, but DynUNet is supported only without residual blocks".into());
        }
        let kernels: Vec<[usize; 3]> = self.kernel_size.iter().map(Each::axes).collect();
        let strides: Vec<[usize; 3]> = self.strides.iter().map(Each::axes).collect();
        let up: Vec<[usize; 3]> = self.upsample_kernel_size.iter().map(Each::axes).collect();
        if Some(up.as_slice()) != strides.get(1..) {
            return Err("upsample_kernel_size must be strides from the second on".into());
        }
        let filters = match &self.filters {
            Some(filters) => filters.iter().take(strides.len()).copied().collect(),
            // MONAI's default: 32, doubled from stage to stage to at most 320.
            None => (0..strides.len()).map(|stage| (32usize << stage.min(4)).min(320)).collect::<Vec<_>>(),
        };
        let mut net = DynUNet::new(self.in_channels, self.out_channels, &filters, &kernels, &strides);
        let (statistics, affine) = norm(self.norm_name.as_ref(), true)?;
        net.shape.norm = match statistics {
            // Convolutions of DynUNet have no biases.
            UNetNorm::Batch { .. } => UNetNorm::Batch { conv_bias: false },
            UNetNorm::Instance => UNetNorm::Instance,
        };
        net.shape.affine = affine;
        net.shape.slope = self.act_name.as_ref().map_or(Ok(LEAKY), slope)?;
        net.shape.transposed_bias = self.trans_bias;
        net.shape.deep_supervision = if self.deep_supervision { self.deep_supr_num } else { 0 };
        Ok(net.into())
    }
}

impl SegResNetArguments {
    fn network(&self) -> Result<Network, String> {
        three_dimensions(self.spatial_dims)?;
        if !self.use_conv_final {
            return Err("use_conv_final is false, so there are no outputs".into());
        }
        if self.norm_name.as_deref().is_some_and(|name| !name.is_empty() && name.to_lowercase() != "group") {
            return Err("norm_name must be group".into());
        }
        if let Some(act) = &self.act
            && slope(act)? != 0.0
        {
            return Err("the activation must be relu".into());
        }
        let usual = SegResNet::new(self.in_channels, self.out_channels, self.init_filters);
        let is_named = self.norm_name.as_ref().is_some_and(|name| !name.is_empty());
        let groups = match &self.norm {
            // As MONAI, which looks at `num_groups` only beside this deprecated name, and then at nothing else.
            _ if is_named => self.num_groups.unwrap_or(usual.norm_groups),
            None => usual.norm_groups,
            Some(norm) => {
                let (name, arguments) = norm.parts();
                if name != "group" {
                    return Err(format!("the normalisation `{name}` is not group"));
                }
                arguments.num_groups.ok_or("the normalisation `group` needs num_groups")?
            }
        };
        Ok(SegResNet {
            encoder_blocks: self.blocks_down.clone().unwrap_or(usual.encoder_blocks),
            decoder_blocks: self
                .blocks_up
                .as_ref()
                .map_or(usual.decoder_blocks, |blocks| finest_first(blocks)),
            norm_groups: groups,
            upsample: self.upsample_mode.unwrap_or(usual.upsample),
            ..usual
        }
        .into())
    }
}

/// MONAI lists the blocks of a decoder from its coarsest stage on.
pub(super) fn finest_first(blocks: &[usize]) -> Vec<usize> {
    blocks.iter().rev().copied().collect()
}

impl SwinArguments {
    fn network(&self, version: Option<&str>) -> Result<Network, String> {
        three_dimensions(self.spatial_dims)?;
        if self.patch_size.is_some_and(|size| size != 2) {
            return Err("patch_size must be 2".into());
        }
        if let Some(norm) = &self.norm_name {
            let (name, arguments) = norm.parts();
            if name != "instance" || arguments.affine == Some(true) {
                return Err(format!(
                    "the normalisation `{name}` is not instance, without a scale and a shift"
                ));
            }
        }
        let merging = match self.downsample.as_deref() {
            Some("mergingv2") => Merging::MergingV2,
            None | Some("merging") => merging_of(version)?,
            Some(other) => return Err(format!("downsample `{other}` is not merging or mergingv2")),
        };
        let usual = SwinUnetr::new(self.in_channels, self.out_channels, self.feature_size.unwrap_or(24));
        let window_size = match &self.window_size {
            None => usual.window_size,
            Some(Each::All(size)) => *size,
            Some(Each::Axes([a, b, c])) if a == b && b == c => *a,
            Some(Each::Axes(sizes)) => {
                return Err(format!("window_size is {sizes:?}, but must be the same along all axes"));
            }
        };
        Ok(SwinUnetr {
            depths: self.depths.clone().unwrap_or(usual.depths),
            num_heads: self.num_heads.clone().unwrap_or(usual.num_heads),
            window_size,
            qkv_bias: self.qkv_bias.unwrap_or(usual.qkv_bias),
            mlp_ratio: self.mlp_ratio.unwrap_or(usual.mlp_ratio),
            patch_norm: self.patch_norm.unwrap_or(usual.patch_norm),
            normalize: self.normalize.unwrap_or(usual.normalize),
            use_v2: self.use_v2,
            merging,
            ..usual
        }
        .into())
    }
}

/// In which order the versions of MONAI merge patches: another one since 1.5, with which older weights load and give other results.
fn merging_of(version: Option<&str>) -> Result<Merging, String> {
    let version = version.ok_or(
        "monai_version must be given: SwinUNETR merges patches in another order since 1.5, and older weights load without an error",
    )?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (1, 5) => Ok(Merging::Merging),
        (Some(Ok(_)), Some(Ok(_))) => Ok(Merging::Merging14),
        _ => Err(format!("monai_version is {version:?}, which is not a version such as 1.5.0")),
    }
}

/// A network, and of a UNet what its activations are.
pub(super) struct Built {
    pub(super) net: Network,
    pub(super) activation: Option<UnetActivation>,
}

impl NetworkArguments {
    /// The network, which is not checked yet; else what of the arguments is not done here.
    pub(super) fn network(&self, version: Option<&str>) -> Result<Built, String> {
        let without = |net: Network| Built { net, activation: None };
        match self {
            NetworkArguments::DynUNet(arguments) => arguments.network().map(without),
            NetworkArguments::UNet(arguments) => arguments.network(),
            NetworkArguments::SegResNet(arguments) => arguments.network().map(without),
            NetworkArguments::SwinUNETR(arguments) => arguments.network(version).map(without),
            NetworkArguments::Unetr(arguments) => arguments.network().map(without),
            NetworkArguments::MedNeXt(arguments) => arguments.network().map(without),
            NetworkArguments::AttentionUnet(arguments) => arguments.network().map(without),
            NetworkArguments::MeshNet(arguments) => Ok(without(arguments.network())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The groups of a SegResNet with more arguments.
    fn groups(more: serde_json::Value) -> Result<usize, String> {
        let mut arguments = more;
        arguments["name"] = "SegResNet".into();
        let read = NetworkArguments::deserialize(arguments).map_err(|problem| problem.to_string())?;
        match read.network(None)?.net {
            Network::SegResNet(net) => Ok(net.norm_groups),
            other => Err(format!("{other:?}")),
        }
    }

    /// `up_layers.0` of MONAI's SegResNet, the coarsest stage, has as many blocks as `blocks_up` says first.
    #[test]
    fn blocks_of_a_decoder_are_listed_from_the_coarsest_stage_on() {
        let arguments = serde_json::json!({
            "name": "SegResNet", "init_filters": 8, "blocks_down": [1, 2, 4], "blocks_up": [2, 1],
        });
        let net = NetworkArguments::deserialize(arguments).unwrap().network(None).unwrap().net;
        let Network::SegResNet(net) = net else { panic!("{net:?}") };
        assert_eq!((net.encoder_blocks, net.decoder_blocks), (vec![1, 2, 4], vec![1, 2]));
    }

    #[test]
    fn groups_are_those_of_norm_unless_the_deprecated_name_is_said() {
        let norm = serde_json::json!(["GROUP", {"num_groups": 4}]);
        for (more, expected) in [
            (serde_json::json!({}), 8),
            (serde_json::json!({"num_groups": 2}), 8),
            (serde_json::json!({"num_groups": 2, "norm": norm}), 4),
            (serde_json::json!({"num_groups": 2, "norm": norm, "norm_name": ""}), 4),
            (serde_json::json!({"num_groups": 2, "norm": norm, "norm_name": "group"}), 2),
            (serde_json::json!({"norm": norm, "norm_name": "group"}), 8),
        ] {
            assert_eq!(groups(more.clone()), Ok(expected), "{more}");
        }
        let error = groups(serde_json::json!({"norm": "group"})).unwrap_err();
        assert!(error.contains("needs num_groups"), "{error}");
    }
}
