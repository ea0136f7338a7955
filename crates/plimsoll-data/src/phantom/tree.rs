//! Trees of tubes that branch and taper.

use plimsoll_random::Draws;

/// A segment of a tube: a cone between two spheres. Lengths are in units of the smallest spacing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tube {
    pub(crate) from: [f64; 3],
    pub(crate) to: [f64; 3],
    /// At either end.
    pub(crate) radii: [f64; 2],
}

/// Growth stops at this radius: thinner vessels would not be resolved.
const THINNEST: f64 = 1.6;

/// The largest number of segments of a tree.
const MOST: usize = 400;

impl Tube {
    /// The depth of a point inside of the tube; negative outside.
    pub(crate) fn depth_of(&self, point: [f64; 3]) -> f64 {
        let along: [f64; 3] = std::array::from_fn(|axis| self.to[axis] - self.from[axis]);
        let there: [f64; 3] = std::array::from_fn(|axis| point[axis] - self.from[axis]);
        let square = dot(along, along);
        let share = if square > 0.0 { (dot(there, along) / square).clamp(0.0, 1.0) } else { 0.0 };
        let away: [f64; 3] = std::array::from_fn(|axis| there[axis] - share * along[axis]);
        self.radii[0] + share * (self.radii[1] - self.radii[0]) - dot(away, away).sqrt()
    }
}

/// A tree in a box of this size. It starts in the middle part of a face and grows inwards; at each branching the cubes of
/// the radii add up (Murray 1926).
pub(crate) fn grow(size: [f64; 3], draws: &mut Draws) -> Vec<Tube> {
    let face = draws.below(3);
    let far = draws.chance(0.5);
    let mut start = [0, 1, 2].map(|axis| size[axis] * draws.between([0.25, 0.75]));
    start[face] = if far { size[face] } else { 0.0 };
    let mut direction = [0; 3].map(|_| draws.between([-0.4, 0.4]));
    direction[face] = if far { -1.0 } else { 1.0 };
    let mut tubes = Vec::new();
    let mut growing = vec![(start, unit(direction), draws.between([4.5, 6.0]))];
    while let Some((mut from, mut direction, mut radius)) = growing.pop() {
        let pieces = 2 + draws.below(3);
        for _ in 0..pieces {
            let length = radius * draws.between([1.8, 3.0]);
            let to = std::array::from_fn(|axis| from[axis] + length * direction[axis]);
            let thinner = radius * draws.between([0.93, 0.99]);
            tubes.push(Tube { from, to, radii: [radius, thinner] });
            (from, radius) = (to, thinner);
            direction = unit(direction.map(|along| along + draws.between([-0.3, 0.3])));
        }
        let outside = (0..3).any(|axis| from[axis] < -radius || from[axis] > size[axis] + radius);
        if outside || tubes.len() >= MOST {
            continue;
        }
        let share = draws.between([0.35, 0.65]);
        let across = unit(cross(direction, [0; 3].map(|_| f64::from(draws.normal()))));
        for (side, share) in [(1.0, share), (-1.0, 1.0 - share)] {
            let branch = radius * f64::cbrt(share);
            let angle = side * draws.between([0.4, 0.8]);
            let turned = std::array::from_fn(|axis| direction[axis] + angle * across[axis]);
            if branch >= THINNEST {
                growing.push((from, unit(turned), branch));
            }
        }
    }
    tubes
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// The vector scaled to length 1; the first unit vector if it is zero.
fn unit(vector: [f64; 3]) -> [f64; 3] {
    let length = dot(vector, vector).sqrt();
    if length > 0.0 { vector.map(|along| along / length) } else { [1.0, 0.0, 0.0] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_random::Purpose;

    #[test]
    fn depth_inside_a_tube_follows_its_radius() {
        let tube = Tube { from: [0.0; 3], to: [0.0, 0.0, 10.0], radii: [4.0, 2.0] };
        assert_eq!(tube.depth_of([0.0, 0.0, 5.0]), 3.0);
        assert_eq!(tube.depth_of([0.0, 3.0, 5.0]), 0.0);
        assert_eq!(tube.depth_of([0.0, 0.0, 13.0]), -1.0);
    }

    #[test]
    fn trees_branch_and_taper() {
        for case in 0..20 {
            let tubes = grow([80.0; 3], &mut Draws::new(1, Purpose::Phantom, case, 0, 0));
            assert!((10..=MOST + 8).contains(&tubes.len()), "{}", tubes.len());
            let thinnest = tubes.iter().map(|tube| tube.radii[1]).fold(f64::INFINITY, f64::min);
            assert!(thinnest < tubes[0].radii[0] * 0.8, "{thinnest}");
        }
    }
}
