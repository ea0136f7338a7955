//! Arguments of `serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs};
use plimsoll_data::LengthUnit;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::Bytes;
use plimsoll_models::total_segmentator::Mode;
use plimsoll_serve::{
    Access, ArchiveSettings, Bounds, HttpSettings, NamedModel, NamedTask, ServiceSettings, TlsFiles, Token,
};

use super::segment::weights_folder;
use super::{Compute, Ram, StorageArgs, limit};
use crate::commands::failed_service as failed;
use crate::failure::{Failure, Outcome};
use crate::terminal;

/// Models to serve.
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("served").args(["models", "tasks"]).required(true).multiple(true)))]
pub struct Serve {
    /// A model that labels voxels, as `predict` takes it, with its name in addresses [default name: the name of its folder or file]. Several
    /// models are possible.
    #[arg(short = 'm', long = "model", value_name = "[NAME=]MODEL")]
    pub models: Vec<String>,
    /// A task of TotalSegmentator with all of its networks, such as total, or total:fast or total:fastest for a coarser one, with its name in
    /// addresses [default name: the task, like total-fast]. Several tasks are possible.
    #[arg(long = "task", value_name = "[NAME=]TASK")]
    pub tasks: Vec<String>,
    /// The folder of weights of tasks [default: TOTALSEG_WEIGHTS_PATH, or nnunet/results in TOTALSEG_HOME_DIR or ~/.totalsegmentator].
    #[arg(long, value_name = "DIR", requires = "tasks")]
    pub weights: Option<PathBuf>,
    /// The address to listen on; port 0 for any that is free.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8780")]
    pub listen: SocketAddr,
    /// Answer messages of the Model Context Protocol on standard input and output instead, from the program that starts this one: it names images
    /// and labels by path.
    #[arg(long, conflicts_with_all = ["listen", "token_file", "no_token", "tls_certificate", "tls_key", "insecure", "dicomweb", "upload_limit", "idle"])]
    pub stdio: bool,
    /// A file with a secret token in each line, which clients send; only you may read it [default: a token that is made and printed].
    #[arg(long, value_name = "FILE", conflicts_with = "no_token")]
    pub token_file: Option<PathBuf>,
    /// Answer all programs of this machine.
    #[arg(long)]
    pub no_token: bool,
    /// The certificate of TLS in PEM, with those that sign it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Listen on an address of other machines without TLS or a token, behind a proxy that does both.
    #[arg(long)]
    pub insecure: bool,
    /// The DICOMweb services of an archive of images, like http://127.0.0.1:8042/dicom-web: clients can then name a series, whose labels are
    /// stored there.
    #[arg(long, value_name = "URL")]
    pub dicomweb: Option<String>,
    /// A file with the Authorization header that the archive needs; only you may read it.
    #[arg(long, value_name = "FILE", requires = "dicomweb")]
    pub dicomweb_authorization: Option<PathBuf>,
    /// The certificates in PEM of the authorities that are trusted for the archive, for https.
    #[arg(long, value_name = "FILE", requires = "dicomweb")]
    pub dicomweb_authority: Option<PathBuf>,
    /// Requests that are received, planned, predicted or sent at a time; others are refused.
    #[arg(long, value_name = "N", default_value_t = Bounds::QUEUE as u16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub queue: u16,
    /// The most bytes of an upload.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes)]
    pub upload_limit: Bytes,
    /// The most bytes of an image, or of the files in an archive, unpacked.
    #[arg(long, value_name = "BYTES", default_value = "8GiB", value_parser = bytes)]
    pub unpacked_limit: Bytes,
    /// The longest time in seconds without a byte from or to a client.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub idle: u64,
    /// The folder in which each request has a folder while it lasts [default: the folder of temporary files].
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// The unit of lengths in headers, whatever they state: um, mm or m.
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<LengthUnit>,
    /// The overlap of neighbouring windows as a share of a window, from 0 to less than 1 [default: 0.5].
    #[arg(long, value_name = "SHARE")]
    pub overlap: Option<f64>,
    /// Also predict each window mirrored, as models of nnU-Net do by default.
    #[arg(long, conflicts_with = "no_mirror")]
    pub mirror: bool,
    /// Predict no window mirrored, also with models of nnU-Net.
    #[arg(long)]
    pub no_mirror: bool,
    #[command(flatten)]
    pub held: StorageArgs,
    #[command(flatten)]
    pub ram: Ram,
    #[command(flatten)]
    pub compute: Compute,
}

/// nnU-Net's share of a window from one to the next.
const USUAL_STEP: f64 = 0.5;

impl Serve {
    /// The settings of the service.
    pub fn service(&self) -> Outcome<ServiceSettings> {
        let step = match self.overlap {
            None => USUAL_STEP,
            Some(overlap) if (0.0..1.0).contains(&overlap) => 1.0 - overlap,
            Some(overlap) => {
                let message = format!("--overlap {overlap} is not at least 0 and less than 1");
                return Err(Failure::new(message, "half of a window, --overlap 0.5, is what most take"));
            }
        };
        let bounds = Bounds::for_queue(self.queue.into());
        let threads = self.compute.threads.count();
        let options: PredictOptions = self.held.options(step, false, threads);
        Ok(ServiceSettings {
            models: self.models.iter().map(|model| named(model)).collect(),
            tasks: match self.tasks.as_slice() {
                [] => Vec::new(),
                tasks => {
                    let weights = weights_folder(self.weights.as_deref())?;
                    tasks.iter().map(|task| named_task(task, &weights)).collect::<Outcome<_>>()?
                }
            },
            ram: self.ram.ram,
            backend: self.held.on(self.compute.open()?)?,
            options,
            mirror: match (self.mirror, self.no_mirror) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            bounds: Bounds {
                connections: if self.stdio { 0 } else { bounds.connections },
                upload: self.upload_limit,
                unpacked: self.unpacked_limit,
                idle: Duration::from_secs(self.idle),
                ..bounds
            },
            unit: self.unit,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            cache: terminal::cache_folder(),
        })
    }

    /// The settings of the socket. A token is made if none is named.
    pub fn http(&self, made: impl FnOnce() -> Outcome<Token>) -> Outcome<HttpSettings> {
        let access = match &self.token_file {
            _ if self.no_token => Access::Open,
            Some(file) => Access::Tokens(Token::read(file).map_err(failed)?),
            None => Access::Tokens(vec![made()?]),
        };
        let tls = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(TlsFiles { certificate: certificate.clone(), key: key.clone() })
            }
            _ => None,
        };
        let archive = self.dicomweb.clone().map(|url| ArchiveSettings {
            url,
            authorization: self.dicomweb_authorization.clone(),
            authority: self.dicomweb_authority.clone(),
        });
        Ok(HttpSettings { listen: self.listen, access, tls, archive, allow_insecure: self.insecure })
    }
}

/// Reads `NAME=MODEL`, or a path, which may have an equals sign in a folder.
fn named(text: &str) -> NamedModel {
    match text.split_once('=') {
        Some((name, path)) if !name.contains(['/', '\\']) => {
            NamedModel { name: name.into(), path: path.into() }
        }
        _ => {
            let path = Path::new(text);
            let is_file = path.is_file();
            let name = if is_file { path.file_stem() } else { path.file_name() };
            let name = name.map_or_else(|| text.to_string(), |name| name.to_string_lossy().into_owned());
            NamedModel { name, path: path.into() }
        }
    }
}

/// Reads `NAME=TASK`, or a task, with its resolution behind a colon.
fn named_task(text: &str, weights: &Path) -> Outcome<NamedTask> {
    let (name, task) = text.split_once('=').map_or((None, text), |(name, task)| (Some(name), task));
    let (task, mode) = match task.split_once(':') {
        None => (task, Mode::Default),
        Some((task, "fast")) => (task, Mode::Fast),
        Some((task, "fastest")) => (task, Mode::Fastest),
        Some((task, other)) => {
            let message = format!("--task {text}: `{other}` is not a resolution");
            return Err(Failure::new(message, format!("use {task}:fast or {task}:fastest, or {task} alone")));
        }
    };
    let usual = || text.replace(':', "-");
    let name = name.map_or_else(usual, str::to_string);
    Ok(NamedTask { name, task: task.into(), mode, weights: weights.into() })
}

/// Reads a number of bytes.
fn bytes(text: &str) -> Result<Bytes, String> {
    limit(text)
}
