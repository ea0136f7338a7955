//! Errors in the configuration of a network.

use plimsoll_graph::GraphError;

use crate::{Extents, NetworkName};

/// Why no program can be made of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Lists that go stage by stage differ in length.
    #[error("`{list}` has {found} entries, but the network has {stages} stages and needs {expected}")]
    Length {
        /// The name of the list.
        list: &'static str,
        /// Its length.
        found: usize,
        /// Stages of the network.
        stages: usize,
        /// The length it must have.
        expected: usize,
    },
    /// A number is not one that a network can have.
    #[error("`{setting}` is {found}, but {expected}")]
    Value {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The possible values.
        expected: String,
    },
    /// Heads of an attention do not divide the channels of their stage.
    #[error(
        "`feature_size` is {feature_size}, but the {features} channels of stage {stage} cannot be shared by {heads} heads \
         (`num_heads`)"
    )]
    Heads {
        /// Channels before the first stage.
        feature_size: usize,
        /// The stage, from 1.
        stage: usize,
        /// Its channels.
        features: usize,
        /// Its heads.
        heads: usize,
        /// The least larger feature size that all heads divide; none up to the most that is possible.
        fitting_size: Option<usize>,
        /// Heads that divide the channels of each stage.
        fitting_heads: Vec<usize>,
    },
    /// A component of the loss has an option that it cannot have.
    #[error("loss: {option} is {found}, but {expected}")]
    Loss {
        /// The option and its component.
        option: String,
        /// Its value.
        found: String,
        /// The possible values.
        expected: String,
    },
    /// A component of a loss of regions says whether the background counts.
    #[error(
        "loss: `include_background` of {component} is {found}, but outputs are regions, and none of them is the background"
    )]
    Background {
        /// The component.
        component: &'static str,
        /// The value in the configuration.
        found: bool,
    },
    /// A setting is given that the network does not have.
    #[error("`{setting}` is not a setting of the network `{network}`")]
    Unused {
        /// The name of the setting.
        setting: &'static str,
        /// The network.
        network: NetworkName,
        /// The settings that it has.
        used: &'static [&'static str],
    },
    /// A patch does not fit the strides.
    #[error(
        "a patch of {patch:?} voxels does not fit the network's strides: each extent must be a multiple of {:?}",
        extents.multiple
    )]
    Patch {
        /// Depth, height, width.
        patch: [usize; 3],
        /// The patches that fit.
        extents: Extents,
    },
    /// A patch leaves too few voxels at the coarsest stage.
    #[error(
        "a patch of {patch:?} voxels is {:?} at the coarsest stage, where features are normalised over at least {} voxels",
        extents.coarsest(*patch),
        extents.least_coarsest
    )]
    Coarsest {
        /// Depth, height, width.
        patch: [usize; 3],
        /// The patches that fit.
        extents: Extents,
    },
    /// The ops do not fit together.
    #[error("{0}")]
    Graph(#[from] GraphError),
}

impl ConfigError {
    /// An error about a setting's value, unless `holds`.
    pub(crate) fn expect(
        holds: bool,
        setting: &'static str,
        found: impl ToString,
        expected: impl ToString,
    ) -> Result<(), ConfigError> {
        if holds {
            return Ok(());
        }
        Err(ConfigError::Value { setting, found: found.to_string(), expected: expected.to_string() })
    }

    /// Returns the remedy, if there is one.
    pub fn remedy(&self) -> Option<String> {
        match self {
            ConfigError::Patch { patch, extents } | ConfigError::Coarsest { patch, extents } => {
                let [d, h, w] = extents.next_larger(*patch);
                Some(format!("the next larger patch that fits is {d} × {h} × {w}"))
            }
            ConfigError::Unused { setting, used, .. } => Some(format!(
                "leave `{setting}` out, or choose another `net`; this one has {}",
                used.join(", ")
            )),
            ConfigError::Length { list: setting, .. } | ConfigError::Value { setting, .. } => {
                Some(format!("leave `{setting}` out for its default; ‹job settings› explains each setting"))
            }
            ConfigError::Heads { fitting_size, fitting_heads, .. } => {
                let size = fitting_size.map_or(String::new(), |size| format!(", or `feature_size = {size}`"));
                Some(format!("in [network] set `num_heads = {fitting_heads:?}`{size}"))
            }
            ConfigError::Loss { .. } => {
                Some("‹job settings› lists the components of a loss and their options".into())
            }
            ConfigError::Background { .. } => {
                Some("leave `include_background` out of the losses of this data set".into())
            }
            ConfigError::Graph(_) => None,
        }
    }
}
