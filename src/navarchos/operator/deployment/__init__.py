"""The manifests of `config/deploy`, which install the operator on a cluster."""

from navarchos.operator.deployment.manifests import (
    FILE_NAMES,
    manifests,
    metrics_access,
    to_files,
)

__all__ = ["FILE_NAMES", "manifests", "metrics_access", "to_files"]
