//! The words of the command line for parameters and jobs: flags and commands.

use plimsoll_remedy::{Parameter, Wording};

/// Words parameters as flags, and jobs as commands in backquotes.
pub struct Flags;

/// Flags whose names do not follow from the names of their parameters: nnU-Net's, TotalSegmentator's and short ones.
const OTHER_FLAGS: [(Parameter, &str); 4] = [
    (Parameter::Input, "-i"),
    (Parameter::OneFile, "--ml"),
    (Parameter::Output, "-o"),
    (Parameter::PrevStagePredictions, "-prev_stage_predictions"),
];

impl Wording for Flags {
    fn parameter(&self, parameter: Parameter, value: Option<&str>) -> String {
        let other = OTHER_FLAGS.iter().find(|(own, _)| *own == parameter);
        let flag = match other {
            Some((_, flag)) => (*flag).to_string(),
            None => format!("--{}", parameter.name().replace('_', "-")),
        };
        match value {
            None => flag,
            // Its value is optional, so that one behind a space would be the next argument.
            Some(value) if parameter == Parameter::Bids => format!("{flag}={value}"),
            Some(value) => format!("{flag} {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Command, CommandFactory};
    use plimsoll_remedy::{Argument, Job};

    use super::*;
    use crate::args::Args;

    /// The flags of a command and of those below it.
    fn flags(command: &Command, into: &mut BTreeSet<String>) {
        for argument in command.get_arguments() {
            into.extend(argument.get_long().map(|name| format!("--{name}")));
            into.extend(
                argument.get_all_aliases().unwrap_or_default().iter().map(|name| format!("--{name}")),
            );
            into.extend(argument.get_short().map(|name| format!("-{name}")));
        }
        command.get_subcommands().for_each(|below| flags(below, into));
    }

    #[test]
    fn every_parameter_is_a_flag_of_a_command_and_every_job_a_command() {
        let command = Args::command();
        let mut known = BTreeSet::new();
        flags(&command, &mut known);
        // Flags that the parser knows by another name, since it has no long flags of one dash.
        known.insert("-prev_stage_predictions".into());
        for parameter in Parameter::ALL {
            let flag = Flags.parameter(*parameter, None);
            assert!(known.contains(&flag), "{parameter:?} is {flag}, which no command takes");
            assert!(Flags.parameter(*parameter, Some("7")).ends_with('7'));
        }
        let commands: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        for job in Job::ALL {
            assert!(commands.contains(job.name()), "{job:?}");
            let argument = Argument::Parameter(Parameter::Resume, None);
            assert_eq!(Flags.job(*job, &[argument]), format!("`plimsoll {} --resume`", job.name()));
        }
    }
}
