//! The functions of the C interface. All unsafe code is here: pointers are checked as far as possible, and become slices and references.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_infer::ArrayOutput;
use plimsoll_memory::{System, limits};
use plimsoll_parallel::default_threads;

use crate::arguments::{MOST_THREADS, channels, element_type, expect_bytes, geometry, settings};
use crate::error::{Failure, PlimsollStatus};
use crate::model::Model;
use crate::types::{
    PLIMSOLL_MIRROR_USUAL, PLIMSOLL_U8, PLIMSOLL_U16, PlimsollDescription, PlimsollEstimate, PlimsollImage,
    PlimsollOptions, PlimsollPlan,
};

/// A model that is open, or what is left to say of one that could not be opened.
pub struct PlimsollModel {
    /// None if it could not be opened. Poisoned by a panic, after which nothing is computed with it.
    open: Mutex<Option<Model>>,
    /// The error of the last failed call.
    error: Mutex<String>,
    stop: AtomicBool,
}

/// Handles may be used from several threads, which nothing but this would check.
const _: () = {
    const fn is_for_several_threads<T: Send + Sync>() {}
    is_for_several_threads::<PlimsollModel>();
};

/// The program's version, such as `1.2.3`. The text is valid for the life of the process.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The default options, as on the command line: the machine's memory, one thread per core up to 256, windows that overlap by half.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_usual_options() -> PlimsollOptions {
    let threads = (default_threads() as u64).min(MOST_THREADS);
    PlimsollOptions { ram_bytes: 0, threads, step: 0.5, mirror: PLIMSOLL_MIRROR_USUAL }
}

/// The affine of an image by its spacing in millimetres along depth, height, width; the unit vectors of depth, height and width as the
/// columns of a matrix, row by row, or null for depth towards superior, height towards anterior and width towards right; and the position
/// of the first voxel, or null for 0. `affine` has room for twelve numbers.
///
/// # Safety
/// Pointers are null or point to 3, 9, 3 and 12 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_affine(
    spacing: *const f64,
    direction: *const f64,
    origin: *const f64,
    affine: *mut f64,
) -> PlimsollStatus {
    // SAFETY: the caller's promise; each is null or points to so many numbers, which nothing else changes meanwhile.
    let (spacing, direction, origin) = unsafe {
        (
            spacing.cast::<[f64; 3]>().as_ref(),
            direction.cast::<[[f64; 3]; 3]>().as_ref(),
            origin.cast::<[f64; 3]>().as_ref(),
        )
    };
    let to = NonNull::new(affine.cast::<[[f64; 4]; 3]>());
    let (Some(spacing), Some(to)) = (spacing, to) else { return PlimsollStatus::Argument };
    const ALONG_THE_AXES: [[f64; 3]; 3] = [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]];
    let (direction, origin) = (direction.unwrap_or(&ALONG_THE_AXES), origin.unwrap_or(&[0.0; 3]));
    let rows = direction.iter().zip(origin);
    let mut affine = [[0.0; 4]; 3];
    for (to, ([depth, height, width], shift)) in affine.iter_mut().zip(rows) {
        *to = [depth * spacing[0], height * spacing[1], width * spacing[2], *shift];
    }
    // SAFETY: it is not null, and the caller promises room for twelve numbers, which need not be there yet.
    unsafe { to.write(affine) };
    PlimsollStatus::Ok
}

/// Opens a model: the folder of a run, of one fold of it, of a configuration that nnU-Net trained or of a MONAI bundle, a `.plimsoll` file,
/// or a `model.toml` that describes a model of MONAI. `options` may be null for the usual ones. Unless `model` or `path` is null, `*model` is
/// a handle then, whatever comes of it, which says what is wrong and must be freed; if `path` is null, `*model` is null.
///
/// # Safety
/// `path` is null or a text that ends in zero; `options` and `model` are null or point to what they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_open(
    path: *const c_char,
    options: *const PlimsollOptions,
    model: *mut *mut PlimsollModel,
) -> PlimsollStatus {
    let Some(to) = NonNull::new(model) else { return PlimsollStatus::Argument };
    // SAFETY: it is not null, and the caller promises that a pointer may be written there, where none need be yet.
    unsafe { to.write(std::ptr::null_mut()) };
    if path.is_null() {
        return PlimsollStatus::Argument;
    }
    // SAFETY: it is not null, and the caller's promise says that it ends.
    let path = plimsoll_disk::path_from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    let handle = PlimsollModel {
        open: Mutex::new(None),
        error: Mutex::new(String::new()),
        stop: AtomicBool::new(false),
    };
    // SAFETY: the caller's promise.
    let options = unsafe { options.as_ref() }.copied().unwrap_or_else(|| plimsoll_usual_options());
    let status = handle.call(|open| {
        let path = path.ok_or_else(|| Failure::argument("path is no text in UTF-8"))?;
        *open = Some(Model::open(path, settings(options)?)?);
        Ok(())
    });
    // SAFETY: as above.
    unsafe { to.write(Box::into_raw(Box::new(handle))) };
    status
}

/// Says what a model is.
///
/// # Safety
/// `model` is null or a handle that is not freed; `description` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_describe(
    model: *const PlimsollModel,
    description: *mut PlimsollDescription,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let Some(model) = (unsafe { model.as_ref() }) else { return PlimsollStatus::Argument };
    model.with_open(|open| {
        let Some(to) = NonNull::new(description) else {
            return Err(Failure::argument("description is a null pointer"));
        };
        let limit_bytes = open.arrays().limit().0;
        let described = open.arrays().model();
        let value = PlimsollDescription {
            channels: described.channels.len() as u64,
            largest_label: described.answers.largest().into(),
            folds: described.weights.len() as u64,
            window: described.patch.map(|extent| extent as u64),
            ram_bytes: limit_bytes,
        };
        // SAFETY: it is not null, and the caller promises room for one, which need not be there yet.
        unsafe { to.write(value) };
        Ok(())
    })
}

/// Plans an image of a shape (depth, height, width) and an affine as `PlimsollImage` has it, as if no part of it were empty. Nothing is
/// taken for it; what an earlier prediction has kept is given back, if it leaves no room for this image.
///
/// # Safety
/// `model` is null or a handle that is not freed; `shape` and `affine` are null or point to 3 and 12 numbers; `plan` is null or points to
/// one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_plan(
    model: *const PlimsollModel,
    shape: *const u64,
    affine: *const f64,
    element: u32,
    plan: *mut PlimsollPlan,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let (Some(model), shape, affine) =
        (unsafe { (model.as_ref(), shape.cast::<[u64; 3]>().as_ref(), affine.cast::<[f64; 12]>().as_ref()) })
    else {
        return PlimsollStatus::Argument;
    };
    model.with_open(|open| {
        let (Some(shape), Some(affine), Some(to)) = (shape, affine, NonNull::new(plan)) else {
            return Err(Failure::argument("shape, affine or plan is a null pointer"));
        };
        let held = open.arrays().plan(geometry(*shape, affine)?, element_type(element)?)?;
        // SAFETY: it is not null, and the caller promises room for one, which need not be there yet.
        unsafe { to.write(PlimsollPlan::new(&held)) };
        Ok(())
    })
}

/// Estimates the least memory and the time of predicting an image of a shape and an affine, as `plimsoll_plan` plans it. If the limit of the
/// handle is too low for the image, the status is PLIMSOLL_STATUS_MEMORY, and the text of the error proposes another one.
///
/// # Safety
/// `model` is null or a handle that is not freed; `shape` and `affine` are null or point to 3 and 12 numbers; `estimate` is null or points
/// to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_estimate(
    model: *const PlimsollModel,
    shape: *const u64,
    affine: *const f64,
    element: u32,
    estimate: *mut PlimsollEstimate,
) -> PlimsollStatus {
    // SAFETY: the caller promises that each is null or points to these numbers, which nothing else changes meanwhile.
    let (Some(model), shape, affine) =
        (unsafe { (model.as_ref(), shape.cast::<[u64; 3]>().as_ref(), affine.cast::<[f64; 12]>().as_ref()) })
    else {
        return PlimsollStatus::Argument;
    };
    model.with_open(|open| {
        let (Some(shape), Some(affine), Some(to)) = (shape, affine, NonNull::new(estimate)) else {
            return Err(Failure::argument("shape, affine or estimate is a null pointer"));
        };
        let found = open.arrays().estimate(geometry(*shape, affine)?, element_type(element)?)?;
        // SAFETY: it is not null, and the caller promises room for one, which need not be there yet.
        unsafe { to.write(PlimsollEstimate::new(&found)) };
        Ok(())
    })
}

/// Predicts the labels of an image: one for each voxel, in the order of the image's. `element` is PLIMSOLL_U8 or PLIMSOLL_U16, and
/// `label_bytes` the bytes of the buffer, voxels times 1 or 2. They are those that `plimsoll predict` writes for the same image in a file.
/// `plan` may be null. After a failure what is in `labels` means nothing. Image and labels must not overlap.
///
/// # Safety
/// `model` is null or a handle that is not freed; `image` and what it points to can be read for as many bytes as it says, `labels` can be
/// written for `label_bytes`, and `plan` is null or points to one; nothing else changes them until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_predict(
    model: *const PlimsollModel,
    image: *const PlimsollImage,
    labels: *mut c_void,
    element: u32,
    label_bytes: u64,
    plan: *mut PlimsollPlan,
) -> PlimsollStatus {
    // SAFETY: the caller's promise.
    let (Some(model), image) = (unsafe { (model.as_ref(), image.as_ref()) }) else {
        return PlimsollStatus::Argument;
    };
    model.with_open(|open| {
        // Dropped while this call still has the model, so that what stopped it does not stop the next one.
        let _ended = Ended(&model.stop);
        let Some(image) = image else {
            return Err(Failure::argument("image is a null pointer"));
        };
        let is_wide = match element {
            PLIMSOLL_U8 => false,
            PLIMSOLL_U16 => true,
            _ => {
                return Err(Failure::argument(format!(
                    "labels are stored in 8 or 16 bits, not as {element}"
                )));
            }
        };
        let geometry = geometry(image.shape, &image.affine)?;
        let needed = geometry.voxel_count().checked_mul(1 + usize::from(is_wide));
        let needed = expect_bytes("labels", needed, label_bytes, labels.is_null())?;
        // SAFETY: checks its lengths and that nothing is null; the rest is the caller's promise.
        let image = unsafe { channels(image, geometry)? };
        let labels = labels.cast::<u8>();
        // SAFETY: it is not null and as long as the caller says, which is what the image asks for and no more than `isize::MAX`; nothing
        // else has it meanwhile. C may not have written it yet, so that zeros come before the slice.
        let labels = unsafe {
            labels.write_bytes(0, needed);
            std::slice::from_raw_parts_mut(labels, needed)
        };
        let output = ArrayOutput { labels, is_wide, probabilities: None };
        let held = open.arrays().predict(&image, output, &model.stop, &mut |_| {})?;
        if let Some(to) = NonNull::new(plan) {
            // SAFETY: it is not null, and the caller promises room for one, which need not be there yet.
            unsafe { to.write(PlimsollPlan::new(&held)) };
        }
        Ok(())
    })
}

/// Ends a prediction that another thread waits for, which then returns PLIMSOLL_STATUS_STOPPED. Where none is going on, the next one ends so
/// as soon as it begins.
///
/// # Safety
/// `model` is null or a handle that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_stop(model: *const PlimsollModel) {
    // SAFETY: the caller's promise.
    if let Some(model) = unsafe { model.as_ref() } {
        model.stop.store(true, Ordering::Relaxed);
    }
}

/// Copies what the last call that failed on this handle has to say, in UTF-8 with a zero behind it: one line, and often a second one that
/// begins with `hint: `. Of a text that is longer than `size` bytes, the beginning. Returns how many bytes all of it takes, the zero
/// included.
///
/// # Safety
/// `model` is null or a handle that is not freed; `text` is null or can be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_error(model: *const PlimsollModel, text: *mut c_char, size: u64) -> u64 {
    // SAFETY: the caller's promise.
    let error = match unsafe { model.as_ref() } {
        Some(model) => unpoisoned(&model.error).clone(),
        None => "the handle is a null pointer".into(),
    };
    // SAFETY: the caller's promise.
    unsafe { copy_text(&error, text, size) }
}

/// Copies the warnings about the memory limit of this process, in UTF-8 with a zero behind them: one line for each file of the system that
/// exists but cannot be read, so that a memory limit set there is not enforced. The text is empty if every file was read. Of a text that is
/// longer than `size` bytes, the beginning. Returns how many bytes all of it takes, the zero included.
///
/// # Safety
/// `text` is null or can be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_limit_warnings(text: *mut c_char, size: u64) -> u64 {
    let mut warnings = String::new();
    // A panic leaves the text empty: nothing unwinds into C.
    let _ = guarded(|| {
        warnings = limit_warnings(&System::default());
        Ok(())
    });
    // SAFETY: the caller promises that it is null or can be written for `size` bytes.
    unsafe { copy_text(&warnings, text, size) }
}

/// The warnings about memory limits that cannot be read, one line each.
pub(crate) fn limit_warnings(system: &System) -> String {
    let unread = limits(system, None).unread;
    unread.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Copies a text with a zero behind it, as much of it as there is room for. Returns the bytes of all of it, the zero included.
///
/// # Safety
/// `to` is null or can be written for `size` bytes, which nothing else uses meanwhile.
pub(crate) unsafe fn copy_text(text: &str, to: *mut c_char, size: u64) -> u64 {
    let needed = text.len() as u64 + 1;
    let room = usize::try_from(size.min(needed)).ok().filter(|room| *room > 0 && !to.is_null());
    if let Some(room) = room {
        let to = to.cast::<u8>();
        // SAFETY: it is not null, and `room` is at most `size`, for which the caller promises that it can be written. C may not have
        // written it yet, so that zeros come before the slice.
        let to = unsafe {
            to.write_bytes(0, room);
            std::slice::from_raw_parts_mut(to, room)
        };
        if let Some((last, begin)) = to.split_last_mut() {
            begin.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
            *last = 0;
        }
    }
    needed
}

/// Does what a call asks for, and returns the status and the text of an error. Nothing unwinds out of it.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), (PlimsollStatus, String)> {
    let failed = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(failure)) => (failure.status(), failure.text()),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            let said = said.unwrap_or("a panic without a message");
            (PlimsollStatus::Internal, format!("internal error: {said}"))
        }
    };
    // A zero would end the text for C.
    Err((failed.0, failed.1.replace('\0', "\u{fffd}")))
}

/// Frees a handle and all memory that it holds. Null is allowed.
///
/// # Safety
/// `model` is null or a handle that `plimsoll_open` gave and that was not freed; no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_free(model: *mut PlimsollModel) {
    if !model.is_null() {
        // SAFETY: it is from `Box::into_raw`, and the caller promises that nobody else has it.
        let model = unsafe { Box::from_raw(model) };
        // A handle after a panic may be inconsistent, so it is leaked instead of dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(model)));
    }
}

impl PlimsollModel {
    /// Does what a call asks for, and keeps what went wrong.
    fn call(&self, work: impl FnOnce(&mut Option<Model>) -> Result<(), Failure>) -> PlimsollStatus {
        let done = guarded(|| {
            // A call that panicked has left it half-done.
            let mut open =
                self.open.lock().map_err(|_| Failure::Broken("free it and open the model again".into()))?;
            work(&mut open)
        });
        match done {
            Ok(()) => PlimsollStatus::Ok,
            Err((status, text)) => {
                *unpoisoned(&self.error) = text;
                status
            }
        }
    }

    /// The same, with a model that could be opened.
    fn with_open(&self, work: impl FnOnce(&mut Model) -> Result<(), Failure>) -> PlimsollStatus {
        self.call(|open| work(open.as_mut().ok_or(Failure::NotOpen)?))
    }
}

/// Takes back that a prediction is to stop when it has ended, however it did.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A text is whole whenever its lock is free.
fn unpoisoned(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::panic, reason = "it is what must not reach C")]
    fn a_panic_ends_a_call_with_a_status_and_the_handle_is_only_good_to_be_freed() {
        let handle = PlimsollModel {
            open: Mutex::new(None),
            error: Mutex::new(String::new()),
            stop: AtomicBool::new(false),
        };
        assert_eq!(handle.call(|_| panic!("all {}", "wrong")), PlimsollStatus::Internal);
        assert!(unpoisoned(&handle.error).contains("all wrong"));
        assert_eq!(handle.call(|_| Ok(())), PlimsollStatus::Internal);
        assert!(unpoisoned(&handle.error).contains("free it and open the model again"));
        let mut description = PlimsollDescription::default();
        // SAFETY: both are references.
        let status = unsafe { plimsoll_describe(&handle, &mut description) };
        assert_eq!(status, PlimsollStatus::Internal);
        // SAFETY: the handle is from a box, and nobody else has it.
        unsafe { plimsoll_free(Box::into_raw(Box::new(handle))) };
    }
}
