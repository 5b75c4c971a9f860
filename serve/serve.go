package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	// writeTimeout covers a comparison of many recordings on a small machine.
	writeTimeout = 5 * time.Minute
	idleTimeout  = 2 * time.Minute
	// farewell is how long requests may go on after the end was asked for.
	farewell = 3 * time.Second
	// atOnce is how many recordings are read at the same time: reading takes a
	// core each.
	atOnce = 2
	// maxReports and maxSummaries bound what is kept: reports have megabytes.
	maxReports, maxSummaries = 8, 5000
	// maxTogether bounds the recordings of a query or of a side, which are open
	// one after another or all at once; maxRuns those of a history.
	maxTogether, maxRuns = 64, 300
)

// Options say what is shown to whom.
type Options struct {
	Dir       string
	Token     string // that the address holds; empty: a random one
	Tool      string // version of kubedyno
	Detectors []diagnose.Detector
	Now       func() time.Time
	Log       *slog.Logger
}

// Server shows one folder.
type Server struct {
	options Options
	folder  *folder
	policy  string
	ip      net.IP
	port    string
	cookie  string

	summaries *memo[report.Summary]
	documents *memo[[]byte]

	tailsMu sync.Mutex
	tails   map[string]*record.Tail

	// opened is called for each recording that is opened; tests count.
	opened func(name string)
}

// New prepares to show a folder.
func New(o Options) (*Server, error) {
	if !report.Built() {
		return nil, errors.New("the page was not built into this kubedyno: run 'make build'")
	}
	if o.Token == "" {
		var b [24]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("make a token: %w", err)
		}
		o.Token = base64.RawURLEncoding.EncodeToString(b[:])
	}
	slots := make(chan struct{}, atOnce)
	s := &Server{
		options: o, folder: &folder{dir: o.Dir}, policy: policy(),
		summaries: newMemo[report.Summary](maxSummaries, slots), documents: newMemo[[]byte](maxReports, slots),
		tails: map[string]*record.Tail{}, opened: func(string) {},
	}
	if _, err := s.folder.scan(context.Background()); err != nil {
		return nil, err
	}
	return s, nil
}

// Serve answers on ln until ctx ends, and returns when the last answer was
// given. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	s.listensOn(ln.Addr())
	var busy sync.WaitGroup
	handler := s.guard(s.routes())
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			busy.Add(1)
			defer busy.Done()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 64 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ErrorLog:       slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if srv.Shutdown(last) != nil {
			_ = srv.Close()
		}
		err = <-ended
	}
	busy.Wait() // what reads a recording closes it
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", s.options.Dir, err)
}

func (s *Server) listensOn(addr net.Addr) {
	if a, ok := addr.(*net.TCPAddr); ok {
		s.ip, s.port = a.IP, fmt.Sprint(a.Port)
	}
	s.cookie = "kubedyno-" + s.port // cookies do not know ports, and two of us may run
}

// Address is where a browser finds a server that listens on addr.
func (s *Server) Address(addr net.Addr) string {
	host := addr.String()
	if a, ok := addr.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", fmt.Sprint(a.Port))
	}
	return "http://" + host + "/?token=" + url.QueryEscape(s.options.Token)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page(s.list))
	mux.HandleFunc("GET /report", s.page(s.report))
	mux.HandleFunc("GET /live", s.page(s.live))
	mux.HandleFunc("GET /compare", s.page(s.compare))
	mux.HandleFunc("GET /history", s.page(s.history))
	mux.HandleFunc("GET /api/recordings", answer(s.entries))
	mux.HandleFunc("GET /api/summary", answer(s.summary))
	mux.HandleFunc("GET /api/progress", answer(s.progress))
	mux.HandleFunc("GET /api/query", answer(s.query))
	return mux
}

// page answers with a whole document, or says in one line why not.
func (s *Server) page(of func(*http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := of(r)
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(b)
	}
}

// answer answers with JSON.
func answer[T any](of func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := of(r)
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = report.WriteAnswer(w, v)
	}
}

// refuse says why. Errors are text, never markup.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var asked *askedError
	switch {
	case errors.Is(err, errUnknown):
		code = http.StatusNotFound
	case errors.As(err, &asked):
		code = http.StatusBadRequest
	case errors.Is(err, record.ErrLive):
		code = http.StatusConflict
	case errors.Is(err, context.Canceled):
		code = http.StatusServiceUnavailable
	}
	http.Error(w, err.Error(), code)
}

// askedError is for a request that cannot be answered as it is.
type askedError struct{ text string }

func (e *askedError) Error() string { return e.text }

func askedf(format string, args ...any) error { return &askedError{fmt.Sprintf(format, args...)} }

func (s *Server) list(r *http.Request) ([]byte, error) {
	entries, err := s.folder.scan(r.Context())
	if err != nil {
		return nil, err
	}
	name := s.options.Dir
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	var b bytes.Buffer
	err = report.WriteFolder(&b, report.Folder{Tool: s.options.Tool, Name: filepath.Base(name), Entries: entries})
	return b.Bytes(), err
}

func (s *Server) entries(r *http.Request) ([]report.Entry, error) { return s.folder.scan(r.Context()) }

// wanted are the recordings that a request names under key, with a stamp that
// changes with any of them. A name that the scan did not find is unknown,
// whatever it would mean as a path.
func (s *Server) wanted(r *http.Request, key string, most int) (names []string, stamp string, err error) {
	names = r.URL.Query()[key]
	switch {
	case len(names) == 0:
		return nil, "", askedf("no recording was named: want %s=NAME", key)
	case len(names) > most:
		return nil, "", askedf("%d recordings are too many at once: %d are the most", len(names), most)
	}
	entries, err := s.folder.scan(r.Context())
	if err != nil {
		return nil, "", err
	}
	stamps := map[string]string{}
	for _, e := range entries {
		stamps[e.Name] = e.Stamp
	}
	for _, name := range names {
		at, ok := stamps[name]
		if !ok {
			return nil, "", fmt.Errorf("%.200q: %w", name, errUnknown)
		}
		stamp += fmt.Sprintf("%s=%q@%s;", key, name, at)
	}
	return names, stamp, nil
}

// single is the one recording that a request is about.
func (s *Server) single(r *http.Request) (name, stamp string, err error) {
	names, stamp, err := s.wanted(r, "of", 1)
	if err != nil {
		return "", "", err
	}
	return names[0], stamp, nil
}

func (s *Server) open(name string) (*record.Recording, error) {
	s.opened(name)
	return record.Open(s.folder.path(name))
}

// openAll opens recordings; done closes them.
func (s *Server) openAll(names []string) (recs []*record.Recording, done func(), err error) {
	done = func() {
		for _, r := range recs {
			_ = r.Close()
		}
	}
	for _, name := range names {
		rec, err := s.open(name)
		if err != nil {
			done()
			return nil, nil, err
		}
		recs = append(recs, rec)
	}
	return recs, done, nil
}

func (s *Server) summary(r *http.Request) (report.Summary, error) {
	name, stamp, err := s.single(r)
	if err != nil {
		return report.Summary{}, err
	}
	return s.summaries.get(r.Context(), stamp, func() (report.Summary, error) {
		rec, err := s.open(name)
		if errors.Is(err, record.ErrLive) {
			return report.Summary{}, err
		}
		if err != nil {
			return report.Summary{Name: name, Error: err.Error()}, nil
		}
		defer rec.Close()
		d, err := diagnose.Run(rec, s.options.Detectors)
		if err != nil {
			return report.Summary{Name: name, Error: err.Error()}, nil
		}
		return report.SummaryOf(name, d), nil
	})
}

// report is one recording, or several as rounds in the order given.
func (s *Server) report(r *http.Request) ([]byte, error) {
	names, stamp, err := s.wanted(r, "of", maxTogether)
	if err != nil {
		return nil, err
	}
	return s.documents.get(r.Context(), "report "+stamp, func() ([]byte, error) {
		recs, done, err := s.openAll(names)
		if err != nil {
			return nil, err
		}
		defer done()
		var inputs []report.Input
		for i, rec := range recs {
			d, err := diagnose.Run(rec, s.options.Detectors)
			if err != nil {
				return nil, fmt.Errorf("diagnose %s: %w", names[i], err)
			}
			inputs = append(inputs, report.Input{Recording: rec, Diagnosis: d})
		}
		var b bytes.Buffer
		err = report.Render(&b, inputs, s.render(names))
		return b.Bytes(), err
	})
}

func (s *Server) render(names []string) report.RenderOptions {
	return report.RenderOptions{Tool: s.options.Tool, Now: s.options.Now(), Served: names}
}

func (s *Server) live(r *http.Request) ([]byte, error) {
	p, err := s.progress(r)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = report.WriteProgress(&b, p, s.options.Tool)
	return b.Bytes(), err
}

func (s *Server) progress(r *http.Request) (report.Progress, error) {
	name, _, err := s.single(r)
	if err != nil {
		return report.Progress{}, err
	}
	e, m, err := s.folder.one(name)
	if err != nil {
		return report.Progress{}, err
	}
	s.tailsMu.Lock()
	defer s.tailsMu.Unlock()
	t := s.tails[name]
	if t == nil {
		t = record.NewTail(s.folder.path(name))
		s.tails[name] = t
	}
	if err := t.Read(); err != nil {
		return report.Progress{}, err
	}
	now := s.options.Now()
	if m.Status != record.StatusRunning {
		now = m.Ended
		delete(s.tails, name)
	}
	return report.ProgressOf(e, m, t.Pods(), now), nil
}

// queryPoints is how many moments of a recording a query is asked about.
const queryPoints = 300

// maxLines bounds the series of an answer.
const maxLines = 200

func (s *Server) query(r *http.Request) (report.Answer, error) {
	names, _, err := s.wanted(r, "of", maxTogether)
	if err != nil {
		return report.Answer{}, err
	}
	expr := strings.TrimSpace(r.URL.Query().Get("expr"))
	if expr == "" || len(expr) > 4000 {
		return report.Answer{}, askedf("want an expression in PromQL, of at most 4000 letters")
	}
	a := report.Answer{Expression: expr, Lines: []report.AnswerLine{}}
	for _, name := range names {
		if err := r.Context().Err(); err != nil {
			return a, err
		}
		rec, err := s.open(name)
		if err != nil {
			a.Lines = append(a.Lines, report.AnswerLine{Of: name, Values: report.Values{}, Note: err.Error()})
			continue
		}
		lines, err := report.Ask(rec, expr, queryPoints)
		if err = errors.Join(err, rec.Close()); err != nil {
			a.Lines = append(a.Lines, report.AnswerLine{Of: name, Values: report.Values{}, Note: err.Error()})
			continue
		}
		for _, l := range lines {
			if len(a.Lines) >= maxLines {
				a.Left++
				continue
			}
			l.Of = name
			a.Lines = append(a.Lines, l)
		}
	}
	return a, nil
}
