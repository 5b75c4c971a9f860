package encryption

import (
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const (
	transform = "apiserver_storage_transformation_duration_seconds"
	kms       = "apiserver_envelope_encryption_kms_operations_latency_seconds"
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "encryption",
	Title: "Encryption at rest is slow",
	Doc: `With --encryption-provider-config what is written to etcd is encrypted first, and what is read decrypted. With a local key that takes microseconds; with a key management service (KMS) a plugin is asked over a socket: for each object with v1, for each new key with v2.

**Evidence.** A transformation takes at least 10 ms on average (apiserver_storage_transformation_duration_seconds) and 10 % of the time of the requests that change objects; the plugin's own latency
(apiserver_envelope_encryption_kms_operations_latency_seconds) and the flag are further sources. Only resources that are encrypted suffer.

**Look-alikes.** A slow disk or etcd (all writes are slow, transformations are not); a slow webhook (its own clock).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if config, set, known := v.Flag(diagnose.APIServer, "encryption-provider-config"); known && (!set || config == "") {
		return diagnose.NotThere("nothing is encrypted: no --encryption-provider-config")
	}
	_, scraped := v.Increase(diagnose.APIServer, transform+"_count", nil)
	if !scraped {
		return diagnose.NotAssessed("the API server's metrics")
	}
	mean, n, ok := v.Mean(diagnose.APIServer, transform, nil)
	asked, calls, hasKMS := v.Mean(diagnose.APIServer, kms, nil)
	if hasKMS && (!ok || asked*calls > mean*n) {
		mean, n, ok = asked, calls, true
	}
	if !ok {
		return diagnose.NotThere("nothing was encrypted or decrypted")
	}
	l := layer.Layer{Name: "encryption", Mean: mean, Count: n, Ref: transform, Sources: 1, Passes: layer.Changes}
	if quick := l.Quick(v); quick != "" {
		return diagnose.NotThere("%s", quick)
	}
	f := diagnose.Finding{
		Resource: "webhook", Cause: fmt.Sprintf("encryption at rest takes %.0f ms an object", 1000*mean),
		Advice:    diagnose.Advice{Text: "Use KMS v2, which asks the plugin for a key once and not for each object, look at what the plugin waits for, and encrypt only what is secret (resources in the configuration). The price of fewer encrypted resources: they lie in etcd as they are."},
		RefutedBy: "a run without encryption in which the same writes take as long",
	}
	if hasKMS {
		l.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: kms, Value: asked, Unit: "s", Text: fmt.Sprintf("for an answer of the KMS plugin (n=%.0f)", calls)})
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("encryption took %.0f ms, and nothing waited for it", 1000*mean)
	}
	f.Summary = fmt.Sprintf("Encryption at rest takes %.0f ms an object (n=%.0f)%s", 1000*mean, n, layer.Outcome(&f))
	return diagnose.Found(f)
}
