//! Substitutes for a file: a pipe, or a text that a tool put in its place.
//!
//! Reading a named pipe waits for its writer, and a device may never end, so neither is opened. `/dev/null` is opened: it is an empty file.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use crate::system;

/// Something that is not the file that it should be. It comes inside of an [`io::Error`]; [`Substitute::find`] gets it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Substitute {
    /// A named pipe.
    NamedPipe,
    /// A socket.
    Socket,
    /// A device of characters, like a terminal.
    CharacterDevice,
    /// A device of blocks, like a disk.
    BlockDevice,
    /// A link or a pointer of git-annex, whose contents are elsewhere.
    GitAnnex,
    /// A pointer of Git LFS, whose contents are elsewhere.
    GitLfs,
    /// A page of the web, as servers send it for a file that has to be asked for in another way.
    WebPage,
}

impl Substitute {
    /// The reason of an error, if it is this.
    pub fn find(error: &io::Error) -> Option<Substitute> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// A remedy to suggest to the user.
    pub fn remedy(self) -> &'static str {
        match self {
            Substitute::NamedPipe
            | Substitute::Socket
            | Substitute::CharacterDevice
            | Substitute::BlockDevice => {
                "move it out of the folder, or write its contents into a file and name that"
            }
            Substitute::GitAnnex => {
                "get its contents with `git annex get` or `datalad get`, and give the same command again"
            }
            Substitute::GitLfs => "get its contents with `git lfs pull`, and give the same command again",
            Substitute::WebPage => {
                "open it in a browser to see the server's message (a log-in, an agreement, an error), and download the file again"
            }
        }
    }

    /// Returns the kind of substitute at a path: something that cannot be read to an end, or a link to contents
    /// that are not on this machine. Nothing is opened.
    fn at(path: &Path) -> Option<Substitute> {
        match fs::metadata(path) {
            Ok(found) => system::special_kind(&found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let target = fs::read_link(path).ok()?;
                target.to_string_lossy().contains(ANNEX_LINK).then_some(Substitute::GitAnnex)
            }
            Err(_) => None,
        }
    }

    /// Returns the kind of substitute that an open file is, by its first bytes.
    fn within(file: &fs::File) -> Option<Substitute> {
        let mut head = [0; HEAD];
        let found = system::read_start(file, &mut head).ok()?;
        Substitute::from_head(head.get(..found)?)
    }

    fn from_head(head: &[u8]) -> Option<Substitute> {
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        let begins =
            |start: &&[u8]| text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
        if ANNEX_POINTERS.iter().any(begins) {
            Some(Substitute::GitAnnex)
        } else if LFS_POINTERS.iter().any(begins) {
            Some(Substitute::GitLfs)
        } else if PAGES.iter().any(begins) {
            Some(Substitute::WebPage)
        } else {
            None
        }
    }
}

/// The number of first bytes of a file that are examined.
const HEAD: usize = 64;

/// The folder that links of git-annex lead through.
const ANNEX_LINK: &str = ".git/annex/objects/";

const ANNEX_POINTERS: [&[u8]; 1] = [b"/annex/objects/"];
const LFS_POINTERS: [&[u8]; 2] =
    [b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/"];
const PAGES: [&[u8]; 2] = [b"<!doctype html", b"<html"];

/// Refuses a path that is not a file, without opening it.
pub(crate) fn expect_file(path: &Path) -> io::Result<()> {
    Substitute::at(path).map_or(Ok(()), |found| Err(found.into()))
}

/// Refuses a text in the place of a file.
pub(crate) fn expect_contents(file: &fs::File) -> io::Result<()> {
    Substitute::within(file).map_or(Ok(()), |found| Err(found.into()))
}

impl From<Substitute> for io::Error {
    fn from(substitute: Substitute) -> io::Error {
        io::Error::other(substitute)
    }
}

impl fmt::Display for Substitute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Substitute::NamedPipe => "it is a named pipe, not a file",
            Substitute::Socket => "it is a socket, not a file",
            Substitute::CharacterDevice => "it is a character device, not a file",
            Substitute::BlockDevice => "it is a block device, not a file",
            Substitute::GitAnnex => "it is a git-annex pointer, whose contents are not on this machine",
            Substitute::GitLfs => "it is a Git LFS pointer, whose contents are not on this machine",
            Substitute::WebPage => "it is a web page (HTML), not an image",
        })
    }
}

impl std::error::Error for Substitute {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_place_of_files_are_told_by_how_they_begin() {
        let of = |head: &str| Substitute::from_head(head.as_bytes());
        assert_eq!(
            of("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a"),
            Some(Substitute::GitLfs)
        );
        assert_eq!(of("/annex/objects/SHA256E-s123--0a.nii.gz\n"), Some(Substitute::GitAnnex));
        assert_eq!(of("\u{feff} \r\n<!DOCTYPE html>\n<html>"), Some(Substitute::WebPage));
        assert_eq!(of("<HTML lang=\"en\">"), Some(Substitute::WebPage));
        for other in ["", "version 1", "/annex", "<?xml version=\"1.0\"?>", "NRRD0004", "<htm"] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
