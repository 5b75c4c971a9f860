package requests

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/internal/audit"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// DumpInterval is how often the requests in priority and fairness are
	// looked at: five times a second costs the API server a lock and some
	// kilobytes each.
	DumpInterval = 200 * time.Millisecond
	dumpPath     = "/debug/api_priority_and_fairness/dump_requests"
	dumpDetails  = "?includeRequestDetails=1"
	// maxDump bounds one answer: some 50,000 requests.
	maxDump     = 16 << 20
	dumpTimeout = 10 * time.Second
)

// dumpLimits is what rows from samples cannot tell.
const dumpLimits = "rows are samples of the requests in priority and fairness: short requests are seldom seen, counts are too low, and there is no user agent and no code"

// seen is a request that is in flight.
type seen struct {
	row  record.Request
	last int64 // µs, of the last sample that had it
	// stood is an interval for each sample that had it, in microseconds. A
	// request of duration d is seen d ÷ interval times on average, so this
	// adds up to the time that all requests took, though it is wrong for each.
	stood int64
}

// sample looks at the requests in flight until ctx ends.
func (c *Collector) sample(ctx context.Context, w sink) (record.Observer, error) {
	url := strings.TrimSuffix(c.o.DumpURL, "/") + dumpPath + dumpDetails
	client := c.o.DumpClient
	if client == nil {
		client = http.DefaultClient
	}
	flying := map[dumpKey]*seen{}
	var samples, failures, bad, rows int64
	var lost time.Time
	var lastErr error
	var before int64 // µs, of the last sample
	tick := time.NewTicker(c.o.DumpInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		at := time.Now()
		dump, now, skipped, err := c.dump(ctx, client, url)
		switch {
		case ctx.Err() != nil:
		case samples == 0 && errors.Is(err, collect.ErrNotSupported):
			return record.Observer{}, err
		case err != nil:
			if failures++; lost.IsZero() {
				lost = at
			}
			lastErr = err
		default:
			if samples == 0 {
				w.Observes(record.TableRequests)
			}
			if !lost.IsZero() {
				w.Gap(record.Gap{Collector: c.Name(), Reason: "samples of requests failed: " + lastErr.Error(), Start: lost, End: at})
				lost = time.Time{}
			}
			samples++
			bad += skipped
			if now == 0 { // it was not in its own dump
				now = at.UnixMicro()
			}
			interval := c.o.DumpInterval.Microseconds()
			if before != 0 && now > before {
				interval = now - before
			}
			before = now
			for k, row := range dump {
				s := flying[k]
				if s == nil {
					s = &seen{row: row}
					flying[k] = s
				}
				s.last, s.row.QueueMicros = now, row.QueueMicros
				s.stood += interval
			}
			for _, k := range sortedKeys(flying) {
				if s := flying[k]; s.last != now {
					s.row.DoneMicros = s.row.ReceivedMicros + s.stood
					w.Request(s.row)
					rows++
					delete(flying, k)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	switch {
	case samples == 0 && lastErr != nil:
		return record.Observer{}, collect.NotSupported("%v", lastErr)
	case samples == 0:
		return record.Observer{}, collect.NotSupported("the run ended before the first sample of requests in priority and fairness")
	}
	for _, k := range sortedKeys(flying) { // still in flight: not done
		w.Request(flying[k].row)
		rows++
	}
	if !lost.IsZero() {
		w.Gap(record.Gap{Collector: c.Name(), Reason: "samples of requests failed: " + lastErr.Error(), Start: lost, End: time.Now()})
	}
	w.Gap(record.Gap{Collector: c.Name(), Subject: "source", Reason: dumpLimits})
	notes := []string{fmt.Sprintf("%d samples, %d failed", samples, failures), dumpLimits}
	if bad > 0 {
		notes = append(notes, fmt.Sprintf("%d rows of samples could not be parsed", bad))
	}
	return record.Observer{IntervalSeconds: c.o.DumpInterval.Seconds(), Samples: rows, Note: strings.Join(notes, "; ")}, nil
}

func sortedKeys(flying map[dumpKey]*seen) []dumpKey {
	return slices.SortedFunc(maps.Keys(flying), func(a, b dumpKey) int {
		return cmp.Or(cmp.Compare(a.arrived, b.arrived), strings.Compare(a.user, b.user), strings.Compare(a.verb, b.verb), strings.Compare(a.path, b.path))
	})
}

// dump takes one sample.
func (c *Collector) dump(ctx context.Context, client *http.Client, url string) (rows map[dumpKey]record.Request, now, skipped int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, 0, err
	}
	req.Header.Set("User-Agent", "kubedyno-collect")
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("ask the API server for the requests in priority and fairness: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, 0, 0, collect.NotSupported("requests in priority and fairness may not be read (%s): grant `get` on the nonResourceURL /debug/api_priority_and_fairness/*", resp.Status)
	case http.StatusNotFound:
		return nil, 0, 0, collect.NotSupported("the API server has no /debug/api_priority_and_fairness: it runs with --enable-priority-and-fairness=false")
	default:
		return nil, 0, 0, fmt.Errorf("ask the API server for the requests in priority and fairness: %s", resp.Status)
	}
	return parseDump(io.LimitReader(resp.Body, maxDump))
}

// dumpKey tells requests apart: no two of one user arrive in one nanosecond.
type dumpKey struct {
	arrived          int64 // ns
	user, verb, path string
}

// dumpColumns of a dump with details (apiserver's
// util/flowcontrol/apf_controller_debug.go). The path may hold commas.
const dumpColumns = 18

// parseDump reads a dump: comma-separated, padded with spaces, without quotes.
// skipped counts rows that could not be read. Requests for dumps are no rows:
// the latest of them is this one, and tells when the dump was made, now, by
// the API server's clock as all its times are.
func parseDump(r io.Reader) (rows map[dumpKey]record.Request, now, skipped int64, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 64<<10), 1<<20)
	if !in.Scan() || !bytes.HasPrefix(in.Bytes(), []byte("PriorityLevelName")) || bytes.Count(in.Bytes(), []byte{','})+1 < dumpColumns {
		return nil, 0, 0, errors.Join(errors.New("requests in priority and fairness: the answer is not a dump with details"), in.Err())
	}
	rows = map[dumpKey]record.Request{}
	for in.Scan() {
		f := strings.Split(in.Text(), ",")
		if len(f) < dumpColumns {
			skipped++
			continue
		}
		// Column 13 is the path.
		extra := len(f) - dumpColumns
		path := strings.TrimSpace(strings.Join(f[12:13+extra], ","))
		f = append(f[:12:12], f[12+extra:]...)
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		arrived, err := time.Parse(time.RFC3339Nano, f[5])
		if err != nil || arrived.UnixMicro() <= 0 {
			skipped++
			continue
		}
		if path == dumpPath {
			now = max(now, arrived.UnixMicro())
			continue
		}
		row := record.Request{
			ReceivedMicros: arrived.UnixMicro(), Verb: f[11], User: f[10],
			Namespace: f[13], Name: f[14], Resource: f[16], Subresource: f[17],
			ServerMicros: -1, EtcdMicros: -1, QueueMicros: -1, WebhookMicros: -1, AuthenticationMicros: -1, AuthorizationMicros: -1, RequestBytes: -1, ResponseBytes: -1, Source: audit.SourceDump,
		}
		if group, _, ok := strings.Cut(f[15], "/"); ok {
			row.Group = group
		}
		if row.Resource == "" {
			row.URI = path
		}
		// A request that still waits has no start.
		if started, err := time.Parse(time.RFC3339Nano, f[9]); err == nil && !started.Before(arrived) {
			row.QueueMicros = started.Sub(arrived).Microseconds()
		}
		rows[dumpKey{arrived.UnixNano(), row.User, row.Verb, path}] = row
	}
	if err := in.Err(); err != nil {
		return nil, 0, skipped, fmt.Errorf("requests in priority and fairness: %w", err)
	}
	return rows, now, skipped, nil
}
