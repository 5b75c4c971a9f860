package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTypesAreFresh(t *testing.T) {
	src, err := os.ReadFile("../page.go")
	if err != nil {
		t.Fatal(err)
	}
	want, err := typescript(src)
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
