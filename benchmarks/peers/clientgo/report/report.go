// Package report does the same as benchmarks/subjects/reporting.py: it writes one JSON line
// per stage to standard output and continues when a line arrives on standard input.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// Reporter measures this process.
type Reporter struct {
	input *bufio.Reader
	out   *json.Encoder
	began time.Time
	busy  float64
}

// New begins at the present wall clock and at the processor time of the process.
func New() *Reporter {
	return &Reporter{input: bufio.NewReader(os.Stdin), out: json.NewEncoder(os.Stdout), began: time.Now()}
}

// Begin starts a stage.
func (r *Reporter) Begin() {
	r.began, r.busy = time.Now(), CPU()
}

// End reports a stage, with additional facts. Units are seconds and bytes.
func (r *Reporter) End(stage string, more map[string]any) {
	seconds, total := time.Since(r.began).Seconds(), CPU()
	status := memory()
	line := map[string]any{
		"stage": stage, "seconds": seconds, "cpu": total - r.busy, "cpu_process": total,
		"resident": status["VmRSS"], "peak": status["VmHWM"],
	}
	for key, value := range more {
		line[key] = value
	}
	if err := r.out.Encode(line); err != nil {
		panic(err)
	}
}

// CollectGarbage returns free memory to the system and reports the rest as after_gc.
func (r *Reporter) CollectGarbage() {
	r.Begin()
	runtime.GC()
	debug.FreeOSMemory()
	r.End("after_gc", nil)
}

// Order returns the next order of the measuring process; false when it has ended.
func (r *Reporter) Order() (string, bool) {
	line, err := r.input.ReadString('\n')
	return strings.TrimSpace(line), err == nil
}

// CPU returns the processor time of this process, user and system.
func CPU() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// Versions prints what this program was built with, as JSON.
func Versions() {
	info, _ := debug.ReadBuildInfo()
	found := map[string]string{"go": runtime.Version()}
	for _, module := range info.Deps {
		if name, ours := strings.CutPrefix(module.Path, "k8s.io/"); ours {
			found[name] = module.Version
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

func memory() map[string]int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	found := map[string]int64{}
	for _, line := range strings.Split(string(text), "\n") {
		var kilobytes int64
		name, rest, _ := strings.Cut(line, ":")
		if n, _ := fmt.Sscanf(rest, "%d kB", &kilobytes); n == 1 {
			found[name] = kilobytes * 1024
		}
	}
	return found
}
