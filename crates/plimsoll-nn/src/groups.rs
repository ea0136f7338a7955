//! Parameters that learn at a rate of their own, or not at all.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// Parameters that learn at a rate of their own, as one of `param_groups` of PyTorch's optimizers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterGroup {
    /// The prefix of the parameters' names, up to a dot or the end: `encoder.stages.1` is not a prefix of
    /// `encoder.stages.10.…`.
    pub prefix: String,
    /// The factor of the learning rate, and with it of AdamW's weight decay.
    pub rate: f32,
}

/// Returns `true` if a parameter's name begins with a prefix, up to a dot or the end.
fn begins_with(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || prefix.ends_with('.'))
}

/// The groups and frozen parameters of a network, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups<'a> {
    groups: &'a [ParameterGroup],
    frozen: &'a [String],
}

impl<'a> Groups<'a> {
    /// Groups the parameters of a network; those that the network itself learns come with `true`.
    ///
    /// # Errors
    /// Returns an error if a prefix has no effect, a rate is impossible, or nothing is left to learn.
    pub(crate) fn new(
        groups: &'a [ParameterGroup],
        frozen: &'a [String],
        parameters: &[(&str, bool)],
    ) -> Result<Groups<'a>, ConfigError> {
        let names = || parameters.iter().map(|(name, _)| *name);
        let beginnings = || {
            let all: BTreeSet<&str> = names().map(stage).collect();
            all.into_iter().collect::<Vec<_>>().join(", ")
        };
        let all = groups.iter().map(|group| ("groups", &group.prefix));
        for (setting, prefix) in all.chain(frozen.iter().map(|prefix| ("frozen", prefix))) {
            ConfigError::expect(
                names().any(|name| begins_with(name, prefix)),
                setting,
                format_args!("\"{prefix}\""),
                format_args!("no parameter's name begins with it; the names are {}", beginnings()),
            )?;
        }
        let made = Groups { groups, frozen };
        let trained: Vec<&str> = parameters
            .iter()
            .filter(|(name, is_trained)| *is_trained && !made.is_frozen(name))
            .map(|(name, _)| *name)
            .collect();
        ConfigError::expect(
            !trained.is_empty(),
            "frozen",
            format_args!("{frozen:?}"),
            "these are all parameters, so nothing would be trained",
        )?;
        for group in groups {
            ConfigError::expect(
                group.rate.is_finite() && group.rate > 0.0,
                "groups",
                format_args!("\"{}\" with rate {}", group.prefix, group.rate),
                "a rate must be finite and above zero; use `frozen` for parameters that are not trained",
            )?;
            ConfigError::expect(
                trained.iter().any(|name| made.group(name).is_some_and(|found| std::ptr::eq(found, group))),
                "groups",
                format_args!("\"{}\"", group.prefix),
                "all its parameters are frozen or in a group with a longer prefix",
            )?;
        }
        Ok(made)
    }

    pub(crate) fn is_frozen(&self, name: &str) -> bool {
        self.frozen.iter().any(|prefix| begins_with(name, prefix))
    }

    /// Returns the factor of a parameter's learning rate.
    pub(crate) fn rate(&self, name: &str) -> f32 {
        self.group(name).map_or(1.0, |group| group.rate)
    }

    /// The group of a parameter: of several that with the longest prefix.
    fn group(&self, name: &str) -> Option<&'a ParameterGroup> {
        let all = self.groups.iter().filter(|group| begins_with(name, &group.prefix));
        all.max_by_key(|group| group.prefix.len())
    }
}

/// The part of a parameter's name that says its stage: up to the first number, or the first part where there is none.
fn stage(name: &str) -> &str {
    let (mut end, mut first) = (0, None);
    for part in name.split('.') {
        end += part.len();
        first.get_or_insert(end);
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            return &name[..end];
        }
        end += 1;
    }
    &name[..first.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [(&str, bool); 5] = [
        ("stem.conv.weight", true),
        ("encoder.stages.1.0.weight", true),
        ("encoder.stages.10.0.weight", true),
        ("head.weight", true),
        ("head.bias", false),
    ];

    fn group(prefix: &str, rate: f32) -> ParameterGroup {
        ParameterGroup { prefix: prefix.into(), rate }
    }

    fn said(groups: &[ParameterGroup], frozen: &[&str]) -> String {
        let frozen: Vec<String> = frozen.iter().map(|prefix| prefix.to_string()).collect();
        Groups::new(groups, &frozen, &NAMES).unwrap_err().to_string()
    }

    #[test]
    fn the_longest_prefix_up_to_a_dot_holds() {
        let groups = [
            group("encoder.stages.1", 0.1),
            group("encoder.stages.10.0.weight", 2.0),
            group("encoder.stages.10", 0.5),
        ];
        // That of stage 10 as a whole has no parameter left.
        assert!(Groups::new(&groups, &[], &NAMES).is_err());
        let groups = &groups[..2];
        let frozen = ["head.".to_string()];
        let groups = Groups::new(groups, &frozen, &NAMES).unwrap();
        let rates = NAMES.map(|(name, _)| groups.rate(name));
        assert_eq!(rates, [1.0, 0.1, 2.0, 1.0, 1.0]);
        assert_eq!(NAMES.map(|(name, _)| groups.is_frozen(name)), [false, false, false, true, true]);
        let coarse = [group("encoder", 0.5)];
        assert_eq!(Groups::new(&coarse, &[], &NAMES).unwrap().rate("encoder.stages.10.0.weight"), 0.5);
    }

    #[test]
    fn a_prefix_without_effect_is_an_error_that_lists_what_there_is() {
        let found = said(&[], &["encoder.stages.2"]);
        assert_eq!(
            found,
            "`frozen` is \"encoder.stages.2\", but no parameter's name begins with it; the names are encoder.stages.1, encoder.stages.10, head, stem"
        );
        assert!(said(&[group("enc", 0.1)], &[]).starts_with("`groups` is \"enc\", but no parameter"));
        assert!(
            said(&[group("stem", 0.1)], &["stem"]).contains("are frozen or in a group with a longer prefix")
        );
        assert!(
            said(&[group("stem", 0.1), group("stem", 0.2)], &[]).contains("in a group with a longer prefix")
        );
        // The network does not train it, whatever the group says.
        assert!(said(&[group("head.bias", 0.1)], &[]).starts_with("`groups` is \"head.bias\""));
    }

    #[test]
    fn to_freeze_all_or_to_learn_at_no_rate_is_an_error() {
        assert!(said(&[], &["stem", "encoder", "head"]).contains("nothing would be trained"));
        for rate in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(said(&[group("stem", rate)], &[]).contains("a rate must be finite and above zero"));
        }
    }
}
