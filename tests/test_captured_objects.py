"""Pods and jobs in a capture: secrets are hidden under whichever name, references to them stay."""

from __future__ import annotations

import json

import pytest

from rankscope_analyzers.captures.objects import without_secrets

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "found",
    [
        {"annotations": {"vendor.example/api-token": SECRET}},
        {"rayStartParams": {"redis-password": SECRET}},
        {"redisPassword": {"value": SECRET}},
        {"credentials": [{"user": SECRET}, [SECRET]]},
        {"volumeAttributes": {"csi.storage.k8s.io/serviceAccount.tokens": SECRET}},
        {"headers": {"Authorization": f"Basic {SECRET}"}},
        {"httpHeaders": [{"name": "X-Team", "value": SECRET}, SECRET]},
        {"parameters": [{"name": "db-password", "value": SECRET}]},
        {"parameters": [{"key": "db-password", "value": SECRET}]},
        {"env": [{"name": "NCCL_DEBUG", "password": SECRET}]},
        {"env_vars": {"MY_SETTING": SECRET}},
        {"secret": {"value": SECRET, "key": SECRET, "stringData": SECRET}},
        {"secretKeyRef": {"value": SECRET}},
        {"token": {"items": [{"key": SECRET}]}},
    ],
    ids=lambda found: next(iter(found)),
)
def test_what_is_below_a_name_that_suggests_a_secret_is_hidden(found):
    assert SECRET not in json.dumps(without_secrets({"spec": [found]}))


REFERENCES = {
    "automountServiceAccountToken": False,
    "imagePullSecrets": [{"name": "registry"}],
    "envFrom": [{"secretRef": {"name": "wandb", "optional": True}}],
    "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
        {"name": "NCCL_DEBUG", "value": "INFO"},
    ],
    "env_vars": {"NCCL_DEBUG": "INFO"},
    "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
    "volumes": [
        {"secret": {"secretName": "ssh", "defaultMode": 420, "items": [{"key": "k", "path": "p"}]}},
        {
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"secret": {"name": "tls", "items": [{"key": "tls.crt", "path": "crt"}]}},
                ]
            }
        },
        {"csi": {"nodePublishSecretRef": {"name": "s3"}, "driver": "x"}},
        {"csi": {"volumeAttributes": {"secretProviderClass": "vault"}}},
        {"azureFile": {"secretName": "share", "secretNamespace": "ml"}},
    ],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"}],
}


@pytest.mark.parametrize("name", REFERENCES)
def test_names_of_secrets_and_settings_of_tokens_are_kept(name):
    found = {name: REFERENCES[name]}
    assert without_secrets(found) == found


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer",
        "max_tokens",
        "num-tokens",
        "maxNewTokens",
        "tokensPerSecond",
        "token_count",
        "max_num_batched_tokens",
    ],
)
def test_what_counts_and_makes_tokens_of_texts_is_kept(name):
    found = {
        "labels": {name: "llama-3"},
        "parameters": [{"name": name, "value": "llama-3"}],
        "args": [f"--{name}=/data/llama-3", f"--{name}", "/data/llama-3"],
    }
    found["args"] = (
        found["args"] if name == "tokenizer" else [f"--{name}=4096", f"--{name}", "4096"]
    )
    assert without_secrets(found) == found


@pytest.mark.parametrize(
    "name",
    [
        *(
            "token",
            "tokens",
            "hf_token",
            "HF_TOKEN",
            "accessToken",
            "HFToken",
            "mytoken",
            "apiTokens",
        ),
        *("token_id", "tokenPersonal", "tokens_used", "vpn_tokens", "max_token", "token-perimeter"),
        *("tokenizer_token", "tokenizerSecret", "max_secret_tokens", "maxTokensPASSword", "TOKEN1"),
        *("mytoken_count", "total.example/tokens", "max steps tokens", "max_a_b_c_tokens"),
        *("num_tokens_api_key", "token_per_user_token", "to\u212aens", "total_tokens_and_my_token"),
    ],
)
def test_other_names_with_tokens_in_them_are_names_of_secrets(name):
    found = {
        "labels": {name: SECRET},
        "parameters": [{"name": name, "value": SECRET}],
        "args": [f"--{name}={SECRET}", f"--{name}", SECRET],
    }
    assert SECRET not in json.dumps(without_secrets(found))


def test_secrets_of_any_depth_end():
    deep = {"token": SECRET}
    for _ in range(1000):
        deep = {"token": deep}
    assert SECRET not in json.dumps(without_secrets(deep))
