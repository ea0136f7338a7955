//! Errors of the settings of a pipeline.

use plimsoll_memory::{MapError, OverBudget};

/// Why settings of images cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A value is out of range.
    #[error("`{setting}` is {value}, but must be {rule}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The rule that it must follow.
        rule: &'static str,
    },
    /// The steps of a pipeline do not end in one size.
    #[error("the steps {steps} do not give images of one size: {problem}")]
    Steps {
        /// The steps, in order.
        steps: String,
        /// Why.
        problem: &'static str,
    },
    /// The budget has no room.
    #[error("{0}")]
    Memory(#[from] MapError),
}

impl From<OverBudget> for SettingError {
    fn from(error: OverBudget) -> SettingError {
        SettingError::Memory(error.into())
    }
}

impl SettingError {
    /// A remedy to suggest to the user.
    pub fn remedy(&self) -> Option<String> {
        match self {
            SettingError::Value { .. } => None,
            SettingError::Steps { .. } => {
                Some("crop first, resize once, and apply filters before or after that".into())
            }
            SettingError::Memory(error) => {
                Some(format!("{}, use fewer threads, or make images smaller", error.remedy()))
            }
        }
    }
}

/// Refuses a value that is out of range.
pub(crate) fn check(
    setting: &'static str,
    value: impl ToString,
    holds: bool,
    rule: &'static str,
) -> Result<(), SettingError> {
    if holds { Ok(()) } else { Err(SettingError::Value { setting, value: value.to_string(), rule }) }
}
