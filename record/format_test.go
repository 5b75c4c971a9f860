package record

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/prometheus/prometheus/tsdb"
)

// TestFormatIsDocumented checks that docs/recording.md mentions each column
// in its table's section, and each field of recording.json.
func TestFormatIsDocumented(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "docs", "recording.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	code := regexp.MustCompile("`([^`]+)`")
	section := func(title string) map[string]bool {
		_, rest, ok := strings.Cut(doc, "\n"+title+"\n")
		if !ok {
			t.Fatalf("docs/recording.md has no section %q", title)
		}
		level := strings.Repeat("#", strings.Index(title, " "))
		if i := regexp.MustCompile(`\n#{1,` + string(rune('0'+len(level))) + `} `).FindStringIndex(rest); i != nil {
			rest = rest[:i[0]]
		}
		words := map[string]bool{}
		for _, m := range code.FindAllStringSubmatch(rest, -1) {
			words[m[1]] = true
		}
		return words
	}
	for name, row := range map[Table]any{
		TablePods: Pod{}, TableOperations: Operation{}, TableProcesses: ProcessSample{},
		TableMachine: MachineSample{}, TableRequests: Request{}, TableNodes: NodeSample{},
		TableExits: ProcessExit{}, TableCores: CoreSample{}, TableDisks: DiskSample{}, TableStackSamples: StackSample{}, TableStacks: Stack{}, TableBlockIO: BlockIO{}, TableSyncs: Sync{}, TableObjects: ObjectChange{}, TableEvents: Event{},
	} {
		words := section("### " + name.parquet())
		for _, column := range parquet.SchemaOf(row).Columns() {
			if !words[column[0]] {
				t.Errorf("docs/recording.md: %s does not mention column %s", name.parquet(), column[0])
			}
		}
	}
	words := section("## recording.json")
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !words[name] {
				t.Errorf("docs/recording.md: recording.json does not mention %s.%s as %q", typ.Name(), typ.Field(i).Name, name)
			}
			check(typ.Field(i).Type)
		}
	}
	check(reflect.TypeFor[Meta]())
	words = section("## Profiles")
	for i := range reflect.TypeFor[ProfileRef]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[ProfileRef]().Field(i).Tag.Get("json"), ",")
		if !words[name] {
			t.Errorf("docs/recording.md: Profiles does not mention %s", name)
		}
	}
}

// TestOthersOpenIt reads a recording with nothing of ours: Prometheus' block
// reader, and Parquet rows without a schema.
func TestOthersOpenIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	fill(t, w)
	finish(t, w)

	blocks, err := filepath.Glob(filepath.Join(dir, "metrics", "0*"))
	if err != nil || len(blocks) != 1 {
		t.Fatalf("%v, %v", blocks, err)
	}
	b, err := tsdb.OpenBlock(nil, blocks[0], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if s := b.Meta().Stats; s.NumSeries != 2 || s.NumSamples != 40 {
		t.Errorf("%+v", s)
	}
	db, err := tsdb.OpenDBReadOnly(filepath.Join(dir, "metrics"), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if bs, err := db.Blocks(); err != nil || len(bs) != 1 {
		t.Errorf("%v, %v", bs, err)
	}

	f, err := os.Open(filepath.Join(dir, "pods.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]parquet.Row, 100)
	rows := file.RowGroups()[0].Rows()
	defer rows.Close()
	n, _ := rows.ReadRows(buf)
	if n != 20 || file.NumRows() != 20 {
		t.Fatalf("%d rows", n)
	}
	var name string
	for i, column := range file.Schema().Columns() {
		if column[0] == "name" {
			name = buf[3][i].String()
		}
	}
	if name != "pod-3" {
		t.Errorf("row 3 is %s", name)
	}
}
