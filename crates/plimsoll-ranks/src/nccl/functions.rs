//! The functions of an NCCL library, found by name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::NoNccl;
use crate::load::reason;

/// The name under which the system has the library, in all versions from 2.0.
const USUAL: &str = "libnccl.so.2";

/// The oldest version with all that is called here: calls that do not block came with 2.14, and apply to point-to-point messages since 2.17.
const OLDEST: NcclVersion = NcclVersion { major: 2, minor: 18, patch: 0 };

/// The version of the structure [`Config`]; later libraries give the fields that it lacks their usual values.
const CONFIG_VERSION: u32 = 21_700;
/// The first field of a structure that was initialised.
const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// A number for which the library chooses.
const UNDEFINED: c_int = c_int::MIN;

/// The code of success, and of a call that goes on in the background.
pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;

/// The data type `ncclUint8`.
const BYTES: c_int = 1;

/// The bytes of a [`UniqueId`].
pub(super) const ID_BYTES: usize = 128;

/// A communicator of the library.
pub(super) type Comm = *mut c_void;

/// The number by which the processes of a communicator find each other. The library passes it by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; ID_BYTES]);

/// The options of a communicator, as of version 2.17.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cluster: c_int,
    fewest_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
}

/// The version of an NCCL library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NcclVersion {
    /// 2 of 2.18.3.
    pub major: u32,
    /// 18 of 2.18.3.
    pub minor: u32,
    /// 3 of 2.18.3.
    pub patch: u32,
}

impl NcclVersion {
    /// The version of a number: 21803 is 2.18.3, and 2708 is 2.7.8, as it was written before 2.9.
    fn of(number: u32) -> NcclVersion {
        let thousands = if number < 10_000 { 1000 } else { 10_000 };
        NcclVersion { major: number / thousands, minor: number % thousands / 100, patch: number % 100 }
    }
}

impl fmt::Display for NcclVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// An NCCL library, which stays loaded until the process ends: its threads may outlive a communicator.
pub struct NcclLibrary {
    name: String,
    version: NcclVersion,
    pub(super) get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    comm_init: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> c_int,
    pub(super) comm_finalize: unsafe extern "C" fn(Comm) -> c_int,
    pub(super) comm_destroy: unsafe extern "C" fn(Comm) -> c_int,
    pub(super) comm_abort: unsafe extern "C" fn(Comm) -> c_int,
    comm_get_async_error: unsafe extern "C" fn(Comm, *mut c_int) -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Comm, *mut c_void) -> c_int,
    recv: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    get_last_error: unsafe extern "C" fn(Comm) -> *const c_char,
    _library: ManuallyDrop<Library>,
}

impl fmt::Debug for NcclLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} of {}", self.version, self.name)
    }
}

impl NcclLibrary {
    /// Loads the first of some libraries that exists, or else the one that the system finds as `libnccl.so.2`.
    ///
    /// # Errors
    /// Returns an error if none can be loaded, it lacks a function, or it is older than 2.18.
    pub fn load(libraries: &[PathBuf]) -> Result<NcclLibrary, NoNccl> {
        let mut tried = Vec::new();
        for path in libraries.iter().map(PathBuf::as_path).chain([Path::new(USUAL)]) {
            // SAFETY: runs the initialisers of a library that the user or the system names as NCCL; these set up its own memory alone.
            match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return NcclLibrary::find(library, path.display().to_string()),
                Err(error) => tried.push(format!("{} ({})", path.display(), reason(&error))),
            }
        }
        Err(NoNccl::NotLoaded { tried: tried.join(", ") })
    }

    fn find(library: Library, name: String) -> Result<NcclLibrary, NoNccl> {
        /// Finds a function of the type of its place.
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is NCCL's for this name since 2.17; the library stays loaded.
                unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map(|found| *found)
                    .map_err(|_| NoNccl::NoFunction { library: name.clone(), name: $name })?
            };
        }
        let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = function!("ncclGetVersion");
        let mut number = 0;
        // SAFETY: the call writes a number to the given address; its code is success for every address.
        unsafe { get_version(&mut number) };
        let version = NcclVersion::of(number.unsigned_abs());
        // Before the functions: an old library may lack some.
        if version < OLDEST {
            return Err(NoNccl::TooOld { library: name, found: version, needed: OLDEST });
        }
        Ok(NcclLibrary {
            version,
            get_unique_id: function!("ncclGetUniqueId"),
            comm_init: function!("ncclCommInitRankConfig"),
            comm_finalize: function!("ncclCommFinalize"),
            comm_destroy: function!("ncclCommDestroy"),
            comm_abort: function!("ncclCommAbort"),
            comm_get_async_error: function!("ncclCommGetAsyncError"),
            send: function!("ncclSend"),
            recv: function!("ncclRecv"),
            get_error_string: function!("ncclGetErrorString"),
            get_last_error: function!("ncclGetLastError"),
            name,
            _library: ManuallyDrop::new(library),
        })
    }

    /// The version of the library.
    pub fn version(&self) -> NcclVersion {
        self.version
    }

    /// Begins to make a communicator of two processes, of which this one has the number `place`. No later call of it blocks either. It takes
    /// one block of a card's threads, so that many communicators at once leave the card to kernels.
    pub(super) fn begin_comm(&self, id: UniqueId, place: c_int) -> (Comm, c_int) {
        let mut config = Config {
            size: size_of::<Config>(),
            magic: CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cluster: UNDEFINED,
            fewest_blocks: 1,
            most_blocks: 1,
            network: std::ptr::null(),
        };
        let mut comm = std::ptr::null_mut();
        // SAFETY: the structure has the size and the version that its first fields state, and is copied; the call writes a handle to the given
        // address.
        let code = unsafe { (self.comm_init)(&mut comm, 2, id, place, &mut config) };
        (comm, code)
    }

    /// The state of a communicator: success, in progress, or an error.
    pub(super) fn state(&self, comm: Comm) -> c_int {
        let mut state = SUCCESS;
        // SAFETY: the communicator exists; the call writes a number to the given address.
        let code = unsafe { (self.comm_get_async_error)(comm, &mut state) };
        if code == SUCCESS { state } else { code }
    }

    /// Enqueues a message to the other process of a communicator.
    ///
    /// # Safety
    /// `from` has this many bytes of the communicator's card until the stream has passed the message, and the stream is one of that card.
    pub(super) unsafe fn enqueue_send(
        &self,
        from: u64,
        bytes: usize,
        other: c_int,
        comm: Comm,
        stream: *mut c_void,
    ) -> c_int {
        let from = std::ptr::without_provenance(from as usize);
        // SAFETY: as the caller promises.
        unsafe { (self.send)(from, bytes, BYTES, other, comm, stream) }
    }

    /// Enqueues the receipt of a message from the other process of a communicator.
    ///
    /// # Safety
    /// The contract is the one of [`enqueue_send`](Self::enqueue_send), and nothing else uses these bytes meanwhile.
    pub(super) unsafe fn enqueue_receive(
        &self,
        to: u64,
        bytes: usize,
        other: c_int,
        comm: Comm,
        stream: *mut c_void,
    ) -> c_int {
        let to = std::ptr::without_provenance_mut(to as usize);
        // SAFETY: as the caller promises.
        unsafe { (self.recv)(to, bytes, BYTES, other, comm, stream) }
    }

    /// The library's text of an error, and of its last error.
    pub(super) fn text(&self, code: c_int, comm: Comm) -> String {
        // SAFETY: the library returns a constant text for every code.
        let of_code = unsafe { (self.get_error_string)(code) };
        // SAFETY: a null communicator is allowed. The text belongs to the library, and only this thread makes calls that change it.
        let last = unsafe { (self.get_last_error)(comm) };
        let texts = [of_code, last].into_iter().filter(|text| !text.is_null()).map(|text| {
            // SAFETY: the library ends its texts with a zero.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        });
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_both_kinds_of_numbers() {
        assert_eq!(NcclVersion::of(21_803).to_string(), "2.18.3");
        assert_eq!(NcclVersion::of(22_907).to_string(), "2.29.7");
        assert_eq!(NcclVersion::of(2708).to_string(), "2.7.8");
        assert!(NcclVersion::of(2708) < OLDEST && NcclVersion::of(21_800) >= OLDEST);
    }

    #[test]
    fn a_library_that_does_not_exist_or_is_another_is_named() {
        let none = NcclLibrary::load(&["/nonexistent/libnccl.so.2".into()]);
        if let Err(error) = none {
            assert!(error.to_string().contains("/nonexistent/libnccl.so.2 ("), "{error}");
            assert!(!error.to_string().contains("dlopen"), "the system gives a reason: {error}");
        }
        let found = NcclLibrary::load(&["libc.so.6".into()]).unwrap_err();
        assert_eq!(found.to_string(), "libc.so.6 is no NCCL library: it has no ncclGetVersion");
    }
}
