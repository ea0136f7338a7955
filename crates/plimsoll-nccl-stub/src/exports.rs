//! The functions of the library.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::communicator::{ALIVE, Comm, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SUCCESS};
use crate::stream::Stream;

/// The time for which a call goes on in the background.
const LATE: Duration = Duration::from_micros(100);

/// The faults of this copy of the library, each with the number from which it shows, or -1: see `Fault`.
static FAULTS: [AtomicI64; 6] = [const { AtomicI64::new(-1) }; 6];

pub(crate) const VERSION: usize = 0;
pub(crate) const REFUSED: usize = 1;
pub(crate) const ABSENT: usize = 2;
pub(crate) const BROKEN: usize = 3;
pub(crate) const STUCK: usize = 4;
pub(crate) const UNSENT: usize = 5;

/// Returns the number from which a fault shows.
fn fault(which: usize) -> Option<u64> {
    u64::try_from(FAULTS[which].load(Ordering::SeqCst)).ok()
}

/// Sets the number from which a fault shows.
#[unsafe(no_mangle)]
extern "C" fn stub_set_fault(which: usize, from: i64) {
    FAULTS[which].store(from, Ordering::SeqCst);
}

/// Returns the number of communicators that are neither destroyed nor aborted.
#[unsafe(no_mangle)]
extern "C" fn stub_alive() -> usize {
    ALIVE.load(Ordering::SeqCst)
}

#[repr(C)]
struct UniqueId([u8; 128]);

#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    others: [c_int; 3],
    network: *const c_char,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { version.write(fault(VERSION).map_or(22_703, |number| number as c_int)) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
    // Copies of the library count by themselves, but each has functions of its own.
    let copy = std::ptr::from_ref(&NEXT).addr();
    let folder = std::env::temp_dir().join(format!("nccl-stub-{process}-{copy:x}-{number}"));
    fs::create_dir(&folder).unwrap();
    let mut bytes = [0; 128];
    let path = folder.as_os_str().as_bytes();
    bytes[..path.len()].copy_from_slice(path);
    // SAFETY: as the caller promises.
    unsafe { id.write(UniqueId(bytes)) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut *const Comm,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    // SAFETY: as the caller promises.
    let config = unsafe { config.read() };
    let is_known = config.magic == 0xcafe_beef && config.size == 40 && config.version == 21_700;
    let is_asked = config.blocking == 0 && config.others == [c_int::MIN, 1, 1] && config.network.is_null();
    if !is_known || !is_asked || ranks != 2 || !(0..2).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let path = id.0.split(|byte| *byte == 0).next().unwrap();
    if fault(REFUSED).is_some() {
        let _ = fs::remove_dir(OsStr::from_bytes(path));
        return INVALID_USAGE;
    }
    let new = Arc::new(Comm::new(OsStr::from_bytes(path).into(), rank));
    if fault(ABSENT).is_none() {
        new.join();
    }
    // SAFETY: as the caller promises.
    unsafe { comm.write(Arc::into_raw(new)) };
    IN_PROGRESS
}

/// The communicator of a handle, which keeps its own count.
///
/// # Safety
/// The handle is of a communicator that is neither destroyed nor aborted.
unsafe fn shared(comm: *const Comm) -> Arc<Comm> {
    // SAFETY: it was made by `Arc::into_raw`, and its count is not taken.
    unsafe {
        Arc::increment_strong_count(comm);
        Arc::from_raw(comm)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(comm: *const Comm, state: *mut c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { state.write(shared(comm).state()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommFinalize(comm: *const Comm) -> c_int {
    // SAFETY: as the caller promises.
    let comm = unsafe { shared(comm) };
    comm.set_state(IN_PROGRESS);
    thread::spawn(move || {
        thread::sleep(LATE);
        comm.set_state(SUCCESS);
    });
    IN_PROGRESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommDestroy(comm: *const Comm) -> c_int {
    // SAFETY: as the caller promises; this is its last use.
    let comm = unsafe { Arc::from_raw(comm) };
    comm.remove_folder();
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommAbort(comm: *const Comm) -> c_int {
    // SAFETY: as the caller promises; this is its last use.
    let comm = unsafe { Arc::from_raw(comm) };
    comm.abort();
    comm.remove_folder();
    SUCCESS
}

/// Enqueues a message: every second one in the background.
///
/// # Safety
/// The contract is the one of NCCL's calls.
unsafe fn enqueue(
    comm: *const Comm,
    stream: *const Stream,
    work: impl FnOnce(&Comm, u64) + Send + 'static,
) -> c_int {
    // SAFETY: as the caller promises.
    let (comm, add) = unsafe { (shared(comm), (*stream).adder()) };
    let number = comm.count();
    if fault(BROKEN).is_some_and(|from| number >= from) {
        comm.set_state(REMOTE_ERROR);
        return SUCCESS;
    }
    let own = Arc::clone(&comm);
    let task = Box::new(move || work(&own, number));
    if number.is_multiple_of(2) {
        add(task);
        return SUCCESS;
    }
    comm.set_state(IN_PROGRESS);
    thread::spawn(move || {
        thread::sleep(LATE);
        add(task);
        comm.set_state(SUCCESS);
    });
    IN_PROGRESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclSend(
    from: *const u8,
    bytes: usize,
    kind: c_int,
    other: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> c_int {
    if kind != 1 || other != 1 {
        return INVALID_ARGUMENT;
    }
    if fault(UNSENT).is_some() {
        return INVALID_USAGE;
    }
    let from = from.addr();
    // SAFETY: as the caller promises.
    unsafe {
        enqueue(comm, stream, move |comm, number| {
            let from = std::ptr::with_exposed_provenance(from);
            // SAFETY: the caller promises that many bytes until the stream has passed.
            comm.send(number, std::slice::from_raw_parts(from, bytes));
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclRecv(
    to: *mut u8,
    bytes: usize,
    kind: c_int,
    other: c_int,
    comm: *const Comm,
    stream: *const Stream,
) -> c_int {
    if kind != 1 || other != 0 {
        return INVALID_ARGUMENT;
    }
    let to = to.addr();
    // SAFETY: as the caller promises.
    unsafe {
        enqueue(comm, stream, move |comm, number| {
            let to = std::ptr::with_exposed_provenance_mut(to);
            let number = match fault(STUCK) {
                // A message that never comes.
                Some(from) if number >= from => u64::MAX,
                _ => number,
            };
            // SAFETY: the caller promises that many bytes until the stream has passed, which nothing else uses.
            comm.receive(number, std::slice::from_raw_parts_mut(to, bytes));
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        _ => c"unknown error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_: *mut c_void) -> *const c_char {
    c"of the stub".as_ptr()
}
