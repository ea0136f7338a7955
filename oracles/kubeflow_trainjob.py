"""The schema of Kubeflow Trainer's TrainJob, as far as submission files use it.

    python oracles/kubeflow_trainjob.py TRAINER [COMMIT]

TRAINER is a clone of https://github.com/kubeflow/trainer (a bare one will do), COMMIT a commit of it; the default is the one that the stored file is from. Writes
`kubeflow_trainjob.json`: group, version and scope of the resource, the schema of what a manifest states, and the schema of `mlPolicy.mpi` of the
runtime that it names. Descriptions are left out, and so are the contents of fields that no manifest of ours has. Needs PyYAML (6.0.4 was used).
"""

import json
import subprocess
import sys
from pathlib import Path

import yaml

COMMIT = "8c0f5059bd51ec3ba6d6a6a7b2e1471de7bc13b3"
CRDS = "manifests/base/crds/trainer.kubeflow.org_"
# Fields whose contents are left out.
LEFT_OUT = {"initializer", "runtimePatches", "env"}


def definition(repository, commit, name):
    """The definition of a resource."""
    show = ["git", "-C", repository, "show", f"{commit}:{CRDS}{name}.yaml"]
    return yaml.safe_load(subprocess.run(show, capture_output=True, text=True, check=True).stdout)["spec"]


def served(definition):
    """The one version that is served and stored."""
    (version,) = [version for version in definition["versions"] if version["served"] and version["storage"]]
    return version


def digest(node):
    """A schema without descriptions and without what is left out."""
    if isinstance(node, list):
        return [digest(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: digest(value) for key, value in node.items() if key != "properties" and not (key == "description" and isinstance(value, str))}
    if "properties" in node:
        cut = lambda name, value: {"type": value["type"], "left_out": True} if name in LEFT_OUT else digest(value)
        found["properties"] = {name: cut(name, value) for name, value in node["properties"].items()}
    return found


def main():
    repository, commit = sys.argv[1], (sys.argv[2:] or [COMMIT])[0]
    job = definition(repository, commit, "trainjobs")
    version = served(job)
    schema = digest(version["schema"]["openAPIV3Schema"])
    schema["properties"].pop("status")
    runtime = digest(served(definition(repository, commit, "clustertrainingruntimes"))["schema"]["openAPIV3Schema"])
    written = {
        "source": f"https://github.com/kubeflow/trainer at {commit}",
        "group": job["group"],
        "version": version["name"],
        "kind": job["names"]["kind"],
        "scope": job["scope"],
        "schema": schema,
        "mpi": runtime["properties"]["spec"]["properties"]["mlPolicy"]["properties"]["mpi"],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
