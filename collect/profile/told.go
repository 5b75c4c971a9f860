package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/klauspost/compress/gzip" // in half the time that compress/gzip takes
	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a profile and of its mappings, by the numbers in pprof's profile.proto.
const (
	fieldType     = 1
	fieldSample   = 2
	fieldMapping  = 3
	fieldString   = 6
	fieldComment  = 13
	fieldFilename = 5
)

var errTorn = errors.New("it is no profile")

// unpack returns a profile's message, which components send packed.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	message, err := io.ReadAll(io.LimitReader(z, maxProfile+1))
	if err == nil && len(message) > maxProfile {
		err = fmt.Errorf("the profile is larger than %d bytes", maxProfile)
	}
	return message, err
}

// told is what is kept of a profile that is stored as it came: its message with a
// comment, in which no file has a path, and its number of samples. To take a heap's
// profile apart and to put it together again costs as much as to write it.
func told(message []byte, comment string) (out []byte, samples int, err error) {
	files := map[uint64]bool{} // strings that are names of files
	texts, types := uint64(0), 0
	err = fields(message, func(number protowire.Number, value, _ []byte) error {
		switch number {
		case fieldType:
			types++
		case fieldSample:
			samples++
		case fieldString:
			texts++
		case fieldMapping:
			return fields(value, func(number protowire.Number, value, _ []byte) error {
				if number == fieldFilename {
					i, _ := protowire.ConsumeVarint(value)
					files[i] = true
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && (texts == 0 || types == 0) {
		err = errTorn
	}
	if err != nil {
		return nil, 0, err
	}
	delete(files, 0) // is no text
	out = make([]byte, 0, len(message)+len(comment)+16)
	at := uint64(0)
	_ = fields(message, func(number protowire.Number, value, whole []byte) error {
		if number == fieldString {
			if files[at] {
				out = protowire.AppendTag(out, fieldString, protowire.BytesType)
				out = protowire.AppendString(out, path.Base(string(value)))
				whole = nil
			}
			at++
		}
		out = append(out, whole...)
		return nil
	})
	out = protowire.AppendTag(out, fieldString, protowire.BytesType)
	out = protowire.AppendString(out, comment)
	out = protowire.AppendTag(out, fieldComment, protowire.VarintType)
	return protowire.AppendVarint(out, texts), samples, nil
}

// fields calls f with each field of a message: its value, a varint as it is written or
// what a length stands before, and all of it.
func fields(message []byte, f func(number protowire.Number, value, whole []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return errTorn
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return errTorn
		}
		value := message[tag : tag+n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if err := f(number, value, message[:tag+n]); err != nil {
			return err
		}
		message = message[tag+n:]
	}
	return nil
}
