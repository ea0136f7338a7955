//! The prefixes that training scripts put before the names of parameters.

use std::collections::BTreeMap;

/// Put before every name by what wraps a network: PyTorch's data parallelism, and its compiler.
const WRAPPERS: [&str; 2] = ["module.", "_orig_mod."];

/// The name of a tensor without what wrappers put before it, in whatever order and however often.
pub(super) fn bare(mut name: &str) -> &str {
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)) {
        name = rest;
    }
    name
}

/// Tensors by their bare names.
///
/// # Errors
/// The bare name of two of them, if there are such.
pub(super) fn by_bare_name<T>(
    tensors: impl IntoIterator<Item = (String, T)>,
) -> Result<BTreeMap<String, T>, String> {
    let mut all = BTreeMap::new();
    for (name, tensor) in tensors {
        let bare = bare(&name);
        if all.contains_key(bare) {
            return Err(bare.into());
        }
        all.insert(bare.into(), tensor);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrappers_put_before_a_name_is_taken_off_however_they_are_nested() {
        for name in ["a.weight", "module.a.weight", "_orig_mod.a.weight", "module._orig_mod.module.a.weight"]
        {
            assert_eq!(bare(name), "a.weight");
        }
        assert_eq!(bare("a.module.weight"), "a.module.weight");
    }

    #[test]
    fn a_tensor_that_is_there_with_and_without_a_wrapper_is_named() {
        let twice = [("a".to_string(), 1), ("module.a".to_string(), 2)];
        assert_eq!(by_bare_name(twice), Err("a".into()));
    }
}
