"""The configuration of kwok's fake kubelets: the stages of nodes and pods.

A node becomes Ready. A pod on the node runs with ready containers, a pod of a Job then
succeeds, and a pod that is deleted is removed. Annotations of the pod delay these
stages; their values are durations such as `1.5s`.

Templates are Go templates with kwok's functions. A status template is a strategic merge
patch of the object's status.
"""

from typing import Final

from navarchos.testing.cluster.pod_lifecycle import RUNS_FOR, STARTS_AFTER, TERMINATES_AFTER

__all__ = ["RUNS_FOR", "STARTS_AFTER", "TERMINATES_AFTER", "kwok_config"]

_OPTIONS: Final = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  # kwok's default of four would process four pods at a time for all nodes together.
  podPlayStageParallelism: 64
  # The defaults: kwok does not fill them in if there is a configuration file.
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 4
  podsOnNodeSyncParallelism: 1
  enablePodsOnNodeSyncListPager: true
"""

_NODE_READY: Final = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
      - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
        operator: NotIn
        values: ["True"]
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      conditions:
      {{ range NodeConditions }}
      - type: {{ .type | Quote }}
        status: {{ .status | Quote }}
        reason: {{ .reason | Quote }}
        message: {{ .message | Quote }}
        lastHeartbeatTime: {{ $now | Quote }}
        lastTransitionTime: {{ $now | Quote }}
      {{ end }}
      addresses:
      {{ with .status.addresses }}
      {{ YAML . 1 }}
      {{ else }}
      - {type: InternalIP, address: {{ NodeIP | Quote }}}
      - {type: Hostname, address: {{ .metadata.name | Quote }}}
      {{ end }}
      {{ if not .status.allocatable }}
      allocatable: {cpu: "64", memory: 256Gi, pods: "250"}
      {{ end }}
      {{ if not .status.capacity }}
      capacity: {cpu: "64", memory: 256Gi, pods: "250"}
      {{ end }}
"""

_POD_RUNNING: Final = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-running}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.phase, operator: In, values: [Pending]}
  delay:
    durationMilliseconds: 0
    durationFrom:
      expressionFrom: '.metadata.annotations["kwok.x-k8s.io/starts-after"]'
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now | Quote }}
      conditions:
      {{ range $type := list "Initialized" "ContainersReady" }}
      - {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
      {{ end }}
      {{ if .spec.readinessGates }}
      - {type: Ready, status: "False", reason: ReadinessGatesNotReady,
         lastTransitionTime: {{ $now | Quote }}}
      {{ else }}
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
      {{ end }}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        imageID: ""
        ready: true
        started: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
      {{ with PodIPsWith .spec.nodeName ( or .spec.hostNetwork false )
         ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
      podIP: {{ index . 0 | Quote }}
      podIPs:
      - ip: {{ index . 0 | Quote }}
      {{ end }}
"""

_JOB_POD_DONE: Final = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: job-pod-done}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.phase, operator: In, values: [Running]}
      - {key: '.metadata.ownerReferences.[].kind', operator: In, values: [Job]}
  delay:
    durationMilliseconds: 0
    durationFrom:
      expressionFrom: '.metadata.annotations["kwok.x-k8s.io/runs-for"]'
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Succeeded
      conditions:
      - {type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        imageID: ""
        ready: false
        started: false
        restartCount: 0
        state:
          terminated:
            exitCode: 0
            reason: Completed
            startedAt: {{ $now | Quote }}
            finishedAt: {{ $now | Quote }}
      {{ end }}
"""

_OPEN_GATES: Final = (
    "[.spec.readinessGates[].conditionType] - "
    '[.status.conditions[] | select(.status == "True") | .type] | length == 0'
)
"""Whether all readiness gates of a pod are true; nothing for a pod without them."""

_READINESS: Final = "---\n".join(
    f"""\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: pod-{name}}}
spec:
  resourceRef: {{apiGroup: v1, kind: Pod}}
  selector:
    matchExpressions:
      - {{key: .metadata.deletionTimestamp, operator: DoesNotExist}}
      - {{key: .status.phase, operator: In, values: [Running]}}
      - {{key: '{_OPEN_GATES}', operator: In, values: ["{now}"]}}
      - {{key: '.status.conditions[] | select(.type == "Ready") | .status', operator: In,
         values: ["{before}"]}}
  next:
    patches:
      - subresource: status
        root: status
        type: strategic
        template: |
          conditions:
          - {{type: Ready, status: "{after}", lastTransitionTime: {{{{ Now | Quote }}}}}}
"""
    for name, now, before, after in (
        ("ready", "true", "False", "True"),
        ("unready", "false", "True", "False"),
    )
)

_POD_GONE: Final = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-gone}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: Exists}
  delay:
    durationMilliseconds: 0
    durationFrom:
      expressionFrom: '.metadata.annotations["kwok.x-k8s.io/terminates-after"]'
  next:
    delete: true
"""


_DOCUMENTS: Final = (
    _OPTIONS,
    _NODE_READY,
    _POD_RUNNING,
    _READINESS,
    _JOB_POD_DONE,
    _POD_GONE,
)


def kwok_config() -> str:
    """Return kwok's configuration file: options and stages, as YAML documents."""
    return "---\n".join(_DOCUMENTS)
