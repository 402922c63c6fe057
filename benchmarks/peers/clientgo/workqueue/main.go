// workqueue runs keys through client-go's queues.
//
// usage: workqueue cycles WORKERS KEYS | alone KEYS | delayed KEYS
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"navarchos.test/clientgo/report"
)

func number(argument int) int {
	value, err := strconv.Atoi(os.Args[argument])
	if err != nil {
		panic(err)
	}
	return value
}

func keys(count int) []string {
	made := make([]string, count)
	for n := range made {
		made[n] = fmt.Sprintf("ns-%d/key-%07d", n%20, n)
	}
	return made
}

// One goroutine adds, others take and finish.
func cycles(r *report.Reporter, workers int, all []string) {
	queue := workqueue.NewTyped[string]()
	var done sync.WaitGroup
	r.Begin()
	for range workers {
		done.Go(func() {
			for {
				key, down := queue.Get()
				if down {
					return
				}
				queue.Done(key)
			}
		})
	}
	for _, key := range all {
		queue.Add(key)
	}
	queue.ShutDown()
	done.Wait()
	r.End("cycled", nil)
}

// The same goroutine adds, takes and finishes.
func alone(r *report.Reporter, all []string) {
	queue := workqueue.NewTyped[string]()
	r.Begin()
	for _, key := range all {
		queue.Add(key)
		taken, _ := queue.Get()
		queue.Done(taken)
	}
	r.End("cycled", nil)
}

// Measures delayed keys: the cost of adding them, of their memory, and of waiting.
func delayed(r *report.Reporter, all []string) {
	queue := workqueue.NewTypedDelayingQueue[string]()
	r.Begin()
	r.End("began", nil)
	r.Begin()
	for n, key := range all {
		queue.AddAfter(key, time.Hour+time.Duration(n)*time.Millisecond)
	}
	r.End("added", nil)
	r.CollectGarbage()
	r.Begin()
	time.Sleep(3 * time.Second)
	r.End("waited", nil)
	queue.ShutDown()
}

func main() {
	r := report.New()
	switch os.Args[1] {
	case "cycles":
		cycles(r, number(2), keys(number(3)))
	case "alone":
		alone(r, keys(number(2)))
	case "delayed":
		delayed(r, keys(number(2)))
	default:
		panic("workqueue cycles WORKERS KEYS | alone KEYS | delayed KEYS")
	}
}
