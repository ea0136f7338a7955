//! Windows: the counters of the process, the machine's memory, and the job object that the process belongs to.
#![allow(unsafe_code, reason = "calls of the interface of Windows")]

use std::ffi::c_void;
use std::mem::{size_of, zeroed};
use std::time::Duration;
use std::{io, ptr};

use windows_sys::Win32::Foundation::{ERROR_INSUFFICIENT_BUFFER, FILETIME};
use windows_sys::Win32::System::JobObjects::{
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_PROCESS_MEMORY, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectExtendedLimitInformation, QueryInformationJobObject,
};
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_IMAGE, MEM_MAPPED, MEMORY_BASIC_INFORMATION, VirtualQuery,
};
use windows_sys::Win32::System::ProcessStatus::{
    GetMappedFileNameW, GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS_EX, PSAPI_WORKING_SET_EX_INFORMATION,
    QueryWorkingSetEx,
};
use windows_sys::Win32::System::SystemInformation::{
    ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetLogicalProcessorInformationEx,
    GlobalMemoryStatusEx, MEMORYSTATUSEX, RelationProcessorCore,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentThread, GetProcessTimes, GetThreadTimes,
};

use crate::host::Cores;
use crate::limit::{Limit, System, Unread};
use crate::{Bytes, MappedFiles, Resident};

/// The size of a page of memory on every processor that Windows runs on today.
const PAGE: usize = 4096;

/// The number of pages whose state is asked for at a time.
const BATCH: usize = 512;

/// The bit of a page's state that is set if it is in the working set.
const IS_VALID: usize = 1;

fn counters() -> io::Result<PROCESS_MEMORY_COUNTERS_EX> {
    // SAFETY: the structure is plain numbers, which may all be zero.
    let mut counters: PROCESS_MEMORY_COUNTERS_EX = unsafe { zeroed() };
    counters.cb = size_of::<PROCESS_MEMORY_COUNTERS_EX>() as u32;
    // SAFETY: the pointer is valid for the size that is passed; the handle of the own process needs no closing.
    let read = unsafe { GetProcessMemoryInfo(GetCurrentProcess(), (&raw mut counters).cast(), counters.cb) };
    if read == 0 { Err(io::Error::last_os_error()) } else { Ok(counters) }
}

fn machine() -> io::Result<MEMORYSTATUSEX> {
    // SAFETY: the structure is plain numbers, which may all be zero.
    let mut status: MEMORYSTATUSEX = unsafe { zeroed() };
    status.dwLength = size_of::<MEMORYSTATUSEX>() as u32;
    // SAFETY: the structure states its size, and is valid for writes.
    let read = unsafe { GlobalMemoryStatusEx(&mut status) };
    if read == 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

/// The working set, its peak, and the used part of the address space.
pub(crate) fn resident() -> io::Result<Resident> {
    let (counters, machine) = (counters()?, machine()?);
    Ok(Resident {
        now: Bytes::from_len(counters.WorkingSetSize),
        peak: Bytes::from_len(counters.PeakWorkingSetSize),
        address_space: Bytes(machine.ullTotalVirtual) - Bytes(machine.ullAvailVirtual),
    })
}

/// The working set without the pages of files.
pub(crate) fn resident_anonymous() -> io::Result<Bytes> {
    Ok(resident()?.now - mapped_files()?.resident)
}

/// Windows keeps the peak of the whole process.
pub(crate) fn forget_resident_peak() {}

/// Files of data are counted as files with code.
pub(crate) fn mapped_data() -> io::Result<MappedFiles> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The names of mapped files are not read.
pub(crate) fn mapped_names() -> io::Result<Vec<String>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Walks the address space: regions of images and of mapped files.
pub(crate) fn mapped_files() -> io::Result<MappedFiles> {
    let mut files = MappedFiles::default();
    let mut address = 0usize;
    loop {
        // SAFETY: the structure is plain numbers and pointers, which may all be zero.
        let mut region: MEMORY_BASIC_INFORMATION = unsafe { zeroed() };
        // SAFETY: the structure is valid for writes of its size; any address may be asked for.
        let read = unsafe {
            VirtualQuery(ptr::without_provenance(address), &mut region, size_of::<MEMORY_BASIC_INFORMATION>())
        };
        if read == 0 {
            return Ok(files);
        }
        let start = region.BaseAddress.addr();
        let is_file = match region.Type {
            MEM_IMAGE => true,
            // Also memory that programs share.
            MEM_MAPPED => is_of_file(region.BaseAddress),
            _ => false,
        };
        if region.State == MEM_COMMIT && is_file {
            files.mapped += Bytes::from_len(region.RegionSize);
            files.resident += resident_part(start, region.RegionSize)?;
        }
        match start.checked_add(region.RegionSize) {
            Some(next) if next > address => address = next,
            _ => return Ok(files),
        }
    }
}

/// Returns `true` if the mapping at an address is of a file, not of memory.
fn is_of_file(address: *const c_void) -> bool {
    let mut name = [0; 1024];
    // SAFETY: the buffer is valid for writes of its length; any address may be asked for.
    let length =
        unsafe { GetMappedFileNameW(GetCurrentProcess(), address, name.as_mut_ptr(), name.len() as u32) };
    length > 0 || io::Error::last_os_error().raw_os_error() == Some(ERROR_INSUFFICIENT_BUFFER.cast_signed())
}

/// The resident bytes of a region.
fn resident_part(start: usize, bytes: usize) -> io::Result<Bytes> {
    let mut pages = 0;
    let mut first = start;
    let end = start + bytes;
    while first < end {
        // SAFETY: the structures are plain numbers and pointers, which may all be zero.
        let mut batch: [PSAPI_WORKING_SET_EX_INFORMATION; BATCH] = unsafe { zeroed() };
        let count = ((end - first) / PAGE).min(BATCH);
        if count == 0 {
            break;
        }
        for (place, page) in batch.iter_mut().take(count).enumerate() {
            page.VirtualAddress = ptr::without_provenance_mut(first + place * PAGE);
        }
        let size = (count * size_of::<PSAPI_WORKING_SET_EX_INFORMATION>()) as u32;
        // SAFETY: the first `count` structures are valid for reads and writes of the size that is passed.
        let read = unsafe { QueryWorkingSetEx(GetCurrentProcess(), batch.as_mut_ptr().cast(), size) };
        if read == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: every bit pattern of the union is a number.
        let is_resident =
            |page: &PSAPI_WORKING_SET_EX_INFORMATION| unsafe { page.VirtualAttributes.Flags & IS_VALID != 0 };
        pages += batch.iter().take(count).filter(|page| is_resident(page)).count();
        first += count * PAGE;
    }
    Ok(Bytes::from_len(pages * PAGE))
}

/// The brand of the processor in 48 characters; ARM processors have no instruction for it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn processor_model() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const HIGHEST: u32 = 0x8000_0000;
    const BRAND: [u32; 3] = [0x8000_0002, 0x8000_0003, 0x8000_0004];
    if __cpuid(HIGHEST).eax < BRAND[2] {
        return None;
    }
    let words = BRAND.map(__cpuid).map(|part| [part.eax, part.ebx, part.ecx, part.edx]);
    let bytes: Vec<u8> = words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes);
    let name = text.trim_matches(['\0', ' ']);
    (!name.is_empty()).then(|| name.to_string())
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn processor_model() -> Option<String> {
    None
}

/// The name of this machine in its network, of at most 63 characters.
pub(crate) fn host_name() -> String {
    let mut name = [0; 256];
    let mut length = name.len() as u32;
    // SAFETY: the buffer is valid for writes of `length` characters.
    let read = unsafe { GetComputerNameExW(ComputerNamePhysicalDnsHostname, name.as_mut_ptr(), &mut length) };
    // It fails only if the buffer is too short.
    let length = if read == 0 { 0 } else { length as usize };
    String::from_utf16_lossy(name.get(..length).unwrap_or(&[]))
}

/// The processor time of this thread, which Windows counts by ticks of its clock, of 16 ms at most.
pub(crate) fn thread_time() -> Duration {
    // SAFETY: the handle of the own thread needs no closing.
    processor_time(|[begun, ended, kernel, user]| unsafe {
        GetThreadTimes(GetCurrentThread(), begun, ended, kernel, user)
    })
}

/// The processor time of all threads of this process.
pub(crate) fn process_time() -> Duration {
    // SAFETY: the handle of the own process needs no closing.
    processor_time(|[begun, ended, kernel, user]| unsafe {
        GetProcessTimes(GetCurrentProcess(), begun, ended, kernel, user)
    })
}

/// The sum of the times in the kernel and outside, which a call reports after two moments.
fn processor_time(call: impl FnOnce([&mut FILETIME; 4]) -> i32) -> Duration {
    const NONE: FILETIME = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let [mut begun, mut ended, mut kernel, mut user] = [NONE; 4];
    // It cannot fail for the own process and thread.
    call([&mut begun, &mut ended, &mut kernel, &mut user]);
    let ticks = |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    // A tick is 100 ns.
    Duration::from_nanos(100 * (ticks(kernel) + ticks(user)))
}

/// All cores of the machine, in all groups of processors.
pub(crate) fn cores(_: &System) -> io::Result<Cores> {
    let mut length = 0u32;
    // SAFETY: a null buffer of length 0 is allowed: the call writes the length that it needs, and fails.
    unsafe { GetLogicalProcessorInformationEx(RelationProcessorCore, ptr::null_mut(), &mut length) };
    // Records hold numbers of 64 bits and begin at multiples of that.
    let mut records = vec![0u64; (length as usize).div_ceil(size_of::<u64>())];
    // SAFETY: the buffer is valid for writes of at least `length` bytes, and aligned as records are.
    let read = unsafe {
        GetLogicalProcessorInformationEx(RelationProcessorCore, records.as_mut_ptr().cast(), &mut length)
    };
    if read == 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = bytemuck::cast_slice::<u64, u8>(&records);
    bytes
        .get(..length as usize)
        .and_then(cores_of)
        .ok_or_else(|| io::Error::other("Windows describes the cores of the machine in an unknown form"))
}

/// Reads records of `SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX` for cores. A record has its length at 4; its efficiency class, which is higher
/// for faster cores, at 9; the number of its masks at 30; and from 32 on the masks, of a multiple of eight bytes each: bits of hardware
/// threads, and the number of their group.
fn cores_of(mut records: &[u8]) -> Option<Cores> {
    /// A mask of 64 hardware threads, its group, and six bytes that are reserved.
    const MASK: usize = 16;
    let mut classes = Vec::new();
    let mut hardware_threads = 0;
    while !records.is_empty() {
        let length = u32::from_le_bytes(records.get(4..8)?.try_into().ok()?) as usize;
        let record = records.get(..length).filter(|record| !record.is_empty())?;
        let masks = u16::from_le_bytes(record.get(30..32)?.try_into().ok()?) as usize;
        for mask in record.get(32..32 + masks * MASK)?.chunks_exact(MASK) {
            hardware_threads += u64::from_le_bytes(mask.get(..8)?.try_into().ok()?).count_ones() as usize;
        }
        classes.push(*record.get(9)?);
        records = &records[length..];
    }
    let fastest = classes.iter().max()?;
    let efficient = classes.iter().filter(|class| *class < fastest).count();
    Some(Cores { count: classes.len(), efficient, hardware_threads })
}

/// Affinities are not read: ranks, which would divide the cores, do not run on Windows.
pub(crate) fn allowed_cores() -> io::Result<String> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the affinity of processes is not read on Windows"))
}

/// Bytes of files are not counted.
pub(crate) fn moved_bytes() -> Option<u64> {
    None
}

/// Windows counts page faults together, whether they waited for a disk or not.
pub(crate) fn major_faults() -> Option<u64> {
    None
}

/// The limits of the job object that the process belongs to, which the system enforces on committed memory.
pub(crate) fn own_limits(_: &System, unread: &mut Vec<Unread>) -> Vec<Limit> {
    // SAFETY: the structure is plain numbers, which may all be zero.
    let mut job: JOBOBJECT_EXTENDED_LIMIT_INFORMATION = unsafe { zeroed() };
    let size = size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>() as u32;
    // SAFETY: no handle asks for the job of this process; the structure is valid for writes of its size.
    let read = unsafe {
        QueryInformationJobObject(
            ptr::null_mut(),
            JobObjectExtendedLimitInformation,
            (&raw mut job).cast(),
            size,
            ptr::null_mut(),
        )
    };
    if read == 0 {
        // A process without a job gets an error too, but no limit applies to it.
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::PermissionDenied {
            unread.push(Unread { path: "job object".into(), reason: error.to_string() });
        }
        return Vec::new();
    }
    let flags = job.BasicLimitInformation.LimitFlags;
    let limit = |flag: u32, source: &str, bytes: usize| {
        let bytes = Bytes::from_len(bytes);
        (flags & flag != 0).then(|| Limit { source: source.into(), bytes, ceiling: bytes })
    };
    [
        limit(
            JOB_OBJECT_LIMIT_PROCESS_MEMORY,
            "the job object's limit for a process",
            job.ProcessMemoryLimit,
        ),
        limit(JOB_OBJECT_LIMIT_JOB_MEMORY, "the job object's limit", job.JobMemoryLimit),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Physical memory that is free or holds pages of files that can be dropped, plus what this process holds already.
pub(crate) fn available(_: &System, own: Bytes, unread: &mut Vec<Unread>) -> Option<Limit> {
    match machine() {
        Ok(status) => {
            let total = Bytes(status.ullTotalPhys);
            let available = Bytes(status.ullAvailPhys) + own;
            Some(Limit { source: "available memory".into(), bytes: available.min(total), ceiling: total })
        }
        Err(error) => {
            unread.push(Unread { path: "the machine's memory".into(), reason: error.to_string() });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Mapped};

    /// Counters that are read beside running threads may lag behind each other.
    const LAG: Bytes = Bytes::mib(4);

    #[test]
    fn sizes_follow_what_the_process_touches() {
        let before = resident().unwrap();
        assert!(
            before.now > Bytes::ZERO && before.now <= before.peak + LAG && before.now <= before.address_space,
            "{before:?}"
        );
        let buffer = vec![1u8; 64 << 20];
        std::hint::black_box(&buffer);
        // Other tests of this program take and free memory meanwhile.
        let first = buffer.as_ptr().addr().next_multiple_of(PAGE);
        assert!(resident_part(first, 63 << 20).unwrap() >= Bytes::mib(60));
        let after = resident().unwrap();
        assert!(after.now >= Bytes::mib(60), "{before:?} {after:?}");
        assert!(resident_anonymous().unwrap() >= Bytes::mib(60));
        let budget = Budget::new(Bytes::mib(64));
        let mut map = Mapped::<u8>::zeroed(&budget, "test", 64 << 20).unwrap();
        map.fill(1);
        assert!(resident_anonymous().unwrap() >= Bytes::mib(120), "mapped memory belongs to no file");
        let files = mapped_files().unwrap();
        assert!(files.resident > Bytes::ZERO && files.resident <= files.mapped, "{files:?}");
    }

    #[test]
    fn the_machine_has_memory_and_this_process_a_limit() {
        let mut unread = Vec::new();
        let found = available(&System::default(), Bytes::ZERO, &mut unread).unwrap();
        assert!(found.bytes > Bytes::ZERO && found.bytes <= found.ceiling, "{found:?}");
        assert!(own_limits(&System::default(), &mut unread).iter().all(|limit| limit.bytes > Bytes::ZERO));
        assert!(unread.is_empty(), "{unread:?}");
    }
}
