//! The words of Python for parameters and jobs: keyword arguments and functions.

use plimsoll_remedy::{Parameter, Wording};

/// Parameters that are on or off.
const SWITCHES: [Parameter; 13] = [
    Parameter::AcceptChangedData,
    Parameter::AllowExtra,
    Parameter::AllowOutside,
    Parameter::CommonCases,
    Parameter::ExternalData,
    Parameter::Fast,
    Parameter::Fastest,
    Parameter::HigherOrderResampling,
    Parameter::NoPostprocessing,
    Parameter::OneVsOne,
    Parameter::Orthogonal,
    Parameter::Overwrite,
    Parameter::Resume,
];

/// Words parameters as keyword arguments, `ram="2.1GiB"`, and jobs as commands of the program, which the package installs.
#[derive(Clone, Copy, Debug)]
pub struct Keywords;

impl Wording for Keywords {
    fn parameter(&self, parameter: Parameter, value: Option<&str>) -> String {
        let name = match parameter {
            // `class` is a keyword of Python.
            Parameter::Class => Parameter::Labels.name(),
            other => other.name(),
        };
        match value {
            None if SWITCHES.contains(&parameter) => format!("{name}=True"),
            None => name.into(),
            Some(value) if value.parse::<f64>().is_ok() => format!("{name}={value}"),
            Some(value) if is_tuple(value) => format!("{name}=({})", value.replace(',', ", ")),
            Some(value) => format!("{name}=\"{value}\""),
        }
    }
}

/// Returns `true` for several numbers with commas between them.
fn is_tuple(value: &str) -> bool {
    value.contains(',') && value.split(',').all(|number| number.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use plimsoll_remedy::render;

    use super::*;

    #[test]
    fn parameters_are_keyword_arguments_and_jobs_are_commands() {
        assert_eq!(render("raise ‹ram=2MiB›", &Keywords), "raise ram=\"2MiB\"");
        assert_eq!(render("continue with ‹resume›", &Keywords), "continue with resume=True");
        assert_eq!(render("set ‹epochs=3› or another ‹out›", &Keywords), "set epochs=3 or another out");
        assert_eq!(render("set ‹patch_size=32,64,64›", &Keywords), "set patch_size=(32, 64, 64)");
        assert_eq!(render("name ‹class›", &Keywords), "name labels");
        let text = render("see ‹job models export RUN FILE.plimsoll›", &Keywords);
        assert_eq!(text, "see `plimsoll models export RUN FILE.plimsoll`");
    }

    #[test]
    fn every_parameter_is_an_identifier_of_python() {
        for parameter in Parameter::ALL {
            let text = Keywords.parameter(*parameter, None);
            let name = text.trim_end_matches("=True");
            assert!(name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'), "{text}");
        }
    }
}
