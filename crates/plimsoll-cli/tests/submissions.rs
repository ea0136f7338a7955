//! Files that submit a training by ranks to batch systems.

#[path = "support/manifest.rs"]
mod manifest;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use manifest::{faults, read};
use serde_json::Value;

use crate::support::{Ended, Tiny};

/// The text of a file, with the folder of the test as `DIR` and the program as `PROGRAM`.
fn text(tiny: &Tiny, file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.replace(env!("CARGO_BIN_EXE_plimsoll"), "PROGRAM").replace(tiny.dir.path().to_str().unwrap(), "DIR")
}

/// Writes submissions of a training by two ranks.
fn written(tiny: &Tiny, more: &[&str]) -> Ended {
    let mut command =
        tiny.train(&tiny.path("a run"), &[&["--nodes", "2", "--batch-size", "2"], more].concat());
    Ended::run(command.current_dir(tiny.dir.path()))
}

/// Checks the syntax of a script.
fn is_a_script(shell: &str, script: &Path) -> bool {
    Command::new(shell).arg("-n").arg(script).status().unwrap().success()
}

#[test]
fn a_batch_file_of_slurm_trains_and_resumes() {
    let tiny = Tiny::new();
    let job = tiny.path("job.sh");
    assert_eq!(written(&tiny, &["--slurm", "job.sh"]).status, Some(0));
    assert!(!tiny.path("a run").exists(), "nothing is trained");
    let batch = text(&tiny, &job);
    // 512 MiB and a sixteenth.
    for line in [
        "# A training by 2 ranks, one on each node. Submit it with:",
        "#   mkdir -p 'DIR/a run/slurm' && sbatch job.sh",
        "#SBATCH --job-name=a-run",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem=544M",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --requeue",
        "#SBATCH --output=\"DIR/a run/slurm/%j.log\"",
        "cd DIR || exit 1",
        "if [ -e 'DIR/a run/fold_0/specification.json' ]; then resume=--resume; fi",
        "srun --wait=0 --cpus-per-task=1 PROGRAM train DIR/dataset --out 'DIR/a run' --ram 512MiB --net dynunet --features 4,8 \
         --patch-size 8 --epochs 2 --iterations 2 --validation-iterations 1 --threads 1 --config /dev/null --batch-size 2 $resume &",
        "  scontrol requeue \"$SLURM_JOB_ID\"",
    ] {
        assert!(batch.lines().any(|found| found == line), "no line {line}\n{batch}");
    }
    assert!(is_a_script("sh", &job) && is_a_script("bash", &job));
    // A function replaces Slurm's program: it starts one process, and notes its arguments.
    let seen = tiny.path("seen");
    let run = || -> Output {
        let script = format!(
            "srun() {{ shift 2; echo \"$@\" >> {}; \"$@\"; }}\n{}",
            seen.display(),
            fs::read_to_string(&job).unwrap()
        );
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).env("XDG_CACHE_HOME", std::env::temp_dir().join("plimsoll-test-cache"));
        command.output().unwrap()
    };
    for _ in 0..2 {
        let output = run();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let calls: Vec<String> = fs::read_to_string(&seen).unwrap().lines().map(String::from).collect();
    assert!(!calls[0].ends_with("--resume") && calls[1].ends_with(" --resume"), "{calls:?}");
}

#[test]
fn a_manifest_is_a_train_job_of_kubeflow() {
    let tiny = Tiny::new();
    let (manifest, script) = (tiny.path("job.yaml"), tiny.path("script"));
    assert_eq!(written(&tiny, &["--kubernetes", "job.yaml"]).status, Some(0));
    let text = text(&tiny, &manifest);
    let (_, body) = text.split_once("apiVersion: ").unwrap();
    let (args, body): (Vec<&str>, Vec<&str>) =
        body.lines().partition(|line| line.trim_start().starts_with("- "));
    assert_eq!(
        body.join("\n"),
        "trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: plimsoll-a-run
spec:
  runtimeRef:
    name: plimsoll-mpi
  trainer:
    image: plimsoll:latest
    numNodes: 2
    numProcPerNode: 1
    command: [\"/bin/sh\", \"-c\"]
    args:
    resourcesPerNode:
      requests:
        cpu: 1
        memory: 544Mi
      limits:
        memory: 544Mi"
    );
    let [args] = args[..] else { panic!("{args:?}") };
    let run: String = serde_json::from_str(args.trim_start().strip_prefix("- ").unwrap()).unwrap();
    assert!(run.starts_with("cd DIR || exit 1\nresume=\n"), "{run}");
    assert!(run.contains("exec mpirun -n 2 plimsoll train DIR/dataset --out 'DIR/a run' "), "{run}");
    assert!(run.ends_with(" --batch-size 2 $resume"), "{run}");
    fs::write(&script, run).unwrap();
    assert!(is_a_script("sh", &script));
}

/// The schema of Kubeflow Trainer, by `oracles/kubeflow_trainjob.py`.
fn published() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/kubeflow_trainjob.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_manifest_satisfies_the_published_schema_of_train_jobs() {
    let tiny = Tiny::new();
    let published = published();
    assert_eq!(written(&tiny, &["--kubernetes", "job.yaml"]).status, Some(0));
    let job = read(&fs::read_to_string(tiny.path("job.yaml")).unwrap());
    assert_eq!(faults(&job, &published["schema"]), Vec::<String>::new());
    let version =
        format!("{}/{}", published["group"].as_str().unwrap(), published["version"].as_str().unwrap());
    assert_eq!((job["apiVersion"].as_str(), &job["kind"]), (Some(&*version), &published["kind"]));
    // What the comment asks of the runtime is a policy that there is, whose MPI is one that we load.
    assert_eq!(published["mpi"]["properties"]["mpiImplementation"]["enum"][0], "OpenMPI");
    // A longer name of the run is cut, so that names of pods are no longer than a label.
    let long = tiny.path(&"a long name ".repeat(8));
    let mut command = tiny.train(&long, &["--nodes", "2", "--batch-size", "2", "--kubernetes", "long.yaml"]);
    assert_eq!(Ended::run(command.current_dir(tiny.dir.path())).status, Some(0));
    let long = read(&fs::read_to_string(tiny.path("long.yaml")).unwrap());
    assert_eq!(faults(&long, &published["schema"]), Vec::<String>::new());
    let pod = format!("{}-launcher-0-0-abcde", long["metadata"]["name"].as_str().unwrap());
    assert!(pod.len() <= 63 && !pod.contains("--"), "{pod}");
}

#[test]
fn faults_of_a_manifest_are_found() {
    let schema = &published()["schema"];
    let job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n  name: NAME\nspec:\n  runtimeRef:\n    RUNTIME\n  trainer:\n    NODES\n    \
               resourcesPerNode:\n      limits:\n        memory: MEMORY\n";
    let found = |name: &str, runtime: &str, nodes: &str, memory: &str| {
        let text = job.replace("NAME", name).replace("RUNTIME", runtime).replace("NODES", nodes);
        faults(&read(&text.replace("MEMORY", memory)), schema)
    };
    assert_eq!(found("a-run", "name: mpi", "numNodes: 2", "544Mi"), Vec::<String>::new());
    assert_eq!(found("a-run", "kind: mpi", "numNodes: 2", "544Mi"), ["spec.runtimeRef has no name"]);
    assert_eq!(found("1-run", "name: mpi", "numNodes: 2", "544Mi"), ["metadata.name is 1-run"]);
    assert_eq!(found("a-run", "name: mpi", "nodes: 2", "544Mi"), ["spec.trainer.nodes is unknown"]);
    assert_eq!(
        found("a-run", "name: mpi", "numNodes: two", "544Mi"),
        ["spec.trainer.numNodes is no integer: \"two\""]
    );
    assert_eq!(found("a-run", "name: mpi", "numNodes: -1", "544Mi"), ["spec.trainer.numNodes is below 0"]);
    assert_eq!(
        found("a-run", "name: mpi", "numNodes: 2", "544MB"),
        ["spec.trainer.resourcesPerNode.limits.memory is no quantity: 544MB"]
    );
}

#[test]
fn a_submission_that_cannot_train_is_refused_and_writes_nothing() {
    let tiny = Tiny::new();
    let job = tiny.path("job.sh");
    let error = written(&tiny, &["--slurm", "job.sh", "--batch-size", "3"]).error(2);
    assert!(error.contains("--batch-size"), "{error}");
    let mut odd = tiny.train(&tiny.path("run"), &["--nodes", "2", "--batch-size", "3", "--slurm", "job.sh"]);
    let error = Ended::run(odd.current_dir(tiny.dir.path())).error(1);
    assert!(error.contains("a batch of 3 sample(s) has no 2 equal shards for 2 ranks"), "{error}");
    let error = written(&tiny, &["--slurm", "job.sh", "--device", "cuda:0"]).error(1);
    assert!(error.contains("--device sm_80"), "{error}");
    let error = Ended::run(&mut tiny.train(&tiny.path("run"), &["--slurm", "job.sh"])).error(2);
    assert!(error.contains("--nodes"), "{error}");
    let error = Ended::run(&mut tiny.train(&tiny.path("run"), &["--nodes", "2"])).error(2);
    assert!(error.contains("--slurm"), "{error}");
    assert!(!job.exists());
    // A file of another kind is kept; one that this command wrote is replaced.
    fs::write(&job, "#!/bin/sh\necho mine\n").unwrap();
    let error = written(&tiny, &["--slurm", "job.sh"]).error(1);
    assert!(error.contains("job.sh"), "{error}");
    assert_eq!(fs::read_to_string(&job).unwrap(), "#!/bin/sh\necho mine\n");
    fs::remove_file(&job).unwrap();
    for _ in 0..2 {
        assert_eq!(written(&tiny, &["--slurm", "job.sh"]).status, Some(0));
    }
}
