//! The profile of a point.

/// The values of a point around its centre: the distance to the border of a ball, as a share of the largest distance.
///
/// The ball of nnInteractive has the voxels whose centres are at most the radius away, and distances are measured to the nearest voxel
/// of its bounding cube that is outside of the ball.
pub(crate) struct Profile {
    radius: usize,
    /// Values `[depth][height][width]` of the bounding cube.
    values: Vec<f64>,
}

/// A distance that is larger than all others.
const FAR: usize = usize::MAX / 4;

impl Profile {
    /// The profile of a radius in voxels, 1 at least.
    pub(crate) fn new(radius: usize) -> Profile {
        let extent = 2 * radius + 1;
        let square = |at: usize| at.abs_diff(radius).pow(2);
        let mut squares = vec![0; extent.pow(3)];
        for (place, value) in squares.iter_mut().enumerate() {
            let at = [place / extent / extent, place / extent % extent, place % extent];
            let is_inside = at.into_iter().map(square).sum::<usize>() <= radius * radius;
            *value = if is_inside { FAR } else { 0 };
        }
        // The squared distance separates: the nearest voxel of each row, then of each plane, then of all.
        for step in [1, extent, extent * extent] {
            let from = squares.clone();
            for (place, value) in squares.iter_mut().enumerate() {
                let at = place / step % extent;
                let line = place - at * step;
                let nearest = (0..extent).map(|other| from[line + other * step] + other.abs_diff(at).pow(2));
                *value = nearest.min().unwrap_or(FAR);
            }
        }
        let distances = squares.into_iter().map(|square| (square as f64).sqrt());
        let mut values: Vec<f64> = distances.collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        values.iter_mut().for_each(|value| *value /= most);
        Profile { radius, values }
    }

    /// The radius in voxels.
    pub(crate) fn radius(&self) -> usize {
        self.radius
    }

    /// The values of a row, by its offset from the centre; `None` outside of the ball's cube.
    pub(crate) fn row(&self, depth: i64, height: i64) -> Option<&[f64]> {
        let (radius, extent) = (self.radius as i64, 2 * self.radius + 1);
        let place = |offset: i64| usize::try_from(offset + radius).ok().filter(|at| *at < extent);
        let first = (place(depth)? * extent + place(height)?) * extent;
        self.values.get(first..first + extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_points_equal_nninteractives() {
        let text = include_str!("../../../../oracles/nninteractive/points.json");
        let expected: std::collections::BTreeMap<String, Vec<f64>> = serde_json::from_str(text).unwrap();
        assert_eq!(expected.len(), 3);
        for (radius, expected) in expected {
            assert_eq!(Profile::new(radius.parse().unwrap()).values, expected, "radius {radius}");
        }
    }
}
