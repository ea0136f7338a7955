//! Rules for initial values of parameters, from a seed.

use plimsoll_graph::{Kind, TensorInfo};
use plimsoll_memory::fnv1a;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

/// Writes initial values of a parameter to `values`, which has room for just them, in the logical order of its shape.
///
/// Weights are drawn from N(0, 2 / ((1 + slope²) · fan)), with fan the number of voxels of the kernel times the second axis of
/// the shape (He et al. 2015, as `torch.nn.init.kaiming_normal_(w, a=slope)` does, transposed convolutions included). Scales
/// of normalisations are 1; shifts and biases 0.
pub(crate) fn kaiming_normal(parameter: &TensorInfo, slope: f32, seed: u64, values: &mut [f32]) {
    match &parameter.kind {
        Kind::Weights => {
            let fan = (parameter.shape.count() / parameter.shape.dim(0)) as f32;
            let deviation = (2.0 / ((1.0 + slope * slope) * fan)).sqrt();
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            // A stream of its own for each parameter, whatever the order.
            random.set_stream(fnv1a(parameter.name.as_bytes()));
            let mut draw = || -> f32 { StandardNormal.sample(&mut random) };
            values.iter_mut().for_each(|value| *value = deviation * draw());
        }
        _ if parameter.name.ends_with(".weight") => values.fill(1.0),
        _ => values.fill(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::{DType, Role, Shape};

    #[test]
    fn weights_have_the_deviation_that_keeps_the_signal() {
        let kind = Kind::Weights;
        let info = TensorInfo {
            name: "conv.weight".into(),
            shape: Shape(vec![64, 32, 3, 3, 3]),
            dtype: DType::F32,
            role: Role::Parameter,
            kind,
        };
        let drawn = |seed: u64| {
            let mut values = vec![f32::NAN; info.shape.count()];
            kaiming_normal(&info, 0.01, seed, &mut values);
            values
        };
        let values = drawn(7);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        let expected = 2.0 / (1.0001 * 32.0 * 27.0);
        assert!(mean.abs() < 1e-3, "{mean}");
        assert!((variance / expected - 1.0).abs() < 0.02, "{variance} {expected}");
        assert_eq!(values, drawn(7));
        assert_ne!(values, drawn(8));
    }
}
