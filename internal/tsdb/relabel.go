package tsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

// Relabel copies the blocks in from to the folder to with other label values.
// Samples, of whatever kind, are copied as they are, chunk by chunk. change is
// given the metric's name, and a label with its value; __name__ itself it is
// not asked for. It must not make two series one.
//
// Without a block, ErrEmpty is returned.
func Relabel(ctx context.Context, from, to string, change func(metric, label, value string) string) (err error) {
	defer rescue(&err)
	paths, err := blocks(from)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s: %w", from, ErrEmpty)
	}
	if err := os.MkdirAll(filepath.Join(to, walDir), 0o755); err != nil {
		return err
	}
	for _, path := range paths {
		if err := relabelBlock(ctx, path, filepath.Join(to, filepath.Base(path)), change); err != nil {
			return fmt.Errorf("relabel %s: %w", path, err)
		}
	}
	return nil
}

func relabelBlock(ctx context.Context, from, to string, change func(metric, label, value string) string) (err error) {
	b, err := tsdb.OpenBlock(discard, from, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	type series struct {
		labels labels.Labels
		chunks []chunks.Meta
	}
	var all []series
	symbols := map[string]bool{}
	changed := map[[3]string]string{} // series share nearly all their labels
	err = eachSeries(ctx, b, func(ls labels.Labels, chks []chunks.Meta) error {
		relabelled := labels.NewScratchBuilder(ls.Len())
		metric := ls.Get(model.MetricNameLabel)
		ls.Range(func(l labels.Label) {
			v := l.Value
			if l.Name != model.MetricNameLabel {
				key := [3]string{metric, l.Name, l.Value}
				var ok bool
				if v, ok = changed[key]; !ok {
					v = change(metric, l.Name, l.Value)
					changed[key] = v
				}
			}
			symbols[l.Name], symbols[v] = true, true
			relabelled.Add(l.Name, v)
		})
		relabelled.Sort()
		all = append(all, series{relabelled.Labels(), slices.Clone(chks)})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b series) int { return labels.Compare(a.labels, b.labels) })

	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"meta.json", "tombstones"} { // they hold no labels
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			return err
		}
	}
	reader, err := b.Chunks()
	if err != nil {
		return err
	}
	defer reader.Close()
	samples, err := chunks.NewWriter(filepath.Join(to, "chunks"), chunks.WithSegmentSize(segmentSize))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, samples.Close()) }()
	w, err := index.NewWriter(ctx, filepath.Join(to, "index"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, s := range slices.Sorted(maps.Keys(symbols)) {
		if err := w.AddSymbol(s); err != nil {
			return err
		}
	}
	for i, s := range all {
		if i > 0 && labels.Equal(s.labels, all[i-1].labels) {
			return fmt.Errorf("two series became one: %s", s.labels)
		}
		for j := range s.chunks {
			c, iterable, err := reader.ChunkOrIterable(s.chunks[j])
			if err != nil {
				return err
			}
			if iterable != nil {
				return fmt.Errorf("series %s has no whole chunks", s.labels)
			}
			s.chunks[j].Chunk = c
		}
		// The writer lays chunks down in the order of series, as an index
		// wants them, and sets their references.
		if err := samples.WriteChunks(s.chunks...); err != nil {
			return err
		}
		if err := w.AddSeries(storage.SeriesRef(i), s.labels, s.chunks...); err != nil {
			return err
		}
	}
	return nil
}

// eachSeries calls visit for all series of a block, in the order of its index.
// What visit is given is good until it returns.
func eachSeries(ctx context.Context, b *tsdb.Block, visit func(labels.Labels, []chunks.Meta) error) error {
	ix, err := b.Index()
	if err != nil {
		return err
	}
	defer ix.Close()
	name, value := index.AllPostingsKey()
	postings, err := ix.Postings(ctx, name, value)
	if err != nil {
		return err
	}
	var builder labels.ScratchBuilder
	var chks []chunks.Meta
	for postings.Next() {
		if err := ix.Series(postings.At(), &builder, &chks); err != nil {
			return err
		}
		if err := visit(builder.Labels(), chks); err != nil {
			return err
		}
	}
	return postings.Err()
}

// EachLabel calls visit once for each label and value of the blocks in dir,
// the metrics' names (__name__) included.
func EachLabel(ctx context.Context, dir string, visit func(label, value string) error) (err error) {
	defer rescue(&err)
	paths, err := blocks(dir)
	if err != nil {
		return err
	}
	seen := map[labels.Label]bool{}
	for _, path := range paths {
		b, err := tsdb.OpenBlock(discard, path, nil, nil)
		if err != nil {
			return err
		}
		err = eachSeries(ctx, b, func(ls labels.Labels, _ []chunks.Meta) error {
			return ls.Validate(func(l labels.Label) error {
				if seen[l] {
					return nil
				}
				l = labels.Label{Name: strings.Clone(l.Name), Value: strings.Clone(l.Value)} // they alias the file
				seen[l] = true
				return visit(l.Name, l.Value)
			})
		})
		if err := errors.Join(err, b.Close()); err != nil {
			return err
		}
	}
	return nil
}
