package h2

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// What is written by hand: RFC 9113, section 6.
const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	frameData         = 0
	frameHeaders      = 1
	frameRST          = 3
	frameSettings     = 4
	framePing         = 6
	frameWindowUpdate = 8
	frameContinuation = 9

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4

	settingEnablePush    = 2
	settingInitialWindow = 4

	headerLen     = 9
	defaultWindow = 65535
	defaultFrame  = 16384
	// defaultTable is how much of past headers both sides may refer to.
	defaultTable = 4096
	// defaultStreams is how many we open before the server has said how many it
	// allows: the least that RFC 9113 recommends.
	defaultStreams = 100
	lastStreamID   = 1<<31 - 1
)

// streamWindow is how much of an answer may lie here unread.
const streamWindow = 1 << 20

// connWindow is the same for all answers of a connection together. They are
// counted as read when they come, so it does not stop anybody.
const connWindow = 16 << 20

// appendFrame appends one frame.
func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

func appendWindowUpdate(b []byte, stream uint32, n int) []byte {
	return appendFrame(b, frameWindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	return appendFrame(b, frameRST, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= 256<<10 {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// An unprocessedError is of a request that the server certainly did not look at.
type unprocessedError struct{ err error }

func (e *unprocessedError) Error() string { return e.err.Error() }
func (e *unprocessedError) Unwrap() error { return e.err }

// errNoRoom says that a connection takes no more streams.
var errNoRoom = errors.New("no room for a stream")

// A conn is one connection.
type conn struct {
	t             *Transport
	net           *tls.Conn
	in            *http2.Framer // of the reader
	heard, pinged atomic.Int64  // nanoseconds

	wmu   sync.Mutex // of whoever writes; guards what follows
	enc   *hpack.Encoder
	block *[]byte // what enc writes to
	table uint32  // enc's

	cmu     sync.Mutex
	pending []byte // small frames that nobody waits for

	mu         sync.Mutex // guards what follows
	room       sync.Cond  // that window or a stream's, or streams, changed
	streams    map[uint32]*stream
	nextID     uint32
	window     int64 // what we may still send on all streams
	maxStreams int
	newWindow  int64 // of a new stream
	maxFrame   int
	peerTable  uint32
	draining   bool
	err        error // why it ended
}

func newConn(t *Transport, secure *tls.Conn) (*conn, error) {
	c := &conn{
		t: t, net: secure, table: defaultTable, streams: map[uint32]*stream{}, nextID: 1,
		window: defaultWindow, maxStreams: defaultStreams, newWindow: defaultWindow, maxFrame: defaultFrame, peerTable: defaultTable,
	}
	c.room.L = &c.mu
	c.heard.Store(time.Now().UnixNano())
	c.enc = hpack.NewEncoder(blockWriter{c})
	setting := func(b []byte, id uint16, value uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
	}
	settings := setting(setting(nil, settingEnablePush, 0), settingInitialWindow, streamWindow)
	hello := appendFrame([]byte(preface), frameSettings, 0, 0, settings)
	hello = appendWindowUpdate(hello, 0, connWindow-defaultWindow)
	c.in = http2.NewFramer(nil, secure)
	c.in.SetReuseFrames()
	c.in.ReadMetaHeaders = hpack.NewDecoder(defaultTable, nil)
	if err := c.greet(hello); err != nil {
		secure.NetConn().Close()
		return nil, fmt.Errorf("begin HTTP/2: %w", err)
	}
	return c, nil
}

// greet exchanges settings, so that no more streams are opened than the server
// allows.
func (c *conn) greet(hello []byte) error {
	_ = c.net.SetDeadline(time.Now().Add(handshakeTimeout))
	if _, err := c.net.Write(hello); err != nil {
		return err
	}
	first, err := c.in.ReadFrame()
	if err != nil {
		return err
	}
	settings, ok := first.(*http2.SettingsFrame)
	if !ok || settings.IsAck() {
		return fmt.Errorf("the server begins with %v instead of its settings", first.Header())
	}
	c.settings(settings)
	c.pending = appendFrame(nil, frameSettings, flagAck, 0, nil)
	return c.net.SetDeadline(time.Time{})
}

// A blockWriter is where header blocks are put together.
type blockWriter struct{ c *conn }

func (w blockWriter) Write(b []byte) (int, error) {
	*w.c.block = append(*w.c.block, b...)
	return len(b), nil
}

func (c *conn) hasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takes()
}

// takes says whether a new stream may be opened. c.mu is held.
func (c *conn) takes() bool {
	return c.err == nil && !c.draining && len(c.streams) < c.maxStreams && c.nextID < lastStreamID
}

// open sends a request on a stream of its own.
func (c *conn) open(req *http.Request, body []byte) (*stream, error) {
	s := newStream(c)
	s.bodiless = req.Method == http.MethodHead
	out := getBuffer()
	defer putBuffer(out)

	c.wmu.Lock()
	c.mu.Lock()
	if !c.takes() {
		c.mu.Unlock()
		c.wmu.Unlock()
		return nil, errNoRoom
	}
	s.id, s.window = c.nextID, c.newWindow
	c.nextID += 2
	c.streams[s.id] = s
	now := c.take(s, len(body))
	maxFrame, table := c.maxFrame, c.peerTable
	c.mu.Unlock()

	if table != c.table {
		c.enc.SetMaxDynamicTableSize(table)
		c.table = table
	}
	c.block = getBuffer()
	c.headers(req, len(body))
	block := *c.block
	flags := byte(0)
	if len(body) == 0 {
		flags = flagEndStream
	}
	for kind := byte(frameHeaders); ; kind, flags = frameContinuation, 0 {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		*out = appendFrame(*out, kind, flags, s.id, block[:n])
		if block = block[n:]; len(block) == 0 {
			break
		}
	}
	putBuffer(c.block)
	*out = appendData(*out, s.id, body[:now], now == len(body), maxFrame)
	err := c.write(*out)
	c.wmu.Unlock()
	c.flush()
	if err != nil {
		c.close(err)
		return nil, err
	}
	if now < len(body) {
		if err := c.sendRest(req, s, body[now:]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// appendData appends a body, or a part of one.
func appendData(b []byte, id uint32, data []byte, last bool, maxFrame int) []byte {
	for len(data) > 0 {
		n := min(len(data), maxFrame)
		flags := byte(0)
		if last && n == len(data) {
			flags = flagEndStream
		}
		b = appendFrame(b, frameData, flags, id, data[:n])
		data = data[n:]
	}
	return b
}

// take reserves as much of n bytes as may be sent now. c.mu is held.
func (c *conn) take(s *stream, n int) int {
	n = int(max(0, min(int64(n), c.window, s.window)))
	c.window -= int64(n)
	s.window -= int64(n)
	return n
}

// sendRest sends what of a body the windows did not let through at first.
func (c *conn) sendRest(req *http.Request, s *stream, body []byte) error {
	stop := s.endWith(req.Context())
	defer stop()
	for len(body) > 0 {
		c.mu.Lock()
		n := 0
		for n == 0 && !s.over() && c.err == nil {
			if n = c.take(s, len(body)); n == 0 {
				c.room.Wait()
			}
		}
		maxFrame := c.maxFrame
		c.mu.Unlock()
		if n == 0 {
			return nil // the answer, or what became of it, is there already
		}
		c.wmu.Lock()
		err := c.write(appendData(nil, s.id, body[:n], n == len(body), maxFrame))
		c.wmu.Unlock()
		c.flush()
		if err != nil {
			c.close(err)
			return err
		}
		body = body[n:]
	}
	return nil
}

// headers compresses a request's headers. c.wmu is held.
func (c *conn) headers(req *http.Request, length int) {
	field := func(name, value string) {
		_ = c.enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: name == "authorization"})
	}
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	field(":authority", host)
	field(":method", method)
	field(":path", req.URL.RequestURI())
	field(":scheme", "https")
	for k, values := range req.Header {
		name := lower(k)
		switch name {
		case "host", "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive", "content-length":
			continue // of HTTP/1.1
		}
		for _, v := range values {
			field(name, v)
		}
	}
	if length > 0 || method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch {
		field("content-length", strconv.Itoa(length))
	}
}

// lower is a header's name as HTTP/2 writes it.
func lower(name string) string {
	switch name {
	case "User-Agent":
		return "user-agent"
	case "Accept":
		return "accept"
	case "Content-Type":
		return "content-type"
	case "Authorization":
		return "authorization"
	case "Impersonate-User":
		return "impersonate-user"
	case "Impersonate-Group":
		return "impersonate-group"
	}
	return strings.ToLower(name)
}

// write writes, with what is pending before it. c.wmu is held.
func (c *conn) write(b []byte) error {
	c.cmu.Lock()
	pending := c.pending
	c.pending = nil
	c.cmu.Unlock()
	if len(pending) > 0 {
		b = append(pending, b...)
	}
	if len(b) == 0 {
		return nil
	}
	_, err := c.net.Write(b)
	return err
}

// control sends frames that nobody waits for. It does not wait for whoever
// writes, who sends them too: the reader must not, or both ends could wait for
// each other.
func (c *conn) control(frames []byte) {
	c.cmu.Lock()
	c.pending = append(c.pending, frames...)
	c.cmu.Unlock()
	c.flush()
}

// flush sends what is pending unless somebody else will.
func (c *conn) flush() {
	for {
		c.cmu.Lock()
		some := len(c.pending) > 0
		c.cmu.Unlock()
		if !some || !c.wmu.TryLock() {
			return
		}
		err := c.write(nil)
		c.wmu.Unlock()
		if err != nil {
			c.close(err)
			return
		}
	}
}

// read takes in what the server sends, until the connection ends.
func (c *conn) read() {
	uncredited := 0
	for {
		frame, err := c.in.ReadFrame()
		var bad http2.StreamError
		if errors.As(err, &bad) {
			c.reset(bad.StreamID, bad.Code, fmt.Errorf("answer: %w", err))
			continue
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // what was asked is not answered
		}
		if err != nil {
			c.close(err)
			return
		}
		c.heard.Store(time.Now().UnixNano())
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if s := c.stream(frame.StreamID); s != nil {
				s.headers(frame)
			}
		case *http2.DataFrame:
			// Data of streams that are over count too.
			if uncredited += int(frame.Length); uncredited >= connWindow/2 {
				c.control(appendWindowUpdate(nil, 0, uncredited))
				uncredited = 0
			}
			if s := c.stream(frame.StreamID); s != nil {
				s.data(frame)
			}
		case *http2.RSTStreamFrame:
			if s := c.stream(frame.StreamID); s != nil {
				err := fmt.Errorf("the server ended the stream: %v", frame.ErrCode)
				if frame.ErrCode == http2.ErrCodeRefusedStream {
					err = &unprocessedError{err}
				}
				s.finish(err)
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				c.settings(frame)
				c.control(appendFrame(nil, frameSettings, flagAck, 0, nil))
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				c.control(appendFrame(nil, framePing, flagAck, 0, frame.Data[:]))
			}
		case *http2.WindowUpdateFrame:
			c.mu.Lock()
			if frame.StreamID == 0 {
				c.window += int64(frame.Increment)
			} else if s := c.streams[frame.StreamID]; s != nil {
				s.window += int64(frame.Increment)
			}
			c.room.Broadcast()
			c.mu.Unlock()
		case *http2.GoAwayFrame:
			c.goAway(frame)
		}
	}
}

func (c *conn) settings(f *http2.SettingsFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingMaxConcurrentStreams:
			c.maxStreams = int(min(s.Val, 1<<20))
		case http2.SettingInitialWindowSize:
			for _, open := range c.streams {
				open.window += int64(s.Val) - c.newWindow
			}
			c.newWindow = int64(s.Val)
		case http2.SettingMaxFrameSize:
			c.maxFrame = int(s.Val)
		case http2.SettingHeaderTableSize:
			c.peerTable = min(s.Val, defaultTable)
		}
		return nil
	})
	c.room.Broadcast()
}

// goAway lets the streams that the server knows of end, and no new one begin.
func (c *conn) goAway(f *http2.GoAwayFrame) {
	why := fmt.Errorf("the server closes the connection: %v %s", f.ErrCode, f.DebugData())
	last := f.LastStreamID
	c.t.drop(c)
	c.mu.Lock()
	c.draining = true
	var lost []*stream
	for id, s := range c.streams {
		if id > last {
			lost = append(lost, s)
		}
	}
	empty := len(c.streams) == len(lost)
	c.mu.Unlock()
	for _, s := range lost {
		s.finish(&unprocessedError{why})
	}
	if empty {
		c.close(why)
	}
}

func (c *conn) stream(id uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// forget takes a stream off the connection. It reports whether it was there.
func (c *conn) forget(s *stream) bool {
	c.mu.Lock()
	_, there := c.streams[s.id]
	delete(c.streams, s.id)
	last := c.draining && len(c.streams) == 0
	c.room.Broadcast()
	c.mu.Unlock()
	if last {
		c.close(errClosed)
	}
	return there
}

// reset ends a stream on our side.
func (c *conn) reset(id uint32, code http2.ErrCode, why error) {
	s := c.stream(id)
	if s == nil {
		return
	}
	s.finish(why)
	c.control(appendReset(nil, id, code))
}

// close ends the connection and all on it.
func (c *conn) close(why error) {
	c.t.drop(c)
	c.t.group.remove(c)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = why
	open := make([]*stream, 0, len(c.streams))
	for _, s := range c.streams {
		open = append(open, s)
	}
	c.room.Broadcast()
	c.mu.Unlock()
	for _, s := range open {
		s.finish(why)
	}
	c.net.NetConn().Close()
}
