//! The place of this process among the processes of a launcher or a job array: commands whose cases can be divided take a part of them, and others
//! are refused, so that processes never write into one folder at the same time.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::{Part, mpi_libraries, rank_watch};
use plimsoll_ranks::{ArrayTask, Communicator, Launch, Launcher, MpiOptions, RanksError, Watch, open_mpi};
use plimsoll_remedy::Remedy;

use crate::args::{Args, Command, PartArgs};
use crate::failure::{Failure, Outcome};
use crate::terminal;

/// The time that a launcher is given to forward an error: it drops what it has not yet forwarded when a process aborts.
pub const FORWARDING: Duration = Duration::from_millis(500);

/// Takes the part of the cases that belongs to this process, unless the arguments name one. Returns the watch over the other processes, if it was
/// requested.
///
/// # Errors
/// Returns an error if a launcher has started several processes of a command that has no parts, or they cannot watch over each other.
pub fn choose_part(args: &mut Args) -> Outcome<Option<Box<dyn Communicator + Send>>> {
    if args.command.writes_nothing() {
        return Ok(None);
    }
    let patience = args.command.part().and_then(|part| part.patience);
    take_part(args)?;
    patience.map(|seconds| watch_processes(Duration::from_secs(seconds.into()))).transpose()
}

/// Opens MPI, by which the processes of a launcher watch over each other. They exchange nothing else.
fn watch_processes(patience: Duration) -> Outcome<Box<dyn Communicator + Send>> {
    let Some(launch) = launched_ranks()? else {
        return Err(Failure::new(
            "--patience is the time after which processes of mpirun end all if one hangs, but this process is alone",
            "leave it out, or start several with `mpirun -n N plimsoll …`",
        ));
    };
    let libraries = mpi_libraries(launch.launcher, std::env::var_os("PATH").as_deref());
    let watch = watch_of(&launch);
    let options = MpiOptions { libraries, patience, watch: Some(watch), ..MpiOptions::default() };
    open_mpi(&launch, &options).map_err(|error| ranks_failure(&error))
}

/// The watch of a rank, which reports another one that hangs as an error of this process.
pub fn watch_of(launch: &Launch) -> Watch {
    let rank = launch.rank;
    let report = move |hang: &RanksError| {
        let host = plimsoll_memory::host::name();
        ranks_failure(hang).named_for_process(&format!("rank {rank} on {host}")).print();
        std::thread::sleep(FORWARDING);
    };
    rank_watch(|| true, report)
}

/// An error of communication, with its hint.
pub fn ranks_failure(error: &RanksError) -> Failure {
    Failure::new(error, String::from(Remedy::from(error.remedy().as_str())))
}

/// Takes the part of the cases that belongs to this process, unless the arguments name one.
fn take_part(args: &mut Args) -> Outcome {
    let variable = |name: &str| std::env::var(name).ok();
    let launch = launched_ranks()?;
    let json = args.json;
    let Some(named) = args.command.part() else {
        if args.command.is_of_ranks() {
            return Ok(());
        }
        return launch.map_or(Ok(()), |launch| expect_one(&launch));
    };
    if let Some(part) = named.part {
        // The only part is the whole job.
        named.part = Some(part).filter(|part| part.count() > 1);
        return Ok(());
    }
    let array = ArrayTask::from_variables(&variable).map_err(refused)?.filter(|task| task.count > 1);
    let (ranks, rank) = match launch {
        None => (1, 0),
        Some(Launch { rank, size: Some(size), .. }) => (size, rank),
        Some(launch) => return expect_one(&launch),
    };
    let ArrayTask { index, count } = array.unwrap_or(ArrayTask { index: 0, count: 1 });
    if count == 1 && ranks == 1 {
        return Ok(());
    }
    let part = Part::new(index * ranks + rank + 1, count.saturating_mul(ranks));
    let part = part.map_err(|error| Failure::new(error, "start fewer processes"))?;
    named.part = Some(part);
    let of_array = format!("task {} of {count} of the Slurm array", index + 1);
    let place = match (launch, array) {
        (Some(launch), None) => format!("rank {rank} of {ranks} of {}", launch.launcher),
        (Some(launch), Some(_)) => format!("{of_array}, rank {rank} of {ranks} of {}", launch.launcher),
        (None, _) => of_array,
    };
    terminal::observed(json).note(format_args!(
        "this process is {place}: it takes part {part} of the cases; --part names another"
    ));
    Ok(())
}

/// The launcher that has started this process and others; `None` if it is alone.
///
/// # Errors
/// Returns an error if the launcher's variables make no sense.
pub fn launched_ranks() -> Outcome<Option<Launch>> {
    let variable = |name: &str| std::env::var(name).ok();
    Ok(Launch::from_variables(&variable).map_err(refused)?.filter(|launch| !launch.is_alone()))
}

/// The MPI libraries of this machine's launchers.
pub fn installed_mpi() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH");
    let of = |launcher| mpi_libraries(launcher, path.as_deref());
    [Launcher::Pmi, Launcher::OpenMpi].into_iter().flat_map(of).collect()
}

fn refused(error: plimsoll_ranks::LaunchError) -> Failure {
    Failure::new(&error, String::from(Remedy::from(error.remedy())))
}

/// Refuses one of several processes.
fn expect_one(launch: &Launch) -> Outcome {
    let Launch { launcher, rank, size } = launch;
    let message = match size {
        Some(size) => format!("{launcher} started {size} processes, but this command runs in one"),
        // It is not known whether there are others; the first of them may run.
        None if *rank == 0 => return Ok(()),
        None => format!("{launcher} started this process as number {rank}, but this command runs in one"),
    };
    Err(Failure::new(
        message,
        "start it without the launcher; train runs as ranks, and predict, segment and evaluate divide their cases among processes",
    ))
}

impl Command {
    /// Returns `true` if several processes of the command do not disturb each other: it only prints.
    fn writes_nothing(&self) -> bool {
        matches!(self, Command::Doctor(_) | Command::Settings | Command::Completions(_) | Command::Status(_))
    }

    /// Returns `true` if processes of a launcher run the command together.
    fn is_of_ranks(&self) -> bool {
        matches!(self, Command::Train(args) if !args.one_vs_one)
    }

    /// The part of a command whose cases can be divided.
    fn part(&mut self) -> Option<&mut PartArgs> {
        match self {
            Command::Predict(args) if !args.inference.plan => Some(&mut args.inference.part),
            Command::Segment(args) if !args.inference.plan => Some(&mut args.inference.part),
            Command::Inspect(args) => Some(&mut args.part),
            Command::Evaluate(args) if args.classification.table.is_none() => Some(&mut args.part),
            _ => None,
        }
    }
}
