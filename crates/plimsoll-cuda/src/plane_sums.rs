//! Sums over planes of a case, beside the arena: the logits of a window are added by a kernel, and planes are copied out.

use std::sync::PoisonError;

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::DType;
use plimsoll_memory::{Bytes, MapError, Reservation};
use plimsoll_plan::{EngineError, PlaneSums, SampleLogits, SummedWindow, SumsPlanes};

use crate::device::{Beside, Device};
use crate::engine::CudaEngine;
use crate::layout;
use crate::lower::{ALIGNMENT, Context, Operand, Stretch, Work, unsupported};

/// Planes that are open.
pub(crate) struct OpenSums {
    of: PlaneSums,
    /// The start address.
    address: u64,
    /// The decrease of the device's free memory by them.
    pub(crate) taken: Bytes,
    /// The reservation of device memory.
    _memory: Reservation,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct WindowSumsParameters {
    logits: u64,
    sums: u64,
    shares: u64,
    refused: u64,
    axes: [u32; 3],
    from: [u32; 3],
    extent: [u32; 3],
    window: [u32; 3],
    mirrored: [u32; 3],
    turn: u32,
    step: u32,
    planes: u32,
    origin: [u32; 2],
    line: u32,
    plane: u32,
    classes: u32,
    limit: f32,
    count: u32,
    unused: u32,
}

const OP: &str = "sum of windows";

/// The memory behind the planes: the shares of a window, and a flag for refused logits.
struct Behind {
    shares: Stretch,
    refused: Stretch,
    end: u64,
}

fn behind(of: &PlaneSums, address: u64) -> Behind {
    let aligned = |address: u64| address.next_multiple_of(ALIGNMENT as u64);
    let shares = aligned(address + of.bytes() as u64);
    let numbers = of.window.iter().sum::<usize>() * size_of::<f32>();
    let refused = aligned(shares + numbers as u64);
    Behind {
        shares: Stretch::new(shares, numbers),
        refused: Stretch::new(refused, size_of::<u32>()),
        end: refused + size_of::<u32>() as u64,
    }
}

/// Bytes that planes take beside an arena, with what goes with them.
pub(crate) fn sums_bytes(of: &PlaneSums) -> usize {
    // Beyond all that a device has, sums saturate and addresses would not.
    match of.bytes() < 1 << 48 {
        true => behind(of, 0).end as usize,
        false => usize::MAX,
    }
}

impl OpenSums {
    fn plane(&self, slot: usize) -> Result<Stretch, EngineError> {
        let bytes = self.of.plane_bytes();
        match slot < self.of.planes {
            true => Ok(Stretch::new(self.address + (slot * bytes) as u64, bytes)),
            false => Err(EngineError::Internal(format!("there is no plane {slot} of {}", self.of.planes))),
        }
    }
}

fn closed() -> EngineError {
    EngineError::Internal("windows are summed where no sums are held".into())
}

impl CudaEngine {
    fn opened(&mut self) -> Result<(&OpenSums, &mut dyn Device), EngineError> {
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        Ok((self.sums.as_ref().ok_or_else(closed)?, device))
    }
}

/// The suffix of kernels that sum in this type.
fn suffix(storage: DType) -> Result<&'static str, EngineError> {
    match storage {
        DType::F32 => Ok("f32"),
        DType::F16 => Ok("f16"),
        other => Err(internal(unsupported(OP, format!("sums of {other}")))),
    }
}

/// Copies numbers to an address, which there is staging memory for.
fn upload(device: &mut dyn Device, to: u64, numbers: impl Iterator<Item = f32>) -> Result<(), EngineError> {
    let mut bytes = 0;
    for (stage, number) in device.staging()?.as_chunks_mut().0.iter_mut().zip(numbers) {
        *stage = number.to_le_bytes();
        bytes += stage.len();
    }
    Ok(device.upload(to, bytes)?)
}

impl SumsPlanes for CudaEngine {
    fn open_sums(&mut self, of: PlaneSums, memory: Reservation) -> Result<(), EngineError> {
        let bytes = sums_bytes(&of);
        memory.check_covers(Bytes::from_len(bytes)).map_err(MapError::from)?;
        self.sums = None;
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Beside { address, taken } = device.beside(bytes)?;
        device.clear(address..address + bytes as u64)?;
        self.sums = Some(OpenSums { of, address, taken: Bytes::from_len(taken), _memory: memory });
        Ok(())
    }

    fn close_sums(&mut self) -> Result<(), EngineError> {
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        device.beside(0)?;
        self.sums = None;
        Ok(())
    }

    fn add_window(
        &mut self,
        SampleLogits { program, tensor, sample }: SampleLogits,
        window: &SummedWindow<'_>,
    ) -> Result<bool, EngineError> {
        let device = &mut **self.device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let sums = self.sums.as_ref().ok_or_else(closed)?;
        let (info, place) = self.plan.stored(program, tensor)?;
        // Samples lie one after the other, whatever the layout within one.
        let bytes = layout::bytes(info) / info.shape.batch().max(1);
        let address = device.base() + (place.offset + bytes.saturating_mul(sample)) as u64;
        let logits = Operand { info, at: Stretch::new(address, bytes) };
        let SummedWindow { shares, mirrored, axis, ref held, slot, reversed, origin, limit } = *window;
        let of = &sums.of;
        let fits = info.shape.spatial() == of.window
            && info.shape.channels() == of.channels
            && sample < info.shape.batch()
            && (0..3).all(|axis| shares[axis].len() == of.window[axis] && held[axis].end <= of.window[axis]);
        if !fits || axis > 2 || slot >= of.planes {
            return Err(EngineError::Internal(format!(
                "a window of {} is not one that is summed",
                info.shape
            )));
        }
        if held.iter().any(|held| held.is_empty()) {
            return Ok(true);
        }
        let cx = Context {
            name: OP,
            architecture: self.architecture,
            inputs: vec![logits],
            outputs: Vec::new(),
            scratch: 0,
        };
        let kernel = cx.kernel("window_sums", &[&logits]).map_err(internal)?;
        let name = format!("{kernel}_{}", suffix(of.storage)?);
        let axes = match axis {
            0 => [0, 1, 2],
            1 => [1, 0, 2],
            _ => [2, 0, 1],
        };
        let count = cx.count(&[held[0].len(), held[1].len(), held[2].len()]).map_err(internal)?;
        let extents = |extents: [usize; 3]| cx.axes(extents).map_err(internal);
        let single = |extent: usize| cx.count(&[extent]).map_err(internal);
        let Behind { shares: of_window, refused, .. } = behind(of, sums.address);
        let parameters = WindowSumsParameters {
            logits: logits.address(),
            sums: sums.address,
            shares: of_window.address,
            refused: refused.address,
            axes: axes.map(|axis| axis as u32),
            from: extents(axes.map(|axis| held[axis].start))?,
            extent: extents(axes.map(|axis| held[axis].len()))?,
            window: extents(of.window)?,
            mirrored: mirrored.map(u32::from),
            turn: single(slot)?,
            step: if reversed { single(of.planes - 1)? } else { 1 },
            planes: single(of.planes)?,
            origin: origin.map(|origin| origin as u32),
            line: single(of.plane[1])?,
            plane: cx.count(&of.plane).map_err(internal)?,
            classes: single(of.channels)?,
            limit,
            count,
            unused: 0,
        };
        let mut work = Work::new(&cx);
        let all = Stretch::new(sums.address, of.bytes());
        work.each(name, count, &parameters, &[logits.at, of_window], &[all, refused]);
        upload(device, of_window.address, shares.into_iter().flatten().copied())?;
        work.launches.iter().try_for_each(|launch| device.launch(launch))?;
        device.download(refused.address, size_of::<u32>())?;
        let stage = device.staging()?;
        Ok(stage.iter().take(size_of::<u32>()).all(|byte| *byte == 0))
    }

    fn read_plane(&mut self, slot: usize, to: &mut [u8]) -> Result<(), EngineError> {
        let (sums, device) = self.opened()?;
        let from = sums.plane(slot)?.range();
        if to.len() as u64 != from.end - from.start {
            return Err(EngineError::Internal(format!("a plane of sums is not {} bytes", to.len())));
        }
        let mut at = from.start;
        let most = device.staging()?.len().max(1);
        for piece in to.chunks_mut(most) {
            device.download(at, piece.len())?;
            let staged = device.staging()?.get(..piece.len());
            piece.copy_from_slice(staged.ok_or_else(|| EngineError::missing("what was staged"))?);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn clear_plane(&mut self, slot: usize) -> Result<(), EngineError> {
        let (sums, device) = self.opened()?;
        Ok(device.clear(sums.plane(slot)?.range())?)
    }
}

fn internal(problem: plimsoll_plan::Unsupported) -> EngineError {
    EngineError::Internal(problem.to_string())
}
