//! Weights in a file of their own beside the graph, for those that a message of protobuf has no room for.
//!
//! The name of the file has the digest of its bytes: an existing graph keeps naming its own weights until the new graph replaces it in a
//! single rename. Whenever the process is killed, each graph has the weights that it was written with.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_memory::{Digest, Digester};

/// The alignment of tensors in the file: a page, so that runtimes can map them.
const ALIGNMENT: u64 = 4096;
/// The ending of the names of such files, with the dot.
const ENDING: &str = ".data";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 16;

/// The file, while it is written.
pub(super) struct DataFile {
    graph: PathBuf,
    file: BufWriter<AtomicFile>,
    digest: Digester,
    length: u64,
}

impl DataFile {
    /// Begins the file of weights of the graph `graph`.
    pub(super) fn create(graph: &Path) -> io::Result<DataFile> {
        let file = BufWriter::with_capacity(BUFFER, AtomicFile::create(graph)?);
        Ok(DataFile { graph: graph.into(), file, digest: Digester::default(), length: 0 })
    }

    /// Goes to where the next tensor begins, and returns its offset.
    pub(super) fn align(&mut self) -> io::Result<u64> {
        let zeroes = self.length.next_multiple_of(ALIGNMENT) - self.length;
        // Less than a page.
        self.write_all(&vec![0; zeroes as usize])?;
        Ok(self.length)
    }

    /// Gives the file its name, and returns its path and whether it is a new one.
    pub(super) fn commit(self) -> io::Result<(PathBuf, bool)> {
        let path = path(&self.graph, self.digest.finish())?;
        let is_new = !plimsoll_disk::exists(&path)?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let committed = file.commit_as(&path);
        if committed.is_err() && is_new {
            // It may have its name, and only the folder could not be synchronised: no graph names it.
            let _ = plimsoll_disk::remove_file(&path);
        }
        committed?;
        Ok((path, is_new))
    }
}

impl Write for DataFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// `NAME.onnx.DIGEST.data` for the graph `NAME.onnx`.
fn path(graph: &Path, digest: Digest) -> io::Result<PathBuf> {
    let name = graph.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "its name is not UTF-8, but the graph must name its weights",
        )
    })?;
    Ok(graph.with_file_name(format!("{name}.{digest}{ENDING}")))
}

/// Removes the files of weights that earlier graphs of this name had, or that killed exports left.
pub(super) fn remove_others(graph: &Path, kept: Option<&Path>) -> io::Result<()> {
    let folder = graph.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = graph.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    let is_of_graph = |found: &str| {
        let digest = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        let digest = digest.and_then(|rest| rest.strip_suffix(ENDING));
        digest.is_some_and(|digest| {
            digest.len() == DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    for path in plimsoll_disk::entries(folder)? {
        let path = path?;
        let found = path.file_name().and_then(|name| name.to_str());
        let is_kept = kept.is_some_and(|kept| kept.file_name() == path.file_name());
        if found.is_some_and(is_of_graph) && !is_kept {
            plimsoll_disk::remove_file(&path)?;
        }
    }
    Ok(())
}
