//! macOS: the counters of the task, and the machine's memory.
#![allow(unsafe_code, reason = "calls of the interface of macOS")]
#![allow(deprecated, reason = "`libc` points to another crate for the same two functions of Mach")]

use std::ffi::{CStr, c_void};
use std::mem::{MaybeUninit, size_of};
use std::{fs, io, ptr};

use libc::{c_int, host_statistics64, mach_host_self, mach_task_self, sysctlbyname, vm_statistics64};

use crate::host::Cores;
use crate::limit::{Limit, System, Unread};
use crate::{Bytes, MappedFiles, Resident};

/// Resource use of this process: `ri_phys_footprint` is the memory that the system counts against it, dirty and compressed pages.
fn usage() -> io::Result<libc::rusage_info_v4> {
    let mut usage = MaybeUninit::<libc::rusage_info_v4>::zeroed();
    // SAFETY: the structure of this version is valid for writes, and consists of numbers, which may all be zero.
    unsafe {
        match libc::proc_pid_rusage(libc::getpid(), libc::RUSAGE_INFO_V4, usage.as_mut_ptr().cast()) {
            0 => Ok(usage.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The basic numbers of this task.
fn task() -> io::Result<libc::mach_task_basic_info> {
    let mut info = MaybeUninit::<libc::mach_task_basic_info>::zeroed();
    let mut count = libc::MACH_TASK_BASIC_INFO_COUNT;
    // SAFETY: the structure is valid for writes of `count` words, and consists of numbers, which may all be zero.
    unsafe {
        let read = libc::task_info(
            mach_task_self(),
            libc::MACH_TASK_BASIC_INFO,
            info.as_mut_ptr().cast(),
            &mut count,
        );
        if read == libc::KERN_SUCCESS {
            Ok(info.assume_init())
        } else {
            Err(io::Error::other(format!("task_info returned {read}")))
        }
    }
}

/// The resident size, its peak and the address space of the task.
pub(crate) fn resident() -> io::Result<Resident> {
    let task = task()?;
    Ok(Resident {
        now: Bytes(task.resident_size),
        peak: Bytes(task.resident_size_max),
        address_space: Bytes(task.virtual_size),
    })
}

/// The footprint of the process, which includes what the system has compressed.
pub(crate) fn resident_anonymous() -> io::Result<Bytes> {
    Ok(Bytes(usage()?.ri_phys_footprint))
}

/// macOS keeps the peak of the whole process.
pub(crate) fn forget_resident_peak() {}

/// Files of data are counted as files with code.
pub(crate) fn mapped_data() -> io::Result<MappedFiles> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The names of mapped files are not read.
pub(crate) fn mapped_names() -> io::Result<Vec<String>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The program's file, and the resident memory above the footprint. Libraries of the system are in a cache that all processes share, and
/// are counted as far as they are resident.
pub(crate) fn mapped_files() -> io::Result<MappedFiles> {
    let program = Bytes(fs::metadata(std::env::current_exe()?)?.len());
    let resident = resident()?.now - resident_anonymous()?;
    Ok(MappedFiles { mapped: program.max(resident), resident })
}

/// Reads a value of `sysctl` into a buffer, and returns its length.
fn sysctl(name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len();
    // SAFETY: the name ends with zero, and the buffer is valid for writes of `length` bytes; nothing is set.
    let read = unsafe {
        sysctlbyname(name.as_ptr(), value.as_mut_ptr().cast::<c_void>(), &mut length, ptr::null_mut(), 0)
    };
    if read == 0 { Ok(length.min(value.len())) } else { Err(io::Error::last_os_error()) }
}

/// The processor's name, like `Apple M4 Max`.
pub(crate) fn processor_model() -> Option<String> {
    let mut text = [0; 256];
    let length = sysctl(c"machdep.cpu.brand_string", &mut text).ok()?;
    let text = CStr::from_bytes_until_nul(text.get(..length)?).ok()?;
    Some(text.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
}

/// `hw.perflevel0` are the performance cores of Apple's processors, and `hw.perflevel1` the efficiency cores. Macs of Intel have neither.
pub(crate) fn cores(_: &System) -> io::Result<Cores> {
    let number = |name: &CStr| {
        let mut bytes = [0; size_of::<u32>()];
        sysctl(name, &mut bytes).map(|_| u32::from_ne_bytes(bytes) as usize)
    };
    Ok(Cores {
        count: number(c"hw.physicalcpu")?,
        efficient: number(c"hw.perflevel1.physicalcpu").unwrap_or(0),
        hardware_threads: number(c"hw.logicalcpu")?,
    })
}

/// Threads of macOS have no affinity to cores.
pub(crate) fn allowed_cores() -> io::Result<String> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "macOS binds no process to cores"))
}

/// Bytes of files are not counted.
pub(crate) fn moved_bytes() -> Option<u64> {
    None
}

/// Page faults that waited for a disk.
pub(crate) fn major_faults() -> Option<u64> {
    Some(usage().ok()?.ri_pageins)
}

/// `RLIMIT_AS` and `RLIMIT_DATA`.
pub(crate) fn own_limits(_: &System, unread: &mut Vec<Unread>) -> Vec<Limit> {
    let mut limits = Vec::new();
    for (source, resource) in [("RLIMIT_AS", libc::RLIMIT_AS), ("RLIMIT_DATA", libc::RLIMIT_DATA)] {
        let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure is valid for writes.
        if unsafe { libc::getrlimit(resource, &mut found) } != 0 {
            unread.push(Unread { path: source.into(), reason: io::Error::last_os_error().to_string() });
        } else if found.rlim_cur != libc::RLIM_INFINITY {
            let bytes = Bytes(found.rlim_cur);
            limits.push(Limit { source: source.into(), bytes, ceiling: bytes });
        }
    }
    limits
}

/// Memory that is free, or holds pages of files that can be dropped, plus what this process holds already.
pub(crate) fn available(_: &System, own: Bytes, unread: &mut Vec<Unread>) -> Option<Limit> {
    match machine() {
        Ok((available, total)) => {
            let bytes = (available + own).min(total);
            Some(Limit { source: "available memory".into(), bytes, ceiling: total })
        }
        Err(error) => {
            unread.push(Unread { path: "the machine's memory".into(), reason: error.to_string() });
            None
        }
    }
}

/// Available and total memory.
fn machine() -> io::Result<(Bytes, Bytes)> {
    let mut total = [0; size_of::<u64>()];
    sysctl(c"hw.memsize", &mut total)?;
    let mut statistics = MaybeUninit::<vm_statistics64>::zeroed();
    let mut count = libc::HOST_VM_INFO64_COUNT;
    // SAFETY: the structure is valid for writes of `count` words, and consists of numbers, which may all be zero.
    let (read, statistics) = unsafe {
        let read: c_int = host_statistics64(
            mach_host_self(),
            libc::HOST_VM_INFO64,
            statistics.as_mut_ptr().cast(),
            &mut count,
        );
        (read, statistics.assume_init())
    };
    if read != libc::KERN_SUCCESS {
        return Err(io::Error::other(format!("host_statistics64 returned {read}")));
    }
    // SAFETY: a constant of the system is asked for.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = u64::try_from(page).map_err(|_| io::Error::last_os_error())?;
    let pages = [statistics.free_count, statistics.inactive_count, statistics.purgeable_count];
    let available = pages.iter().map(|count| u64::from(*count)).sum::<u64>() * page;
    Ok((Bytes(available), Bytes(u64::from_ne_bytes(total))))
}
