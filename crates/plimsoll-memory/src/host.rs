//! The processor that this process runs on.

use std::fs;

/// The processor's model name: the first `model name` of `/proc/cpuinfo`. `None` where the system does not report one, as
/// on most ARM machines.
pub fn processor_model() -> Option<String> {
    model_name(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let (_, name) = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'))?;
    Some(name.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_name_is_that_of_the_first_processor() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8481C @ 2.70GHz\n\n\
                       processor\t: 1\nmodel name\t: another\n";
        assert_eq!(model_name(cpuinfo).as_deref(), Some("Intel(R) Xeon(R) 8481C @ 2.70GHz"));
        assert_eq!(model_name("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
    }
}
