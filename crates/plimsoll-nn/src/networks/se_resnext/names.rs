//! The names that programs which publish SE-ResNeXt give its parameters.
//!
//! | | stem | squeeze-and-excitation | classifier | max pool |
//! |---|---|---|---|---|
//! | timm `seresnext50_32x4d` | `conv1`, `bn1` | `se.fc1`, `se.fc2` | `fc` | padded |
//! | timm `legacy_seresnext50_32x4d`, pretrainedmodels `se_resnext50_32x4d` | `layer0.conv1`, `layer0.bn1` | `se_module.fc1` … | `last_linear` | rounded up |
//! | MONAI `SEResNext50` | as legacy, with `conv` and `adn.N` in blocks | `se_layer.fc.0`, `se_layer.fc.2` | `last_linear` | rounded up |

use plimsoll_graph::Shape;

use super::StemPool;
use crate::weights::NamingScheme;

/// Names of the parts that the two families name differently. Blocks are `layerL.B.conv1`, `bn1`, … in both.
#[derive(Clone, Copy)]
pub(super) struct Names {
    pub(super) stem: &'static str,
    pub(super) stem_norm: &'static str,
    pub(super) squeeze: &'static str,
    pub(super) classifier: &'static str,
}

impl Names {
    /// Those of the programs that pool so.
    pub(super) fn for_stem(pool: StemPool) -> Names {
        match pool {
            StemPool::Padded => Names { stem: "conv1", stem_norm: "bn1", squeeze: "se", classifier: "fc" },
            StemPool::Ceil => Names {
                stem: "layer0.conv1",
                stem_norm: "layer0.bn1",
                squeeze: "se_module",
                classifier: "last_linear",
            },
        }
    }
}

/// The schemes of the programs that pool in this way; the first is the scheme of [`Names`]. Files of the others are of
/// another network: their max pool takes other windows.
pub(super) fn schemes(pool: StemPool) -> Vec<NamingScheme> {
    match pool {
        StemPool::Padded => vec![
            NamingScheme::native("timm").with_shapes(stored_shape),
            NamingScheme::renaming("backbone and classifier", in_backbone).with_shapes(stored_shape),
        ],
        StemPool::Ceil => vec![
            NamingScheme::native("legacy").with_shapes(stored_shape),
            NamingScheme::renaming("monai", monai).with_shapes(monai_shape),
        ],
    }
}

/// The beginning of the names of a head of several layers.
pub(super) const HEAD: &str = "classifier.";

/// Returns the name of a parameter in a network whose classifier was replaced: `backbone.…` and `classifier.…`.
fn in_backbone(parameter: &str) -> String {
    match parameter.starts_with(HEAD) {
        true => parameter.into(),
        false => format!("backbone.{parameter}"),
    }
}

/// Returns `true` if a weight belongs to a linear layer, `[out, in]`.
fn is_linear(parameter: &str) -> bool {
    ["fc.", "last_linear.", HEAD].iter().any(|layer| parameter.starts_with(layer))
}

/// Convolutions are of two dimensions, and linear layers are no convolutions.
pub(super) fn stored_shape(parameter: &str, shape: &Shape) -> Shape {
    match &shape.0[..] {
        [out, inputs, 1, 1, 1] if is_linear(parameter) => Shape(vec![*out, *inputs]),
        [out, inputs, 1, height, width] => Shape(vec![*out, *inputs, *height, *width]),
        _ => shape.clone(),
    }
}

/// In MONAI, squeeze-and-excitation has linear layers too.
fn monai_shape(parameter: &str, of: &Shape) -> Shape {
    match &of.0[..] {
        [out, inputs, 1, 1, 1] if parameter.contains(".se_module.") => Shape(vec![*out, *inputs]),
        _ => stored_shape(parameter, of),
    }
}

/// MONAI's name for a parameter under its legacy name.
fn monai(parameter: &str) -> String {
    let [layer, block, rest @ ..] = &parameter.split('.').collect::<Vec<_>>()[..] else {
        return parameter.into();
    };
    let Some(name) = block_name(rest).filter(|_| block.parse::<usize>().is_ok()) else {
        return parameter.into();
    };
    format!("{layer}.{block}.{name}")
}

/// MONAI's name for a parameter of a block, without the name of the block.
fn block_name(rest: &[&str]) -> Option<String> {
    Some(match rest {
        ["se_module", "fc1", last] => format!("se_layer.fc.0.{last}"),
        ["se_module", "fc2", last] => format!("se_layer.fc.2.{last}"),
        ["downsample", "0", last] => format!("project.conv.{last}"),
        ["downsample", "1", last] => format!("project.adn.N.{last}"),
        [layer, last] => match layer.split_at_checked(layer.len().saturating_sub(1))? {
            ("conv", number) => format!("conv{number}.conv.{last}"),
            ("bn", number) => format!("conv{number}.adn.N.{last}"),
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_names_and_shapes_of_each_program() {
        let name = |pool, scheme: usize, parameter: &str| schemes(pool)[scheme].weight_name(parameter);
        for (legacy, monai) in [
            ("layer0.conv1.weight", "layer0.conv1.weight"),
            ("layer0.bn1.running_mean", "layer0.bn1.running_mean"),
            ("layer1.0.conv2.weight", "layer1.0.conv2.conv.weight"),
            ("layer4.2.bn3.running_var", "layer4.2.conv3.adn.N.running_var"),
            ("layer2.0.downsample.0.weight", "layer2.0.project.conv.weight"),
            ("layer2.0.downsample.1.bias", "layer2.0.project.adn.N.bias"),
            ("layer3.5.se_module.fc1.bias", "layer3.5.se_layer.fc.0.bias"),
            ("layer3.5.se_module.fc2.weight", "layer3.5.se_layer.fc.2.weight"),
            ("last_linear.bias", "last_linear.bias"),
        ] {
            assert_eq!(name(StemPool::Ceil, 0, legacy), legacy);
            assert_eq!(name(StemPool::Ceil, 1, legacy), monai);
        }
        assert_eq!(name(StemPool::Padded, 1, "layer1.0.se.fc1.bias"), "backbone.layer1.0.se.fc1.bias");
        assert_eq!(name(StemPool::Padded, 1, "classifier.3.running_var"), "classifier.3.running_var");
        let of = |scheme: usize, parameter: &str, shape: [usize; 5]| {
            schemes(StemPool::Ceil)[scheme].weight_shape(parameter, &Shape(shape.to_vec())).0
        };
        assert_eq!(of(0, "layer1.0.conv2.weight", [128, 4, 1, 3, 3]), [128, 4, 3, 3]);
        assert_eq!(of(0, "layer1.0.se_module.fc1.weight", [16, 256, 1, 1, 1]), [16, 256, 1, 1]);
        assert_eq!(of(1, "layer1.0.se_module.fc1.weight", [16, 256, 1, 1, 1]), [16, 256]);
        assert_eq!(of(0, "last_linear.weight", [5, 2048, 1, 1, 1]), [5, 2048]);
    }
}
