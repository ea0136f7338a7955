//! The memory limit, and the process's own memory below it.

use plimsoll_memory::{Budget, Bytes, Limits, Overhead, Reservation, System, limits};
use plimsoll_plan::Backend;

use crate::error::{Error, Outcome};

/// The line, and the budget under it.
pub struct Line {
    /// The limits of memory, and the least of them.
    pub limits: Limits,
    /// The budget under the limit.
    pub budget: Budget,
    /// Code, heap and stacks; given back while a part of the job reserves its own.
    overhead: Option<Reservation>,
    threads: usize,
    /// The host memory of the device's driver.
    driver: Bytes,
}

/// The host memory of the driver of a backend's device.
pub fn driver_bytes(backend: &dyn Backend) -> Bytes {
    backend.device_memory().map_or(Bytes::ZERO, |memory| memory.driver().host)
}

impl Line {
    /// Sets the memory limit, and reserves the memory of the process itself with `threads` threads of kernels.
    pub fn draw(asked: Option<Bytes>, threads: usize) -> Outcome<Line> {
        Line::draw_beside(asked, threads, Bytes::ZERO)
    }

    /// The same, and what the driver of a device takes.
    pub fn draw_beside(asked: Option<Bytes>, threads: usize, driver: Bytes) -> Outcome<Line> {
        let limits = limits(&System::default(), asked);
        if let Some(asked) = asked
            && asked > limits.line
            && let Some(tightest) = limits.found.first()
        {
            let message =
                format!("‹ram={asked}› is more than the {} that {} leaves", tightest.bytes, tightest.source);
            let hint = format!("draw the line at or below {}", tightest.bytes);
            return Err(Error::new(message, hint));
        }
        let budget = Budget::new(limits.line);
        let mut line = Line { limits, budget, overhead: None, threads, driver };
        line.hold_overhead()?;
        Ok(line)
    }

    /// Runs a part of the job that reserves an overhead of its own.
    pub fn lend_overhead<T>(&mut self, part: impl FnOnce(&Budget) -> Outcome<T>) -> Outcome<T> {
        self.give_overhead_back();
        let done = part(&self.budget);
        self.hold_overhead()?;
        done
    }

    /// From now on a part of the job reserves an overhead of its own.
    pub fn give_overhead_back(&mut self) {
        self.overhead = None;
    }

    /// The memory of the process itself, before it trains.
    pub fn own_bytes(&self) -> Bytes {
        Overhead::new(self.threads).total() + self.driver
    }

    /// Reserves what the process itself takes.
    pub fn hold_overhead(&mut self) -> Outcome {
        let needed = self.own_bytes();
        let held = self.budget.reserve("overhead", needed).map_err(|_| {
            let driver = match self.driver {
                Bytes::ZERO => String::new(),
                bytes => format!(", {bytes} of it for the driver of the device"),
            };
            let message =
                format!("the process itself needs {needed}{driver}, but the line is {}", self.limits.line);
            Error::new(message, "raise ‹ram›")
        })?;
        self.overhead = Some(held);
        Ok(())
    }
}
