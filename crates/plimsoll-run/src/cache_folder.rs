//! The folder of files that can be computed again: inspections, measured rates, access points of compressed images.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use plimsoll_volume::IndexFolder;

/// A folder of files that can be computed again. Results never depend on it: it only saves time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFolder {
    path: PathBuf,
}

impl CacheFolder {
    /// The folder at a path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> CacheFolder {
        CacheFolder { path: path.into() }
    }

    /// The folder `plimsoll` in the user's cache folder, as the XDG base directory specification defines it. A front end passes a
    /// function that reads an environment variable. `None` if neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
    pub fn for_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<CacheFolder> {
        let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
        Some(CacheFolder::new(user.join("plimsoll")))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of access points of compressed images.
    pub fn points(&self) -> IndexFolder {
        IndexFolder::new(self.path.join("points"))
    }

    /// The folder of the inspection of a data set, by the digest of its path.
    pub fn inspection(&self, digest: &str) -> PathBuf {
        self.path.join("inspected").join(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_user_follows_from_two_variables_and_only_from_absolute_paths() {
        let found = |cache: Option<&'static str>, home: Option<&'static str>| {
            let folder = CacheFolder::for_user(|name| match name {
                "XDG_CACHE_HOME" => cache.map(OsString::from),
                "HOME" => home.map(OsString::from),
                _ => None,
            });
            folder.map(|folder| folder.path().display().to_string())
        };
        assert_eq!(found(Some("/cache"), Some("/home/a")).as_deref(), Some("/cache/plimsoll"));
        assert_eq!(found(Some("cache"), Some("/home/a")).as_deref(), Some("/home/a/.cache/plimsoll"));
        assert_eq!(found(None, Some("home")), None);
    }
}
