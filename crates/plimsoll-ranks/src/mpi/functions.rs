//! The functions of an MPI library and its constant handles, found by name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;

use libloading::os::unix::Library;

use super::interface::{Constants, Interface};
use crate::error::RanksError;

/// A handle of an interface: a number of MPICH, a pointer of others.
pub(super) trait Handle: Copy + fmt::Debug + 'static {
    /// The handles that an interface fixes or a library has as variables.
    fn constants(library: &Library, interface: Interface) -> Result<ConstantHandles<Self>, String>;
}

/// The constant handles that are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConstantHandles<H> {
    pub(super) world: H,
    pub(super) byte: H,
    pub(super) errors_return: H,
    pub(super) info_null: H,
    pub(super) request_null: H,
    pub(super) comm_null: H,
}

impl Handle for c_int {
    fn constants(_: &Library, _: Interface) -> Result<ConstantHandles<c_int>, String> {
        Ok(ConstantHandles {
            world: 0x4400_0000,
            byte: 0x4c00_010d,
            errors_return: 0x5400_0001,
            info_null: 0x1c00_0000,
            request_null: 0x2c00_0000,
            comm_null: 0x0400_0000,
        })
    }
}

impl Handle for *mut c_void {
    fn constants(library: &Library, interface: Interface) -> Result<ConstantHandles<*mut c_void>, String> {
        if interface == Interface::Standard {
            let fixed = std::ptr::without_provenance_mut;
            return Ok(ConstantHandles {
                world: fixed(0x101),
                byte: fixed(0x247),
                errors_return: fixed(0x143),
                info_null: fixed(0x130),
                request_null: fixed(0x180),
                comm_null: fixed(0x100),
            });
        }
        let variable = |name: &str| -> Result<*mut c_void, String> {
            // SAFETY: only the address of the variable is taken, which is valid as long as the library is loaded.
            let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
            Ok(found.map_err(|_| name.to_string())?.as_raw_ptr())
        };
        Ok(ConstantHandles {
            world: variable("ompi_mpi_comm_world")?,
            byte: variable("ompi_mpi_byte")?,
            errors_return: variable("ompi_mpi_errors_return")?,
            info_null: variable("ompi_mpi_info_null")?,
            request_null: variable("ompi_request_null")?,
            comm_null: variable("ompi_mpi_comm_null")?,
        })
    }
}

/// Room for a status of any interface, which takes 20 to 32 bytes.
#[repr(C, align(16))]
pub(super) struct Status([u8; 64]);

impl Status {
    pub(super) fn new() -> Status {
        Status([0; 64])
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// The arguments of the program, which MPI may change; passed as none.
type Arguments = *mut *mut *mut c_char;

/// The signatures of functions that begin to send, and of those that begin to receive.
type Isend<H> = unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type Irecv<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;

/// The functions of a library, which stays loaded until the process ends: it registers functions that run then.
pub(super) struct Functions<H: Handle> {
    pub(super) handles: ConstantHandles<H>,
    pub(super) constants: Constants,
    pub(super) init_thread: unsafe extern "C" fn(*mut c_int, Arguments, c_int, *mut c_int) -> c_int,
    pub(super) finalize: unsafe extern "C" fn() -> c_int,
    pub(super) comm_rank: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    pub(super) comm_size: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    pub(super) comm_split_type: unsafe extern "C" fn(H, c_int, c_int, H, *mut H) -> c_int,
    pub(super) comm_free: unsafe extern "C" fn(*mut H) -> c_int,
    pub(super) comm_set_errhandler: unsafe extern "C" fn(H, H) -> c_int,
    pub(super) isend: Isend<H>,
    pub(super) irecv: Irecv<H>,
    pub(super) test: unsafe extern "C" fn(*mut H, *mut c_int, *mut c_void) -> c_int,
    pub(super) get_count: unsafe extern "C" fn(*const c_void, H, *mut c_int) -> c_int,
    pub(super) abort: unsafe extern "C" fn(H, c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int,
    get_library_version: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int,
    _library: ManuallyDrop<Library>,
}

/// The longest text of the version: the interfaces give it 256 or 8192 bytes.
const LONGEST_VERSION: usize = 16_384;

/// The longest text of an error: the interfaces give it 256 or 512 bytes.
const LONGEST_TEXT: usize = 4096;

impl<H: Handle> Functions<H> {
    /// Finds all functions in a library.
    ///
    /// # Errors
    /// Returns an error if one is missing.
    pub(super) fn find(
        library: Library,
        interface: Interface,
        name: &str,
    ) -> Result<Functions<H>, RanksError> {
        let no_function = |function: String| RanksError::NoFunction { library: name.into(), name: function };
        let handles = H::constants(&library, interface).map_err(no_function)?;
        /// Finds a function of the type of its field.
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is MPI's for this name, with handles as the interface represents them; the library stays loaded.
                unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map(|found| *found)
                    .map_err(|_| no_function($name.into()))?
            };
        }
        Ok(Functions {
            handles,
            constants: interface.constants(),
            init_thread: function!("MPI_Init_thread"),
            finalize: function!("MPI_Finalize"),
            comm_rank: function!("MPI_Comm_rank"),
            comm_size: function!("MPI_Comm_size"),
            comm_split_type: function!("MPI_Comm_split_type"),
            comm_free: function!("MPI_Comm_free"),
            comm_set_errhandler: function!("MPI_Comm_set_errhandler"),
            isend: function!("MPI_Isend"),
            irecv: function!("MPI_Irecv"),
            test: function!("MPI_Test"),
            get_count: function!("MPI_Get_count"),
            abort: function!("MPI_Abort"),
            error_string: function!("MPI_Error_string"),
            get_library_version: function!("MPI_Get_library_version"),
            _library: ManuallyDrop::new(library),
        })
    }

    /// The first line of the library's text of its version, which may be asked for before MPI is initialised.
    pub(super) fn version(&self) -> String {
        let mut text = vec![0u8; LONGEST_VERSION];
        let mut length = 0;
        // SAFETY: the text has room for the longest of any interface; its last byte stays zero.
        let found = unsafe { (self.get_library_version)(text.as_mut_ptr().cast(), &mut length) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
        let line = text.lines().next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if found == 0 { words.join(" ") } else { String::new() }
    }

    /// The library's text of an error.
    pub(super) fn text(&self, code: c_int) -> String {
        let mut text = [0u8; LONGEST_TEXT];
        let mut length = 0;
        // SAFETY: the text has room for the longest of any interface; its last byte stays zero.
        let found = unsafe { (self.error_string)(code, text.as_mut_ptr().cast(), &mut length) };
        match CStr::from_bytes_until_nul(&text) {
            Ok(text) if found == 0 && !text.is_empty() => text.to_string_lossy().trim().replace('\n', "; "),
            _ => format!("error {code}"),
        }
    }
}
