//! The memory line, and who holds what under it.

use plimsoll_memory::{Budget, Bytes, Limits, Overhead, Reservation, System, limits};

use crate::failure::{Failure, Outcome};

/// The line, and the budget under it.
pub struct Line {
    pub limits: Limits,
    pub budget: Budget,
    /// Code, heap and stacks; given back while a part of the job reserves its own.
    overhead: Option<Reservation>,
    threads: usize,
}

impl Line {
    /// Draws the line, and reserves what the process itself takes with so many threads of kernels.
    pub fn draw(asked: Option<Bytes>, threads: usize) -> Outcome<Line> {
        let limits = limits(&System::default(), asked);
        if let Some(asked) = asked
            && asked > limits.line
            && let Some(tightest) = limits.found.first()
        {
            let message =
                format!("--ram {asked} is more than the {} that {} leaves", tightest.bytes, tightest.source);
            let hint = format!("draw the line at or below {}", tightest.bytes);
            return Err(Failure::new(message, hint));
        }
        let budget = Budget::new(limits.line);
        let mut line = Line { limits, budget, overhead: None, threads };
        line.hold_overhead()?;
        Ok(line)
    }

    /// Runs a part of the job that reserves an overhead of its own.
    pub fn lend_overhead<T>(&mut self, part: impl FnOnce(&Budget) -> Outcome<T>) -> Outcome<T> {
        self.overhead = None;
        let done = part(&self.budget)?;
        self.hold_overhead()?;
        Ok(done)
    }

    fn hold_overhead(&mut self) -> Outcome {
        let needed = Overhead::new(self.threads).total();
        let held = self.budget.reserve("overhead", needed).map_err(|_| {
            let message = format!("the process itself needs {needed}, but the line is {}", self.limits.line);
            Failure::new(message, "raise --ram")
        })?;
        self.overhead = Some(held);
        Ok(())
    }
}
