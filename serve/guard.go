package serve

import (
	"crypto/subtle"
	"net"
	"net/http"
	"strings"

	"github.com/kubedyno/kubedyno/report"
)

// guard lets through who may ask. Three things keep others out: the token,
// which only the printed address has; the Host header, by which a name that an
// attacker points at this machine is told apart (DNS rebinding); and the
// browser's word that another site did not start the request, since all ports
// of one address share cookies.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", s.policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer") // the first address holds the token
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !s.ours(r.Host) {
			http.Error(w, "this server answers only at the address that kubedyno serve printed", http.StatusMisdirectedRequest)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "nothing can be changed here", http.StatusMethodNotAllowed)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			http.Error(w, "this request was started by another site: type or paste the address instead", http.StatusForbidden)
			return
		}
		if given := r.URL.Query().Get("token"); given != "" && s.right(given) {
			http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: given, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			q := r.URL.Query()
			q.Del("token")
			to := *r.URL
			to.RawQuery = q.Encode()
			// Only the path and the query: never another host.
			http.Redirect(w, r, "/"+strings.TrimLeft(to.RequestURI(), "/"), http.StatusSeeOther)
			return
		}
		c, err := r.Cookie(s.cookie)
		if err != nil || !s.right(c.Value) {
			http.Error(w, "open the address that kubedyno serve printed: it holds the token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) right(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.options.Token)) == 1
}

// ours reports whether a Host header names the address we listen on. Names
// other than localhost never do: whoever owns one can point it here.
func (s *Server) ours(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != s.port {
		return false
	}
	if name == "localhost" {
		return s.ip.IsLoopback() || s.ip.IsUnspecified()
	}
	ip := net.ParseIP(name)
	return ip != nil && (ip.Equal(s.ip) || s.ip.IsUnspecified())
}

// policy is that of the page, which may ask this server and nobody else.
func policy() string { return report.Policy(true) + "; frame-ancestors 'none'" }
