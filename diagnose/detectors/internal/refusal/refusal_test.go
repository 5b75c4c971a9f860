package refusal_test

import (
	"testing"

	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/refusal"
)

func TestCount(t *testing.T) {
	for _, test := range []struct {
		name    string
		all     int
		codes   map[int32]int
		refused int
		share   float64
		code    int32
	}{
		{"nothing was asked", 0, nil, 0, 0, 0},
		{"what is gone, conflicts and full queues are no refusals", 40, map[int32]int{201: 10, 404: 10, 409: 10, 429: 10}, 0, 0, 0},
		{"the most frequent code", 100, map[int32]int{201: 60, 403: 10, 500: 30}, 40, 0.4, 500},
		{"the lowest of equals", 20, map[int32]int{403: 10, 422: 10}, 20, 1, 403},
	} {
		var c refusal.Count
		if refused := c.Add(test.all, test.codes); refused != (test.refused > 0) || c.All != test.all || c.Refused != test.refused || c.Share() != test.share || c.Code() != test.code {
			t.Errorf("%s: refused %v, %d of %d, share %g, code %d", test.name, refused, c.Refused, c.All, c.Share(), c.Code())
		}
	}
	var c refusal.Count
	c.Add(10, map[int32]int{500: 2})
	c.Add(10, map[int32]int{403: 3})
	if c.All != 20 || c.Refused != 5 || c.Code() != 403 {
		t.Errorf("added twice: %+v", c)
	}
}
