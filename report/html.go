package report

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"io"
	"reflect"
	"strings"

	"github.com/kubedyno/kubedyno/ui"
)

// inlineLimit is the size of JSON above which it travels compressed: below it
// a person who opens the file in an editor can still read the data.
const inlineLimit = 64 << 10

// WritePage writes p as one HTML file that needs no network. Where the page's
// script was not built into this binary, a plain page with the main facts is
// written instead, and says so.
func WritePage(w io.Writer, p Page) error {
	p.Schema = PageSchema
	fill(reflect.ValueOf(&p))
	script, style, built := ui.Bundle()
	if !built {
		return writeStandIn(w, p)
	}
	data, err := json.Marshal(p) // escapes <, > and &, so that no text can end the script element
	if err != nil {
		return fmt.Errorf("encode the page: %w", err)
	}
	encoding := "json"
	if len(data) > inlineLimit {
		if data, err = pack(data); err != nil {
			return fmt.Errorf("compress the page: %w", err)
		}
		encoding = "gzip-base64"
	}
	// The policy names our script and style by their hashes: nothing else
	// runs, and nothing is fetched, whatever a pod's name may hold.
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '%s'; style-src '%s'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="kubedyno %s">
<title>%s</title>
<style>%s</style>
</head>
<body>
<div id="page"><noscript><h1>%s</h1><p>%s</p><p>The charts of this report need JavaScript.</p></noscript></div>
<script type="application/octet-stream" id="data" data-encoding="%s">`,
		hash(script), hash(style), html.EscapeString(p.Tool), html.EscapeString(p.Title), style,
		html.EscapeString(p.Title), html.EscapeString(p.Verdict), encoding)
	b.Write(data)
	b.WriteString("</script>\n<script>")
	b.Write(script)
	b.WriteString("</script>\n</body>\n</html>\n")
	_, err = w.Write(b.Bytes())
	return err
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return "sha256-" + base64.StdEncoding.EncodeToString(h[:])
}

func pack(data []byte) ([]byte, error) {
	var z bytes.Buffer
	gz, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := gz.Write(data); err != nil {
		return nil, err
	}
	if err := gz.Close(); err != nil {
		return nil, err
	}
	return []byte(base64.StdEncoding.EncodeToString(z.Bytes())), nil
}

// fill makes every nil slice empty, so that the page finds arrays and never null.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fill(v.Index(i))
		}
	}
}

// writeStandIn writes the page for a binary without the built script.
func writeStandIn(w io.Writer, p Page) error {
	t, err := template.New("standin").Funcs(template.FuncMap{
		"number": number,
		"value": func(x *float64, unit string) string {
			if x == nil {
				return "not measured"
			}
			return strings.TrimSpace(number(*x) + " " + unit)
		},
		"percent": func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) },
		"ms":      func(x float64) string { return number(x) + " ms" },
	}).Parse(ui.StandIn)
	if err != nil {
		return fmt.Errorf("the stand-in page: %w", err)
	}
	return t.Execute(w, p)
}
