// Package ui holds the report's page: TypeScript in src, drawn with Preact and
// uPlot, bundled by npm into static/page.js and static/page.css.
//
// The bundle is not committed. `go build` works without it, because static
// always holds the stand-in page; a report then says what is missing and how
// to build it. Start with src/main.tsx; src/model computes, src/views draw.
package ui

import (
	"embed"
)

//go:embed static
var static embed.FS

// StandIn is the page shown where the bundle was not built: an html/template
// over report.Page.
//
//go:embed static/standin.html
var StandIn string

// Bundle is the built page. ok is false where `make ui` has not run before
// this binary was built.
func Bundle() (script, style []byte, ok bool) {
	script, err := static.ReadFile("static/page.js")
	if err != nil {
		return nil, nil, false
	}
	style, err = static.ReadFile("static/page.css")
	return script, style, err == nil
}
