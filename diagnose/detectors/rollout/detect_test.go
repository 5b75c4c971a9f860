package rollout

import (
	"testing"

	"github.com/kubedyno/kubedyno/record"
)

func TestUnderWay(t *testing.T) {
	pods := func(spans ...[2]int64) (ps []record.Pod) {
		for _, s := range spans {
			ps = append(ps, record.Pod{CreatedMicros: s[0], RunningMicros: s[1]})
		}
		return ps
	}
	for _, c := range []struct {
		name  string
		pods  []record.Pod
		width int
		fill  float64
	}{
		{"one after another", pods([2]int64{1, 5}, [2]int64{5, 9}, [2]int64{10, 14}, [2]int64{14, 20}), 1, 1},
		{"two at a time, made again as one is ready", pods([2]int64{1, 5}, [2]int64{1, 7}, [2]int64{5, 9}, [2]int64{7, 12}, [2]int64{9, 14}), 2, 1},
		{"all at once", pods([2]int64{1, 5}, [2]int64{1, 6}, [2]int64{1, 7}), 3, 0},
		{"a slow maker, whose wave is full once", pods([2]int64{1, 8}, [2]int64{2, 6}, [2]int64{10, 14}, [2]int64{20, 24}, [2]int64{30, 34}), 2, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			if width, fill := underWay(c.pods); width != c.width || fill != c.fill {
				t.Errorf("width %d, filled to %.2f; want %d and %.2f", width, fill, c.width, c.fill)
			}
		})
	}
}
