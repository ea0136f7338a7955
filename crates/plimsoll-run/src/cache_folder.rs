//! Where what can be found out again is kept.

use std::path::PathBuf;

use plimsoll_volume::IndexFolder;

/// The user's folder for such files, as the XDG base directory specification says; none where there is none.
pub fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
}

/// Where access points of compressed images are kept; none where there is no place for them.
pub fn points_folder() -> Option<IndexFolder> {
    Some(IndexFolder::new(cache_folder()?.join("plimsoll").join("points")))
}
