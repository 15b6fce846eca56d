"""Mistakes in rendered manifests, one for each thing that a rule complains of."""

from __future__ import annotations

import json


def agent(objects):
    return next(one for one in objects if one["kind"] == "DaemonSet")


def pod(objects):
    return agent(objects)["spec"]["template"]["spec"]


def box(objects):
    return pod(objects)["containers"][0]


def put(find, key, value):
    """Return a mutation that sets one key of a part."""
    return lambda objects: find(objects).__setitem__(key, value)


def within(find, *keys):
    def found(objects):
        part = find(objects)
        for key in keys:
            part = part[key]
        return part

    return found


def kind(name):
    return lambda objects: next(one for one in objects if one["kind"] == name)


def volume(objects, name):
    return next(one for one in pod(objects)["volumes"] if one["name"] == name)


def mount(objects, name):
    return next(one for one in box(objects)["volumeMounts"] if one["name"] == name)


def watching(objects):
    return kind("Deployment")(objects)["spec"]["template"]["spec"]


def watch(objects):
    return watching(objects)["securityContext"]


def variable(objects, name):
    return next(one for one in box(objects)["env"] if one["name"] == name)


def token_that_lives(seconds):
    def mutate(objects):
        (token, *_) = volume(objects, "service-account")["projected"]["sources"]
        token["serviceAccountToken"]["expirationSeconds"] = seconds

    return mutate


def policy_named(objects, part):
    return next(
        o for o in objects if o["kind"].endswith("Policy") and part in o["metadata"]["name"]
    )


def edit_expression(objects, of_kind, old, new):
    """Replace text in every expression of the policies of a kind."""
    for found in objects:
        if found["kind"] == of_kind:
            text = json.dumps(found["spec"])
            found["spec"] = json.loads(text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))


MISTAKES = {
    "hostPath type": put(lambda o: volume(o, "sys")["hostPath"], "type", "Folder"),
    "volume or mount": put(lambda o: mount(o, "sys"), "name", "nothing"),
    "has no counterpart": lambda o: box(o)["volumeMounts"].pop(),
    "is declared twice": lambda o: pod(o)["volumes"].append({"name": "tmp", "emptyDir": {}}),
    "two volumes are mounted at": put(lambda o: mount(o, "tmp"), "mountPath", "/host/sys/"),
    "selector does not match": put(
        within(agent, "spec", "selector", "matchLabels"), "app.kubernetes.io/name", "other"
    ),
    "quantity": put(within(box, "resources", "requests"), "memory", "64 MB"),
    "requests more": put(within(box, "resources", "requests"), "memory", "1Gi"),
    "limits memory": put(within(box, "resources", "limits"), "cpu", "1"),
    "is not the containerPort": put(lambda o: box(o)["ports"][0], "hostPort", 9999),
    "privileged without": put(within(box, "securityContext"), "privileged", True),
    "port name": put(lambda o: box(o)["ports"][0], "name", "metrics-of-the-agent"),
    "fieldPath": put(
        lambda o: variable(o, "NODE_NAME")["valueFrom"]["fieldRef"], "fieldPath", "spec.node"
    ),
    "label ": put(within(agent, "metadata", "labels"), "team", "a b"),
    "maxUnavailable 0": put(
        within(agent, "spec", "updateStrategy", "rollingUpdate"), "maxUnavailable", 0
    ),
    "image ''": put(box, "image", ""),
    "image 'a:latest'": put(box, "image", "a:latest"),
    "expirationSeconds 60": token_that_lives(60),
    "expirationSeconds 3607": token_that_lives(3607),
    "mountPropagation": put(lambda o: mount(o, "sys"), "mountPropagation", "FromHost"),
    "asks port": put(lambda o: box(o)["livenessProbe"]["httpGet"], "port", "web"),
    "capabilities [": put(within(box, "securityContext", "capabilities"), "add", ["CAP_SYSLOG"]),
    "does not drop all": put(within(box, "securityContext", "capabilities"), "drop", ["CHOWN"]),
    "SYS_PTRACE reaches nothing": lambda o: pod(o).pop("hostPID"),
    "is given twice": lambda o: box(o)["env"].append({"name": "NODE_NAME", "value": "x"}),
    "is not in env": lambda o: box(o)["env"].remove(variable(o, "HOST_IP")),
    "may gain privileges": put(within(box, "securityContext"), "allowPrivilegeEscalation", True),
    "root file system": put(within(box, "securityContext"), "readOnlyRootFilesystem", False),
    "no seccomp": lambda o: pod(o)["securityContext"].pop("seccompProfile"),
    "is writable": lambda o: mount(o, "pod-logs").pop("readOnly"),
    "on ['secrets']": lambda o: kind("ClusterRole")(o)["rules"].append(
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    ),
    "on ['leases']": lambda o: kind("Role")(o)["rules"][2].pop("resourceNames"),
    "on ['pods']": put(lambda o: kind("Role")(o)["rules"][0], "verbs", ["*"]),
    "service account": put(pod, "serviceAccountName", "default"),
    "ClusterRole admin": put(within(kind("ClusterRoleBinding"), "roleRef"), "name", "admin"),
    "ServiceAccount rankscope-agent is not": put(
        lambda o: kind("ClusterRoleBinding")(o)["subjects"][0], "namespace", "default"
    ),
    "Role rankscope-watch is not": put(
        lambda o: kind("Role")(o)["metadata"], "namespace", "kube-system"
    ),
    "is not the agent's": put(box, "image", "registry.example/agent:2"),
    "label a/b/c": put(within(agent, "metadata", "labels"), "a/b/c", "d"),
    "host path /run": put(lambda o: volume(o, "sys")["hostPath"], "path", "/run/containerd"),
    "no use for": put(pod, "hostIPC", True),
    "runs as root": put(watch, "runAsNonRoot", False),
    "of another group": lambda o: watch(o).pop("fsGroup"),
    "sets for itself": put(
        within(box, "securityContext"), "seccompProfile", {"type": "Unconfined"}
    ),
    "sampleLimit": lambda o: kind("PodMonitor")(o)["spec"].pop("sampleLimit"),
    "interval": put(
        lambda o: kind("PodMonitor")(o)["spec"]["podMetricsEndpoints"][0], "interval", "15 s"
    ),
    "too large for": lambda o: kind("ConfigMap")(o)["data"].update(more="x" * (1 << 18)),
    "is no name": put(within(agent, "metadata"), "name", "Agent"),
    "two ports": lambda o: box(o)["ports"].append({"name": "metrics", "containerPort": 1}),
    "in no volume": lambda o: box(o)["args"].append("--web.token-file=/etc/tokens/token"),
    "leads to no port": put(lambda o: kind("Service")(o)["spec"]["ports"][0], "targetPort", "web"),
    "opens port": put(
        lambda o: kind("NetworkPolicy")(o)["spec"]["ingress"][0]["ports"][0], "port", "web"
    ),
    "policy or binding": put(
        within(kind("ValidatingAdmissionPolicyBinding"), "spec"), "policyName", "other"
    ),
    "['list', 'watch'] on": put(lambda o: kind("ClusterRole")(o)["rules"][0], "apiGroups", ["*"]),
    "unasked": lambda o: pod(o).pop("automountServiceAccountToken"),
    "does not allow host paths": lambda o: kind("Namespace")(o)["metadata"].pop("labels"),
    "is not where the agents are": put(within(kind("Namespace"), "metadata"), "name", "team"),
    "class system-node-critical": put(pod, "priorityClassName", "system-node-critical"),
    "may preempt by priority class None": lambda o: pod(o).pop("priorityClassName"),
    "ends running pods": put(kind("PriorityClass"), "preemptionPolicy", "PreemptLowerPriority"),
    "ends running": lambda o: kind("PriorityClass")(o).pop("preemptionPolicy"),
    "globalDefault": put(kind("PriorityClass"), "globalDefault", True),
    "waits behind others": put(pod, "priorityClassName", "rankscope-watch.rankscope"),
    "removal by label": put(
        within(agent, "metadata", "labels"), "app.kubernetes.io/instance", "other"
    ),
    "Namespace/rankscope: removal": lambda o: kind("Namespace")(o)["metadata"]["labels"].update(
        agent(o)["metadata"]["labels"]
    ),
    "has the same name": put(
        within(kind("ValidatingAdmissionPolicy"), "metadata"), "name", "rankscope-watch-conditions"
    ),
    "is of no namespace": put(
        within(kind("MutatingAdmissionPolicy"), "metadata"), "namespace", "rankscope"
    ),
    "nodes of another kernel": lambda o: pod(o).pop("nodeSelector"),
    "goes to virtual nodes": lambda o: pod(o).pop("affinity"),
    "on nodes with GPUs": lambda o: watching(o).pop("affinity"),
    "a drain may end": put(
        within(kind("PodDisruptionBudget"), "spec", "selector", "matchLabels"), "a", "b"
    ),
    "or wait for what": lambda o: kind("PodDisruptionBudget")(o)["spec"].pop(
        "unhealthyPodEvictionPolicy"
    ),
    "is empty, and not stored": put(box, "command", []),
    "stored with its apiVersion": lambda o: variable(o, "NODE_NAME")["valueFrom"]["fieldRef"].pop(
        "apiVersion"
    ),
    "stored with its scope": lambda o: policy_named(o, "no-nodes")["spec"]["matchConstraints"][
        "resourceRules"
    ][0].pop("scope"),
    "stored with its protocol": lambda o: kind("NetworkPolicy")(o)["spec"]["ingress"][0]["ports"][
        0
    ].pop("protocol"),
    "stored with its expirationSeconds": lambda o: volume(o, "service-account")["projected"][
        "sources"
    ][0]["serviceAccountToken"].pop("expirationSeconds"),
    "stored with its action": lambda o: kind("PodMonitor")(o)["spec"]["podMetricsEndpoints"][0][
        "relabelings"
    ][0].pop("action"),
    "memory 1024Mi is stored": put(within(box, "resources", "limits"), "memory", "1024Mi"),
    "in another spelling": put(within(box, "resources", "requests"), "cpu", "0.05"),
    "cpu 1000m is stored": put(within(box, "resources", "requests"), "cpu", "1000m"),
    "asks otherwise than the trainer": lambda o: edit_expression(
        o, "MutatingAdmissionPolicy", "['cpu', 'memory',", "['memory',"
    ),
    "has the types of one version": lambda o: edit_expression(
        o, "ValidatingAdmissionPolicy", "variables.node.spec ==", "object.spec =="
    ),
    "from deleting nodes": lambda o: o.remove(policy_named(o, "no-nodes")),
    "from long messages": lambda o: edit_expression(
        o, "ValidatingAdmissionPolicy", "size(c.message) <= 1024", "true"
    ),
    "from many conditions": lambda o: edit_expression(
        o, "ValidatingAdmissionPolicy", "size(variables.own) <= 8", "true"
    ),
    "without the cluster's DNS": lambda o: pod(o).pop("dnsPolicy"),
    ":9877 listens on every": lambda o: box(o)["args"].__setitem__(0, "--web.listen-address=:9877"),
    ":9879 listens on every": lambda o: box(o)["args"].__setitem__(1, "--web.health-address=:9879"),
    "livenessProbe asks the port metrics": put(
        lambda o: box(o)["livenessProbe"]["httpGet"], "port", "metrics"
    ),
    "port health is declared as 9880": put(lambda o: box(o)["ports"][1], "containerPort", 9880),
    "no pod has port": put(
        lambda o: kind("PodMonitor")(o)["spec"]["podMetricsEndpoints"][0], "port", "web"
    ),
    "does not speak HTTPS": lambda o: box(o)["readinessProbe"]["httpGet"].pop("scheme"),
    "does not speak HTTP": put(lambda o: box(o)["livenessProbe"]["httpGet"], "scheme", "HTTPS"),
    "asks agents otherwise": lambda o: kind("Deployment")(o)["spec"]["template"]["spec"][
        "containers"
    ][0]["args"].remove("--ca-file=/etc/rankscope/authority/ca.crt"),
    "scrapes otherwise": lambda o: kind("PodMonitor")(o)["spec"]["podMetricsEndpoints"][0].pop(
        "scheme"
    ),
    "selects no pod": put(
        within(kind("NetworkPolicy"), "spec", "podSelector", "matchLabels"), "a", "b"
    ),
}
"""One mistake each, by a part of the complaint that it must bring."""
