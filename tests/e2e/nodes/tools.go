//go:build tools

// Package nodes pins the programs of a real node that Kubernetes does not release: containerd
// with its shim and its client, and the plugins that connect pods to the network. They have a
// module of their own, because their requirements would move versions of Kubernetes' module.
// The versions are those of navarchos.testing.controlplane.tools; a test compares.
package nodes

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
	_ "github.com/containernetworking/plugins/plugins/ipam/host-local"
	_ "github.com/containernetworking/plugins/plugins/main/loopback"
	_ "github.com/containernetworking/plugins/plugins/main/ptp"
	_ "github.com/containernetworking/plugins/plugins/meta/portmap"
)
