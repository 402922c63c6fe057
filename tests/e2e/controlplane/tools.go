//go:build tools

// Package controlplane pins the servers and tools that the end-to-end tests run, so
// that `go build` makes them from published modules where no release can be had.
// The versions are those of navarchos.testing.controlplane.tools; a test compares.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/component-base/version"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
	_ "sigs.k8s.io/kind"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
