package stacks

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Types of records in the kernel's buffer, from linux/perf_event.h.
const (
	recordLost        = 2
	recordComm        = 3
	recordExit        = 4
	recordFork        = 7
	recordSample      = 9
	recordMmap2       = 10
	recordLostSamples = 13
	recordKsymbol     = 17
)

// Bits of a record's misc field.
const (
	miscCommExec   = 1 << 13 // of COMM: by exec(2)
	miscMmapBuild  = 1 << 14 // of MMAP2: a build ID instead of the inode
	ksymUnregister = 1 << 0  // of KSYMBOL's flags
)

// Markers between the frames of a call chain.
const (
	contextMax    = ^uint64(4095) + 1 // everything from here on is a marker
	contextKernel = ^uint64(128) + 1
	contextUser   = ^uint64(512) + 1
)

// protExec is PROT_EXEC.
const protExec = 4

// A fileID is a file by its device and inode, as the kernel names it.
type fileID struct {
	major, minor uint32
	inode        uint64
}

// An event is one record of the kernel. Which fields are set depends on kind.
type event struct {
	kind     uint32
	time     uint64 // ns of the clock that was asked for
	cpu      uint32
	pid, tid int32

	chain []byte // SAMPLE: addresses and markers, innermost first; aliases the input

	ppid, ptid int32  // FORK, EXIT
	text       string // COMM: the thread's new name; MMAP2: the file; KSYMBOL: the symbol
	exec       bool   // COMM: by exec
	lo, length uint64 // MMAP2, KSYMBOL
	offset     uint64 // MMAP2
	file       fileID // MMAP2
	gone       bool   // KSYMBOL: it was unloaded
	lost       uint64 // LOST
}

var errRecord = errors.New("unexpected format of a perf record")

// trailer is the sample_id that ends every record but a sample: pid and tid,
// time, cpu and a reserved word.
const trailer = 8 + 8 + 8

// fixedSize of the records that we use, behind the header and before a name.
var fixedSize = map[uint32]int{
	recordLost: 16, recordLostSamples: 8, recordComm: 8, recordExit: 24, recordFork: 24, recordMmap2: 64, recordKsymbol: 16,
}

// parseEvent decodes the record b, its header included. ok is false for
// kinds that we have no use for.
func parseEvent(b []byte) (e event, ok bool, err error) {
	if len(b) < 8 {
		return e, false, errRecord
	}
	le := binary.LittleEndian
	e.kind = le.Uint32(b)
	misc := le.Uint16(b[4:])
	b = b[8:]
	if e.kind == recordSample { // TID, TIME, CPU, CALLCHAIN
		if len(b) < 32 {
			return e, false, errRecord
		}
		e.pid, e.tid = int32(le.Uint32(b)), int32(le.Uint32(b[4:]))
		e.time, e.cpu = le.Uint64(b[8:]), le.Uint32(b[16:])
		n := le.Uint64(b[24:])
		if n > uint64(len(b)-32)/8 {
			return e, false, errRecord
		}
		e.chain = b[32 : 32+8*n]
		return e, true, nil
	}
	if len(b) < trailer {
		return e, false, errRecord
	}
	tail := b[len(b)-trailer:]
	e.pid, e.tid = int32(le.Uint32(tail)), int32(le.Uint32(tail[4:]))
	e.time, e.cpu = le.Uint64(tail[8:]), le.Uint32(tail[16:])
	b = b[:len(b)-trailer]
	size, used := fixedSize[e.kind]
	if !used {
		return e, false, nil
	}
	if len(b) < size {
		return e, false, errRecord
	}
	switch e.kind {
	case recordLost:
		e.lost = le.Uint64(b[8:])
	case recordLostSamples:
		e.lost = le.Uint64(b)
	case recordComm:
		e.pid, e.tid = int32(le.Uint32(b)), int32(le.Uint32(b[4:]))
		e.text, e.exec = cString(b[8:]), misc&miscCommExec != 0
	case recordFork, recordExit:
		e.pid, e.ppid = int32(le.Uint32(b)), int32(le.Uint32(b[4:]))
		e.tid, e.ptid = int32(le.Uint32(b[8:])), int32(le.Uint32(b[12:]))
	case recordMmap2:
		if le.Uint32(b[56:])&protExec == 0 {
			return e, false, nil
		}
		e.pid, e.tid = int32(le.Uint32(b)), int32(le.Uint32(b[4:]))
		e.lo, e.length, e.offset = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
		if misc&miscMmapBuild == 0 {
			e.file = fileID{le.Uint32(b[32:]), le.Uint32(b[36:]), le.Uint64(b[40:])}
		}
		e.text = cString(b[64:])
	case recordKsymbol:
		e.lo, e.length = le.Uint64(b), uint64(le.Uint32(b[8:]))
		e.gone = le.Uint16(b[14:])&ksymUnregister != 0
		e.text = cString(b[16:])
	}
	return e, true, nil
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// A ring is the data area that the kernel writes records to: data[head mod n]
// is the next byte it will write.
//
// eachRecord calls f with each whole record between tail and head, and returns
// the new tail. f must not keep its argument. A record that cannot be one ends
// the walk at head: what follows it cannot be found.
func eachRecord(data []byte, tail, head uint64, f func(b []byte)) uint64 {
	n := uint64(len(data))
	if n == 0 || head-tail > n {
		return head
	}
	var joined []byte
	for head-tail >= 8 {
		at := tail % n
		if n-at < 8 { // records are aligned to 8 bytes, so that headers never wrap
			return head
		}
		size := uint64(binary.LittleEndian.Uint16(data[at+6:]))
		if size < 8 || size > head-tail {
			return head
		}
		b := data[at:min(at+size, n)]
		if at+size > n {
			joined = append(append(joined[:0], b...), data[:at+size-n]...)
			b = joined
		}
		f(b)
		tail += size
	}
	return tail
}
