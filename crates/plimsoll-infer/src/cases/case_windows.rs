//! The places and the content of the windows of a case, for all ways in which models prepare images.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{
    Case, CaseFingerprint, CaseSource, Channel, KeptImage, MonaiSteps, NnUnetSteps, Normalising, Preparation,
    PrepareError, PreparedCase, PreparedGrid, Preparing, Recipe, Scratch, SpacedCase, SpacedGrid, TargetGrid,
    VolumeCache, WindowSource, ZoomSteps, ZoomedCase, ZoomedGrid, ZoomedRoom, Zooming, pull,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::SegmentationModel;
use plimsoll_volume::{Geometry, Spacing, VoxelBox};

use crate::cases::believable::{self, ImageGrid};
use crate::cases::case_spacing::CaseSpacing;
use crate::cases::request::CaseInput;
use crate::error::InferError;

/// The properties of a case that follow from its grid and its model, before any window is pulled.
pub(crate) enum CasePlace<'a> {
    Canonical { grid: TargetGrid, target: Spacing, channels: &'a [Channel] },
    Prepared { place: PreparedGrid, steps: &'a NnUnetSteps },
    Zoomed { place: ZoomedGrid, largest: TargetGrid, steps: &'a ZoomSteps },
    Spaced { place: SpacedGrid, steps: &'a MonaiSteps },
}

/// The inputs from which a case is prepared.
#[derive(Clone, Copy)]
pub(crate) struct CaseImages<'a> {
    pub(crate) case: &'a Case,
    /// The grid of its images as stored.
    pub(crate) geometry: &'a Geometry,
    /// The stored spacing (depth, height, width) as the first file states it.
    pub(crate) stated: Spacing,
    /// The box of the stored grid outside of which all channels are zero; the whole grid as long as nothing is known of voxels.
    pub(crate) nonzero_box: VoxelBox,
    /// The labels of an earlier network.
    pub(crate) earlier: Option<&'a Path>,
    /// The box of the stored image that is looked at; none where all of it is.
    pub(crate) within: Option<VoxelBox>,
    /// The spacing at which it is seen; none where that is the model's.
    pub(crate) spacing: Option<CaseSpacing>,
}

/// The inputs from which the windows of a case are opened.
pub(crate) struct OpenRequest<'a> {
    pub(crate) images: CaseImages<'a>,
    /// The result of inspecting the images.
    pub(crate) fingerprint: &'a CaseFingerprint,
    /// The image as networks see it, which several models share; `None` where each reads the stored one.
    pub(crate) kept: Option<&'a mut KeptImage>,
    pub(crate) cache: &'a VolumeCache,
    pub(crate) scratch: &'a mut Scratch,
    /// The memory of the preparation.
    pub(crate) budget: &'a Budget,
    pub(crate) stop: &'a AtomicBool,
}

impl<'a> CaseImages<'a> {
    /// Returns the images of a case that were inspected, with a stored spacing that the first file states, to be seen at `spacing`.
    pub(crate) fn inspected(
        input: CaseInput<'a>,
        fingerprint: &'a CaseFingerprint,
        stated: Spacing,
        spacing: Option<CaseSpacing>,
    ) -> CaseImages<'a> {
        let CaseInput { case, earlier, within } = input;
        let (geometry, nonzero_box) = (&fingerprint.geometry, fingerprint.nonzero_box);
        CaseImages { case, geometry, stated, nonzero_box, earlier, within, spacing }
    }

    /// The grid of windows of images that are zero outside of a box, as nnU-Net prepares them.
    fn prepared(&self, nonzero: VoxelBox, steps: &NnUnetSteps) -> Result<PreparedGrid, InferError> {
        let place = |steps: &NnUnetSteps| {
            let place = PreparedGrid::new(self.geometry, self.stated, nonzero, steps);
            place.map_err(|problem| refused(self.case, problem))
        };
        let trained = place(steps)?;
        let Some(spacing) = self.spacing else { return Ok(trained) };
        let (_, own) = trained.cropped();
        place(&NnUnetSteps { spacing: spacing.target(own), ..steps.clone() })
    }
}

impl<'a> CasePlace<'a> {
    /// Opens the windows of a case.
    ///
    /// # Errors
    /// Returns an error if its spacing cannot be meant, it is to be seen at another one than the model's and the model cannot see it so, or it has earlier
    /// labels and the model does not take any, or the other way round.
    pub(crate) fn new(
        model: &'a SegmentationModel,
        images: CaseImages<'_>,
    ) -> Result<CasePlace<'a>, InferError> {
        let CaseImages { case, geometry, earlier, within, spacing: other, .. } = images;
        let expected = model.earlier_labels > 0;
        if expected != earlier.is_some() {
            return Err(refused(case, PrepareError::Earlier { expected }));
        }
        let whole = VoxelBox::whole(geometry.shape());
        if within.is_some_and(|within| within != whole)
            && !matches!(model.preparation, Preparation::Zoomed(_))
        {
            return Err(refused(case, PrepareError::Within));
        }
        match &model.preparation {
            Preparation::Zoomed(_) | Preparation::Monai(_) if other.is_some() => {
                Err(refused(case, PrepareError::OtherSpacing))
            }
            // Its windows are not of one grid. Who asks for a place asks for one at another spacing.
            Preparation::Located(_) => Err(refused(case, PrepareError::OtherSpacing)),
            Preparation::Canonical { spacing } => {
                let (canonical, _) = geometry.canonical();
                let own = canonical.spacing();
                let spacing = other.map_or(*spacing, |other| other.target(own));
                let target = spacing.for_image(own);
                let image = ImageGrid { shape: canonical.shape(), spacing: own };
                believable::check(case, image, target)?;
                if other.is_none() {
                    believable::check_unit(case, image, target)?;
                }
                let (grid, channels) = (TargetGrid::new(geometry, spacing), &model.channels[..]);
                Ok(CasePlace::Canonical { grid, target, channels })
            }
            Preparation::NnUnet(steps) => {
                let place = images.prepared(images.nonzero_box, steps)?;
                let (shape, spacing) = place.cropped();
                believable::check(case, ImageGrid { shape, spacing }, place.target())?;
                Ok(CasePlace::Prepared { place, steps })
            }
            Preparation::Zoomed(steps) => {
                let place = ZoomedGrid::new(geometry, within, steps);
                let place = place.map_err(|problem| refused(case, problem))?;
                let (canonical, _) = geometry.canonical();
                let image = ImageGrid { shape: place.cropped(), spacing: canonical.spacing() };
                believable::check(case, image, steps.spacing)?;
                Ok(CasePlace::Zoomed { place, largest: place.largest(), steps })
            }
            Preparation::Monai(steps) => {
                let place = SpacedGrid::new(geometry, steps).map_err(|problem| refused(case, problem))?;
                let (shape, spacing) = place.stored();
                believable::check(case, ImageGrid { shape, spacing }, place.target())?;
                Ok(CasePlace::Spaced { place, steps })
            }
        }
    }

    /// The grid that windows are of, or one that it is a part of, as far as is known before all of the case is looked at.
    pub(crate) fn largest_grid(&self) -> &TargetGrid {
        match self {
            CasePlace::Canonical { grid, .. } => grid,
            CasePlace::Zoomed { largest, .. } => largest,
            CasePlace::Prepared { place, .. } => place.grid(),
            CasePlace::Spaced { place, .. } => place.grid(),
        }
    }

    /// The window of the case.
    pub(crate) fn window(&self, model: &SegmentationModel) -> [usize; 3] {
        model.window_for(self.largest_grid().shape())
    }

    /// The spacing that images are brought to, along the axes of the network.
    pub(crate) fn target(&self) -> Spacing {
        match self {
            CasePlace::Canonical { target, .. } => *target,
            CasePlace::Zoomed { steps, .. } => steps.spacing,
            CasePlace::Prepared { place, .. } => place.target(),
            CasePlace::Spaced { place, .. } => place.target(),
        }
    }

    /// The grid that windows would be of if nothing were cut, which headers alone lead to.
    ///
    /// # Errors
    /// Returns an error if the spacing cannot be meant.
    pub(crate) fn uncut_grid(&self, images: CaseImages<'_>) -> Result<TargetGrid, InferError> {
        let CasePlace::Prepared { steps, .. } = self else { return Ok(*self.largest_grid()) };
        let whole = VoxelBox::whole(images.geometry.shape());
        Ok(*images.prepared(whole, steps)?.grid())
    }

    /// Returns `true` if windows of the images are read from what another model kept.
    pub(crate) fn is_kept_in(&self, kept: &KeptImage, images: CaseImages<'_>) -> bool {
        match self {
            CasePlace::Zoomed { place, .. } => place.is_kept_in(kept, images.case.images.len()),
            CasePlace::Canonical { .. } | CasePlace::Prepared { .. } | CasePlace::Spaced { .. } => false,
        }
    }

    /// Bytes that [`open`](Self::open) reserves beside the cache.
    ///
    /// # Errors
    /// Returns an error if they do not fit the address space.
    pub(crate) fn bytes(&self, images: CaseImages<'_>) -> Result<Bytes, InferError> {
        match self {
            CasePlace::Canonical { channels, .. } => {
                let bytes = Normalising::bytes(channels, images.nonzero_box);
                bytes.map_err(|problem| refused(images.case, problem))
            }
            CasePlace::Zoomed { place, .. } => Ok(place.bytes()?),
            CasePlace::Spaced { place, .. } => Ok(place.bytes()?),
            CasePlace::Prepared { place, steps } => {
                let bytes = place.bytes(steps, images.earlier.is_some());
                bytes.map_err(|problem| refused(images.case, problem))
            }
        }
    }

    /// Opens the images.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, a channel cannot be normalised, memory is refused, or `stop` is set.
    pub(crate) fn open(
        self,
        model: &SegmentationModel,
        request: OpenRequest<'_>,
    ) -> Result<CaseWindows, InferError> {
        let OpenRequest { images, fingerprint, kept, cache, scratch, budget, stop } = request;
        let CaseImages { case, earlier, .. } = images;
        match self {
            CasePlace::Canonical { grid, .. } => {
                let (channels, foreground) = (&model.channels[..], &model.foreground);
                let source =
                    Normalising { case, fingerprint, channels, foreground }.open(cache, budget, stop);
                let source = source.map_err(|problem| match problem {
                    PrepareError::Volume(problem) => problem.into(),
                    problem => refused(case, problem),
                })?;
                Ok(CaseWindows::Canonical { grid: Box::new(grid), source })
            }
            CasePlace::Prepared { place, steps } => {
                let earlier = earlier.map(|path| (path, model.earlier_labels));
                let what = Preparing { case, fingerprint, steps, foreground: &model.foreground, earlier };
                let opened = PreparedCase::open(&what, place, cache, budget, stop)
                    .and_then(|opened| opened.normalised_on_grid(&what, scratch, budget, stop));
                CaseWindows::prepared(case, opened)
            }
            CasePlace::Zoomed { place, steps, .. } => {
                let what = Zooming { case, steps, foreground: &model.foreground };
                let room = ZoomedRoom { cache, scratch, budget };
                CaseWindows::prepared(case, ZoomedCase::open(&what, place, kept, room, stop))
            }
            CasePlace::Spaced { place, steps } => CaseWindows::prepared(
                case,
                SpacedCase::open(case, steps, place, cache, scratch, budget, stop),
            ),
        }
    }
}

fn refused(case: &Case, source: PrepareError) -> InferError {
    let case = case.id.clone();
    match source {
        PrepareError::Stopped => InferError::Interrupted { case },
        PrepareError::Normalisation(source) => InferError::Normalisation { case, source },
        source => InferError::Prepare { case, source: Box::new(source) },
    }
}

/// A case whose windows can be pulled.
pub(crate) enum CaseWindows {
    Canonical { grid: Box<TargetGrid>, source: CaseSource },
    Prepared { source: Box<dyn WindowSource>, name: String },
}

impl CaseWindows {
    /// Returns the windows of a case that was prepared, or why it cannot be.
    fn prepared<S: WindowSource + 'static>(
        case: &Case,
        source: Result<S, PrepareError>,
    ) -> Result<CaseWindows, InferError> {
        let source = Box::new(source.map_err(|problem| refused(case, problem))?);
        Ok(CaseWindows::Prepared { source, name: case.id.clone() })
    }

    /// The grid that windows are of.
    pub(crate) fn grid(&self) -> &TargetGrid {
        match self {
            CaseWindows::Canonical { grid, .. } => grid,
            CaseWindows::Prepared { source, .. } => source.grid(),
        }
    }

    /// Fills `image`, `[channel][d][h][w]`, with the window that begins at voxel `from` of the grid.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub(crate) fn pull(
        &mut self,
        from: [i64; 3],
        window: [usize; 3],
        image: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), InferError> {
        match self {
            CaseWindows::Canonical { grid, source } => {
                Ok(pull(&Recipe::window(0, grid, from, window), source, image, None, scratch)?)
            }
            CaseWindows::Prepared { source, name } => {
                let pulled = source.window(from, window, image, scratch);
                pulled.map_err(|source| InferError::Prepare { case: name.clone(), source: Box::new(source) })
            }
        }
    }
}
