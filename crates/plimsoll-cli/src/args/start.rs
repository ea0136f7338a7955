//! Arguments of runs that start from trained weights.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use plimsoll::{Adoption, OpenedStart, StartOptions, StartRequest};
use plimsoll_run::Settings;

use crate::failure::Outcome;

/// The start of a run from trained weights.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct StartArgs {
    /// Start from these weights: a .safetensors, .pt or .pth file; or the folder of a run, of a model of nnU-Net, or of a checkpoint
    /// of nnssl with its adaptation_plan.json, whose stem and encoder are adapted.
    #[arg(long, value_name = "CHECKPOINT|FOLDER")]
    pub start: Option<PathBuf>,
    /// With --start: the settings that are taken from it where they are not set.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,…", requires = "start")]
    pub adopt: Vec<Adopted>,
    /// With --start: ignore tensors that the network does not have.
    #[arg(long, requires = "start")]
    pub allow_extra: bool,
    /// With --start: initialise heads at random if the file's heads have other classes or are missing.
    #[arg(long, requires = "start")]
    pub new_head: bool,
    /// With --start: sum weights of images of three channels over these, for images of one.
    #[arg(long, requires = "start")]
    pub sum_stem: bool,
    /// With --start: resample kernels of another size linearly, as MedNeXt's UpKern starts a network with larger kernels.
    #[arg(long, requires = "start")]
    pub upkern: bool,
}

/// A part of the settings that is taken from a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Adopted {
    /// The size of the patch.
    Patch,
    /// The spacing that images are brought to.
    Spacing,
    /// The normalisation of intensities.
    Normalisation,
    /// The network: its kind, features, kernels, strides and blocks.
    Topology,
}

impl From<Adopted> for Adoption {
    fn from(adopted: Adopted) -> Adoption {
        match adopted {
            Adopted::Patch => Adoption::Patch,
            Adopted::Spacing => Adoption::Spacing,
            Adopted::Normalisation => Adoption::Normalisation,
            Adopted::Topology => Adoption::Topology,
        }
    }
}

impl StartArgs {
    /// Opens the start, if there is one, and completes settings by it. A run that resumes needs no start.
    pub fn open(&self, settings: Settings, resumes: bool) -> Outcome<(Settings, Option<OpenedStart>)> {
        let Some(path) = &self.start else { return Ok((settings, None)) };
        let request = StartRequest {
            path: path.clone(),
            adopt: self.adopt.iter().map(|adopted| (*adopted).into()).collect(),
            options: StartOptions {
                allow_extra: self.allow_extra,
                new_head: self.new_head,
                sum_stem: self.sum_stem,
                upkern: self.upkern,
            },
        };
        Ok(request.open(settings, resumes)?)
    }
}
