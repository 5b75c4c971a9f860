package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// rawTables are the recording's own tables, row by row. Those that `show` also
// prints in a form of its own need --raw.
var rawTables = map[string]func(*record.Recording, record.Window) (*textTable, error){
	"pods":          raw((*record.Recording).Pods),
	"operations":    raw((*record.Recording).Operations),
	"processes":     raw((*record.Recording).Processes),
	"requests":      raw((*record.Recording).Requests),
	"nodes":         raw((*record.Recording).Nodes),
	"objects":       raw((*record.Recording).Objects),
	"events":        raw((*record.Recording).Events),
	"exits":         raw((*record.Recording).Exits),
	"machine":       raw((*record.Recording).MachineSamples),
	"cores":         raw((*record.Recording).Cores),
	"disks":         raw((*record.Recording).Disks),
	"blockio":       raw((*record.Recording).BlockIO),
	"syncs":         raw((*record.Recording).Syncs),
	"stack_samples": raw((*record.Recording).StackSamples),
	"stacks":        raw((*record.Recording).Stacks),
}

// raw prints rows as they are: times count from the recording's start, and -1
// is unknown where the format says so.
func raw[T any](read func(*record.Recording) ([]T, error)) func(*record.Recording, record.Window) (*textTable, error) {
	return func(rec *record.Recording, in record.Window) (*textTable, error) {
		rows, err := read(rec)
		if err != nil {
			return nil, err
		}
		started := rec.Meta().Started
		t := &textTable{}
		var fields, timed []int
		typ := reflect.TypeFor[T]()
		for i := range typ.NumField() {
			name := columnName(typ.Field(i))
			if name == "" {
				continue
			}
			if name == "time_us" || len(timed) == 0 && strings.HasSuffix(name, "_us") {
				timed = []int{i} // the row's time: the first one there is
			}
			fields = append(fields, i)
			t.header = append(t.header, strings.ToUpper(strings.TrimSuffix(name, "_us")))
		}
		for i := range rows {
			v := reflect.ValueOf(rows[i])
			if len(timed) > 0 {
				if at := v.Field(timed[0]).Int(); at != 0 && !in.Contains(time.UnixMicro(at)) {
					continue
				}
			}
			cells := make([]string, 0, len(fields))
			for _, f := range fields {
				cells = append(cells, rawCell(typ.Field(f), v.Field(f), started))
			}
			t.add(rows[i], cells...)
		}
		return t, nil
	}
}

func rawCell(f reflect.StructField, v reflect.Value, started time.Time) string {
	moment := strings.HasSuffix(columnName(f), "_us") && !slices.Contains(durations, columnName(f))
	switch {
	case moment && v.Int() == 0:
		return "–"
	case moment:
		return fmt.Sprintf("%.6f", time.UnixMicro(v.Int()).Sub(started).Seconds())
	case v.CanInt() && v.Int() == -1 || v.CanFloat() && v.Float() == -1:
		return "–"
	case v.CanFloat():
		return fmt.Sprintf("%.3f", v.Float())
	case v.Kind() == reflect.String:
		return dash(printable(v.String(), maxCell))
	}
	return fmt.Sprint(v.Interface())
}

// maxCell bounds a text in a table for people.
const maxCell = 400

// durations are the columns in microseconds that are no moments.
var durations = []string{"server_us", "etcd_us", "queue_us", "webhook_us"}
