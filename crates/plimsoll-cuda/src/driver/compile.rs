//! Kernels for the driver: PTX, which it compiles, or machine code.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::{fmt, ptr};

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{self, CUjit_option, CUmodule, CUresult};

/// Bytes for the messages of the driver's compiler.
const LOG: usize = 8 << 10;

/// An error of the driver's compiler, with its messages.
#[derive(Debug)]
pub(super) struct CompileError {
    error: DriverError,
    /// The messages, as they follow the error; empty if there are none.
    log: String,
}

impl Error for CompileError {}

impl CompileError {
    /// Returns `true` if a driver rejects PTX as such: it does not know the version or the instructions, or its card does not have them.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self.error.0,
            CUresult::CUDA_ERROR_INVALID_IMAGE
                | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
                | CUresult::CUDA_ERROR_INVALID_PTX
                | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                | CUresult::CUDA_ERROR_INVALID_SOURCE
                | CUresult::CUDA_ERROR_NOT_SUPPORTED
        )
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.error, self.log)
    }
}

impl From<DriverError> for CompileError {
    fn from(error: DriverError) -> CompileError {
        CompileError { error, log: String::new() }
    }
}

/// A piece in a form that the driver loads.
#[derive(Clone, Copy)]
pub(super) enum Image<'a> {
    /// Text, which its compiler reads.
    Ptx(&'a CStr),
    /// Machine code that `ptxas` has made: an ELF file.
    Code(&'a [u8]),
}

/// Loads a piece in the context that is bound to this thread. PTX is compiled before.
///
/// # Errors
/// Returns the driver's error and what its compiler says about it.
pub(super) fn load(image: Image<'_>) -> Result<CUmodule, CompileError> {
    let start = match image {
        Image::Ptx(text) => text.as_ptr().cast::<c_void>(),
        Image::Code(code) => code.as_ptr().cast::<c_void>(),
    };
    let mut log = vec![0u8; LOG];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // A number is passed in the place of an address.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG)];
    let mut module = ptr::null_mut();
    // SAFETY: the PTX is text that ends with zero, and the machine code is a whole ELF file, as `pieces` has checked its length, in which the driver finds its ends. There are two options with a value each: a buffer, and its size, beyond which the driver does not
    // write. It writes the module's handle to the given address.
    let loaded = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            start,
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    match loaded.result() {
        Ok(()) => Ok(module),
        Err(error) => Err(CompileError { error, log: messages(&log) }),
    }
}

/// The messages in a buffer, which end with a zero, on one line, as all errors are.
fn messages(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    let text = String::from_utf8_lossy(&buffer[..end]);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match lines.collect::<Vec<&str>>().join("; ") {
        log if log.is_empty() => log,
        log => format!(": {log}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_compiler_are_refusals_and_errors_of_memory_are_not() {
        let is_refusal = |error| CompileError::from(DriverError(error)).is_refusal();
        assert!(is_refusal(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
        assert!(is_refusal(CUresult::CUDA_ERROR_INVALID_PTX));
        assert!(!is_refusal(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(!is_refusal(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    }

    #[test]
    fn messages_of_the_compiler_follow_its_error_on_one_line() {
        let log = messages(b"ptxas fatal : unsupported\n\n  line 7: wgmma\n\0garbage");
        assert_eq!(log, ": ptxas fatal : unsupported; line 7: wgmma");
        assert_eq!(messages(&[0; 8]), "");
        assert_eq!(messages(b"no end"), ": no end");
    }
}
