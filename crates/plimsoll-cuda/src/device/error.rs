//! Errors of devices, and their remedies.

use std::error::Error;
use std::fmt;

use plimsoll_memory::Bytes;
use plimsoll_plan::EngineError;

use crate::Architecture;
use crate::libraries::CUDA;

/// Errors of a device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver, or it is not to be loaded.
    #[error("there is no NVIDIA driver: `{CUDA}` cannot be loaded")]
    NoDriver,
    /// The program is linked statically and can load no library.
    #[error("this program is linked statically, so it cannot load the NVIDIA driver")]
    StaticProgram,
    /// There is no card of this number.
    #[error("there is no GPU {ordinal}: the driver found {found}")]
    NoDevice {
        /// The card asked for.
        ordinal: usize,
        /// Their number.
        found: usize,
        /// The value of CUDA_VISIBLE_DEVICES, if it is set.
        visible: Option<String>,
    },
    /// The process may not reserve the addresses that the driver needs.
    #[error(
        "the NVIDIA driver cannot start: this process is limited to {limit} of addresses (RLIMIT_AS), and the driver reserves addresses for all \
         memory of the GPUs and of the machine"
    )]
    AddressSpace {
        /// The limit.
        limit: Bytes,
    },
    /// A plan was made for a kind of card, without one.
    #[error("{architecture} is an architecture, not a device: runs can be planned for it, but not executed")]
    Nowhere {
        /// The kind.
        architecture: Architecture,
    },
    /// The card is older than the kernels.
    #[error("{found} is too old: the kernels need sm_70 (Volta, 2017) or newer")]
    TooOld {
        /// Its architecture.
        found: String,
    },
    /// The driver lacks functions that are called.
    #[error("the NVIDIA driver is too old: it supports CUDA {found}, but CUDA {needed} is needed")]
    TooOldDriver {
        /// The version found.
        found: CudaVersion,
        /// The oldest that does.
        needed: CudaVersion,
    },
    /// The name is of no architecture.
    #[error("`{found}` is not an architecture: write it like sm_80")]
    NoArchitecture {
        /// The name that was given.
        found: String,
    },
    /// A stretch of memory is not inside the arena, which the verifier has excluded.
    #[error("internal error: bytes {start} to {end} are outside the arena of {arena} bytes")]
    Outside {
        /// Its first byte.
        start: usize,
        /// Its end.
        end: usize,
        /// Bytes that there are.
        arena: usize,
    },
    /// A launch does not give a kernel what it takes.
    #[error("internal error: {kernel} takes {taken} bytes of parameters, and {given} were given")]
    Parameters {
        /// The kernel.
        kernel: String,
        /// Bytes that it takes.
        taken: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// The card has not so much memory left: another program, or another run, has taken what was free.
    #[error("{device} cannot allocate {asked}: {free} of its memory are free")]
    OutOfMemory {
        /// The device.
        device: String,
        /// The requested bytes.
        asked: Bytes,
        /// The free bytes.
        free: Bytes,
    },
    /// The device refuses or fails.
    #[error("{device} failed to {doing}")]
    Failed {
        /// The device.
        device: String,
        /// The operation that failed.
        doing: String,
        /// The error of the driver.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl DeviceError {
    /// A remedy.
    pub fn remedy(&self) -> String {
        match self {
            DeviceError::NoDriver => {
                "install the driver (`nvidia-smi` shows whether it works), or in a container pass the GPUs \
                                      through (`--gpus all`); ‹device=cpu› needs none"
                    .into()
            }
            DeviceError::StaticProgram => {
                "use the program for `linux-gnu` or the command of the Python wheel; ‹device=cpu› needs no driver".into()
            }
            DeviceError::NoDevice { found, visible, .. } => no_device(*found, visible.as_deref()),
            DeviceError::AddressSpace { .. } => {
                "lift the limit with `ulimit -v unlimited`; batch systems limit memory itself by control groups; ‹device=cpu› needs no driver"
                    .into()
            }
            DeviceError::Nowhere { .. } => "‹device=cuda:0› is the first card of this machine".into(),
            DeviceError::TooOld { .. } => "‹device=cpu› runs on the processor".into(),
            DeviceError::TooOldDriver { needed, .. } => {
                // The first drivers of these versions.
                let driver = if needed.major >= 12 { 525 } else { 470 };
                format!(
                    "install driver {driver} or later (`nvidia-smi` shows the installed one; a container uses its host's); ‹device=cpu› \
                                         needs none"
                )
            }
            DeviceError::NoArchitecture { .. } => {
                "an A100 has sm_80: `nvidia-smi --query-gpu=compute_cap --format=csv` shows a card's as 8.0"
                    .into()
            }
            DeviceError::Outside { .. } | DeviceError::Parameters { .. } => {
                "report it with the command and this message".into()
            }
            DeviceError::OutOfMemory { .. } => {
                "lower ‹vram›, or wait until other processes free memory: `nvidia-smi` lists them"
                    .into()
            }
            DeviceError::Failed { .. } => {
                "`nvidia-smi` and the kernel's log (`dmesg | grep -i xid`) say more; ‹resume› continues from the last checkpoint"
                    .into()
            }
        }
    }
}

/// Returns the remedy for a card that is not there: of the `found` ones, or of a list that CUDA was told to show.
fn no_device(found: usize, visible: Option<&str>) -> String {
    let known = match found.checked_sub(1) {
        Some(0) => "choose cuda:0".to_string(),
        Some(last) => format!("choose from cuda:0 to cuda:{last}"),
        None => "`nvidia-smi -L` lists the GPUs".to_string(),
    };
    let Some(visible) = visible else {
        return match found {
            0 => format!("{known}; in a container pass them through (`--gpus all`)"),
            _ => format!("{known}; `nvidia-smi -L` lists the GPUs"),
        };
    };
    let listed = visible.split(',').map(str::trim).take_while(|entry| !entry.is_empty()).count();
    match (found, listed) {
        (0, _) => format!(
            "{known}; CUDA_VISIBLE_DEVICES is `{visible}` and hides all: CUDA ignores every entry from the first on that is no GPU, such as -1"
        ),
        (found, listed) if found < listed => format!(
            "{known}: CUDA_VISIBLE_DEVICES is `{visible}`, of which CUDA takes the first {found}, and none from the first entry on that is no GPU"
        ),
        _ => format!("{known}: CUDA_VISIBLE_DEVICES is `{visible}`, and cuda:0 is its first entry"),
    }
}

/// The version of CUDA that came with a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// 11 of 11.4.
    pub major: u32,
    /// 4 of 11.4.
    pub minor: u32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> EngineError {
        EngineError::Device { hint: error.remedy(), problem: Box::new(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(ordinal: usize, found: usize, visible: Option<&str>) -> String {
        DeviceError::NoDevice { ordinal, found, visible: visible.map(String::from) }.remedy()
    }

    #[test]
    fn a_card_that_is_not_visible_is_explained_by_the_list_of_visible_ones() {
        for hidden in ["", "-1", "-1,0", "GPU-0000"] {
            let said = remedy(0, 0, Some(hidden));
            assert!(said.contains(&format!("is `{hidden}` and hides all")), "{said}");
        }
        let reordered = remedy(2, 2, Some("3,1"));
        assert!(reordered.contains("from cuda:0 to cuda:1"), "{reordered}");
        assert!(reordered.contains("`3,1`, and cuda:0 is its first entry"), "{reordered}");
        let part = remedy(1, 1, Some("MIG-4f53a3e1-0000-0000-0000-000000000000"));
        assert!(part.starts_with("choose cuda:0: ") && part.contains("first entry"), "{part}");
        let cut = remedy(1, 1, Some("0,-1,1"));
        assert!(cut.contains("takes the first 1"), "{cut}");
        let [none, one] = [0, 1].map(|found| remedy(3, found, None));
        assert!(none.contains("nvidia-smi -L") && one.contains("choose cuda:0"), "{none}, {one}");
    }
}
