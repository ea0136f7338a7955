//! Extents and layers as arguments of MONAI's constructors.

use serde::Deserialize;

/// A number for all, or one for each.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Each {
    All(usize),
    Axes([usize; 3]),
}

impl Each {
    /// The number of each axis.
    pub(super) fn axes(&self) -> [usize; 3] {
        match self {
            Each::All(extent) => [*extent; 3],
            Each::Axes(extents) => *extents,
        }
    }
}

/// A layer by its name, or with arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Layer {
    Name(String),
    With((String, LayerArguments)),
}

/// Arguments of a layer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayerArguments {
    pub(super) affine: Option<bool>,
    pub(super) num_groups: Option<usize>,
    pub(super) negative_slope: Option<f32>,
    /// Changes nothing.
    #[serde(rename = "inplace")]
    _inplace: Option<bool>,
    /// The initial slope of a PReLU, which its weights replace.
    #[serde(rename = "init")]
    _init: Option<f64>,
}

impl Layer {
    /// The name in small letters, and the arguments.
    pub(super) fn parts(&self) -> (String, LayerArguments) {
        match self {
            Layer::Name(name) => (name.to_lowercase(), LayerArguments::default()),
            Layer::With((name, arguments)) => (name.to_lowercase(), arguments.clone()),
        }
    }
}
