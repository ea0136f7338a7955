//! Texts of errors of the system's loader.

/// The reason why a library was not loaded, without its path, with which the system's text begins.
pub(crate) fn reason(error: &libloading::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(": ").map_or(text.clone(), |(_, reason)| reason.to_string())
}
