package hollow

import (
	"math"
	"time"
)

// z99 is the 99th percentile of the standard normal distribution; it turns a
// median and a p99 into a lognormal's two parameters.
const z99 = 2.3263478740408408

// Stages that draw a delay of their own from the same pod.
const (
	drawStart = iota
	drawStop
	drawSettle
	drawCleanup
	drawStatus
	drawAdmit
	drawProbe
	drawComplete
	drawRestart
	drawDisk
	drawNetwork
	drawPull
	drawMount
)

// admitDelay is from receipt to the first status: admission and the state file
// that a kubelet writes. Without it our first GET would overtake the node
// authorizer, which learns of the binding from a watch of its own, and be
// refused, as a kubelet's rarely is.
var admitDelay = Delay{Distribution: "lognormal", Median: 0.010, P99: 0.040}

// Not settings: the kubelet's and the runtime's part.
var (
	// completeDelay: from the status that says the containers have ended to the
	// one that says the pod has, a worker's round later.
	completeDelay = Delay{Distribution: "lognormal", Median: 1.1, P99: 1.6}
	// restartDelay: a container made anew in the sandbox that is there.
	restartDelay = Delay{Distribution: "lognormal", Median: 0.15, P99: 0.4}
	// settleDelay: until the kubelet's once-a-second relist has seen the end.
	settleDelay = Delay{Distribution: "lognormal", Median: 0.5, P99: 1.0}
	// cleanupDelay: unmounting volumes, removing the pod's cgroup.
	cleanupDelay = Delay{Distribution: "lognormal", Median: 0.2, P99: 0.5}
)

// of returns the delay that belongs to a key: the same for the same seed, key
// and draw in every run, whatever order the pods come in.
func (d Delay) of(seed int64, key string, draw int) time.Duration {
	switch d.Distribution {
	case "none":
		return 0
	case "constant":
		return seconds(d.Median)
	}
	u := uniform(seed, key, draw)
	if d.Distribution == "uniform" {
		return seconds(d.Min + u*(d.Max-d.Min))
	}
	z := math.Sqrt2 * math.Erfinv(2*u-1)
	sigma := math.Log(d.P99/d.Median) / z99
	return seconds(d.Median * math.Exp(sigma*z))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// uniform hashes to (0,1): FNV-1a over the key, then splitmix64's finalizer,
// because FNV alone leaves the high bits of similar names alike.
func uniform(seed int64, key string, draw int) float64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(key); i++ {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h ^= mix(uint64(seed)*0x9e3779b97f4a7c15 + uint64(draw))
	return (float64(mix(h)>>11) + 0.5) / (1 << 53)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
