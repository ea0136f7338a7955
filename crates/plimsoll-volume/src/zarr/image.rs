//! The axes of an array that form an image, and the place of its voxels in the world.

use serde::Deserialize;
use serde_json::Value;

use super::array::Array;
use crate::layout::{Layout, bytes_of};
use crate::unit::millimetres;
use crate::{Affine, Geometry, Scaling, Spacing};

/// An array's axes as axes of an image.
pub(super) struct Placed {
    /// The axis of channels.
    pub(super) channel: Option<usize>,
    /// The axes of depth, height and width.
    pub(super) space: [Option<usize>; 3],
    affine: Affine,
    /// Millimetres in the unit that is given.
    pub(super) unit: f64,
    pub(super) warnings: Vec<String>,
}

/// An axis of OME's metadata; the earliest have names alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum AxisSaid {
    Name(String),
    Described {
        name: String,
        #[serde(rename = "type")]
        kind: Option<String>,
        unit: Option<String>,
        orientation: Option<Orientation>,
    },
}

/// The direction in a patient in which indices of an axis grow (RFC-4 of NGFF).
#[derive(Deserialize)]
struct Orientation {
    value: String,
}

#[derive(Deserialize)]
struct Multiscales {
    axes: Option<Vec<AxisSaid>>,
    datasets: Vec<Level>,
    #[serde(rename = "coordinateTransformations")]
    transformations: Option<Vec<Transformation>>,
}

#[derive(Deserialize)]
struct Level {
    #[serde(rename = "coordinateTransformations")]
    transformations: Option<Vec<Transformation>>,
}

#[derive(Deserialize)]
struct Transformation {
    #[serde(rename = "type")]
    kind: String,
    scale: Option<Vec<f64>>,
    translation: Option<Vec<f64>>,
}

/// The metadata of the first image, among the attributes of a group of either version.
pub(super) fn multiscales(attributes: &Value) -> Option<&Value> {
    let of_ome = attributes.get("ome").unwrap_or(attributes);
    of_ome.get("multiscales")?.get(0)
}

/// The path of the array of full size, which is the first.
///
/// # Errors
/// In words, if there is none.
pub(super) fn path_of_largest(multiscales: &Value) -> Result<&str, String> {
    let first = multiscales.get("datasets").and_then(|datasets| datasets.get(0));
    let path = first.and_then(|first| first.get("path")).and_then(Value::as_str);
    path.ok_or_else(|| "its multiscales name no array".into())
}

/// The kind of an axis, by its type or else its name.
enum Kind {
    Space(usize),
    Channel,
    Time,
}

/// The places of the axes of channels and of space among all axes.
struct AxisPlaces {
    channel: Option<usize>,
    /// The places of z, y and x.
    space: [Option<usize>; 3],
}

/// The extent along an axis of an array, whose places were found for the array; 1 along an axis that the array does not have.
pub(super) fn extent(place: Option<usize>, extents: &[usize]) -> usize {
    place.map_or(1, |place| extents[place])
}

impl AxisPlaces {
    /// Finds the axes of an array of this shape.
    ///
    /// # Errors
    /// Returns an error if the number of axes differs, they are in another order than time, channels, z, y, x, or y or
    /// x is missing.
    fn find(axes: &[AxisSaid], shape: &[usize]) -> Result<AxisPlaces, String> {
        if axes.len() != shape.len() {
            return Err(format!("its multiscales have {} axes, but its array {}", axes.len(), shape.len()));
        }
        let (mut channel, mut space) = (None, [None; 3]);
        for (place, axis) in axes.iter().enumerate() {
            match axis.kind()? {
                Kind::Space(which) if space[which..].iter().all(Option::is_none) => {
                    space[which] = Some(place)
                }
                Kind::Channel if channel.is_none() && space == [None; 3] => channel = Some(place),
                Kind::Time if shape[place] == 1 && space == [None; 3] => {}
                Kind::Time if shape[place] != 1 => {
                    return Err(format!("it has {} time points, but only one is supported", shape[place]));
                }
                _ => return Err("its axes are not in the order time, channels, z, y, x".into()),
            }
        }
        if space[1].is_none() || space[2].is_none() {
            return Err("it has no axes y and x".into());
        }
        Ok(AxisPlaces { channel, space })
    }
}

impl Placed {
    /// The axes of an array of its own: depth, height and width, behind channels if there are four.
    ///
    /// # Errors
    /// In words, if there are more.
    pub(super) fn alone(shape: &[usize], spacing: Option<Spacing>) -> Result<Placed, String> {
        let (channel, space) = match shape.len() {
            2 => (None, [None, Some(0), Some(1)]),
            3 => (None, [Some(0), Some(1), Some(2)]),
            4 => (Some(0), [Some(1), Some(2), Some(3)]),
            _ => {
                return Err(format!(
                    "its shape is {shape:?}, but without OME metadata 2 to 4 axes are supported"
                ));
            }
        };
        let affine = Affine::from_spacing(spacing.unwrap_or(Spacing([1.0; 3])));
        Ok(Placed { channel, space, affine, unit: 1.0, warnings: Vec::new() })
    }

    /// The axes of an array as OME's metadata say.
    ///
    /// # Errors
    /// Returns a reason if they are not the axes of an image of one time point, or their lengths are invalid.
    pub(super) fn read(multiscales: &Value, shape: &[usize]) -> Result<Placed, String> {
        let said = Multiscales::deserialize(multiscales);
        let said = said.map_err(|problem| format!("its multiscales: {problem}"))?;
        let axes = match said.axes {
            Some(axes) => axes,
            // Of the first versions.
            None => ["t", "c", "z", "y", "x"].map(|name| AxisSaid::Name(name.into())).into(),
        };
        let AxisPlaces { channel, space } = AxisPlaces::find(&axes, shape)?;
        let level = said.datasets.first().ok_or("its multiscales name no array")?;
        let mut warnings = Vec::new();
        let (mut scale, mut translation) = (vec![1.0; axes.len()], vec![0.0; axes.len()]);
        let mut has_scale = false;
        // The transformations of the array first, then of all arrays.
        for step in level.transformations.iter().chain(&said.transformations).flatten() {
            has_scale |= step.apply(&mut scale, &mut translation)?;
        }
        let mut placed =
            Placed { channel, space, affine: Affine([[0.0; 4]; 3]), unit: 1.0, warnings: Vec::new() };
        if !has_scale {
            warnings.push("its multiscales have no scale: voxels are treated as 1 mm".into());
        }
        let units: Vec<Option<&str>> = space.iter().flatten().map(|place| axes[*place].unit()).collect();
        if has_scale && units.contains(&None) {
            warnings.push(
                "its axes have no unit: their scales are treated as millimetres, which ‹unit› corrects"
                    .into(),
            );
        }
        for axis in space.iter().flatten().map(|place| &axes[*place]) {
            if let Some(other) = axis.orientation().filter(|_| axis.direction().is_none()) {
                warnings.push(format!(
                    "its axis {} has the orientation {other:?}, which is not supported: it is placed like an axis without one",
                    axis.name()
                ));
            }
        }
        let mut used = [false; 3];
        // Depth, height and width lie along z, y and x, unless they are said to lie elsewhere.
        let mut worlds = [None; 3];
        for (which, place) in space.iter().enumerate() {
            let Some(place) = place else { continue };
            let (world, sign) = axes[*place].direction().unwrap_or((2 - which, 1.0));
            if std::mem::replace(&mut used[world], true) {
                return Err("its axes have orientations that are not at right angles".into());
            }
            worlds[which] = Some((world, sign));
        }
        for (which, place) in space.iter().enumerate() {
            let unit = match place.and_then(|place| axes[place].unit()).filter(|_| has_scale) {
                Some(unit) => millimetres(unit).ok_or_else(|| {
                    format!("its axes have the unit {unit:?}, which is not a unit of length")
                })?,
                None => 1.0,
            };
            // The axis that an image of two has not is across both, wherever these lie.
            let across = || used.iter().position(|used| !used).map(|world| (world, 1.0));
            let (world, sign) = worlds[which].or_else(across).ok_or("it lists its axes twice")?;
            let (scale, translation) = place.map_or((1.0, 0.0), |place| (scale[place], translation[place]));
            placed.affine.0[world][which] = sign * scale * unit;
            placed.affine.0[world][3] = sign * translation * unit + 0.0;
            if which == 2 {
                placed.unit = unit;
            }
        }
        placed.warnings = warnings;
        Ok(placed)
    }

    /// The grid of the image, and how it is stored.
    ///
    /// # Errors
    /// In words, if it is none.
    pub(super) fn layout(&self, array: &Array) -> Result<Layout, String> {
        let extent = |place: Option<usize>| extent(place, &array.shape);
        let geometry =
            Geometry::new(self.space.map(extent), self.affine).map_err(|problem| problem.to_string())?;
        let bytes = bytes_of(&array.shape, array.element.kind);
        Ok(Layout {
            geometry,
            channels: extent(self.channel),
            element_type: array.element.kind,
            byte_order: array.element.order,
            scaling: Scaling::NONE,
            start: 0,
            bytes: bytes
                .ok_or_else(|| format!("its shape is {:?}, which cannot be addressed", array.shape))?,
        })
    }
}

impl Transformation {
    /// Applies it to scales and translations; whether it is a scale.
    fn apply(&self, scale: &mut [f64], translation: &mut [f64]) -> Result<bool, String> {
        let axes = scale.len();
        let of = |said: &Option<Vec<f64>>| {
            let said = said.clone().filter(|said| said.len() == axes);
            said.ok_or_else(|| format!("its {} does not have a number for each axis", self.kind))
        };
        match self.kind.as_str() {
            "identity" => Ok(false),
            "scale" => {
                for ((scale, translation), by) in scale.iter_mut().zip(translation).zip(of(&self.scale)?) {
                    (*scale, *translation) = (*scale * by, *translation * by);
                }
                Ok(true)
            }
            "translation" => {
                translation.iter_mut().zip(of(&self.translation)?).for_each(|(to, by)| *to += by);
                Ok(false)
            }
            other => Err(format!(
                "its coordinateTransformations have a {other}, but only scales and translations are supported"
            )),
        }
    }
}

impl AxisSaid {
    fn name(&self) -> &str {
        match self {
            AxisSaid::Name(name) | AxisSaid::Described { name, .. } => name,
        }
    }

    fn kind(&self) -> Result<Kind, String> {
        let kind = match self {
            AxisSaid::Name(_) => None,
            AxisSaid::Described { kind, .. } => kind.as_deref(),
        };
        match (kind, self.name()) {
            (Some("channel"), _) | (None, "c") => Ok(Kind::Channel),
            (Some("time"), _) | (None, "t") => Ok(Kind::Time),
            (Some("space") | None, "z") => Ok(Kind::Space(0)),
            (Some("space") | None, "y") => Ok(Kind::Space(1)),
            (Some("space") | None, "x") => Ok(Kind::Space(2)),
            (kind, name) => Err(format!("its axis {name:?} has the type {kind:?}, which is not supported")),
        }
    }

    fn unit(&self) -> Option<&str> {
        match self {
            AxisSaid::Name(_) => None,
            AxisSaid::Described { unit, .. } => unit.as_deref(),
        }
    }

    /// The direction in which the axis grows, as the file states it.
    fn orientation(&self) -> Option<&str> {
        match self {
            AxisSaid::Described { orientation: Some(Orientation { value }), .. } => Some(value.as_str()),
            _ => None,
        }
    }

    /// The axis of the world (right, anterior, superior) along which it grows, and whether towards it; none if it is not said, or not of
    /// these.
    fn direction(&self) -> Option<(usize, f64)> {
        Some(match self.orientation()? {
            "left-to-right" => (0, 1.0),
            "right-to-left" => (0, -1.0),
            "posterior-to-anterior" => (1, 1.0),
            "anterior-to-posterior" => (1, -1.0),
            "inferior-to-superior" => (2, 1.0),
            "superior-to-inferior" => (2, -1.0),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_two_axes_lies_where_its_orientations_say() {
        let oriented = |y: &str, x: &str| {
            let axis = |name: &str, to: &str| serde_json::json!({"name": name, "type": "space", "unit": "millimeter", "orientation": {"value": to}});
            let scale = serde_json::json!({"type": "scale", "scale": [0.5, 0.25]});
            let said = serde_json::json!({"axes": [axis("y", y), axis("x", x)], "datasets": [{"path": "0", "coordinateTransformations": [scale]}]});
            Placed::read(&said, &[4, 6]).map(|placed| placed.affine.0.map(|[a, b, c, _]| [a, b, c]))
        };
        // A coronal plane: its height lies along the body's axis, and what it has not, the depth, across.
        let coronal = oriented("superior-to-inferior", "right-to-left").unwrap();
        assert_eq!(coronal, [[0.0, 0.0, -0.25], [1.0, 0.0, 0.0], [0.0, -0.5, 0.0]]);
        let axial = oriented("anterior-to-posterior", "left-to-right").unwrap();
        assert_eq!(axial, [[0.0, 0.0, 0.25], [0.0, -0.5, 0.0], [1.0, 0.0, 0.0]]);
        assert!(oriented("right-to-left", "left-to-right").is_err());
    }
}
