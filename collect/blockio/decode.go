package blockio

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// eventSize is that of struct event in kernel.bpf.c.
const eventSize = 4*8 + 7*4 + 4 + 16

const kindSync = 1

// decoder turns events of the kernel's half into ours. It remembers what it
// has spelt out, because the same few come again and again.
type decoder struct {
	comms map[[16]byte]string
	flags map[uint32]string
}

// decode reads struct event, which the kernel's half writes in the machine's
// order, little-endian on all that it is built for.
func (d *decoder) decode(b []byte) (e event, ok bool) {
	if len(b) < eventSize {
		return e, false
	}
	le := binary.LittleEndian
	e.start, e.issued, e.done = int64(le.Uint64(b)), int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))
	e.pid, e.tid = int32(le.Uint32(b[32:])), int32(le.Uint32(b[36:]))
	status := int32(le.Uint32(b[56:]))
	e.comm = d.comm([16]byte(b[64:80]))
	if b[60] == kindSync {
		call := int(b[61])
		if call >= len(calls) {
			return e, false
		}
		e.call, e.errno = calls[call], -status
		return e, true
	}
	e.sector = sector(le.Uint64(b[24:]))
	e.bytes = int64(le.Uint32(b[40:]))
	flags := le.Uint32(b[44:])
	e.device = device{le.Uint32(b[48:]), le.Uint32(b[52:])}
	e.errno = errno(status)
	e.operation = operation(flags, e.bytes)
	e.flags = d.spell(flags)
	return e, true
}

func (d *decoder) comm(b [16]byte) string {
	if s, ok := d.comms[b]; ok {
		return s
	}
	text, _, _ := bytes.Cut(b[:], []byte{0})
	s := strings.ToValidUTF8(string(text), "\uFFFD") // a process chooses it freely
	if d.comms == nil || len(d.comms) > 4096 {
		d.comms = map[[16]byte]string{}
	}
	d.comms[b] = s
	return s
}

// Operations and flags of a request: enum req_op and req_flag_bits in
// include/linux/blk_types.h. These have kept their numbers since Linux 4.10.
const (
	opRead, opWrite, opFlush, opDiscard  = 0, 1, 2, 3
	opSecureErase, opWriteZeroes, opMask = 5, 9, 0xff
	preflush                             = 1 << 18
)

var flagBits = []struct {
	bit  uint32
	name string
}{
	{1 << 11, "sync"}, {1 << 12, "meta"}, {1 << 13, "prio"}, {1 << 15, "idle"},
	{1 << 17, "fua"}, {preflush, "preflush"}, {1 << 19, "ahead"}, {1 << 20, "background"},
}

// operation calls a write that carries nothing but a wish to flush what it is.
func operation(flags uint32, bytes int64) string {
	switch flags & opMask {
	case opRead:
		return "read"
	case opWrite:
		if bytes == 0 && flags&preflush != 0 {
			return "flush"
		}
		return "write"
	case opFlush:
		return "flush"
	case opDiscard, opSecureErase:
		return "discard"
	case opWriteZeroes:
		return "write"
	}
	return "other"
}

func (d *decoder) spell(flags uint32) string {
	flags &^= opMask
	if s, ok := d.flags[flags]; ok {
		return s
	}
	var names []string
	for _, f := range flagBits {
		if flags&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	if d.flags == nil {
		d.flags = map[uint32]string{}
	}
	s := strings.Join(names, ",")
	d.flags[flags] = s
	return s
}

// sector is 0 where a request has no place, which the kernel writes as all ones.
func sector(n uint64) int64 {
	if n == 1<<64-1 {
		return 0
	}
	return int64(n)
}

// errnos are the errors behind blk_status_t: blk_errors[] in block/blk-core.c,
// with the numbers of include/linux/blk_types.h. What is not listed is EIO.
var errnos = map[int32]int32{
	1: 95 /* EOPNOTSUPP */, 2: 110 /* ETIMEDOUT */, 3: 28 /* ENOSPC */, 4: 67 /* ENOLINK */, 5: 121, /* EREMOTEIO */
	6: 52 /* EBADE */, 7: 61 /* ENODATA */, 8: 84 /* EILSEQ */, 9: 12 /* ENOMEM */, 10: 5, /* EIO */
	11: 78 /* EREMCHG */, 12: 11 /* EAGAIN */, 13: 16, /* EBUSY */
}

// errno takes what block_rq_complete carries: a blk_status_t since Linux 5.17,
// a negative errno before.
func errno(status int32) int32 {
	if status <= 0 {
		return -status
	}
	if e, ok := errnos[status]; ok {
		return e
	}
	return 5
}
