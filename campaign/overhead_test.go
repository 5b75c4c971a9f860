package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/compare"
)

// looked drives an overhead over stacks that are only named, and says what stood,
// in order. The stack that fails is refused in round 2.
func looked(t *testing.T, fails string) (stood []string, kept compare.OverheadPlan, err error) {
	t.Helper()
	dir := t.TempDir()
	standing := ""
	o := OverheadOptions{
		Plan: compare.OverheadPlan{Of: "test", Rounds: 2, Stacks: []compare.Stack{
			{Name: "without", Role: compare.Without}, {Name: "etcd", Role: compare.Layered}, {Name: "node", Role: compare.Layered},
			{Name: "whole", Role: compare.Whole}, {Name: "paused", Role: compare.Paused, Of: "node"},
		}},
		Settle: time.Millisecond, Window: time.Millisecond, Out: dir, Now: time.Now,
		Stand: func(ctx context.Context, s compare.Stack, while func(context.Context) error) error {
			stood = append(stood, s.Name)
			if s.Name == fails && len(stood) > 4 {
				return errors.New("no room")
			}
			standing = s.Name
			defer func() { standing = "" }()
			return while(ctx)
		},
		Pause: func(context.Context) error {
			stood = append(stood, "paused "+standing)
			return nil
		},
		Tell: func(compare.Stack, int, int, int) {},
	}
	_, err = Overhead(t.Context(), o)
	data, rerr := os.ReadFile(filepath.Join(dir, compare.OverheadFile))
	if rerr != nil {
		t.Fatal(rerr)
	}
	if rerr := json.Unmarshal(data, &kept); rerr != nil {
		t.Fatal(rerr)
	}
	return stood, kept, err
}

// Layers are looked at upwards and then downwards, and what is paused right
// after what it is that is paused.
func TestOverheadGoesUpAndDown(t *testing.T) {
	stood, kept, err := looked(t, "")
	want := []string{"without", "etcd", "node", "paused node", "whole", "whole", "node", "paused node", "etcd", "without"}
	if err != nil || !slices.Equal(stood, want) {
		t.Errorf("stood %q, want %q: %v", stood, want, err)
	}
	if len(kept.Windows) != 10 {
		t.Errorf("%d windows are kept", len(kept.Windows))
	}
	for i, w := range kept.Windows {
		if !w.End.After(w.Start) || i > 0 && w.Start.Before(kept.Windows[i-1].End) {
			t.Errorf("window %d is %v to %v", i, w.Start, w.End)
		}
	}
}

// What was measured before something failed is kept.
func TestOverheadKeepsWhatItHas(t *testing.T) {
	_, kept, err := looked(t, "etcd")
	if err == nil || err.Error() != "etcd, round 2: no room" {
		t.Errorf("error %v", err)
	}
	if len(kept.Windows) != 8 {
		t.Errorf("%d windows are kept", len(kept.Windows))
	}
}
