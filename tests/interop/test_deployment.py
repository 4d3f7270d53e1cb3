"""The examples for containers, Kubernetes and HPC: manifests that are valid and without rights, and a job script that works."""

import os
import pathlib
import subprocess

import pytest
import yaml

from switches import TARGET

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
MILLRACE = TARGET / "millrace"
BOUND = 60
MANIFESTS = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))


def pods(manifest):
    """Yields the pod specifications of a manifest."""
    for document in yaml.safe_load_all(manifest.read_text()):
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        spec = document.get("spec", {})
        if document["kind"] == "Pod":
            yield spec
        elif "template" in spec:
            labels = spec["template"]["metadata"]["labels"]
            assert spec.get("selector", {"matchLabels": labels})["matchLabels"].items() <= labels.items()
            yield spec["template"]["spec"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_is_valid_and_its_pods_have_no_rights(manifest):
    found = list(pods(manifest))
    assert found
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["capabilities"]["drop"] == ["ALL"] and not security["allowPrivilegeEscalation"]
            assert security["readOnlyRootFilesystem"]
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            if "command" not in container:
                # The command line knows these words: a wrong one is status 2.
                check = ["--check"] if container["args"][:2] == ["courier", "serve"] else ["--help"]
                run = subprocess.run([MILLRACE, *container["args"], *check], capture_output=True, text=True, timeout=BOUND)
                assert run.returncode != 2, run.stderr


def test_the_configuration_in_the_config_map_is_valid(tmp_path):
    documents = yaml.safe_load_all((EXAMPLES / "kubernetes" / "courier.yaml").read_text())
    config = next(document["data"]["courier.toml"] for document in documents if document["kind"] == "ConfigMap")
    (tmp_path / "courier.toml").write_text(config.replace("/srv/in", str(tmp_path)))
    words = [MILLRACE, "courier", "serve", "--check", "--config", tmp_path / "courier.toml"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=BOUND)
    assert run.returncode == 0 and "1 grants" in run.stdout, run.stderr


def test_the_image_is_built_in_stages_and_runs_as_a_user_without_rights():
    lines = (EXAMPLES / "container" / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    stages = [words for step, words in steps if step == "FROM"]
    assert len(stages) == 2 and stages[0].endswith(" AS build")
    user = [words for step, words in steps if step == "USER"]
    assert user == ["10001:10001"]


def test_the_job_script_publishes_a_ticket_and_receives(tmp_path):
    (tmp_path / "data").write_bytes(os.urandom(100_000))
    environment = {**os.environ, "MILLRACE": str(MILLRACE), "TICKETS": str(tmp_path / "tickets"), "PORT": "17800"}
    environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    environment.pop("SLURM_JOB_ID", None)
    script = EXAMPLES / "hpc" / "receive.sbatch"
    receiver = subprocess.Popen(["bash", script, tmp_path / "in"], env=environment, stdout=subprocess.PIPE, text=True)
    ticket = tmp_path / "tickets" / "0.ticket"
    try:
        wait = "until [ -e \"$0\" ]; do sleep 0.05; done; cat \"$0\""
        found = subprocess.run(["timeout", str(BOUND), "bash", "-c", wait, ticket], capture_output=True, text=True)
        words = [MILLRACE, "send", tmp_path / "data", "--targets-from", "-"]
        send = subprocess.run(words, input=found.stdout, env=environment, capture_output=True, text=True, timeout=BOUND)
        assert send.returncode == 0, send.stderr
        output, _ = receiver.communicate(timeout=BOUND)
    finally:
        receiver.kill()
    assert '"outcome":"delivered"' in output
    assert (tmp_path / "in" / "0" / "data").read_bytes() == (tmp_path / "data").read_bytes()
    assert receiver.returncode == 0


def test_a_task_of_a_job_ends_with_the_status_of_its_receiver(tmp_path):
    programs = {"srun": '#!/bin/bash\nexec "$@"\n', "millrace": "#!/bin/sh\nexit 4\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "MILLRACE": str(tmp_path / "millrace"), "TICKETS": str(tmp_path / "tickets"), "SLURM_JOB_ID": "1"}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    script = EXAMPLES / "hpc" / "receive.sbatch"
    assert subprocess.run(["bash", script, tmp_path / "in"], env=environment, timeout=BOUND).returncode == 4
