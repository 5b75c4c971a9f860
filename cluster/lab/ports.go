package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// Ports are taken from below the range from which the kernel gives ports to
// outgoing connections (32768 up, by default): a port out of that range may be
// taken by any client between our choice and the component's bind.
const (
	lowestPort  = 20_000
	highestPort = 32_000
)

// freePorts picks a free loopback port for each name. Nothing reserves them: a
// component that finds its port taken makes the keeper choose anew.
func freePorts(names []string) (map[string]int, error) {
	high := highestPort
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var from, to int
		if _, err := fmt.Sscan(string(b), &from, &to); err == nil && from <= lowestPort && to >= highestPort {
			high = 65_000 // no such gap here
		}
	}
	ports := map[string]int{}
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	for _, name := range names {
		for try := 0; ; try++ {
			port := lowestPort + rand.IntN(high-lowestPort)
			// Kept open until all are chosen, so that all differ.
			l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if err == nil {
				open = append(open, l)
				ports[name] = port
				break
			}
			if try == 200 {
				return nil, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
			}
		}
	}
	return ports, nil
}
