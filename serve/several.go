package serve

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
)

// compare sets the recordings a against the recordings b.
func (s *Server) compare(r *http.Request) ([]byte, error) {
	base, stampA, err := s.wanted(r, "a", maxTogether)
	if err != nil {
		return nil, err
	}
	cand, stampB, err := s.wanted(r, "b", maxTogether)
	if err != nil {
		return nil, err
	}
	return s.documents.get(r.Context(), "compare "+stampA+stampB, func() ([]byte, error) {
		a, done, err := s.openAll(base)
		if err != nil {
			return nil, err
		}
		defer done()
		b, done, err := s.openAll(cand)
		if err != nil {
			return nil, err
		}
		defer done()
		c, err := compare.Recordings(a, b, compare.Options{Details: true, Detectors: s.options.Detectors})
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		names := map[*record.Recording]string{}
		for i, rec := range a {
			names[rec] = base[i]
		}
		for i, rec := range b {
			names[rec] = cand[i]
		}
		err = report.RenderComparison(&out, a, b, c, s.options.Detectors, s.render(nil), func(rec *record.Recording) string { return names[rec] })
		return out.Bytes(), err
	})
}

// history is that of the recordings that are named.
func (s *Server) history(r *http.Request) ([]byte, error) {
	names, stamp, err := s.wanted(r, "of", maxRuns)
	if err != nil {
		return nil, err
	}
	return s.documents.get(r.Context(), "history "+stamp, func() ([]byte, error) {
		recs, done, err := s.openAll(names)
		if err != nil {
			return nil, err
		}
		defer done()
		var runs []diagnose.Source
		for _, rec := range recs {
			runs = append(runs, rec)
		}
		h, err := compare.HistoryOf(runs, compare.HistoryOptions{Detectors: s.options.Detectors})
		if err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		var b bytes.Buffer
		err = report.RenderHistory(&b, h, s.render(names))
		return b.Bytes(), err
	})
}
