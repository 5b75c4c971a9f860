package report

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
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
	if !Built() {
		fill(reflect.ValueOf(&p))
		return writeStandIn(w, p)
	}
	return writeDocument(w, document{title: p.Title, tool: p.Tool, lead: p.Verdict, kind: "report", served: len(p.Served) > 0}, &p)
}

// Built reports whether the page's script was built into this binary.
func Built() bool {
	_, _, ok := ui.Bundle()
	return ok
}

// Policy is what a document of ours may do: run its own script and style, which
// are named by their hashes, and where it is served ask its own server. Nothing
// else runs, and nothing else is fetched, whatever a pod's name may hold.
func Policy(served bool) string {
	script, style, _ := ui.Bundle()
	p := fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; base-uri 'none'; form-action 'none'", hash(script), hash(style))
	if served {
		p += "; connect-src 'self'"
	}
	return p
}

// document is what all our pages have.
type document struct {
	title, tool string
	lead        string // what a reader without scripts is told
	kind        string // what data hold: report, folder, progress
	served      bool   // by kubedyno serve, which the page may ask for more
}

// writeDocument writes one HTML file with its script, its style and data, of
// which p points to the model.
func writeDocument(w io.Writer, d document, p any) error {
	fill(reflect.ValueOf(p))
	script, style, built := ui.Bundle()
	if !built {
		return errors.New("the page was not built into this kubedyno: run 'make build'")
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
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="kubedyno %s">
<title>%s</title>
<style>%s</style>
</head>
<body>
<div id="page"><noscript><h1>%s</h1><p>%s</p><p>The charts of this report need JavaScript.</p></noscript></div>
<script type="application/octet-stream" id="data" data-kind="%s" data-encoding="%s">`,
		Policy(d.served), html.EscapeString(d.tool), html.EscapeString(d.title), style,
		html.EscapeString(d.title), html.EscapeString(d.lead), d.kind, encoding)
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
