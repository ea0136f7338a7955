//! Where what can be found out again is kept.

use std::path::PathBuf;

/// The user's folder for such files, as the XDG base directory specification says; none where there is none.
pub fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
}
