//! The place of this process among the processes of a launcher or a job array: commands whose cases can be divided take a part of them, and others
//! are refused, so that processes never write into one folder at the same time.

use plimsoll::Part;
use plimsoll_ranks::{ArrayTask, Launch};
use plimsoll_remedy::Remedy;

use crate::args::{Args, Command, PartArgs};
use crate::failure::{Failure, Outcome};
use crate::terminal;

/// Takes the part of the cases that belongs to this process, unless the arguments name one.
///
/// # Errors
/// Returns an error if a launcher has started several processes of a command that has no parts.
pub fn choose_part(args: &mut Args) -> Outcome {
    if args.command.writes_nothing() {
        return Ok(());
    }
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
