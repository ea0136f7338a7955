//! The memory limit, and the process's own memory below it.

use plimsoll_memory::{Budget, Bytes, Limits, Overhead, Reservation, messages};
use plimsoll_plan::Backend;

use crate::context::Context;
use crate::error::{Error, Outcome};

/// The memory limit, and the budget under it.
pub struct MemoryLimit {
    /// The limits of memory, and the least of them.
    pub limits: Limits,
    /// The budget under the limit.
    pub budget: Budget,
    /// Code, heap and stacks; given back while a part of the job reserves its own.
    overhead: Option<Reservation>,
    /// The buffers of messages between ranks.
    messages: Option<Reservation>,
    threads: usize,
    /// The host memory of the device's driver.
    driver: Bytes,
}

/// The host memory of the driver of a backend's device.
pub fn driver_bytes(backend: &dyn Backend) -> Bytes {
    backend.device_memory().map_or(Bytes::ZERO, |memory| memory.driver().host)
}

impl MemoryLimit {
    /// Sets the memory limit, and reserves the memory of the process itself with `threads` threads of kernels.
    pub fn set(asked: Option<Bytes>, threads: usize, context: &Context) -> Outcome<MemoryLimit> {
        MemoryLimit::set_beside(asked, threads, Bytes::ZERO, context)
    }

    /// The same, with the host memory of a device's driver reserved as well.
    pub fn set_beside(
        asked: Option<Bytes>,
        threads: usize,
        driver: Bytes,
        context: &Context,
    ) -> Outcome<MemoryLimit> {
        let limits = context.limits(asked);
        if let Some(asked) = asked
            && asked > limits.limit
            && let Some(tightest) = limits.found.first()
        {
            let message =
                format!("‹ram={asked}› is more than the {} that {} leaves", tightest.bytes, tightest.source);
            let hint = format!("set the limit to {} at most", tightest.bytes);
            return Err(Error::new(message, hint));
        }
        let budget = Budget::new(limits.limit);
        let mut memory = MemoryLimit { limits, budget, overhead: None, messages: None, threads, driver };
        memory.hold_overhead()?;
        Ok(memory)
    }

    /// Runs a part of the job that reserves an overhead of its own.
    pub fn lend_overhead<T>(&mut self, part: impl FnOnce(&Budget) -> Outcome<T>) -> Outcome<T> {
        self.give_overhead_back();
        let done = part(&self.budget);
        self.hold_overhead()?;
        done
    }

    /// Reserves the buffers of messages of one of `ranks` ranks, for the whole job.
    pub(super) fn hold_messages(&mut self, ranks: usize) -> Outcome {
        let needed = messages(ranks);
        let held = self.budget.reserve("messages", needed).map_err(|_| {
            let limit = self.limits.limit;
            let message = format!(
                "messages between {ranks} ranks need {needed}, which the limit of {limit} does not leave"
            );
            Error::new(
                message,
                "raise ‹ram›, or start fewer ranks; ‹job plan› with ‹ranks› states the least limit",
            )
        })?;
        self.messages = Some(held);
        Ok(())
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
                format!("the process itself needs {needed}{driver}, but the limit is {}", self.limits.limit);
            let hint = format!(
                "raise ‹ram› above {needed}, which the process needs without any data; ‹job plan› then states the least limit of \
                 the run"
            );
            Error::new(message, hint)
        })?;
        self.overhead = Some(held);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use plimsoll_memory::System;

    use super::*;
    use crate::events::{Event, Observer};
    use crate::{
        EvaluateRequest, ExportRequest, ImportRequest, InspectRequest, InteractRequest, ModelFileRequest,
        PlanRequest, PredictRequest, ReportRequest, ShowRequest, TrainRequest, VerifyRequest, evaluate,
        export, import_models, inspect, interact, plan, predict, report, show_models, train,
        verify_model_file, write_model_file,
    };

    /// The warnings of a job.
    #[derive(Default)]
    struct Warnings(Mutex<Vec<String>>);

    impl Observer for Warnings {
        fn event(&self, event: &Event<'_>) {
            if let Event::Warning { text } = event {
                self.0.lock().unwrap().push((*text).to_owned());
            }
        }
    }

    /// A system whose control group has a limit that cannot be read: a folder in place of its file, which fails for root as well.
    fn unreadable_group(root: &Path) -> System {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/job\n");
        write("proc/self/mountinfo", "35 31 0:32 / /cgroup rw - cgroup2 cgroup2 rw\n");
        write("proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n");
        fs::create_dir_all(root.join("cgroup/job/memory.max")).unwrap();
        System { proc: root.join("proc"), root: root.into() }
    }

    #[test]
    fn every_job_warns_once_of_a_memory_limit_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let system = unreadable_group(folder.path());
        let missing = folder.path().join("missing");
        let job = |name: &str, job: &dyn Fn(&Context)| {
            let observer = Arc::new(Warnings::default());
            let seen = Arc::clone(&observer);
            let context = Context::observed(move |event: &Event<'_>| seen.event(event));
            job(&context.with_system(system.clone()));
            let warnings = observer.0.lock().unwrap();
            let unread: Vec<&String> = warnings.iter().filter(|text| text.contains("memory.max")).collect();
            assert_eq!(unread.len(), 1, "{name}: {warnings:?}");
            assert!(unread[0].contains("a memory limit set there is not enforced"), "{name}: {unread:?}");
        };
        job("a limit", &|context| {
            MemoryLimit::set(None, 1, context).unwrap();
            MemoryLimit::set(None, 1, &context.clone()).unwrap();
        });
        // Every job fails, since its input is missing, but not before it has read the limits.
        job("inspect", &|context| {
            let request =
                InspectRequest { dataset: missing.clone(), threads: 1, ..InspectRequest::default() };
            assert!(inspect(&request, context).is_err());
        });
        job("plan", &|context| assert!(plan(&PlanRequest::new(&missing).unwrap(), context).is_err()));
        job("train", &|context| {
            let request = TrainRequest::new(PlanRequest::new(&missing).unwrap(), folder.path().join("run"));
            assert!(train(&request, context).is_err());
        });
        job("predict", &|context| {
            let request = PredictRequest::new(&missing, &missing, folder.path().join("labels")).unwrap();
            assert!(predict(&request, context).is_err());
        });
        job("interact", &|context| {
            let output = folder.path().join("labels.nii.gz");
            let request = InteractRequest::new(&missing, &missing, output, Vec::new()).unwrap();
            assert!(interact(&request, context).is_err());
        });
        job("evaluate", &|context| {
            assert!(evaluate(&EvaluateRequest::new(&missing, &missing), context).is_err());
        });
        job("report", &|context| {
            assert!(report(&ReportRequest::new(&missing, folder.path().join("page.html")), context).is_err());
        });
        job("export", &|context| {
            let output = folder.path().join("weights.safetensors");
            let request = ExportRequest { model: missing.clone(), output, ..ExportRequest::default() };
            assert!(export(&request, context).is_err());
        });
        job("import models", &|context| {
            let to = folder.path().join("models");
            let request = ImportRequest { from: missing.clone(), to, ..ImportRequest::default() };
            assert!(import_models(&request, context).is_err());
        });
        job("show models", &|context| {
            let request = ShowRequest { path: missing.clone(), ..ShowRequest::default() };
            assert!(show_models(&request, context).is_err());
        });
        job("write a model file", &|context| {
            let file = folder.path().join("model.plimsoll");
            let request = ModelFileRequest { run: missing.clone(), file, ..ModelFileRequest::default() };
            assert!(write_model_file(&request, context).is_err());
        });
        job("verify a model file", &|context| {
            let request = VerifyRequest { file: missing.clone(), ..VerifyRequest::default() };
            assert!(verify_model_file(&request, context).is_err());
        });
    }
}
