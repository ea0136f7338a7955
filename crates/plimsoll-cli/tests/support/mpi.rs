//! The MPI programs of this machine, each with the binary interface of its library.
//!
//! They are looked for below the folders that `PLIMSOLL_TEST_MPI` lists, separated by colons, beside the folders of `PATH`, and below `/usr/local` and
//! `/usr`, as `crates/plimsoll-ranks/tests/mpi.rs` does.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders of an MPI with an `mpiexec` that starts several ranks on few cores.
#[derive(Clone)]
pub struct Mpi {
    launcher: PathBuf,
    libraries: PathBuf,
    /// `true` for Open MPI.
    pub is_open: bool,
}

/// An interface of MPI, and the MPI of this machine that has it.
pub struct Interface {
    /// The name of the interface.
    pub name: &'static str,
    /// The names of its library.
    pub libraries: &'static [&'static str],
    /// The MPI; `None` if it is not found.
    pub mpi: Option<Mpi>,
}

/// The interfaces, each with the names of its libraries and of its launchers.
const INTERFACES: [(&str, &[&str], &[&str]); 3] = [
    ("mpi_5_0", &["libmpi_abi.so.1"], &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"]),
    ("mpich", &["libmpi.so.12", "libmpich.so.12"], &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"]),
    ("open_mpi", &["libmpi.so.40"], &["mpiexec.openmpi", "mpiexec"]),
];

/// Looks for the MPI of each interface.
pub fn find_all() -> Vec<Interface> {
    let listed = std::env::var("PLIMSOLL_TEST_MPI").unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = listed.split(':').filter(|root| !root.is_empty()).map(PathBuf::from);
    let beside = std::env::split_paths(&path).filter_map(|folder| folder.parent().map(Path::to_path_buf));
    let usual = ["/usr/local", "/usr"].map(PathBuf::from);
    let roots: Vec<PathBuf> = listed.chain(beside).chain(usual).collect();
    let mut found: Vec<Interface> = Vec::new();
    for (name, libraries, launchers) in INTERFACES {
        let mpi = roots.iter().find_map(|root| Mpi::below(root, libraries, launchers));
        found.push(Interface { name, libraries, mpi });
    }
    found
}

impl Mpi {
    fn below(root: &Path, names: &[&str], launchers: &[&str]) -> Option<Mpi> {
        let folders = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"];
        let mut folders = folders.iter().map(|folder| root.join(folder));
        let libraries = folders.find(|folder| names.iter().any(|name| folder.join(name).exists()))?;
        let launcher = launchers.iter().map(|name| root.join("bin").join(name)).find(|path| path.exists())?;
        Some(Mpi { launcher, libraries, is_open: names.contains(&"libmpi.so.40") })
    }

    /// The command that starts a program as some ranks, with words before the program.
    pub fn command(&self, ranks: usize, before: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = self.beside(&self.launcher);
        command.arg("-n").arg(ranks.to_string()).args(before).arg(program);
        if self.is_open {
            // Open MPI refuses root and more ranks than cores unless it is told that both are intended.
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                command.env(name, "1");
            }
            command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
            command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        }
        command
    }

    /// A command that finds this MPI.
    pub fn beside(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // As in an activated virtual environment, where the library is found beside the launcher; systems have it where the loader looks.
        let launchers = self.launcher.parent().unwrap_or(&self.launcher);
        if launchers.with_file_name("lib") == self.libraries {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders = std::iter::once(launchers.to_path_buf()).chain(std::env::split_paths(&path));
            command.env("PATH", std::env::join_paths(folders).unwrap()).env_remove("LD_LIBRARY_PATH");
        } else {
            command.env("LD_LIBRARY_PATH", &self.libraries);
        }
        command
    }
}

/// Shell that prints the number of a rank.
pub const RANK: &str = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}";
