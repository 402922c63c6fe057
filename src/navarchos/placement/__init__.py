"""The hard rules of kube-scheduler: on which nodes a pod can run.

The preflight checks of the operator use these rules to predict whether evicted pods
find another node. The simulated scheduler of the test kit uses them to place pods.
Both get the same answer for the same pod, because the rules exist only here.

Preferences (scoring), host ports, `namespaceSelector`, `matchLabelKeys` and dynamic
resource allocation are not part of these rules. Each module names the scheduler plugins
in `pkg/scheduler/framework/plugins` that it follows.
"""
