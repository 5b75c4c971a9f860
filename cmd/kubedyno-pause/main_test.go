package main

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	if code, after, err := parse([]string{"exit", "3", "1.5s"}); code != 3 || after != 1500*time.Millisecond || err != nil {
		t.Errorf("%d %v %v", code, after, err)
	}
	if code, after, err := parse([]string{"exit", "0"}); code != 0 || after != 0 || err != nil {
		t.Errorf("%d %v %v", code, after, err)
	}
	for _, args := range [][]string{{"exit"}, {"exit", "x"}, {"exit", "1", "soon"}, {"sleep", "1"}, {"exit", "1", "1s", "2"}} {
		if _, _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
