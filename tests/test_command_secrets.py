"""Credentials in commands, scripts and JSON texts of pods are hidden in captures; settings stay."""

from __future__ import annotations

import json
import shlex

import pytest

from rankscope_agent.contract.command_secrets import HIDDEN, LONGEST
from rankscope_agent.sources.pods.command_line import parse_command
from rankscope_analyzers.captures.objects import MAX_JSON, without_secrets

SECRET = "s3cr3tVALUE9"

SCRIPTS = [
    f"wandb login {SECRET} && python t.py",
    f"wandb login --relogin --host https://wandb.example '{SECRET}'",
    f"echo {SECRET} | docker login --password-stdin",
    f"echo 'a;{SECRET}' | docker login -u me --password-stdin",
    f"docker login -u me -p{SECRET} registry.example",
    f"az login --service-principal -u app -p {SECRET}",
    f"gh auth login --with-token <<< {SECRET}",
    f"printf 'machine h login u password {SECRET}' > ~/.netrc",
    f"cat > ~/.netrc <<EOF\nmachine h login u password {SECRET}\nEOF",
    f"mysql -h db -uroot -p{SECRET} -e 'select 1'",
    f"sshpass -p {SECRET} ssh node-1",
    f"redis-cli -h head -a {SECRET} ping",
    f"curl -u me:{SECRET} https://x",
    f"curl -s -H 'X-Auth: {SECRET}' -H 'X-Other: {SECRET}' https://x",
    f"mc alias set s3 https://minio {SECRET} {SECRET}",
    f"aws configure set aws_secret_access_key {SECRET}",
    f"export STORAGE_KEY={SECRET}; python t.py",
    f"DB_PWD={SECRET} python t.py",
    f"mount -t cifs //share /data -o user=me,pass={SECRET}",
    f"python -c 'import wandb; wandb.login(key=\"{SECRET}\")'",
    f"python t.py --hf-token {SECRET}",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_credentials_of_scripts_are_hidden_wherever_a_pod_has_a_command(script):
    shell = ["sh", "-c", script]
    without_shell = [] if set(script) & set("|<>;&") else shlex.split(script)
    found = {
        "containers": [{"command": shell, "args": without_shell}],
        "livenessProbe": {"exec": {"command": shell}},
        "lifecycle": {"postStart": {"exec": {"command": shell}}},
        "spec": {"entrypoint": script, "script": {"source": script}},
    }
    assert SECRET not in json.dumps(without_secrets(found))


@pytest.mark.parametrize("script", SCRIPTS)
def test_credentials_of_processes_commands_are_hidden_by_the_same_rules(script):
    shell = ("sh", "-c", script)
    without_shell = () if set(script) & set("|<>;&") else tuple(shlex.split(script))
    for arguments in filter(None, (shell, without_shell)):
        command = parse_command("\0".join((*arguments, "")).encode())
        assert SECRET not in " ".join(command)
        assert len(command) == len(arguments)
        assert list(command) == without_secrets({"command": list(arguments)})["command"]


COMMANDS = [
    "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=head:29400 train.py --lr 3e-4 -b 8",
    "mpirun -np 16 -H gpu-0:8,gpu-1:8 -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH python -u train.py",
    "wandb login $WANDB_API_KEY && exec python train.py --tokenizer llama --max_tokens 4096",
    "bash --login -c 'deepspeed --hostfile /job/hostfile train.py --deepspeed_config ds.json'",
    "ray start --head --port=6379 && python -u -m pkg.train --sort-key loss --data /login/data",
    "echo ready; nvidia-smi -q; mysql -h db -e 'select 1'",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_diagnosis_needs_of_commands_is_kept(command):
    for given in (["sh", "-c", command], shlex.split(command)):
        assert without_secrets({"command": given}) == {"command": given}
        assert parse_command("\0".join(given).encode()) == tuple(given)
    assert without_secrets({"entrypoint": command}) == {"entrypoint": command}


def test_there_are_as_many_arguments_as_before_however_long_they_are():
    given = ["mc", "alias", "set", "s3", "http://h", SECRET, "a\x1fb"]
    assert len(without_secrets({"args": given})["args"]) == len(given)
    long = ["x" * 8191] * 6
    assert LONGEST == 4 * 8192
    assert without_secrets({"args": long}) == {"args": [*long[:4], HIDDEN, HIDDEN]}


VARIABLES = [{"name": "MY_VAR", "value": SECRET}, {"name": "NCCL_DEBUG", "value": "INFO"}]
TEXTS = [
    json.dumps(VARIABLES),
    json.dumps({"env": VARIABLES}),
    json.dumps({"spec": json.dumps({"env": VARIABLES})}),
    "env:\n- name: MY_VAR\n  value: " + SECRET + "\n- name: NCCL_DEBUG\n  value: INFO\n",
    json.dumps({"env": VARIABLES})[:-2],  # cut off by whoever wrote it
    json.dumps({"parameters": {"accountkey": SECRET}, "keep": "INFO"}),
]


@pytest.mark.parametrize("text", TEXTS)
def test_annotations_with_objects_are_searched_like_objects(text):
    (kept,) = without_secrets({"annotations": {"example.org/spec": text}})["annotations"].values()
    assert SECRET not in kept
    assert "INFO" in kept


def test_json_without_secrets_stays_as_it_was_written():
    texts = {"a": '{"cluster":  {"worker": ["h:1"]}}', "b": "[default-scheduler] no node", "c": "{"}
    assert without_secrets({"annotations": texts}) == {"annotations": texts}


def test_json_that_is_too_long_to_be_read_is_hidden():
    text = json.dumps([{"name": "MY_VAR", "value": SECRET + "x" * MAX_JSON}])
    assert without_secrets({"annotations": {"a": text}}) == {"annotations": {"a": HIDDEN}}


@pytest.mark.parametrize(
    "options",
    [{"accountkey": SECRET}, {"storageAccountKey": SECRET}, {"connectionString": SECRET}],
)
def test_options_of_volumes_with_keys_are_hidden(options):
    found = {
        "flexVolume": {"driver": "d", "options": options},
        "csi": {"driver": "d", "volumeAttributes": options},
    }
    kept = without_secrets({"volumes": [found]})
    assert SECRET not in json.dumps(kept)
    assert kept["volumes"][0]["csi"]["driver"] == "d"


def test_messages_about_logins_and_keys_of_topologies_are_no_secrets():
    found = {
        "message": "failed to pull: login to registry.example failed: unauthorized",
        "topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1}],
        "labelSelector": {"matchExpressions": [{"key": "app", "values": ["train"]}]},
    }
    assert without_secrets(found) == found
