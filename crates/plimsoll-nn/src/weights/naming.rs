//! Programs that write one network name its tensors differently.

use plimsoll_graph::Shape;

use super::WeightFile;

/// The names that the weight files of a program give the parameters of a network.
#[derive(Clone, Copy, Debug)]
pub struct NamingScheme {
    /// Whose names they are: `monai`, `nnunet`.
    pub name: &'static str,
    rename: fn(&str) -> String,
    reshape: fn(&str, &Shape) -> Shape,
    is_duplicate: fn(&str) -> bool,
    holds: fn(&str) -> bool,
}

impl NamingScheme {
    /// The scheme that programs follow themselves.
    pub fn native(name: &'static str) -> NamingScheme {
        NamingScheme::renaming(name, str::to_string)
    }

    /// A scheme whose name for a parameter follows from that in programs.
    pub fn renaming(name: &'static str, rename: fn(&str) -> String) -> NamingScheme {
        NamingScheme {
            name,
            rename,
            reshape: |_, shape| shape.clone(),
            is_duplicate: |_| false,
            holds: |_| true,
        }
    }

    /// The same scheme, in whose files parameters have shapes with other axes of extent one, by their names in programs.
    pub fn with_shapes(self, reshape: fn(&str, &Shape) -> Shape) -> NamingScheme {
        NamingScheme { reshape, ..self }
    }

    /// The same scheme for files in which some names denote tensors that are also stored under another name, or that
    /// follow from the configuration.
    pub fn with_duplicates(self, is_duplicate: fn(&str) -> bool) -> NamingScheme {
        NamingScheme { is_duplicate, ..self }
    }

    /// The same scheme, whose files hold only some parameters, by their names in programs.
    pub fn with_only(self, holds: fn(&str) -> bool) -> NamingScheme {
        NamingScheme { holds, ..self }
    }

    /// Returns `true` if files of this scheme hold a parameter, by its name in programs.
    pub fn holds(&self, parameter: &str) -> bool {
        (self.holds)(parameter)
    }

    /// Returns `true` if files of this scheme hold the tensor of this name under another one too.
    pub fn is_duplicate(&self, tensor: &str) -> bool {
        (self.is_duplicate)(tensor)
    }

    /// The name of a parameter in files of this scheme.
    pub fn weight_name(&self, parameter: &str) -> String {
        (self.rename)(parameter)
    }

    /// The shape of a parameter in files of this scheme.
    pub fn weight_shape(&self, parameter: &str, shape: &Shape) -> Shape {
        (self.reshape)(parameter, shape)
    }

    /// The first of `schemes` in which a file has all `parameters`; if it has them in none, that in which it has the most.
    pub fn for_file<'a>(
        schemes: &'a [NamingScheme],
        file: &WeightFile,
        parameters: &[&str],
    ) -> Option<&'a NamingScheme> {
        let found = |scheme: &NamingScheme| {
            parameters.iter().filter(|parameter| file.contains(&scheme.weight_name(parameter))).count()
        };
        // The last of the highest is taken, so the order is reversed.
        schemes.iter().rev().max_by_key(|scheme| found(scheme))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_memory::{Budget, Bytes};

    use super::*;
    use crate::weights::safetensors;

    #[test]
    fn the_scheme_of_a_file_is_that_which_names_all_its_parameters() {
        let schemes = [
            NamingScheme::native("ours"),
            NamingScheme::renaming("theirs", |name| name.replace("conv", "layer")),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (name, tensors) in [("ours", ["a.conv", "b.norm"]), ("theirs", ["a.layer", "b.norm"])] {
            let path = folder.path().join(format!("{name}.safetensors"));
            let shapes = tensors.map(|tensor| (tensor.to_string(), Shape(vec![2])));
            let mut file = std::fs::File::create(&path).unwrap();
            let fill = |_, values: &mut [f32]| {
                values.fill(1.0);
                Ok(())
            };
            safetensors::write(&mut file, &shapes, &BTreeMap::new(), &mut [0.0; 2], fill).unwrap();
            let file = WeightFile::open(&path, &Budget::new(Bytes::mib(1))).unwrap();
            let found = NamingScheme::for_file(&schemes, &file, &["a.conv", "b.norm"]).unwrap();
            assert_eq!(found.name, name);
            assert!(file.contains(&found.weight_name("a.conv")));
        }
    }
}
