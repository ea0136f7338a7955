//! Ranks in processes of their own: MPI, loaded at run time.
//!
//! No header and no compiler is needed to build this, and no library to run it as one process: functions are found by name in the library
//! of the launcher. Only point-to-point messages are taken from it, so that a dozen functions suffice.
#![allow(unsafe_code, reason = "calls of the C interface of MPI")]

mod functions;
mod interface;
mod rank;

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use self::functions::{Functions, Handle};
use self::interface::Interface;
use self::rank::MpiRank;
use crate::background::in_background;
use crate::communicator::Communicator;
use crate::error::RanksError;
use crate::launch::{Launch, Launcher};
use crate::load::reason;
use crate::mpi_options::MpiOptions;

/// Set once MPI was initialised, which a process can do only once.
static IS_OPENED: AtomicBool = AtomicBool::new(false);

/// Loads the MPI library of a launcher, and initialises it in a thread of its own, which moves messages on while the caller computes. When the
/// communicator is dropped, MPI is finalised; if communication has failed or segments are in flight, the whole job is aborted instead, since the
/// other ranks would wait.
///
/// # Errors
/// Returns an error if the program is linked statically, no library can be loaded, it lacks a function or support of threads, it does not
/// count the processes that the launcher started, or MPI was opened before.
pub fn open_mpi(launch: &Launch, options: &MpiOptions) -> Result<Box<dyn Communicator + Send>, RanksError> {
    let (launch, options) = (*launch, options.clone());
    in_background(options.patience, options.watch.clone(), move || open_here(&launch, &options))
}

/// Maps the code of an MPI library into this process without initialising it, so that a plan counts the code as a rank does. Takes the first of
/// `libraries`, and of the usual names, that can be loaded, and returns its path; `None` if there is none. Of several with usual names it takes the one
/// with the most code. The library stays mapped.
pub fn map_mpi(libraries: &[PathBuf]) -> Option<String> {
    let usual = [Launcher::Pmi, Launcher::OpenMpi].map(usual_libraries).concat();
    let usual = usual.into_iter().map(|(_, name)| PathBuf::from(name));
    let given = libraries.iter().filter(|path| Interface::from_file(path).is_some()).cloned();
    let mut all =
        given.chain(usual).filter(|_| !cfg!(all(target_os = "linux", target_feature = "crt-static")));
    all.find_map(|path| {
        // Libraries of MPI register functions that run at the end of the process.
        let _stays = ManuallyDrop::new(load(&path).ok()?);
        Some(path.display().to_string())
    })
}

/// Loads the library, and initialises it in this thread, to which the communicator belongs.
fn open_here(launch: &Launch, options: &MpiOptions) -> Result<Box<dyn Communicator>, RanksError> {
    if cfg!(all(target_os = "linux", target_feature = "crt-static")) {
        return Err(RanksError::StaticProgram { launcher: launch.launcher });
    }
    let mut tried = Vec::new();
    let given = options.libraries.iter().filter_map(|path| Some((Interface::from_file(path)?, path.clone())));
    let usual =
        usual_libraries(launch.launcher).iter().map(|(interface, name)| (*interface, PathBuf::from(name)));
    for (interface, path) in given.chain(usual) {
        match load(&path) {
            Ok(library) => {
                let name = path.display().to_string();
                return match interface {
                    Interface::Mpich => start::<i32>(library, interface, name, launch, options),
                    Interface::Standard | Interface::OpenMpi => {
                        start::<*mut std::ffi::c_void>(library, interface, name, launch, options)
                    }
                };
            }
            Err(reason) => tried.push(format!("{} ({reason})", path.display())),
        }
    }
    Err(RanksError::NotLoaded { launcher: launch.launcher, tried: tried.join(", ") })
}

/// The names of the libraries that belong to a launcher, the most probable first. Debian names MPICH's otherwise.
fn usual_libraries(launcher: Launcher) -> &'static [(Interface, &'static str)] {
    const STANDARD: (Interface, &str) = (Interface::Standard, "libmpi_abi.so.1");
    const MPICH: (Interface, &str) = (Interface::Mpich, "libmpi.so.12");
    const DEBIANS_MPICH: (Interface, &str) = (Interface::Mpich, "libmpich.so.12");
    const OPEN_MPI: (Interface, &str) = (Interface::OpenMpi, "libmpi.so.40");
    match launcher {
        Launcher::OpenMpi => &[OPEN_MPI, STANDARD],
        Launcher::Pmi => &[STANDARD, MPICH, DEBIANS_MPICH],
        Launcher::Slurm | Launcher::Pmix => &[STANDARD, OPEN_MPI, MPICH, DEBIANS_MPICH],
    }
}

/// Loads a library with its symbols visible to the plugins that it loads itself.
fn load(path: &Path) -> Result<Library, String> {
    // SAFETY: runs the initialisers of a library that the user or the system names as MPI's; these set up its own memory alone.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.map_err(|error| reason(&error))
}

fn start<H: Handle>(
    library: Library,
    interface: Interface,
    name: String,
    launch: &Launch,
    options: &MpiOptions,
) -> Result<Box<dyn Communicator>, RanksError> {
    let functions = Functions::<H>::find(library, interface, &name)?;
    // MPICH and its relatives end a process that Open MPI has started when they are initialised.
    let program = functions.version();
    let is_mpich = ["MPICH", "Intel"].iter().any(|own| program.contains(own));
    if launch.launcher == Launcher::OpenMpi && is_mpich {
        return Err(RanksError::OtherProgram { launcher: launch.launcher, library: name, program });
    }
    if IS_OPENED.swap(true, Ordering::SeqCst) {
        return Err(RanksError::OpenedBefore);
    }
    Ok(Box::new(MpiRank::start(functions, name, launch, options)?))
}
