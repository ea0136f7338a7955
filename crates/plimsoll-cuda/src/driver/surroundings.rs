//! The surroundings of a process that decide which cards it has: the visible devices, limits of its addresses, and parts of cards.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use plimsoll_memory::{Bytes, System, limits};

use super::failed;
use crate::device::DeviceError;

/// The cards that the environment lets CUDA see, to explain an error.
pub(super) fn visible() -> Option<String> {
    std::env::var("CUDA_VISIBLE_DEVICES").ok()
}

/// The limit of the process's addresses, if there is one.
pub(super) fn address_space() -> Option<Bytes> {
    let all = limits(&System::default(), None).found;
    all.iter().find(|limit| limit.source == "RLIMIT_AS").map(|limit| limit.bytes)
}

/// Returns the error of a card that does not start. Drivers reserve addresses for the memory of all cards and of the machine, so a limit of
/// addresses is the likely reason if memory is refused.
pub(super) fn unopened(error: DriverError, addresses: Option<Bytes>) -> DeviceError {
    match (error, addresses) {
        (DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY), Some(limit)) => DeviceError::AddressSpace { limit },
        (error, _) => failed("the NVIDIA driver", "open the GPU", error),
    }
}

/// Returns `true` if a name is of a part of a card: the driver writes `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
pub(super) fn is_instance(name: &str) -> bool {
    name.split_whitespace().any(|word| word == "MIG")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_cards_are_known_by_their_names() {
        assert!(is_instance("NVIDIA A100-SXM4-40GB MIG 1g.5gb"));
        assert!(is_instance("NVIDIA H100 80GB HBM3 MIG 3g.40gb"));
        assert!(!is_instance("NVIDIA A100-SXM4-40GB") && !is_instance("NVIDIA MIGHTY"));
    }

    #[test]
    fn memory_that_is_refused_under_a_limit_of_addresses_is_explained_by_it() {
        let refused = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let error = unopened(refused, Some(Bytes::gib(32)));
        assert!(matches!(error, DeviceError::AddressSpace { limit } if limit == Bytes::gib(32)));
        assert!(error.to_string().contains("32.00 GiB of addresses"), "{error}");
        assert!(error.remedy().contains("ulimit -v unlimited"), "{}", error.remedy());
        // Without a limit, or by another error, it is not.
        assert!(matches!(unopened(refused, None), DeviceError::Failed { .. }));
        let other = unopened(DriverError(CUresult::CUDA_ERROR_ECC_UNCORRECTABLE), Some(Bytes::gib(32)));
        assert!(matches!(other, DeviceError::Failed { .. }));
    }
}
