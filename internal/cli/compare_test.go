package cli

import "testing"

// A client may call itself what it likes; a spreadsheet must not run it.
func TestCellsAreInert(t *testing.T) {
	for cell, want := range map[string]string{
		`=HYPERLINK("http://x")`: `'=HYPERLINK("http://x")`, "@SUM(A1)": "'@SUM(A1)", "+1+2": "'+1+2", "-2+3": "'-2+3", "\tx": "'\tx",
		"-0.5": "-0.5", "1e-05": "1e-05", "kube-apiserver": "kube-apiserver", "": "", "+3": "+3",
	} {
		if got := inert(cell); got != want {
			t.Errorf("%q became %q, want %q", cell, got, want)
		}
	}
}
