package record

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedactArgs(t *testing.T) {
	same := func(s string) [2]string { return [2]string{s, s} }
	for _, c := range [][2]string{ // arguments separated by |
		{"--token=abc|x", "--token=REDACTED|x"},
		{"--token|abc|x", "--token|REDACTED|x"},
		{"--password|-x1|y", "--password|REDACTED|y"},
		{"-password=1234", "-password=REDACTED"},
		{"--bearerToken=abc", "--bearerToken=REDACTED"},
		{"DB_PASSWORD=x|env", "DB_PASSWORD=REDACTED|env"},
		{"--certificate-key=0123abcd", "--certificate-key=REDACTED"},
		{"--client-key-data=LS0t", "--client-key-data=REDACTED"},
		{"--url=https://me:pw@host/x", "--url=https://me:REDACTED@host/x"},
		{"join|--discovery=abcdef.0123456789abcdef", "join|--discovery=REDACTED"},
		{"-H|Authorization: Bearer abc.def", "-H|Authorization: REDACTED"},
		{"-H|Authorization:abc", "-H|Authorization:REDACTED"},
		{"-H|X-Api-Key: abc def", "-H|X-Api-Key: REDACTED"},
		{"--key=-----BEGIN EC PRIVATE KEY-----\nabc", "--key=REDACTED"},
		{"-----BEGIN EC PRIVATE KEY-----\nabc", "REDACTED"},
		{"sh|-c|curl --token abc -v PASSWORD=x  end", "sh|-c|curl --token REDACTED -v PASSWORD=REDACTED  end"},
		{"eyJhbGciOi.eyJzdWIi.sig", "REDACTED"},
		same("--service-account-private-key-file=/etc/sa.key"),
		same("--tls-private-key-file=/pki/tls.key"),
		same("--token-auth-file=/x"),
		same("--use-service-account-credentials=true"),
		same("--concurrent-serviceaccount-token-syncs=5"),
		same("--authentication-token-webhook-cache-ttl=10s"),
		same("--authorization-mode=Node,RBAC"),
		same("--authorization-always-allow-paths=/healthz,/readyz"),
		same("--service-account-issuer=https://kubernetes.default.svc"),
		same("--kube-api-qps=20|--v=2|-name|one"),
		same("--advertise-client-urls=https://127.0.0.1:2379"),
	} {
		got := strings.Join(RedactArgs(strings.Split(c[0], "|")), "|")
		if got != c[1] {
			t.Errorf("%q\n got %q\nwant %q", c[0], got, c[1])
		}
	}
}

func TestRedactArgsKeepsShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.StringMatching(`--?(token|password|name)=?[a-z ]*`))).Draw(t, "args")
		once := RedactArgs(args)
		if len(once) != len(args) {
			t.Fatalf("%d arguments became %d", len(args), len(once))
		}
		if twice := RedactArgs(once); !slices.Equal(once, twice) {
			t.Fatalf("not idempotent: %q, then %q", once, twice)
		}
	})
}
