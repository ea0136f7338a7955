//! What can be wrong with a network's configuration.

use plimsoll_graph::GraphError;

/// Why no program can be made of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Lists that go stage by stage differ in length.
    #[error("`{list}` has {found} entries, but there are {stages} stages, so that {expected} are needed")]
    Length {
        /// Which list.
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
        /// Which setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// What is possible.
        expected: String,
    },
    /// A component of the loss has an option that it cannot have.
    #[error("loss: {option} is {found}, but {expected}")]
    Loss {
        /// Which option of which component.
        option: String,
        /// Its value.
        found: String,
        /// What is possible.
        expected: String,
    },
    /// A patch does not fit the strides.
    #[error(
        "a patch of {patch:?} voxels cannot be halved as the strides ask: each extent must be a multiple of {multiple:?}"
    )]
    Patch {
        /// Depth, height, width.
        patch: [usize; 3],
        /// The product of the strides.
        multiple: [usize; 3],
    },
    /// The ops do not fit together.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl ConfigError {
    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigError::Patch { patch, multiple } => {
                let up = [0, 1, 2].map(|axis| patch[axis].next_multiple_of(multiple[axis]));
                Some(format!("the next larger patch that fits is {} × {} × {}", up[0], up[1], up[2]))
            }
            ConfigError::Length { list: setting, .. } | ConfigError::Value { setting, .. } => {
                Some(format!("leave `{setting}` out for its default; docs/settings.md says what is possible"))
            }
            ConfigError::Loss { .. } => {
                Some("docs/settings.md lists the components of a loss and their options".into())
            }
            ConfigError::Graph(_) => None,
        }
    }
}
