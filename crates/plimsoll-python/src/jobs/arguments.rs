//! Arguments that several jobs share: a run, its settings, its share of the machine.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll::backend::{DeviceName, MOST_THREADS, default_threads};
use plimsoll::{Adoption, PlanRequest, StartOptions, StartRequest, read_settings};
use plimsoll_memory::Bytes;
use plimsoll_models::Model;
use plimsoll_plan::Backend;
use plimsoll_run::Settings;
use plimsoll_train::Concession;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::JobFailure;
use crate::Failure;

/// Settings of the network that can be given without `network`.
const OF_NETWORK: [&str; 5] = ["net", "features", "init_filters", "feature_size", "dropout"];

/// The share of the machine that a job has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Machine {
    /// The memory limit; none for the limit of the machine.
    pub ram: Option<Bytes>,
    /// Threads; none for one for each processor that the process may use.
    pub threads: Option<usize>,
    /// The device that runs programs.
    #[serde(deserialize_with = "device")]
    pub device: DeviceName,
    /// The limit of the device's memory.
    pub vram: Option<Bytes>,
}

impl Machine {
    /// The number of threads.
    pub fn threads(&self) -> Result<usize, Failure> {
        match self.threads {
            None => Ok(default_threads()),
            Some(threads @ 1..=MOST_THREADS) => Ok(threads),
            Some(threads) => Err(JobFailure::argument(format!(
                "threads is {threads}, but must be from 1 to {MOST_THREADS}"
            ))),
        }
    }

    /// Opens the device to run programs.
    pub fn open(&self) -> Result<Arc<dyn Backend>, Failure> {
        self.device.open(self.threads()?, self.vram).map_err(JobFailure::wrap)
    }

    /// Opens the device, or a kind of device that this machine may lack, to plan with alone.
    pub fn open_to_plan(&self) -> Result<Arc<dyn Backend>, Failure> {
        self.device.open_to_plan(self.threads()?, self.vram).map_err(JobFailure::wrap)
    }
}

/// A run: its data set, its settings and its share of the machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunArguments {
    pub dataset: PathBuf,
    /// Keys of the settings file.
    pub settings: Map<String, Value>,
    /// A settings file, which `settings` override.
    pub config: Option<PathBuf>,
    pub machine: Machine,
    pub loader_threads: Option<usize>,
    /// Changes that may be made so that the run fits.
    pub allow: Vec<String>,
    pub skip_bad_cases: bool,
    pub allow_outside: bool,
    /// The folder of a run whose patch, spacing, network and normalisation are taken.
    pub plans_from: Option<PathBuf>,
    /// The trained weights that the run starts from.
    pub start: Option<StartArguments>,
}

/// Trained weights that a run starts from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartArguments {
    pub path: PathBuf,
    /// Names of settings that are taken from it.
    adopt: Vec<String>,
    allow_extra: bool,
    new_head: bool,
    sum_stem: bool,
    upkern: bool,
}

impl StartArguments {
    fn request(self) -> Result<StartRequest, Failure> {
        let adopted = |name: &String| {
            Adoption::from_name(name).ok_or_else(|| {
                let known = Adoption::ALL.map(|known| format!("\"{}\"", known.name())).join(", ");
                JobFailure::argument(format!("adopt has \"{name}\", but must be of {known}"))
            })
        };
        Ok(StartRequest {
            adopt: self.adopt.iter().map(adopted).collect::<Result<_, _>>()?,
            path: self.path,
            options: StartOptions {
                allow_extra: self.allow_extra,
                new_head: self.new_head,
                sum_stem: self.sum_stem,
                upkern: self.upkern,
            },
        })
    }
}

impl RunArguments {
    /// The request, with a backend. A run that resumes needs no start.
    pub fn request(self, resumes: bool, backend: Arc<dyn Backend>) -> Result<PlanRequest, Failure> {
        let plans_from =
            self.plans_from.as_deref().map(Model::plans).transpose().map_err(JobFailure::wrap)?;
        let mut settings = settings(self.settings, self.config.as_deref())?;
        if let Some(model) = &plans_from {
            settings = settings.or(model.plans().map_err(JobFailure::wrap)?);
        }
        let mut start = None;
        if let Some(arguments) = self.start {
            (settings, start) = arguments.request()?.open(settings, resumes).map_err(JobFailure::wrap)?;
        }
        let allowed = self.allow.iter().map(|name| concession(name)).collect::<Result<_, _>>()?;
        Ok(PlanRequest {
            dataset: self.dataset,
            settings,
            ram: self.machine.ram,
            threads: self.machine.threads()?,
            loader_threads: self.loader_threads,
            skip_bad_cases: self.skip_bad_cases,
            backend,
            allowed,
            plans_from,
            start,
            allow_outside: self.allow_outside,
        })
    }
}

/// Reads settings, each of which is named in its error, over the settings of a file. Without a file, none is read.
pub(super) fn settings(
    mut keys: Map<String, Value>,
    file: Option<&std::path::Path>,
) -> Result<Settings, Failure> {
    for name in OF_NETWORK {
        let Some(value) = keys.remove(name) else { continue };
        let network = keys.entry("network").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(network) = network else {
            return Err(JobFailure::argument("network must be a dictionary"));
        };
        if network.insert(name.into(), value).is_some() {
            return Err(JobFailure::argument(format!("{name} is given twice: for itself and in network")));
        }
    }
    for (name, value) in &keys {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        serde_json::from_value::<Settings>(Value::Object(alone)).map_err(|error| {
            let problem = without_place(&error);
            JobFailure::argument(match problem.starts_with("unknown field") {
                true => format!("{name} is neither an argument nor a setting: {problem}"),
                false => format!("{name} is invalid: {problem}"),
            })
        })?;
    }
    let settings = serde_json::from_value::<Settings>(Value::Object(keys));
    let settings = settings.map_err(|error| JobFailure::argument(without_place(&error)))?;
    match file {
        Some(_) => read_settings(file, settings).map_err(JobFailure::wrap),
        None => {
            settings.check().map_err(JobFailure::wrap)?;
            Ok(settings)
        }
    }
}

/// An error of JSON without its place in a text that the user has not written.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((problem, _)) => problem.into(),
        None => text,
    }
}

/// A change that makes a run need less, by name.
pub(super) fn concession(name: &str) -> Result<Concession, Failure> {
    match name {
        "precision" => Ok(Concession::Precision),
        "loss-scale" => Ok(Concession::LossScale),
        "patch" => Ok(Concession::Patch),
        "features" => Ok(Concession::Features),
        _ => Err(JobFailure::argument(format!(
            "allow has \"{name}\", but must be of \"precision\", \"loss-scale\", \"patch\" and \"features\""
        ))),
    }
}

fn device<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeviceName, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse()
        .map_err(|expected| serde::de::Error::custom(format!("device is \"{name}\", but must be {expected}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(keys: Value) -> Result<Settings, String> {
        let Value::Object(keys) = keys else { panic!("an object") };
        settings(keys, None).map_err(|failure| failure.to_string())
    }

    #[test]
    fn settings_have_the_keys_of_the_file_and_short_names_for_the_network() {
        let found = read(
            json!({ "patch_size": [16, 32, 32], "net": "dynunet", "features": [8, 16], "max_grad_norm": "inf" }),
        );
        let found = found.unwrap();
        assert_eq!(found.patch_size, Some([16, 32, 32]));
        assert_eq!(found.network.features, Some(vec![8, 16]));
        assert_eq!(found.max_grad_norm, Some(f32::INFINITY));
    }

    #[test]
    fn an_error_names_the_argument() {
        let error = |keys| read(keys).unwrap_err();
        assert!(
            error(json!({ "ptch_size": 3 })).starts_with("ptch_size is neither an argument nor a setting")
        );
        assert!(error(json!({ "patch_size": "big" })).starts_with("patch_size is invalid: invalid type"));
        assert!(
            error(json!({ "net": "dynunet", "network": { "net": "unet" } }))
                .starts_with("net is given twice")
        );
        assert!(error(json!({ "network": 3, "net": "dynunet" })).starts_with("network must be"));
        assert!(error(json!({ "batch_size": 0 })).contains("batch_size"));
    }

    #[test]
    fn a_number_of_threads_is_at_least_one() {
        let machine = Machine { threads: Some(0), ..Machine::default() };
        assert_eq!(machine.threads().unwrap_err().to_string(), "threads is 0, but must be from 1 to 256");
    }
}
