//! Initial values of parameters, from a seed.

use plimsoll_graph::{Kind, TensorInfo};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

/// A hash of a name (FNV-1a), so that every parameter draws from a stream of its own, whatever the order.
fn stream(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Initial values of a parameter, in the logical order of its shape.
///
/// Weights are drawn from N(0, 2 / ((1 + slope²) · fan)), with fan the number of voxels of the kernel times the second axis of
/// the shape (He et al. 2015, as `torch.nn.init.kaiming_normal_(w, a=slope)` does, transposed convolutions included). Scales
/// of normalisations are 1; shifts and biases 0.
pub fn initial_values(parameter: &TensorInfo, slope: f32, seed: u64) -> Vec<f32> {
    let count = parameter.shape.count();
    match &parameter.kind {
        Kind::Weights { .. } => {
            let fan = (count / parameter.shape.dim(0)) as f32;
            let deviation = (2.0 / ((1.0 + slope * slope) * fan)).sqrt();
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream(&parameter.name));
            let mut draw = || -> f32 { StandardNormal.sample(&mut random) };
            (0..count).map(|_| deviation * draw()).collect()
        }
        _ if parameter.name.ends_with(".weight") => vec![1.0; count],
        _ => vec![0.0; count],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::{DType, Role, Shape, Side};

    #[test]
    fn weights_have_the_deviation_that_keeps_the_signal() {
        let kind = Kind::Weights { sources: vec![32], from: Side::Features, to: Side::Features };
        let info = TensorInfo {
            name: "conv.weight".into(),
            shape: Shape(vec![64, 32, 3, 3, 3]),
            dtype: DType::F32,
            role: Role::Parameter,
            kind,
        };
        let values = initial_values(&info, 0.01, 7);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        let expected = 2.0 / (1.0001 * 32.0 * 27.0);
        assert!(mean.abs() < 1e-3, "{mean}");
        assert!((variance / expected - 1.0).abs() < 0.02, "{variance} {expected}");
        assert_eq!(values, initial_values(&info, 0.01, 7));
        assert_ne!(values, initial_values(&info, 0.01, 8));
    }
}
