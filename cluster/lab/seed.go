package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/kubedyno/kubedyno/cluster"
)

// A Seedling is an object that is put into etcd as the API server would have
// put it there.
type Seedling struct {
	// Key is where the API server looks for it: minions/node-0 or
	// pods/default/web-0, without the prefix that all keys have.
	Key string
	// Object carries its apiVersion and kind.
	Object runtime.Object
}

const (
	// storagePrefix is the API server's default of --etcd-prefix.
	storagePrefix = "/registry/"
	// seedBatch is etcd's default of --max-txn-ops.
	seedBatch = 128
	// seedAnswer bounds what is read of an answer, which says little.
	seedAnswer = 64 << 10
)

// storage writes objects as they are stored: in protobuf, behind four bytes
// that say so, which this serializer writes too.
var storage = protobuf.NewSerializer(nil, nil)

// Seed writes objects into the lab's etcd, past the API server, which learns of
// them by its watch. It is how a large cluster is there at once; what is
// measured must never come this way. An object that is there already is an
// error: nothing is overwritten.
//
// etcd serves its API as JSON too, so that this needs no client of it.
func (l *Lab) Seed(ctx context.Context, objects iter.Seq[Seedling]) error {
	cp := l.ControlPlane()
	etcd := cp.Component(Etcd)
	if etcd == nil || cp.StateDir == "" {
		return errors.New("seed: the lab has no etcd that is ours")
	}
	client, err := storageClient(cp)
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	defer client.CloseIdleConnections()
	s := seeder{client: client, url: strings.TrimSuffix(etcd.PprofURL, "/debug/pprof") + "/v3/kv/txn"}
	for o := range objects {
		if err := s.add(ctx, o); err != nil {
			return fmt.Errorf("seed %s: %w", o.Key, err)
		}
	}
	if err := s.flush(ctx); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	return nil
}

// storageClient speaks to etcd as the API server does.
func storageClient(cp *cluster.ControlPlane) (*http.Client, error) {
	pki := filepath.Join(cp.StateDir, "pki")
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver-etcd-client.crt"), filepath.Join(pki, "apiserver-etcd-client.key"))
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(cp.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", cp.CA)
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}, nil
}

// seeder collects what goes into one transaction.
type seeder struct {
	client *http.Client
	url    string
	txn    transaction
}

// transaction is etcd's TxnRequest, as its gateway has it: bytes are base64.
// It writes nothing where one of the keys is there already.
type transaction struct {
	Compare []compare `json:"compare"`
	Success []success `json:"success"`
}

type compare struct {
	Key     []byte `json:"key"`
	Target  string `json:"target"`
	Result  string `json:"result"`
	Version string `json:"version"`
}

type success struct {
	Put put `json:"requestPut"`
}

type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func (s *seeder) add(ctx context.Context, o Seedling) error {
	value, err := stored(o.Object)
	if err != nil {
		return err
	}
	key := []byte(storagePrefix + o.Key)
	s.txn.Compare = append(s.txn.Compare, compare{Key: key, Target: "VERSION", Result: "EQUAL", Version: "0"})
	s.txn.Success = append(s.txn.Success, success{put{key, value}})
	if len(s.txn.Success) < seedBatch {
		return nil
	}
	return s.flush(ctx)
}

// stored is the object as the API server keeps it.
func stored(o runtime.Object) ([]byte, error) {
	if o.GetObjectKind().GroupVersionKind().Empty() {
		return nil, errors.New("the object names no kind")
	}
	var b bytes.Buffer
	err := storage.Encode(o, &b)
	return b.Bytes(), err
}

func (s *seeder) flush(ctx context.Context) error {
	if len(s.txn.Success) == 0 {
		return nil
	}
	body, err := json.Marshal(s.txn)
	if err != nil {
		return err
	}
	s.txn = transaction{}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, seedAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s: %s", resp.Status, shorten(string(said)))
	}
	var answer struct{ Succeeded bool }
	if err := json.Unmarshal(said, &answer); err != nil {
		return fmt.Errorf("etcd's answer: %w", err)
	}
	if !answer.Succeeded {
		return errors.New("one of the objects is there already")
	}
	return nil
}
