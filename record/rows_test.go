package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/internal/table"
)

// TestLinesOfRows holds what the live files get against encoding/json, which reads them:
// it must find what it would have written itself.
func TestLinesOfRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	dir := t.TempDir()
	for _, row := range []any{
		&Pod{}, &Operation{}, &ProcessSample{}, &MachineSample{}, &Request{}, &NodeSample{}, &ProcessExit{}, &CoreSample{}, &DiskSample{},
		&StackSample{}, &Stack{}, &BlockIO{}, &Sync{}, &ObjectChange{}, &Event{}, &ProfileRef{},
	} {
		kind := reflect.TypeOf(row).Elem()
		path := filepath.Join(dir, kind.Name())
		log, err := table.CreateLog(path)
		if err != nil {
			t.Fatal(err)
		}
		var wants []any
		for range 200 {
			setFields(random, reflect.ValueOf(row).Elem())
			if err := log.Append(row); err != nil {
				t.Fatalf("%#v: %v", row, err)
			}
			line, err := json.Marshal(row)
			want := reflect.New(kind).Interface()
			if err := errors.Join(err, json.Unmarshal(line, want)); err != nil {
				t.Fatal(err)
			}
			wants = append(wants, want)
		}
		if _, err := log.Close(); err != nil {
			t.Fatal(err)
		}
		lines, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(lines) {
			got := reflect.New(kind).Interface()
			if err := json.Unmarshal(line, got); err != nil || len(wants) == 0 || !reflect.DeepEqual(got, wants[0]) {
				t.Fatalf("%s: %v\n got %+v\nwant %+v\nline %q", kind.Name(), err, got, wants[:min(1, len(wants))], line)
			}
			wants = wants[1:]
		}
		if len(wants) > 0 {
			t.Errorf("%s: %d rows are missing", kind.Name(), len(wants))
		}
	}
}

// setFields sets all fields, each to nothing now and then.
func setFields(random *rand.Rand, v reflect.Value) {
	if random.IntN(4) == 0 {
		v.SetZero()
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMicro(random.Int64N(4e15)).UTC()))
			return
		}
		for i := range v.NumField() {
			setFields(random, v.Field(i))
		}
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(random.Uint64() >> random.IntN(64)))
	case reflect.Float64:
		v.SetFloat(math.Ldexp(random.NormFloat64(), random.IntN(160)-80))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		parts := []string{"a.(*B[...]).c;d", "\"", "\\", "<&>", "\n\t\x00\x1b[31m", "é\u2028", "\xff", "/usr/bin/x --flag='1'"}
		text := ""
		for range random.IntN(4) {
			text += parts[random.IntN(len(parts))]
		}
		v.SetString(text)
	default:
		panic("no values of kind " + v.Kind().String())
	}
}
