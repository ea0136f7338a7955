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

    /// The folder `plimsoll` in the user's cache folder, as the XDG base directory specification defines it, or in the folder that Windows
    /// names for data of this machine. A front end passes a function that reads an environment variable. `None` if none of
    /// `XDG_CACHE_HOME`, `LOCALAPPDATA` and `HOME` is an absolute path.
    pub fn for_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<CacheFolder> {
        let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = folder("XDG_CACHE_HOME")
            .or_else(|| folder("LOCALAPPDATA"))
            .or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
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
    fn the_folder_of_a_user_follows_from_variables_and_only_from_absolute_paths() {
        // An absolute path of Windows names a drive.
        let drive = if cfg!(windows) { "C:" } else { "" };
        let absolute = |path: &str| format!("{drive}{path}");
        let found = |variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value);
            CacheFolder::for_user(|name| value(name).map(OsString::from)).map(|folder| folder.path)
        };
        let (cache, home, local) = (absolute("/cache"), absolute("/home/a"), absolute("/local"));
        let expected = |path: &str| Some(PathBuf::from(absolute(path)));
        assert_eq!(found(&[("XDG_CACHE_HOME", &cache), ("HOME", &home)]), expected("/cache/plimsoll"));
        assert_eq!(
            found(&[("XDG_CACHE_HOME", "cache"), ("HOME", &home)]),
            expected("/home/a/.cache/plimsoll")
        );
        assert_eq!(found(&[("LOCALAPPDATA", &local), ("HOME", &home)]), expected("/local/plimsoll"));
        assert_eq!(found(&[("HOME", "home")]), None);
    }
}
