//! The files for batch systems that a command writes instead of doing its work.

use std::path::PathBuf;

use plimsoll::BatchSystem;

use crate::failure::Outcome;
use crate::invocation::Invocation;

/// A requested file.
pub struct AskedFile {
    /// The batch system.
    pub system: BatchSystem,
    /// The file.
    pub path: PathBuf,
    /// The program that its tasks run: this one on the nodes of a cluster, and the command of the same name in a container.
    pub program: String,
}

/// The requested files.
pub fn asked_files(
    slurm: Option<&PathBuf>,
    kubernetes: Option<&PathBuf>,
    invocation: &Invocation,
) -> Outcome<Vec<AskedFile>> {
    let mut files = Vec::new();
    for (system, path) in [(BatchSystem::Slurm, slurm), (BatchSystem::Kubernetes, kubernetes)] {
        let Some(path) = path else { continue };
        let program = match system {
            BatchSystem::Slurm => invocation.program()?.to_string_lossy().into_owned(),
            BatchSystem::Kubernetes => "plimsoll".into(),
        };
        files.push(AskedFile { system, path: path.clone(), program });
    }
    Ok(files)
}
