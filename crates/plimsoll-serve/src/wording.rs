//! The words for parameters in answers to clients, who cannot set them.

use plimsoll_memory::Bytes;
use plimsoll_remedy::{Change, Limit, Parameter, Remedy, Wording};

/// Words parameters as settings of the server. A memory limit that a prediction needs is raised by the share of the transport.
pub(crate) struct ServerWords {
    pub(crate) transport: Bytes,
}

impl ServerWords {
    /// The limit of the server with which a prediction has what a remedy asks for; `None` if the remedy is another one.
    pub(crate) fn needed_ram(&self, remedy: &Remedy) -> Option<Bytes> {
        let raised = remedy.changes().find_map(|change| match change {
            Change::RaiseLimit { limit: Limit::Ram, to } => Some(*to),
            _ => None,
        });
        raised.flatten().map(|to| to + self.transport)
    }
}

impl Wording for ServerWords {
    fn parameter(&self, parameter: Parameter, value: Option<&str>) -> String {
        let flag = format!("--{}", parameter.name().replace('_', "-"));
        let value = value.map(|value| match (parameter, value.parse::<Bytes>()) {
            (Parameter::Ram, Ok(bytes)) => {
                format!("{}MiB", (bytes + self.transport).0.div_ceil(1 << 20))
            }
            _ => value.to_string(),
        });
        match value {
            None => format!("`{flag}` of the server"),
            Some(value) => format!("`{flag} {value}` of the server"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needed_limit_has_the_share_of_the_transport() {
        let words = ServerWords { transport: Bytes::mib(24) };
        let remedy = Remedy::from("raise the limit to ‹ram=1000MiB›, or add ‹ring=f16›");
        assert_eq!(
            remedy.render(&words),
            "raise the limit to `--ram 1024MiB` of the server, or add `--ring f16` of the server"
        );
        assert_eq!(words.needed_ram(&remedy), Some(Bytes::mib(1024)));
        assert_eq!(words.needed_ram(&"check the file".into()), None);
    }
}
