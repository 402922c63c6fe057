// informer fills a cache with the cluster's pods through client-go's shared informer,
// as its documentation does, and then processes the changes of pods.
//
// usage: informer json|protobuf|dynamic KUBECONFIG | version
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"navarchos.test/clientgo/report"
)

// The annotation with the time at which a change was written, in nanoseconds since the epoch.
const writtenAt = "benchmark.navarchos/written-at"

type latencies struct {
	lock    sync.Mutex
	seconds []float64
	updates int
}

func (l *latencies) heard(annotations map[string]string) {
	now := time.Now().UnixNano()
	l.lock.Lock()
	defer l.lock.Unlock()
	l.updates++
	if written, err := strconv.ParseInt(annotations[writtenAt], 10, 64); err == nil {
		l.seconds = append(l.seconds, float64(now-written)/1e9)
	}
}

func (l *latencies) count() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.updates
}

func (l *latencies) take() map[string]any {
	l.lock.Lock()
	defer l.lock.Unlock()
	taken := map[string]any{"updates": l.updates, "latencies": l.seconds}
	l.seconds, l.updates = []float64{}, 0
	return taken
}

// The Accept header of each mode; a program that sends another one must not be measured.
var accepts = map[string]string{
	"json":     "application/json",
	"protobuf": "application/vnd.kubernetes.protobuf,application/json",
	"dynamic":  "application/json",
}

type asking struct {
	http.RoundTripper
	accept string
}

func (a asking) RoundTrip(request *http.Request) (*http.Response, error) {
	if found := request.Header.Get("Accept"); found != a.accept {
		panic(fmt.Sprintf("it asks for %q, and not for %q", found, a.accept))
	}
	return a.RoundTripper.RoundTrip(request)
}

func informer(mode string, config *rest.Config) cache.SharedIndexInformer {
	switch mode {
	case "dynamic":
		factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
		return factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Informer()
	case "protobuf":
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	case "json":
		// Typed clients ask for protobuf by default.
		config.ContentType = "application/json"
		config.AcceptContentTypes = "application/json"
	default:
		panic("informer json|protobuf|dynamic KUBECONFIG")
	}
	clients := kubernetes.NewForConfigOrDie(config)
	return informers.NewSharedInformerFactory(clients, 0).Core().V1().Pods().Informer()
}

func annotations(object any) map[string]string {
	if pod, typed := object.(*corev1.Pod); typed {
		return pod.Annotations
	}
	return object.(*unstructured.Unstructured).GetAnnotations()
}

func main() {
	if os.Args[1] == "version" {
		report.Versions()
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[2])
	if err != nil {
		panic(err)
	}
	config.Wrap(func(below http.RoundTripper) http.RoundTripper {
		return asking{below, accepts[os.Args[1]]}
	})
	r := report.New()
	r.Begin()
	pods := informer(os.Args[1], config)
	heard := &latencies{}
	handler, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) {},
		UpdateFunc: func(_, after any) { heard.heard(annotations(after)) },
		DeleteFunc: func(any) {},
	})
	if err != nil {
		panic(err)
	}
	go pods.Run(make(chan struct{}))
	// cache.WaitForCacheSync polls only ten times a second.
	for !handler.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	r.End("synced", map[string]any{"objects": len(pods.GetStore().ListKeys())})
	r.CollectGarbage()
	for {
		if _, asked := r.Order(); !asked {
			return
		}
		r.Begin()
		order, asked := r.Order()
		if !asked {
			return
		}
		expected, err := strconv.Atoi(order)
		if err != nil {
			panic(err)
		}
		for heard.count() < expected {
			time.Sleep(10 * time.Millisecond)
		}
		r.End("followed", heard.take())
	}
}
