package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTypesAreFresh(t *testing.T) {
	want, err := typescript("../page.go", "../served.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../ui/src/recording.ts")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("ui/src/recording.ts is stale: run `go generate ./report`")
	}
}
