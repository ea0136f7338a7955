//! The words of C for parameters and jobs: fields of its structures, and commands of the program.

use plimsoll_memory::Bytes;
use plimsoll_remedy::{Parameter, Wording};

/// Words the parameters that C sets as fields of `PlimsollOptions`, and others by their names.
pub(crate) struct Fields;

impl Wording for Fields {
    fn parameter(&self, parameter: Parameter, value: Option<&str>) -> String {
        let (name, value) = match parameter {
            Parameter::Ram => {
                let bytes =
                    value.map(|text| text.parse::<Bytes>().map_or(text.into(), |found| found.0.to_string()));
                ("ram_bytes", bytes)
            }
            Parameter::MirrorAxes => ("mirror", value.map(String::from)),
            other => (other.name(), value.map(String::from)),
        };
        value.map_or(name.into(), |value| format!("{name} = {value}"))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_remedy::render;

    use super::*;

    #[test]
    fn limits_are_fields_in_bytes_and_no_parameter_is_a_flag() {
        assert_eq!(render("raise ‹ram›", &Fields), "raise ram_bytes");
        assert_eq!(render("raise ‹ram=2MiB›", &Fields), "raise ram_bytes = 2097152");
        let text = render("see ‹job models export RUN FILE.plimsoll›", &Fields);
        assert_eq!(text, "see `plimsoll models export RUN FILE.plimsoll`");
        for parameter in Parameter::ALL {
            for value in [None, Some("7")] {
                let text = Fields.parameter(*parameter, value);
                assert!(!text.is_empty() && !text.contains(['-', '‹', '›']), "{parameter:?} is {text}");
            }
        }
    }
}
