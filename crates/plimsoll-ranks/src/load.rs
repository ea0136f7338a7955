//! Texts of errors of the system's loader.

use std::error::Error;

/// The reason why a library was not loaded, without its path, with which the system's text begins.
pub(crate) fn reason(error: &libloading::Error) -> String {
    // The text of the error itself names the function that failed.
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    text.rsplit_once(": ").map_or(text.clone(), |(_, reason)| reason.to_string())
}
