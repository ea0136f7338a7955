//! Segmentations of DICOM (SEG) as label maps whose values have names.
//!
//! PS3.3, A.51 and C.8.20: a mask of one bit for each segment and plane (BINARY), fractions (FRACTIONAL), or labels (LABELMAP). Frames
//! without a voxel may be missing, may have a part of the image's rows and columns, and are in any order. They are placed on the grid
//! of the image if it is known, and otherwise on the smallest grid that has all of them.

mod coding;
mod description;
mod grid;
mod voxels;

use std::path::Path;

use plimsoll_memory::Budget;
use plimsoll_volume::{Content, ElementType, Geometry, Opened, SegmentCoding, VolumeError};

use self::description::Description;
use self::grid::{Placed, Stack};
use self::voxels::SegmentationVoxels;
use crate::DicomError;
use crate::error::{SEGMENTATION_HINT, SegmentationFault};
use crate::header::class;
use crate::location::{FileLocation, each_place};
use crate::reserved_list::ReservedList;

/// The classes of segmentations: masks, and label maps.
const SEGMENTATIONS: [&str; 2] = ["1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"];

/// The class of outlines, which are not read.
const STRUCTURES: &str = "1.2.840.10008.5.1.4.1.1.481.3";

/// An object of DICOM that has labels, and no slices of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labels {
    /// A segmentation (SEG).
    Segmentation,
    /// Outlines (RTSTRUCT).
    Structures,
}

impl Labels {
    /// The labels that a file of DICOM has; `None` if it is something else, or cannot be read.
    pub(crate) fn in_file(place: &FileLocation, budget: &Budget) -> Option<Labels> {
        let class = class(place, budget).ok()??;
        match class.as_str() {
            STRUCTURES => Some(Labels::Structures),
            class if SEGMENTATIONS.contains(&class) => Some(Labels::Segmentation),
            _ => None,
        }
    }

    /// The only file with labels of a folder or an archive; `None` if no file has labels.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or several have labels.
    pub(crate) fn find(path: &Path, budget: &Budget) -> Result<Option<(FileLocation, Labels)>, DicomError> {
        let (mut found, mut count) = (None, 0);
        each_place(path, budget, &mut |place| {
            if place.is_dicom()?
                && let Some(labels) = Labels::in_file(&place, budget)
            {
                count += 1;
                found.get_or_insert((place, labels));
            }
            Ok(())
        })?;
        match count {
            0 | 1 => Ok(found),
            count => {
                let fault = SegmentationFault::Several { count };
                Err(DicomError::Segmentation { path: path.into(), fault })
            }
        }
    }

    /// The kind of object, as an error names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Labels::Segmentation => "a DICOM segmentation (SEG)",
            Labels::Structures => "a DICOM structure set (RTSTRUCT)",
        }
    }
}

/// Opens a segmentation as a label map of one byte for each voxel.
///
/// # Errors
/// Returns an error if the file is damaged, its segments and frames contradict each other, its frames are on no common
/// grid, or the budget has no room for its description. If `content` asks for values without names, it is an error if
/// values do not denote the same segment at all voxels.
pub(crate) fn open(
    path: &Path,
    place: FileLocation,
    content: Content,
    budget: &Budget,
) -> Result<Opened, VolumeError> {
    let added = |error: DicomError| {
        let hint = match &error {
            DicomError::Attribute { .. } => Some(SEGMENTATION_HINT.to_string()),
            error => error.remedy(),
        };
        VolumeError::Added { hint, error: error.into() }
    };
    let description = Description::read(place, budget).map_err(added)?;
    let (geometry, placed) = place_frames(&description, content, budget).map_err(added)?;
    let coded = description.coded(&placed.frames).map_err(added)?;
    if content == Content::Labels && coded.segments.coding != SegmentCoding::Values {
        let why = "its segments are distinguished by their names, not by values from 0 to 255".into();
        return Err(VolumeError::NotForLabels { path: path.into(), why });
    }
    let segments = matches!(content, Content::Segments { .. }).then(|| coded.segments.clone());
    let source = SegmentationVoxels::new(description, placed, coded, geometry.shape(), budget.used());
    let opened = Opened::new(path, geometry, ElementType::U8, Box::new(source))?;
    Ok(match segments {
        Some(segments) => opened.with_segments(segments),
        None => opened,
    })
}

/// Places the frames on the grid of the image if it is known and has all of them, and otherwise on a grid of their own.
fn place_frames(
    description: &Description,
    content: Content,
    budget: &Budget,
) -> Result<(Geometry, Placed), DicomError> {
    let stack = Stack::new(description);
    if let Content::Segments { on: Some(grid) } = content
        && let Some(placed) = stack.on_grid(&grid, budget)?
    {
        return Ok((grid, placed));
    }
    let own = stack.own_grids().map_err(|fault| description.refuse(fault))?;
    for grid in own.into_iter().flatten() {
        if let Some(placed) = stack.on_grid(&grid, budget)? {
            return Ok((grid, placed));
        }
    }
    Err(description.refuse(SegmentationFault::Uneven))
}

/// Frames of a segmentation, held in a budget.
type Frames = ReservedList<description::Frame>;
