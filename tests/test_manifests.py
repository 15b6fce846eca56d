"""The deployment: every combination renders, obeys schemas and rules, and each rule can fail."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from manifest_clusters import GPU_LABELS, affinity
from manifest_mistakes import MISTAKES, agent, box, pod, put, within
from manifest_parts import containers
from manifest_rules import RULES, complaints
from rankscope_agent import __version__
from rankscope_agent.collecting.registry import all_collectors
from rankscope_agent.contract.sources import BY_COLLECTOR_OR_PART
from rankscope_agent.settings.command_line import parse_config
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.command import Parser
from rankscope_analyzers.intake.cluster_objects import EVENTS, NODES, PODS, QUOTA_KINDS
from rankscope_analyzers.workloads.kinds import KINDS
from rendered_manifests import PATIENCE_SECONDS, ROOT, combined_together, kustomize, parsed
from servers import require_server

SHARED = Path(__file__).parent.parent.parent / "shared"
CRDS = {"PodMonitor": "podmonitors", "ServiceMonitor": "servicemonitors"}
CRDS |= {"PrometheusRule": "prometheusrules"}

TIERS = ((), ("tier-1",), ("tier-2",), ("tier-3",))
NETWORKS = ((), ("host-network",))
GPUS = ((), ("nvml",), ("nvml-default-runtime",), ("nvml-default-runtime", "nvml"), ("dcgm",))
REST = ("journal", "selinux", "probe", "watch", "gpu-nodes", "network-policy", "admission-policy")
REST += ("pod-monitor", "service-monitor", "probe-injection", "storage-clients", "tls", "namespace")
PUBLISHING = ("watch", "publish-nodes")
GENERATED = ("prometheus-rules", "dashboards")

COMBINATIONS = [
    *(tuple(itertools.chain(*parts)) for parts in itertools.product(TIERS, NETWORKS, GPUS)),
    *((name,) for name in (*REST, *GENERATED)),
    PUBLISHING,
    *(("watch", *pair) for pair in itertools.combinations(REST[4:], 2)),
    *(("tier-3", "host-network", gpu, *REST) for gpu in ("nvml", "dcgm")),
    ("watch", "watch-jobs"),
    ("watch", "watch-jobs", "tls"),
    ("watch", "watch-shards"),
    ("watch", "watch-jobs", "tls", "watch-shards"),
    ("watch", "watch-jobs", "publish-nodes"),
    ("watch", "openshift"),
    ("watch", "configuration"),
    ("watch", "configuration", "tls", "watch-shards"),
    ("tier-3", "nvml", "selinux", "watch", "openshift"),
    ("probe", "watch", "canary"),
    ("probe", "watch", "network-policy", "service-monitor", "canary", "tls"),
]
STATE = "rankscope-watch-state"
OVERLAYS = sorted(path.name for path in (ROOT / "overlays").iterdir())


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Every combination, by its name."""
    names = ["+".join(components) or "base" for components in COMBINATIONS]
    found = combined_together(tmp_path_factory.mktemp("combinations"), COMBINATIONS)
    overlays = {name: parsed(kustomize(ROOT / "overlays" / name)) for name in OVERLAYS}
    return dict(zip(names, found, strict=True)) | overlays


def test_every_component_is_in_a_combination():
    have = {path.name for path in (ROOT / "components").iterdir()}
    assert have == set(itertools.chain(*COMBINATIONS))


def test_every_combination_obeys_every_rule(rendered):
    assert len(rendered) == len(COMBINATIONS) + len(OVERLAYS)
    assert {name: found for name in rendered if (found := complaints(rendered[name]))} == {}


def invalid(found):
    """Say what is wrong with an object by the schema of its kind, if there is one for it."""
    if found["kind"] in CRDS:
        return None
    try:
        kubernetes_validate.validate(found, "1.37.0", strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{found['kind']}: {error.message}"
    return None


def distinct(rendered):
    """Return the objects of all combinations, equal ones once."""
    texts = {json.dumps(found) for objects in rendered.values() for found in objects}
    return [json.loads(text) for text in sorted(texts)]


@pytest.fixture
def _schemas_are_read_once(monkeypatch):
    """All kinds refer to one file of definitions, of which each object would read a megabyte."""
    read = functools.cache(kubernetes_validate.utils.schema_contents)
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", read)


@pytest.mark.usefixtures("_schemas_are_read_once")
def test_every_object_fits_the_schema_of_kubernetes(rendered):
    assert [fault for found in distinct(rendered) if (fault := invalid(found))] == []


def test_monitors_fit_the_schemas_of_the_prometheus_operator(rendered):
    jsonschema = pytest.importorskip("jsonschema")
    if not (SHARED / "data").is_dir():
        pytest.skip("the definitions of the Prometheus operator are not here")
    validators = {}
    for kind, name in CRDS.items():
        (definition,) = parsed((SHARED / "data" / f"crd_{name}.yaml").read_text())
        (version,) = definition["spec"]["versions"]
        schema = closed(version["schema"]["openAPIV3Schema"])["properties"]["spec"]
        validators[kind] = jsonschema.validators.validator_for(schema)(schema)
        validators[kind].check_schema(schema)
    seen = set()
    for found in distinct(rendered):
        if found["kind"] in CRDS:
            validators[found["kind"]].validate(found["spec"])
            with pytest.raises(jsonschema.ValidationError):
                validators[found["kind"]].validate(found["spec"] | {"selectors": 1})
            seen.add(found["kind"])
    assert seen == set(CRDS)


@pytest.mark.parametrize("component", ["pod-monitor", "service-monitor"])
def test_both_kinds_of_monitors_scrape_agents_and_the_watch(rendered, component):
    """Findings with their own labels, agents with those of their nodes."""
    objects = [
        one
        for one in rendered[EVERYTHING]
        if CRDS.get(one["kind"]) == f"{component}s".replace("-", "")
    ]
    ends = {
        one["metadata"]["name"]: (
            one["spec"].get("podMetricsEndpoints") or one["spec"]["endpoints"]
        )
        for one in objects
    }
    assert {name: end.get("honorLabels", False) for name, (end,) in ends.items()} == {
        "rankscope-agent": False,
        "rankscope-watch": True,
    }
    assert [r["targetLabel"] for r in ends["rankscope-agent"][0]["relabelings"]] == ["node"]


def closed(schema):
    """Refuse properties that are not declared, as the API server prunes or warns of them."""
    if isinstance(schema, dict):
        made = {key: closed(value) for key, value in schema.items()}
        if isinstance(made.get("pattern"), str):
            # Go takes flags anywhere, Python in front.
            made["pattern"] = made["pattern"].replace("^(?i)", "(?i)^")
        if isinstance(made.get("properties"), dict) and made.get("type") == "object":
            made.setdefault("additionalProperties", False)
        return made
    return [closed(value) for value in schema] if isinstance(schema, list) else schema


def test_agents_and_the_watch_take_the_arguments_that_they_are_given(rendered):
    parser = Parser("rankscope")
    watch_options.add_arguments(parser.add_subparsers(dest="command").add_parser("watch"))
    collectors = tuple(all_collectors(None, None))
    for objects in rendered.values():
        for name, _, container in containers(objects):
            arguments = container.get("args", [])
            if name.startswith("DaemonSet"):
                variables = {v["name"]: v.get("value", "n1") for v in container["env"]}
                for address in ("10.0.0.7", "fd00::7"):
                    given = [a.replace("$(HOST_IP)", address) for a in arguments]
                    config = parse_config(given, variables, collectors, "1")
                    assert config.token_file
                    assert config.listen.host == config.health.host
                    assert config.listen.host in {"", address}
                    assert urlsplit(config.dcgm_url).hostname in {None, address}
            elif name.startswith("Deployment"):
                assert parser.parse_args(arguments).cluster


def test_the_watch_may_read_each_kind_of_job_that_it_looks_for(rendered):
    (role,) = [
        one
        for one in rendered["watch+watch-jobs"]
        if one["kind"] == "ClusterRole" and "watch-jobs" in one["metadata"]["name"]
    ]
    allowed = {
        f"{what}.{group}" if group else what
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for what in rule["resources"]
        if rule["verbs"] == ["list", "watch"]
    }
    others = {NODES.name, EVENTS.name, *(one.name for one in QUOTA_KINDS)}
    assert allowed == {PODS.name, *others, *(kind.resource for kind in KINDS)}


def test_applying_manifests_again_leaves_alone_what_watches_have_written(rendered):
    """kubectl apply changes what the manifest, or the one applied before, has: neither has data."""
    for name, objects in rendered.items():
        kept = {
            one["metadata"]["name"]: one
            for one in objects
            if one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith(STATE)
        }
        assert bool(kept) == bool({"watch-jobs", "watch-shards"} & set(name.split("+"))), name
        assert all(one.keys() == {"apiVersion", "kind", "metadata"} for one in kept.values())
        states = {one for one in kept if not one.endswith("-goodput")}
        assert kept.keys() == states | {f"{one}-goodput" for one in states}
        writable = {
            what
            for role in objects
            if role["kind"] == "Role"
            for rule in role["rules"]
            if rule["resources"] == ["configmaps"] and {"get", "update"} <= set(rule["verbs"])
            for what in rule.get("resourceNames", ())
        }
        assert kept.keys() <= writable


def test_what_an_agent_misses_is_named_with_a_component_that_exists():
    named = {
        part.split()[0].strip(";")
        for seen in BY_COLLECTOR_OR_PART.values()
        for part in seen.needs.split("component ")[1:]
    }
    assert named <= {path.name for path in (ROOT / "components").iterdir()}


def test_the_rendered_file_is_the_plain_overlay_with_its_namespace():
    assert (ROOT / "install.yaml").read_text() == kustomize(ROOT / "install")


def test_every_image_of_ours_has_the_version_of_this_project():
    text = "\n".join(path.read_text() for path in ROOT.rglob("*.yaml"))
    tags = re.findall(r"ghcr\.io/rankscope/[a-z-]+(?::|, newTag: )([\w.]+)", text)
    assert len(tags) > 5
    assert set(tags) == {__version__}


EVERYTHING = "+".join(("tier-3", "host-network", "nvml", *REST))


def test_whoever_may_write_nodes_is_held_back_by_policies(rendered):
    objects = rendered["+".join(PUBLISHING)]
    bare = [one for one in objects if "AdmissionPolicy" not in one["kind"]]
    assert {found.partition(" from ")[0] for found in complaints(bare)} == {
        "no policy keeps the watch"
    }


@pytest.mark.parametrize("complaint", MISTAKES)
def test_each_mistake_is_caught(rendered, complaint):
    objects = copy.deepcopy(rendered[EVERYTHING])
    MISTAKES[complaint](objects)
    assert any(complaint in found for found in complaints(objects))


def test_each_rule_is_broken_by_a_mistake(rendered):
    caught = set()
    for mutate in MISTAKES.values():
        objects = copy.deepcopy(rendered[EVERYTHING])
        mutate(objects)
        caught |= {rule for rule in RULES if list(rule(objects))}
    assert caught == set(RULES)


@pytest.mark.parametrize(
    "mutate",
    [
        put(pod, "hostPid", True),
        put(box, "readinessprobe", {}),
        put(within(agent, "spec"), "minReadySeconds", "five"),
        put(within(box, "resources", "limits"), "memory", ["256Mi"]),
    ],
)
def test_unknown_fields_and_wrong_types_are_caught_by_the_schema(rendered, mutate):
    objects = copy.deepcopy(rendered[EVERYTHING])
    assert invalid(agent(objects)) is None
    mutate(objects)
    assert invalid(agent(objects))


def test_openshift_admits_agents_by_one_of_its_constraints_and_the_watch_by_another(rendered):
    objects = rendered["openshift"]
    assert pod(objects)["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    bound = {
        (one["roleRef"]["name"].rpartition(":")[2], *(to["name"] for to in one["subjects"]))
        for one in objects
        if one["kind"] == "RoleBinding" and one["roleRef"]["kind"] == "ClusterRole"
    }
    assert bound == {("privileged", "rankscope-agent"), ("nonroot-v2", "rankscope-watch")}


def test_agents_of_gpu_nodes_go_to_those_that_watches_avoid(rendered):
    required = affinity(pod(rendered["gpu-nodes"]))[
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    sought = {
        one["key"]
        for term in required["nodeSelectorTerms"]
        for one in term["matchExpressions"]
        if one["operator"] in {"In", "Exists"}
    }
    assert sought == GPU_LABELS


def test_tiers_differ_in_what_they_may_do_and_in_nothing_else(rendered):
    base = copy.deepcopy(rendered["base"])
    given = {
        name: (
            bool(pod(rendered[name]).get("hostPID")),
            box(rendered[name])["securityContext"]["capabilities"].get("add") or [],
        )
        for name in ("base", "tier-1", "tier-2", "tier-3")
    }
    assert given == {
        "base": (False, []),
        "tier-1": (True, []),
        "tier-2": (True, ["SYS_PTRACE", "DAC_READ_SEARCH"]),
        "tier-3": (True, ["SYS_PTRACE", "DAC_READ_SEARCH", "SYSLOG"]),
    }
    for name in given:
        objects = copy.deepcopy(rendered[name])
        pod(objects).pop("hostPID", None)
        box(objects)["securityContext"]["capabilities"].pop("add", None)
        assert objects == base


def test_the_plain_scrape_configuration_is_one_that_prometheus_takes(tmp_path):
    promtool = require_server("promtool")
    document = yaml.safe_load((ROOT / "prometheus-scrape.yaml").read_text())
    assert [job["sample_limit"] for job in document["scrape_configs"][:1]] == [3000]
    for job in document["scrape_configs"]:
        # Debian's promtool is built without the discovery of Kubernetes.
        (found,) = job.pop("kubernetes_sd_configs")
        assert found == {"role": "pod", "namespaces": {"names": ["rankscope"]}}
        job["static_configs"] = [{"targets": ["localhost:1"]}]
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [promtool, "check", "config", "--syntax-only", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["pod-template.yaml"])
def test_examples_of_probe_injection_fit_their_schema(name):
    for found in parsed((ROOT / "probe" / name).read_text()):
        kubernetes_validate.validate(found, "1.37.0", strict=True)
