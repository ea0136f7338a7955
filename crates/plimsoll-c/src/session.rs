//! Segmentation of what prompts mark, from C. Pointers are checked as far as possible, and become slices and references.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_infer::{InteractiveOptions, InteractiveSession, PromptMask};
use plimsoll_memory::{Budget, System, limits};
use plimsoll_models::nnunet::InteractiveModel;
use plimsoll_volume::{Scaling, VoxelBox, decode_f32};

use crate::arguments::{element_type, expect_bytes, settings};
use crate::error::{Failure, PlimsollStatus};
use crate::interface::{copy_text, guarded, plimsoll_usual_options};
use crate::model::Settings;
use crate::types::{PLIMSOLL_LASSO, PLIMSOLL_SCRIBBLE, PlimsollBox, PlimsollMask, PlimsollOptions};

/// A session with a model of nnInteractive, or what is left to say of one that could not be opened.
pub struct PlimsollSession {
    /// None if it could not be opened. Poisoned by a panic, after which nothing is computed with it.
    open: Mutex<Option<InteractiveSession>>,
    /// The error of the last failed call.
    error: Mutex<String>,
    stop: AtomicBool,
}

/// Handles may be used from several threads, which nothing but this would check.
const _: () = {
    const fn is_for_several_threads<T: Send + Sync>() {}
    is_for_several_threads::<PlimsollSession>();
};

impl PlimsollSession {
    /// Does what a call asks for, and keeps what went wrong.
    fn call(
        &self,
        work: impl FnOnce(&mut Option<InteractiveSession>) -> Result<(), Failure>,
    ) -> PlimsollStatus {
        let done = guarded(|| {
            // A call that panicked has left it half-done.
            let broken = || Failure::Broken("free it and open the session again".into());
            work(&mut *self.open.lock().map_err(|_| broken())?)
        });
        match done {
            Ok(()) => PlimsollStatus::Ok,
            Err((status, text)) => {
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = text;
                status
            }
        }
    }

    /// The same, with a session that could be opened.
    fn with_open(&self, work: impl FnOnce(&mut InteractiveSession) -> Result<(), Failure>) -> PlimsollStatus {
        self.call(|open| work(open.as_mut().ok_or(Failure::NotOpen)?))
    }
}

fn open(path: &Path, settings: Settings) -> Result<InteractiveSession, Failure> {
    let limits = limits(&System::default(), settings.ram);
    if let Some(asked) = settings.ram.filter(|asked| *asked > limits.limit) {
        return Err(Failure::AboveLimit { asked, limit: limits.limit });
    }
    let (budget, threads) = (Budget::new(limits.limit), settings.threads);
    let model = InteractiveModel::open(path, None, &budget)?;
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(threads))?);
    let options = InteractiveOptions { threads, auto_zoom: true };
    Ok(InteractiveSession::new(model, options, backend, &budget)?)
}

/// Opens a session with the folder of a model of nnInteractive. Of `options`, which may be null for the usual ones, `step` and `mirror` have no effect.
/// Unless `session` or `path` is null, `*session` is a handle then, whatever comes of it, which says what is wrong and must be freed; if
/// `path` is null, `*session` is null.
///
/// # Safety
/// `path` is null or a text that ends in zero; `options` and `session` are null or point to what they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_open(
    path: *const c_char,
    options: *const PlimsollOptions,
    session: *mut *mut PlimsollSession,
) -> PlimsollStatus {
    let Some(to) = NonNull::new(session) else { return PlimsollStatus::Argument };
    // SAFETY: it is not null, and the caller promises that a pointer may be written there, where none need be yet.
    unsafe { to.write(std::ptr::null_mut()) };
    if path.is_null() {
        return PlimsollStatus::Argument;
    }
    // SAFETY: it is not null, and the caller's promise says that it ends.
    let path = plimsoll_disk::path_from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    let handle = PlimsollSession {
        open: Mutex::new(None),
        error: Mutex::new(String::new()),
        stop: AtomicBool::new(false),
    };
    // SAFETY: the caller's promise.
    let options = unsafe { options.as_ref() }.copied().unwrap_or_else(|| plimsoll_usual_options());
    let status = handle.call(|found| {
        let path = path.ok_or_else(|| Failure::argument("path is no text in UTF-8"))?;
        *found = Some(open(path, settings(options)?)?);
        Ok(())
    });
    // SAFETY: as above.
    unsafe { to.write(Box::into_raw(Box::new(handle))) };
    status
}

/// Sets an image of one channel, in the order depth, height, width, and removes the earlier one with its prompts. Intensities are as they are stored;
/// they are copied. `element` is PLIMSOLL_U8, PLIMSOLL_U16, PLIMSOLL_I16 or PLIMSOLL_F32.
///
/// # Safety
/// `session` is null or a handle that is not freed; `voxels` is null or can be read for `voxel_bytes`, and `shape` is null or points to 3
/// numbers; nothing changes them until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_set_image(
    session: *const PlimsollSession,
    voxels: *const c_void,
    voxel_bytes: u64,
    element: u32,
    shape: *const u64,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let (Some(session), shape) = (unsafe { (session.as_ref(), shape.cast::<[u64; 3]>().as_ref()) }) else {
        return PlimsollStatus::Argument;
    };
    session.with_open(|open| {
        let shape = extents(shape, "shape")?;
        let element = element_type(element)?;
        let needed = count(shape).and_then(|voxels| voxels.checked_mul(element.size()));
        let needed = expect_bytes("voxels", needed, voxel_bytes, voxels.is_null())?;
        // SAFETY: it is not null, and the caller promises that so many bytes can be read; they are no more than `isize::MAX`.
        let bytes = unsafe { std::slice::from_raw_parts(voxels.cast::<u8>(), needed) };
        open.set_image(shape, &mut |to| {
            // Lengths were compared.
            let _ = decode_f32(element, Scaling::NONE, bytes, to);
            Ok(())
        })?;
        Ok(())
    })
}

/// Adds a point, a voxel (depth, height, width) of the object or, if `include` is 0, of its surroundings.
///
/// # Safety
/// `session` is null or a handle that is not freed; `at` is null or points to 3 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_add_point(
    session: *const PlimsollSession,
    at: *const i64,
    include: u32,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let (Some(session), at) = (unsafe { (session.as_ref(), at.cast::<[i64; 3]>().as_ref()) }) else {
        return PlimsollStatus::Argument;
    };
    session.with_open(|open| {
        let at = at.ok_or_else(|| Failure::argument("at is a null pointer"))?;
        Ok(open.add_point(*at, include != 0)?)
    })
}

/// Adds a box around the object or, if `include` is 0, around what does not belong to it. Most models need boxes of one voxel along one axis.
///
/// # Safety
/// `session` is null or a handle that is not freed; `within` is null or points to a box.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_add_box(
    session: *const PlimsollSession,
    within: *const PlimsollBox,
    include: u32,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let (Some(session), within) = (unsafe { (session.as_ref(), within.as_ref()) }) else {
        return PlimsollStatus::Argument;
    };
    session.with_open(|open| {
        let within = within.ok_or_else(|| Failure::argument("within is a null pointer"))?;
        Ok(open.add_box(within.start, within.end, include != 0)?)
    })
}

/// Adds a scribble or a lasso, PLIMSOLL_SCRIBBLE or PLIMSOLL_LASSO, of the object or, if `include` is 0, of what does not belong to it.
///
/// # Safety
/// `session` is null or a handle that is not freed; `mask` is null or points to a mask whose voxels can be read for as many bytes as it
/// says; nothing changes them until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_add_mask(
    session: *const PlimsollSession,
    kind: u32,
    mask: *const PlimsollMask,
    include: u32,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let (Some(session), mask) = (unsafe { (session.as_ref(), mask.as_ref()) }) else {
        return PlimsollStatus::Argument;
    };
    session.with_open(|open| {
        let mask = mask.ok_or_else(|| Failure::argument("mask is a null pointer"))?;
        let (start, shape) = (extents(Some(&mask.start), "start")?, extents(Some(&mask.shape), "shape")?);
        let bytes = expect_bytes("a mask", count(shape), mask.voxel_bytes, mask.voxels.is_null())?;
        // SAFETY: it is not null, and the caller promises that so many bytes can be read; they are no more than `isize::MAX`.
        let voxels = unsafe { std::slice::from_raw_parts(mask.voxels, bytes) };
        let mask = PromptMask { start, shape, voxels };
        match kind {
            PLIMSOLL_SCRIBBLE => Ok(open.add_scribble(mask, include != 0)?),
            PLIMSOLL_LASSO => Ok(open.add_lasso(mask, include != 0)?),
            _ => Err(Failure::argument(format!("kind is {kind}, but must be 0 or 1"))),
        }
    })
}

/// Begins with a segmentation of the whole image, a byte for each voxel, and removes all prompts. The next prediction refines all of it, unless a
/// prompt is added before.
///
/// # Safety
/// `session` is null or a handle that is not freed; `voxels` is null or can be read for `voxel_bytes`; nothing changes them until the call
/// returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_add_initial_segmentation(
    session: *const PlimsollSession,
    voxels: *const u8,
    voxel_bytes: u64,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_ref() }) else { return PlimsollStatus::Argument };
    session.with_open(|open| {
        let needed = open.shape().and_then(count).unwrap_or(0);
        let needed = expect_bytes("a segmentation", Some(needed), voxel_bytes, voxels.is_null())?;
        // SAFETY: it is not null, and the caller promises that so many bytes can be read; they are no more than `isize::MAX`.
        let voxels = unsafe { std::slice::from_raw_parts(voxels, needed) };
        Ok(open.add_initial_segmentation(voxels)?)
    })
}

/// Predicts the object with all prompts, around the newest one, and writes the box in which the segmentation may have changed: an empty one if no prompt was
/// added since the last prediction. `changed` may be null.
///
/// # Safety
/// `session` is null or a handle that is not freed; `changed` is null or points to a box.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_predict(
    session: *const PlimsollSession,
    changed: *mut PlimsollBox,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_ref() }) else { return PlimsollStatus::Argument };
    session.with_open(|open| {
        // Dropped while this call still has the session, so that what stopped it does not stop the next one.
        let _ended = Ended(&session.stop);
        let found = open.predict(&session.stop, &mut |_| {})?;
        if let Some(to) = NonNull::new(changed) {
            // SAFETY: it is not null, and the caller promises room for one, which need not be there yet.
            unsafe { to.write(found.map_or_else(PlimsollBox::default, PlimsollBox::new)) };
        }
        Ok(())
    })
}

/// Copies the segmentation, a byte for each voxel: 1 for the object, else 0.
///
/// # Safety
/// `session` is null or a handle that is not freed; `labels` is null or can be written for `label_bytes`, which nothing else uses until the
/// call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_segmentation(
    session: *const PlimsollSession,
    labels: *mut u8,
    label_bytes: u64,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_ref() }) else { return PlimsollStatus::Argument };
    session.with_open(|open| {
        let needed = open.shape().and_then(count).unwrap_or(0);
        let needed = expect_bytes("labels", Some(needed), label_bytes, labels.is_null())?;
        // SAFETY: it is not null and as long as the caller says; nothing else has it meanwhile. C may not have written it yet, so that zeros
        // come before the slice.
        let labels = unsafe {
            labels.write_bytes(0, needed);
            std::slice::from_raw_parts_mut(labels, needed)
        };
        Ok(open.write_segmentation(labels)?)
    })
}

/// Returns to the state before the last prompt, predictions since included. Without one, or if it was undone already, nothing changes.
///
/// # Safety
/// `session` is null or a handle that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_undo(session: *const PlimsollSession) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_ref() }) else { return PlimsollStatus::Argument };
    session.with_open(|open| {
        open.undo();
        Ok(())
    })
}

/// Removes all prompts and the segmentation, for another object of the same image.
///
/// # Safety
/// `session` is null or a handle that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_reset(session: *const PlimsollSession) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let Some(session) = (unsafe { session.as_ref() }) else { return PlimsollStatus::Argument };
    session.with_open(|open| {
        open.reset();
        Ok(())
    })
}

/// Ends a prediction that another thread waits for, which then returns PLIMSOLL_STATUS_STOPPED and leaves the segmentation as it was. Where none
/// is going on, the next one ends so as soon as it begins.
///
/// # Safety
/// `session` is null or a handle that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_stop(session: *const PlimsollSession) {
    // SAFETY: the caller's promise.
    if let Some(session) = unsafe { session.as_ref() } {
        session.stop.store(true, Ordering::Relaxed);
    }
}

/// Copies the error of the last call that failed on this session, as `plimsoll_error` does it for a model.
///
/// # Safety
/// `session` is null or a handle that is not freed; `text` is null or can be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_error(
    session: *const PlimsollSession,
    text: *mut c_char,
    size: u64,
) -> u64 {
    // SAFETY: the caller's promise.
    let error = match unsafe { session.as_ref() } {
        Some(session) => session.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        None => "the handle is a null pointer".into(),
    };
    // SAFETY: the caller's promise.
    unsafe { copy_text(&error, text, size) }
}

/// Frees a session and all memory that it holds. Null is allowed.
///
/// # Safety
/// `session` is null or a handle that `plimsoll_session_open` gave and that was not freed; no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_session_free(session: *mut PlimsollSession) {
    if !session.is_null() {
        // SAFETY: it is from `Box::into_raw`, and the caller promises that nobody else has it.
        let session = unsafe { Box::from_raw(session) };
        // A handle after a panic may be inconsistent, so that dropping it may panic as well.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(session)));
    }
}

/// Takes back that a prediction is to stop when it has ended, however it did.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Three numbers as extents or places of voxels.
fn extents(numbers: Option<&[u64; 3]>, what: &str) -> Result<[usize; 3], Failure> {
    let numbers = numbers.ok_or_else(|| Failure::argument(format!("{what} is a null pointer")))?;
    let mut extents = [0; 3];
    for (to, from) in extents.iter_mut().zip(numbers) {
        let too_large =
            |_| Failure::argument(format!("{what} of {numbers:?} does not fit the address space"));
        *to = usize::try_from(*from).map_err(too_large)?;
    }
    Ok(extents)
}

/// The number of voxels of a shape, if it fits the address space.
fn count([depth, height, width]: [usize; 3]) -> Option<usize> {
    depth.checked_mul(height)?.checked_mul(width)
}

impl PlimsollBox {
    fn new(within: VoxelBox) -> PlimsollBox {
        // Voxels of an image in memory.
        let end = std::array::from_fn(|axis| (within.start[axis] + within.shape[axis]) as i64);
        PlimsollBox { start: within.start.map(|first| first as i64), end }
    }
}
