"""What runs the operator on a cluster: the manifests of `config/deploy`.

`access` is generated from the rights that are declared beside the code that needs
them; `workload` is the process, as the published README installs it.
"""

from navarchos.operator.deployment.manifests import (
    FILE_NAMES,
    manifests,
    metrics_access,
    to_files,
)

__all__ = ["FILE_NAMES", "manifests", "metrics_access", "to_files"]
