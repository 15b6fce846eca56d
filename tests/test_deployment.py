"""Agent and watch as their rendered manifests start them: arguments, user, secrets, API server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from fake_api_server import FakeApiServer
from manifest_parts import containers
from pod_json import pod
from rankscope_analyzers.demo.free_ports import free_port
from rendered_manifests import ROOT, combined
from test_sandbox import sandboxed, status_of

PATIENCE_SECONDS = 60.0
API_TOKEN, SERVICE_TOKEN = "a-token-of-the-agents-api", "token-of-the-service-account"
SERVICE_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
PAGE = (ROOT.parent / "docs" / "daemonset.md").read_text()
MODULES = {"agent": "rankscope_agent", "watch": "rankscope_analyzers"}

Objects = list[dict[str, Any]]


def mode_of(volume: Mapping[str, Any], spec: Mapping[str, Any]) -> int:
    """Return how the kubelet protects a volume's files: what its group may read follows fsGroup."""
    kind = next(part for key, part in volume.items() if key != "name")
    shared = 0o440 if "fsGroup" in spec["securityContext"] else 0
    return int(kind.get("defaultMode", 0o644)) | shared


class Cluster:
    """A node of one machine: what its kubelet would mount, and an API server over TLS."""

    def __init__(self, folder: Path, *components: str) -> None:
        self.folder = folder
        (folder / "kustomization").mkdir()
        self.objects = combined(folder / "kustomization", components)
        self.authority = Authority(folder)
        self.ports = {"agent": free_port(), "watch": free_port(), "health": free_port()}
        server = self.authority.sign("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.cert, server.key)
        self.api = FakeApiServer(tls=context)
        self.api.faults.token = SERVICE_TOKEN
        self.contents = {
            "rankscope-api-token": {"token": API_TOKEN},
            "rankscope-agent-tls": {
                "tls.crt": server.cert.read_text(),
                "tls.key": server.key.read_text(),
                "ca.crt": self.authority.cert.read_text(),
            },
        }
        self.contents |= {
            one["metadata"]["name"]: one["data"]
            for one in self.objects
            if one["kind"] == "ConfigMap"
        }
        self.api.put(self.agents_pod())

    def agents_pod(self) -> Mapping[str, Any]:
        found = pod("rankscope-agent-x7k2p", "rankscope")
        found["metadata"]["labels"] = {"app.kubernetes.io/name": "rankscope-agent"}
        port = {"name": "metrics", "containerPort": self.ports["agent"]}
        found["spec"]["containers"][0]["ports"] = [port]
        found["status"]["podIP"] = "127.0.0.1"
        return found

    def laid_out(self, name: str, spec: Mapping[str, Any], container: Mapping[str, Any]) -> Path:
        """Write what the container's volumes hold, as /run is to show it."""
        run = self.folder / f"run-of-{name}"
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            place = run / mount["mountPath"].removeprefix("/var/run/").lstrip("/")
            volume = volumes[mount["name"]]
            for file, text in self.files(volume).items():
                place.mkdir(parents=True, exist_ok=True)
                (place / file).write_text(text.replace("/etc/", "/run/etc/"))
                (place / file).chmod(mode_of(volume, spec))
        return run

    def files(self, volume: Mapping[str, Any]) -> Mapping[str, str]:
        if "projected" in volume:
            made = {"token": SERVICE_TOKEN, "namespace": "rankscope"}
            return made | {"ca.crt": self.authority.cert.read_text()}
        if "secret" in volume:
            held = self.contents[volume["secret"]["secretName"]]
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in held]
            return {item["path"]: held[item["key"]] for item in items}
        return self.contents[volume["configMap"]["name"]] if "configMap" in volume else {}

    def command(self, name: str, *instead: str) -> list[str]:
        """Return how a container's program, or other arguments of it, run in its box."""
        ((_, spec, container),) = (
            found for found in containers(self.objects) if found[0].endswith(f"/{name}")
        )
        context = spec["securityContext"]
        writable = self.folder / f"tmp-of-{name}"
        writable.mkdir(exist_ok=True)
        box = sandboxed(
            writable,
            run=self.laid_out(name, spec, container),
            user=context["runAsUser"],
            group=context.get("fsGroup", 0),
        )
        given = list(instead) or self.arguments(name, container)
        if name == "agent":
            given += [f"--path.state={writable}", "--kubernetes.start-jitter=0"]
        return [*box, sys.executable, "-m", MODULES[name], *given]

    @contextlib.contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a container's program in the box that its manifest asks for."""
        command = self.command(name)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stderr=log, env=self.environment())
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE_SECONDS)

    def arguments(self, name: str, container: Mapping[str, Any]) -> list[str]:
        text = "\n".join(container["args"])
        for given, here in (
            (":9877", f"127.0.0.1:{self.ports['agent']}"),
            (":9878", f"127.0.0.1:{self.ports['watch']}"),
            (":9879", f"127.0.0.1:{self.ports['health']}"),
            ("/etc/rankscope", "/run/etc/rankscope"),
            ("/host/sys", "/sys"),
            ("$(POD_NAMESPACE)", "rankscope"),
        ):
            text = text.replace(given, here)
        return text.split("\n")

    def environment(self) -> Mapping[str, str]:
        host, port = self.api.url.removeprefix("https://").split(":")
        found = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        found |= {"PATH": os.environ["PATH"], "NODE_NAME": "n1", "PYTHONDONTWRITEBYTECODE": "1"}
        return found | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def page(self, name: str, path: str, scheme: str) -> str:
        context = ssl.create_default_context(cafile=self.authority.cert)
        url = f"{scheme}://127.0.0.1:{self.ports[name]}{path}"
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS, context=context) as answer:
            return answer.read().decode()

    def awaited(self, name: str, path: str, wanted: str, scheme: str = "http") -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        page = ""
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                page = self.page(name, path, scheme)
                if wanted in page:
                    return page
            time.sleep(0.25)  # a page takes a core some time
        log = (self.folder / f"{name}.log").read_text()[-3000:]
        raise AssertionError(f"{name} never said {wanted!r}: {page[-1000:]}\n{log}")


@contextlib.contextmanager
def running(folder: Path, *components: str) -> Iterator[Cluster]:
    """Run a cluster and its agent."""
    made = Cluster(folder, *components)
    with contextlib.closing(made.api), made.started("agent"):
        yield made


@pytest.fixture
def open_cluster(tmp_path) -> Iterator[Cluster]:
    with running(tmp_path, "watch") as made:
        yield made


@pytest.fixture(scope="module")
def tls_cluster(tmp_path_factory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("tls"), "watch", "tls") as made:
        yield made


@pytest.mark.parametrize(
    ("name", "scheme"), [("open_cluster", "http"), ("tls_cluster", "https")], ids=["http", "https"]
)
def test_the_watch_asks_the_agent_that_the_api_server_names(request, name, scheme):
    cluster = request.getfixturevalue(name)
    with cluster.started("watch") as watch:
        cluster.awaited("agent", "/metrics", 'rankscope_pod_source_up{source="api"} 1', scheme)
        page = cluster.awaited("watch", "/metrics", "rankscope_watch_agents{")
        assert 'rankscope_watch_agents{state="answering"} 1' in page
        assert cluster.page("health", "/healthz", "http") == "The agent is alive.\n"
        status = status_of(watch)
        assert set(status["Uid"].split()) == {"65532"}
        assert (status["CapEff"], status["Seccomp"]) == ("0" * 16, "2")
    asked = {path for _, path, _ in cluster.api.requests}
    assert asked >= {"/api/v1/pods", "/api/v1/namespaces/rankscope/pods"}


def test_doctor_runs_where_the_watch_does_as_the_documentation_says(tls_cluster):
    """There agents' addresses are reachable, and the token and the authority are at hand."""
    (shown,) = re.findall(r"exec deploy/rankscope-watch -- (.*?)\n```", PAGE, re.DOTALL)
    program, *words = shown.replace("\\\n", " ").replace("/etc/", "/run/etc/").split()
    assert (program, words[:2]) == ("python3", ["-m", MODULES["watch"]])
    more = ["--ca-file=/run/etc/rankscope/authority/ca.crt", "--tls-server-name=rankscope-agent"]
    tls_cluster.awaited("agent", "/readyz", "first run", "https")
    done = subprocess.run(
        tls_cluster.command("watch", *words[2:], *more, "--json"),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=tls_cluster.environment(),
    )
    assert done.returncode == 0, done.stderr
    (node,) = json.loads(done.stdout)["sections"]
    assert node["title"] == "node n1"
    remedies = {check["source"]: check["remedy"] for check in node["checks"]}
    assert "component tier-3" in remedies["kernel_log"]
