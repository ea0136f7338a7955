//! Rules for initial values of parameters, from a seed.

use plimsoll_graph::{Kind, TensorInfo};
use plimsoll_memory::fnv1a;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
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
            normal(parameter, (2.0 / ((1.0 + slope * slope) * fan)).sqrt(), seed, values);
        }
        _ if parameter.name.ends_with(".weight") => values.fill(1.0),
        _ => values.fill(0.0),
    }
}

/// Draws from N(0, deviation²).
pub(crate) fn normal(parameter: &TensorInfo, deviation: f32, seed: u64, values: &mut [f32]) {
    let mut random = stream(parameter, seed);
    let mut draw = || -> f32 { StandardNormal.sample(&mut random) };
    values.iter_mut().for_each(|value| *value = deviation * draw());
}

/// Writes initial values as PyTorch's layers draw them by default: weights and biases from U(−b, b) with b = 1/√fan, where fan is
/// the number of inputs of an output; scales of normalisations are 1 and shifts 0, which have none.
pub(crate) fn uniform(parameter: &TensorInfo, fan: Option<usize>, seed: u64, values: &mut [f32]) {
    let Some(fan) = fan else {
        return values.fill(if parameter.name.ends_with(".weight") { 1.0 } else { 0.0 });
    };
    let bound = 1.0 / (fan.max(1) as f32).sqrt();
    let mut random = stream(parameter, seed);
    // 24 bits, the most that a float has, about zero.
    let mut draw = || (random.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
    values.iter_mut().for_each(|value| *value = bound * draw());
}

/// Draws from N(0, deviation²), again where a number is beyond 2 (`timm`'s and MONAI's `trunc_normal_` with its usual bounds).
pub(crate) fn truncated_normal(parameter: &TensorInfo, deviation: f32, seed: u64, values: &mut [f32]) {
    const BOUND: f32 = 2.0;
    let mut random = stream(parameter, seed);
    for value in values {
        *value = loop {
            let drawn: f32 = StandardNormal.sample(&mut random);
            if (deviation * drawn).abs() <= BOUND {
                break deviation * drawn;
            }
        };
    }
}

/// Writes initial values of weights whose outputs are `parts` neighbours each that begin alike, so that what they make is smooth (Aitken
/// et al. 2017): one of them as [`kaiming_normal`] with slope 0, the others like it.
pub(crate) fn alike(parameter: &TensorInfo, parts: usize, seed: u64, values: &mut [f32]) {
    kaiming_normal(parameter, 0.0, seed, values);
    let of_output = parameter.shape.count() / parameter.shape.dim(0);
    for outputs in values.chunks_mut(of_output * parts.max(1)) {
        let (first, others) = outputs.split_at_mut(of_output.min(outputs.len()));
        others.chunks_mut(of_output).for_each(|other| other.copy_from_slice(&first[..other.len()]));
    }
}

/// Random numbers of a parameter: a stream of its own for each, whatever the order.
fn stream(parameter: &TensorInfo, seed: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(fnv1a(parameter.name.as_bytes()));
    random
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

    #[test]
    fn uniform_weights_have_the_bound_of_their_fan_and_tables_the_deviation_asked_for() {
        let info = TensorInfo {
            name: "linear.weight".into(),
            shape: Shape(vec![96, 64, 1, 1, 1]),
            dtype: DType::F32,
            role: Role::Parameter,
            kind: Kind::Weights,
        };
        let mut values = vec![f32::NAN; info.shape.count()];
        uniform(&info, Some(64), 3, &mut values);
        let variance = |values: &[f32]| values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        assert!(values.iter().all(|x| x.abs() <= 0.125));
        assert!((variance(&values) / (0.125f32.powi(2) / 3.0) - 1.0).abs() < 0.05);
        truncated_normal(&info, 0.02, 3, &mut values);
        assert!((variance(&values).sqrt() / 0.02 - 1.0).abs() < 0.05);
        truncated_normal(&info, 1.5, 3, &mut values);
        assert!(values.iter().all(|x| x.abs() <= 2.0));
    }

    #[test]
    fn weights_of_pytorch_are_uniform_and_those_of_neighbouring_voxels_alike() {
        let info = TensorInfo {
            name: "conv.weight".into(),
            shape: Shape(vec![64, 32, 3, 3, 3]),
            dtype: DType::F32,
            role: Role::Parameter,
            kind: Kind::Weights,
        };
        let mut values = vec![f32::NAN; info.shape.count()];
        uniform(&info, Some(32 * 27), 7, &mut values);
        let bound = 1.0 / (32.0f32 * 27.0).sqrt();
        let variance = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        assert!(values.iter().all(|x| x.abs() <= bound));
        assert!((variance / (bound * bound / 3.0) - 1.0).abs() < 0.02, "{variance}");
        alike(&info, 8, 7, &mut values);
        for outputs in values.chunks(8 * 32 * 27) {
            let (first, others) = outputs.split_at(32 * 27);
            assert!(others.chunks(32 * 27).all(|other| other == first));
        }
        assert_ne!(values[..32 * 27], values[8 * 32 * 27..9 * 32 * 27]);
    }
}
