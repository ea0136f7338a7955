//! Windows on their way through the network, one or several at once.
//!
//! A window's looks, as it is and mirrored, follow each other, and so do windows. As many of these passes as the network takes at once are run
//! together and then added one by one in their order. So sums are rounded as if the network had taken each alone.

use std::ops::Range;

use plimsoll_memory::Mapped;
use plimsoll_plan::{HostSlice, HostSliceMut, HostView, SampleLogits};

use crate::error::InferError;
use crate::summing::buffers::Buffers;
use crate::summing::forward::{Running, planned};
use crate::summing::mirror::{all_mirrors, mirror};
use crate::summing::ring::LogitsOf;
use crate::summing::rows::Rows;
use crate::summing::sliding_window::SlidingWindow;
use crate::summing::stream::Stream;
use crate::summing::work::{Pass, Refused, Work, sums_planes};

impl SlidingWindow {
    /// Pulls a window, whose looks then wait for the network until as many wait as it takes at once. Returns a window that cannot be summed, if
    /// there is one; then some are missing in the ring.
    pub(crate) fn window(
        &mut self,
        start: [usize; 3],
        rows: &Rows,
        stream: &mut Stream,
        work: &mut Work<'_>,
        copied: &mut Mapped<f32>,
    ) -> Result<Option<Refused>, InferError> {
        let window = rows.shape.window;
        let from = [0, 1, 2].map(|axis| start[axis] as i64 - rows.lead[axis] as i64);
        work.windows.pull(from, window, &mut self.buffers.image, &mut self.scratch)?;
        work.clock.lap(|times| &mut times.pull_seconds);
        let at_once = self.forward.at_once;
        let mut looks = all_mirrors(window, self.mirrors()).peekable();
        while let Some(mirrored) = looks.next() {
            let Buffers { image, other, .. } = &mut self.buffers;
            // The window alone is run on where it is.
            if at_once > 1 || mirrored != [false; 3] {
                let first = work.passes.len() * image.len();
                mirror(image, &mut other[first..first + image.len()], window, mirrored);
            }
            work.passes.push(Pass { start, mirrored, is_last: looks.peek().is_none() });
            if work.passes.len() == at_once
                && let Some(refused) = self.pass(rows, stream, work, copied)?
            {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    /// Runs the network on what waits for it, and adds what it says to the ring. Returns as [`window`](SlidingWindow::window) does.
    pub(crate) fn pass(
        &mut self,
        rows: &Rows,
        stream: &mut Stream,
        work: &mut Work<'_>,
        copied: &mut Mapped<f32>,
    ) -> Result<Option<Refused>, InferError> {
        let Work { clock, summing, passes, progress, .. } = work;
        let (activation, outputs) = (self.activation_of_passes(), self.model.answers.outputs());
        let Buffers { image, other, rooms, .. } = &mut self.buffers;
        let (at_once, of_window) = (self.forward.at_once, image.len());
        let input = match passes[..] {
            [] => return Ok(None),
            [Pass { mirrored: [false, false, false], .. }] if at_once == 1 => &image[..],
            _ => {
                let input = &mut other[..at_once * of_window];
                // At the end of a row, fewer may wait: what is said of the others is passed over.
                input[passes.len() * of_window..].fill(0.0);
                &*input
            }
        };
        let Running { engine, forward, .. } = planned(&mut self.running)?;
        let (forward, output) = (*forward, self.forward.output);
        engine.write(forward, self.forward.image, HostSlice::F32(input))?;
        engine.run(forward)?;
        if !copied.is_empty() && !summing.on_device {
            engine.read(forward, output, HostSliceMut::F32(copied))?;
        }
        let said = self.forward.program.shape(output).count() / at_once;
        if let Some(activation) = activation {
            copied
                .chunks_exact_mut(said.max(1))
                .for_each(|logits| activation.apply(logits, said / outputs.max(1)));
        }
        clock.lap(|times| &mut times.forward_seconds);
        for (sample, pass) in passes.drain(..).enumerate() {
            let Pass { start, mirrored, is_last } = pass;
            let of_sample = sample * said..(sample + 1) * said;
            let is_summed = if summing.on_device {
                let logits = SampleLogits { program: forward, tensor: output, sample };
                stream.add_on(sums_planes(engine)?, logits, start, mirrored, &rows.shape)?
            } else {
                let engine = &**engine;
                let read = |from: usize, to: &mut [f32]| {
                    engine.read_from(forward, output, of_sample.start + from, HostSliceMut::F32(to))
                };
                let view = match copied.is_empty() {
                    true => engine.view(forward, output)?,
                    false => Some(HostView::F32(copied)),
                };
                let logits =
                    view.map_or(LogitsOf::Read(&read), |view| LogitsOf::Here(part(view, of_sample.clone())));
                stream.add(start, mirrored, rooms, logits)?
            };
            clock.lap(|times| &mut times.sum_seconds);
            if !is_summed {
                return Ok(Some(Refused(start)));
            }
            progress.windows += usize::from(is_last);
        }
        Ok(None)
    }
}

/// Some of the numbers that lie here.
fn part(view: HostView<'_>, of: Range<usize>) -> HostView<'_> {
    match view {
        HostView::F32(numbers) => HostView::F32(&numbers[of]),
        HostView::Bf16(numbers) => HostView::Bf16(&numbers[of]),
    }
}
