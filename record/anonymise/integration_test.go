//go:build linux

package anonymise

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"github.com/kubedyno/kubedyno/run"
)

// The test binary is also the helpers that a lab and a run execute.
func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, map[string]labtest.Role{hollow.UserAgent: hollow.ProcessMain, load.ProcessName: load.ProcessMain}); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

type silent struct{ t *testing.T }

func (silent) Phase(string)       {}
func (silent) Update(run.State)   {}
func (s silent) Note(text string) { s.t.Log(text) }

// secretsOf are all private keys, tokens and kubeconfigs of a lab, from its
// state folder. Certificates and public keys are no secrets.
func secretsOf(t *testing.T, dir string) []Needle {
	t.Helper()
	var needles []Needle
	files := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch {
		case filepath.Ext(path) == ".key":
		case strings.HasPrefix(rel, "kubeconfig"):
			config, err := clientcmd.LoadFromFile(path)
			if err != nil {
				return err
			}
			for _, u := range config.AuthInfos {
				files++
				needles = append(needles, Secret("the key in "+rel, u.ClientKeyData)...)
				needles = append(needles, Secret("the token in "+rel, []byte(u.Token))...)
			}
			return nil
		default:
			return nil
		}
		data, err := os.ReadFile(path)
		files++
		needles = append(needles, Secret(rel, data)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 12 || len(needles) < 10*files {
		t.Fatalf("%d secrets in the lab's state, %d things to look for", files, len(needles))
	}
	return needles
}

// A recording of a lab that was loaded while tokens went over its wire holds
// none of the lab's secrets, in whatever form; its anonymised copy has the same
// diagnosis.
func TestRecordingHoldsNoSecrets(t *testing.T) {
	t.Setenv("KUBEDYNO_LAB", labtest.Binary(t))
	root := filepath.Join(t.TempDir(), "labs")
	t.Setenv("KUBEDYNO_STATE", root)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	st, err := lab.Up(ctx, lab.Config{Name: "secrets", Profile: "tuned"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.WithoutCancel(ctx), "", "secrets"); err != nil {
			t.Error(err)
		}
	})
	needles := secretsOf(t, st.Dir)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(st.Dir, "kubeconfig", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "r")
	recorded := make(chan error, 1)
	go func() {
		recorded <- run.Record(ctx, run.RecordOptions{
			For: 6 * time.Second, Lab: "secrets", Observe: experiment.Observe{Level: experiment.LevelDefault, Profile: true},
			Options: run.Options{Out: out, Executable: exe, Tool: "test", Watch: silent{t}, Log: slog.New(slog.DiscardHandler)},
		})
	}()
	// Tokens are made and used while it records: whoever logs too much shows
	// here.
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for recording := true; recording; {
		select {
		case err := <-recorded:
			if err != nil {
				t.Fatal(err)
			}
			recording = false
			continue
		case <-again.C:
		}
		token, err := client.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			continue // the account is still to come
		}
		needles = append(needles, Secret("a service account's token", []byte(token.Status.Token))...)
		anonymous := *config
		anonymous.KeyData, anonymous.CertData, anonymous.BearerToken = nil, nil, token.Status.Token
		anonymous.KeyFile, anonymous.CertFile = "", ""
		c, err := kubernetes.NewForConfig(&anonymous)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}) // forbidden
	}
	tokens := 0
	for _, n := range needles {
		if n.What == "a service account's token" {
			tokens++
		}
	}
	if tokens == 0 {
		t.Error("no token was made: the test tests less than it says")
	}
	report, err := Scan(ctx, out, needles)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range report.Leaks {
		t.Error(l)
	}
	t.Logf("looked for %d forms of secrets in %d files, %.1f MB and %d values", report.Needles, report.Files, float64(report.Bytes)/1e6, report.Strings)

	// The same scan finds a secret that is put there.
	planted := filepath.Join(out, "logs", "planted.log")
	data, err := os.ReadFile(filepath.Join(st.Dir, "pki", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(string(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(planted, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if report, err = Scan(ctx, out, needles); err != nil || len(report.Leaks) == 0 {
		t.Errorf("a planted key is not found (%v)", err)
	}
	if err := os.Remove(planted); err != nil {
		t.Fatal(err)
	}

	rec := recordtest.Open(t, out)
	copied := filepath.Join(t.TempDir(), "copy")
	result, err := Copy(ctx, rec, copied, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sameDiagnosis(t, rec, recordtest.Open(t, copied), result.Names)
}
