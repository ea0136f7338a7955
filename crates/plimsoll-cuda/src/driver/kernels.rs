//! The kernels of a card, loaded once for all devices on it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute_enum, CUmodule, CUresult};

use super::compile::{self, CompileError, Image};
use super::fallback::{LoadError, Loader, load_pieces};
use super::{Card, failed};
use crate::Architecture;
use crate::device::DeviceError;

/// Modules, and the kernels in them.
pub(super) struct Kernels {
    context: Arc<CudaContext>,
    modules: Vec<CUmodule>,
    by_name: BTreeMap<String, Kernel>,
    /// By what the card's free memory became less as they were loaded.
    pub(super) bytes: usize,
    /// The most bytes of local memory that a thread of any of them has: of arrays, and of registers that are spilled.
    local: usize,
    /// The architecture with what they use of it.
    pub(super) architecture: Architecture,
    /// The driver's reason against kernels with products by warp groups, where the card has these and the driver has refused them.
    pub(super) refused: Option<String>,
    /// The reason why the driver has compiled them; none if they are machine code.
    pub(super) compiled: Option<String>,
}

/// The operation by which kernels could not be loaded, and the driver's error.
pub(super) struct Failure {
    doing: String,
    error: CompileError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

/// A kernel of a module that is loaded.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    pub(super) function: CUfunction,
    /// Bytes of its parameter.
    pub(super) parameters: usize,
}

// SAFETY: handles of modules and functions belong to a context, not to a thread; every call binds the context to its thread first.
unsafe impl Send for Kernels {}
// SAFETY: as of `Send`; nothing changes once they are loaded, and launches of a function from several threads are the driver's to order.
unsafe impl Sync for Kernels {}

impl Drop for Kernels {
    fn drop(&mut self) {
        // What fails while things are freed cannot be told to anyone, and ends with the process.
        let _ = self.context.bind_to_thread();
        self.unload();
    }
}

impl Loader for Kernels {
    type Error = Failure;

    fn load(&mut self, ptx: String, code: Option<Vec<u8>>) -> Result<(), Failure> {
        self.add(ptx, code.as_deref())
    }

    fn start_again(&mut self) {
        self.unload();
        self.by_name.clear();
        self.local = 0;
    }

    fn is_refusal(failure: &Failure) -> bool {
        failure.error.is_refusal()
    }
}

impl Kernels {
    /// Loads all kernels for a card.
    ///
    /// # Errors
    /// Returns an error if the driver refuses the kernels, or the card does not report its free memory.
    pub(super) fn load(card: &Card) -> Result<Kernels, DeviceError> {
        // Binds the context to this thread.
        let before = card.memory()?.free;
        let mut kernels = Kernels {
            context: card.context.clone(),
            modules: Vec::new(),
            by_name: BTreeMap::new(),
            bytes: 0,
            local: 0,
            architecture: card.architecture,
            refused: None,
            compiled: None,
        };
        let loaded = load_pieces(card.architecture, &mut kernels).map_err(|error| match error {
            LoadError::Text(error) => failed(&card.name, "load the kernels", error),
            LoadError::Driver(Failure { doing, error }) => failed(&card.name, &doing, error),
        })?;
        (kernels.architecture, kernels.refused) = (loaded.architecture, loaded.refused);
        kernels.compiled = loaded.compiled;
        // What the driver allocates with a first stream stays allocated: it is no part of any device.
        drop(card.context.new_stream().map_err(|error| card.failed("make a stream", error))?);
        kernels.bytes = before.saturating_sub(card.memory()?.free);
        Ok(kernels)
    }

    /// Unloads all modules, in the context that is bound to this thread.
    fn unload(&mut self) {
        for module in self.modules.drain(..) {
            // SAFETY: it was loaded in this context, is unloaded nowhere else, and nothing uses it afterwards: no device has it yet, or each shares
            // `self`, and waits for its stream before it is dropped.
            let _ = unsafe { result::module::unload(module) };
        }
    }

    /// Loads a piece, as machine code if there is some, and finds the kernels that its PTX names, in the context that is bound to this thread.
    ///
    /// # Errors
    /// Returns an error with the operation that failed and the driver's message.
    fn add(&mut self, piece: String, code: Option<&[u8]>) -> Result<(), Failure> {
        let invalid = DriverError(CUresult::CUDA_ERROR_INVALID_VALUE);
        let doing = if code.is_some() { "load the kernels" } else { "compile the kernels" };
        let compiling = |error: CompileError| Failure { doing: doing.into(), error };
        let text = CString::new(piece).map_err(|_| compiling(invalid.into()))?;
        let module = compile::load(code.map_or(Image::Ptx(&text), Image::Code)).map_err(compiling)?;
        self.modules.push(module);
        let piece = text.to_str().map_err(|_| compiling(invalid.into()))?;
        // Drivers that load lazily load a kernel when it is asked for ("CUDA C++ Programming Guide", lazy loading). All are asked for here, so that the
        // memory which they take is measured.
        for (name, parameters) in entries(piece) {
            let finding = |error: DriverError| Failure {
                doing: format!("find the kernel {name}"),
                error: error.into(),
            };
            let parameters = parameters.ok_or_else(|| finding(invalid))?;
            let given = CString::new(name).map_err(|_| finding(invalid))?;
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(module, given) }.map_err(finding)?;
            let local = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
            // SAFETY: the function is of a module that is loaded.
            let local = unsafe { result::function::get_function_attribute(function, local) };
            let local = usize::try_from(local.map_err(finding)?).map_err(|_| finding(invalid))?;
            self.local = self.local.max(local);
            self.by_name.insert(name.to_string(), Kernel { function, parameters });
        }
        Ok(())
    }

    /// Returns an upper bound of the bytes that the driver allocates at the first launch of a kernel with local memory,
    /// on a card with this number of multiprocessors and of threads on each.
    pub(super) fn local_memory(&self, threads: usize, multiprocessors: usize) -> usize {
        local_memory(self.local, threads, multiprocessors)
    }

    /// The kernel whose parameters have the most bytes.
    pub(super) fn largest(&self) -> Option<Kernel> {
        self.by_name.values().max_by_key(|kernel| kernel.parameters).copied()
    }

    pub(super) fn find(&self, name: &str) -> Option<Kernel> {
        self.by_name.get(name).copied()
    }
}

/// Bytes of local memory of all threads that a card runs at once, whatever a launch has: each has what the kernel needs, in pieces of 16
/// bytes, and at most 512 for calls.
fn local_memory(bytes: usize, threads: usize, multiprocessors: usize) -> usize {
    let of_thread = bytes.saturating_add(15) / 16 * 16;
    of_thread.saturating_add(512).saturating_mul(threads).saturating_mul(multiprocessors)
}

/// All kernels of a piece of PTX, each with the bytes of its one parameter, a struct; none where it has not just one.
fn entries(piece: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    let mut lines = piece.lines();
    std::iter::from_fn(move || {
        let name =
            lines.by_ref().find_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('('))?;
        let parameter = lines.next().and_then(|line| parameter_bytes(line, name));
        let ends = lines.next().is_some_and(|line| line.trim() == ")");
        Some((name, parameter.filter(|_| ends)))
    })
}

/// The bytes of a kernel's last parameter, where it is the first, too: 72 of `.param .align 8 .b8 pool_param_0[72]`.
fn parameter_bytes(line: &str, kernel: &str) -> Option<usize> {
    let (_, declared) = line.trim().strip_prefix(".param .align ")?.split_once(" .b8 ")?;
    declared.strip_prefix(kernel)?.strip_prefix("_param_0[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ptx;

    #[test]
    fn kernels_are_found_in_the_ptx_with_the_bytes_that_they_take_and_their_names_differ() {
        let all = |number: u32| ptx(Architecture::new(number / 10, number % 10).unwrap()).map(Result::unwrap);
        let [pieces, turing, volta] = [90, 75, 70].map(|number| all(number).collect::<Vec<_>>());
        fn names(piece: &str) -> BTreeSet<&str> {
            entries(piece).map(|(name, _)| name).collect()
        }
        // The same kernels, except the ones for bf16 and tf32.
        assert!(names(&turing[1]).is_subset(&names(&pieces[1])));
        // Volta has no attention on tensor cores.
        assert!(names(&volta[1]).is_subset(&names(&turing[1])));
        assert!(
            names(&turing[1]).difference(&names(&volta[1])).all(|name| name.starts_with("tensor_rotary_"))
        );
        let found: Vec<_> = pieces.iter().flat_map(|piece| entries(piece)).collect();
        assert_eq!(found.len(), pieces.iter().map(|piece| piece.matches(".entry ").count()).sum::<usize>());
        assert_eq!(found.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), found.len());
        let bytes = |kernel: &str| found.iter().find(|(name, _)| *name == kernel).unwrap().1;
        assert!(["conv_f32_bf16", "tensor_pack_f16"].iter().all(|kernel| bytes(kernel).is_some()));
        // As they are declared: nine and seventeen numbers of eight bytes.
        assert_eq!((bytes("window_tokens"), bytes("attention_f32")), (Some(72), Some(136)));
        assert!(found.iter().all(|(_, bytes)| bytes.is_some_and(|bytes| bytes > 0)));
    }

    #[test]
    fn local_memory_is_there_for_every_thread_that_a_card_runs_at_once() {
        // A V100 has 80 multiprocessors of 2048 threads, a T4 40 of 1024.
        assert_eq!(local_memory(56, 2048, 80), 576 * 163_840);
        assert_eq!(local_memory(128, 1024, 40), 640 * 40_960);
        assert_eq!(local_memory(usize::MAX, 2048, 80), usize::MAX);
    }

    #[test]
    fn a_kernel_that_does_not_take_one_struct_is_none_to_launch() {
        let declared = |parameters: &str| format!(".visible .entry k(\n{parameters}\n{{\n");
        let bytes = |parameters: &str| entries(&declared(parameters)).next().unwrap().1;
        assert_eq!(bytes("\t.param .align 4 .b8 k_param_0[12]\n)"), Some(12));
        for other in [
            "\t.param .u64 k_param_0\n)",
            "\t.param .align 4 .b8 k_param_0[12],\n\t.param .u32 k_param_1\n)",
            "\t.param .align 4 .b8 l_param_0[12]\n)",
        ] {
            assert_eq!(bytes(other), None, "{other}");
        }
    }
}
