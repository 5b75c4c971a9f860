package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/cluster/proc"
)

// A MisuseError is a mistake in what was asked for, found before or while the
// lab started; asking again the same way cannot succeed.
type MisuseError struct{ Message string }

func (e *MisuseError) Error() string { return e.Message }

func misuse(format string, args ...any) error {
	return &MisuseError{fmt.Sprintf(format, args...)}
}

// didYouMean names the nearest of the valid names, or all if they are few.
func didYouMean(got string, valid []string) string {
	best, distance := "", len(got)/2+2
	for _, v := range valid {
		if d := levenshtein(got, v); d < distance {
			best, distance = v, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("; nearest: %s", best)
	case len(valid) > 0 && len(valid) <= 8:
		return fmt.Sprintf("; valid: %s", strings.Join(valid, ", "))
	}
	return ""
}

// levenshtein is the number of letters to change, add or drop.
func levenshtein(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

var (
	cobraError   = regexp.MustCompile(`^Error: (.*)`)
	klogFatal    = regexp.MustCompile(`^[EF]\d{4} \S+ +\d+ \S+\] (.*)`)
	klogFailed   = regexp.MustCompile(`^"command failed" err=(".*")$`)
	ownHelper    = regexp.MustCompile(`^kubedyno-(enter|hollow|load): (.*)`)
	etcdFlag     = regexp.MustCompile(`^(flag provided but not defined: .*|invalid value .* for flag .*)`)
	goPanic      = regexp.MustCompile(`^panic: (.*)`)
	unknownFlag  = regexp.MustCompile(`(?:unknown flag: --|unknown shorthand flag: .* in -|flag provided but not defined: -)([A-Za-z0-9._-]+)`)
	addressInUse = regexp.MustCompile(`(\S+:\d+): bind: address already in use`)
)

// telling returns the line in which a component says why it ended: the last
// thing in its log is often its usage, or a farewell.
func telling(log []string) string {
	for _, re := range []*regexp.Regexp{cobraError, etcdFlag, ownHelper, goPanic} {
		for _, line := range slices.Backward(log) {
			if m := re.FindStringSubmatch(line); m != nil {
				return m[len(m)-1]
			}
		}
	}
	for _, line := range slices.Backward(log) {
		if m := klogFatal.FindStringSubmatch(line); m != nil {
			if f := klogFailed.FindStringSubmatch(m[1]); f != nil {
				if text, err := strconv.Unquote(f[1]); err == nil {
					return text
				}
			}
			return m[1]
		}
		if text := etcdFatal(line); text != "" {
			return text
		}
	}
	return proc.LastLine(log)
}

// lastWords is the line in which a component that ended says why, without the stack
// that may come with it. One that was killed did not know: its last line says how far
// it was. Where the disk that holds dir is full, nobody could write why.
func lastWords(ev Event, dir string) string {
	if free, err := freeBytes(dir); err == nil && free < fullBelow && !strings.HasPrefix(ev.Error, "signal: ") {
		return fmt.Sprintf("the disk is full (state folder %s)", dir)
	}
	said := proc.LastLine(ev.Log)
	if !strings.HasPrefix(ev.Error, "signal: ") {
		said = telling(ev.Log)
	}
	var e struct{ Level, Msg string }
	if strings.HasPrefix(said, "{") && json.Unmarshal([]byte(said), &e) == nil && e.Msg != "" {
		said = e.Level + ": " + e.Msg
	}
	return shorten(said)
}

// fullBelow are the bytes below which a disk counts as full: etcd's next page, or log
// line, may not fit.
const fullBelow = 1 << 20

// etcdFatal reads one line of etcd's JSON log; "" unless it is grave.
func etcdFatal(line string) string {
	if !strings.HasPrefix(line, "{") {
		return ""
	}
	var e struct{ Level, Msg, Error string }
	if json.Unmarshal([]byte(line), &e) != nil {
		return ""
	}
	switch e.Level {
	case "fatal", "panic", "dpanic", "error":
	case "warn":
		if !strings.HasPrefix(e.Msg, "failed to") {
			return ""
		}
	default:
		return ""
	}
	if e.Error == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Error
}

// shorten keeps a sentence one.
func shorten(s string) string {
	const most = 400
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}

// explain says in one sentence why a start failed: what, on what, way out.
func explain(err error, dir string) string {
	var exit *proc.ExitError
	var late *proc.NotReadyError
	switch {
	case errors.As(err, &exit):
		all := strings.Join(exit.Log, "\n")
		if strings.Contains(all, "no space left on device") {
			return fmt.Sprintf("%s ended because the disk is full (state folder %s): free some space, or set KUBEDYNO_STATE to a folder on another disk", exit.Component, dir)
		}
		if m := addressInUse.FindStringSubmatch(all); m != nil {
			return fmt.Sprintf("%s cannot listen on %s: the port is taken by another process", exit.Component, m[1])
		}
		said := telling(exit.Log)
		if said == "" {
			said = "it said nothing"
		}
		return shorten(fmt.Sprintf("%s did not start (%v): %s", exit.Component, exit.Err, said))
	case errors.As(err, &late):
		if strings.Contains(strings.Join(late.Log, "\n"), "no space left on device") {
			return fmt.Sprintf("%s cannot work because the disk is full (state folder %s): free some space, or set KUBEDYNO_STATE to a folder on another disk", late.Component, dir)
		}
		return shorten(late.Error())
	}
	return shorten(err.Error())
}

// portTaken says whether a start failed for a port that somebody took between
// our choice and the component's bind.
func portTaken(err error) bool {
	var exit *proc.ExitError
	return errors.As(err, &exit) && strings.Contains(strings.Join(exit.Log, "\n"), "address already in use")
}
