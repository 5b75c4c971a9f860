package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubedyno/kubedyno/load"
)

// A Leftover is an object on a cluster that a run made and did not take away.
// What lives in a namespace goes with it and is not listed.
type Leftover struct {
	Kind    string    `json:"kind"` // Namespace, Node, or one of a storage driver's
	Name    string    `json:"name"`
	Run     string    `json:"run"`
	Created time.Time `json:"created"`
	Pods    int       `json:"pods"`  // in the namespace; -1 of anything else: not counted
	Going   bool      `json:"going"` // its deletion has been asked for
}

// Leftovers lists what runs made on the cluster, of one run or, with an empty
// runID, of all: namespaces, simulated nodes, and what belongs to a simulated
// storage driver, by their labels. Those of a run
// that is under way are among them; nothing on a cluster tells them apart.
func Leftovers(ctx context.Context, client kubernetes.Interface, runID string) ([]Leftover, error) {
	of := metav1.ListOptions{LabelSelector: load.LabelRun}
	if runID != "" {
		of.LabelSelector = labels.Set{load.LabelRun: runID}.String()
	}
	var left []Leftover
	namespaces, err := client.CoreV1().Namespaces().List(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("list namespaces of runs: %w", err)
	}
	for _, n := range namespaces.Items {
		if !madeNamespace(&n) {
			continue
		}
		pods, err := countPods(ctx, client, n.Name)
		if err != nil {
			return nil, err
		}
		left = append(left, leftover("Namespace", &n.ObjectMeta, pods))
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("list nodes of runs: %w", err)
	}
	for _, n := range nodes.Items {
		if !madeNode(&n) {
			continue
		}
		left = append(left, leftover("Node", &n.ObjectMeta, -1))
	}
	stored, err := storageLeftovers(ctx, client, of)
	if err != nil {
		return nil, err
	}
	left = append(left, stored...)
	slices.SortFunc(left, func(a, b Leftover) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(slices.Index(cleanOrder, a.Kind), slices.Index(cleanOrder, b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	return left, nil
}

func leftover(kind string, m *metav1.ObjectMeta, pods int) Leftover {
	return Leftover{Kind: kind, Name: m.Name, Run: m.Labels[load.LabelRun], Created: m.CreationTimestamp.Time, Pods: pods, Going: m.DeletionTimestamp != nil}
}

// madeNamespace says whether a namespace with a run's label is one that we
// made: a label can be copied, a name that follows from it rarely.
func madeNamespace(n *corev1.Namespace) bool {
	run := n.Labels[load.LabelRun]
	return n.Labels[load.LabelOwner] == "kubedyno" && (n.Name == load.Namespace(run) || n.Name == StorageNamespace(run))
}

// madeNode says the same of a node: ours keep everybody else's pods away.
func madeNode(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == load.HollowTaint })
}

func countPods(ctx context.Context, client kubernetes.Interface, namespace string) (int, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count the pods of %s: %w", namespace, err)
	}
	return len(list.Items) + int(ptr.Deref(list.RemainingItemCount, 0)), nil
}

// Clean deletes leftovers, and returns when the API server has let them go. Each
// is looked at again: one that has become somebody else's stays, and is an error.
// Told is called when one is gone.
func Clean(ctx context.Context, client kubernetes.Interface, left []Leftover, told func(Leftover)) error {
	var errs []error
	for _, l := range left {
		var err error
		switch l.Kind {
		case "Namespace":
			err = cleanNamespace(ctx, client, l)
		case "Node":
			err = cleanNode(ctx, client, l)
		default:
			err = cleanStorage(ctx, client, l)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", strings.ToLower(l.Kind), l.Name, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		told(l)
	}
	return errors.Join(errs...)
}

var errNotOurs = errors.New("it is not what the run made any more, and stays")

// byUID deletes this very object, and not one that has its name by now.
func byUID(m *metav1.ObjectMeta) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(m.UID))}
}

func cleanNamespace(ctx context.Context, client kubernetes.Interface, l Leftover) error {
	n, err := client.CoreV1().Namespaces().Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !madeNamespace(n) || n.Labels[load.LabelRun] != l.Run {
		return errNotOurs
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, l.Name, byUID(&n.ObjectMeta)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	for {
		// Nobody answers for pods of nodes that do not live any more: they are
		// taken away without asking their node, again and again, as workloads
		// whose controllers are slow make new ones.
		err := client.CoreV1().Pods(l.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("its pods: %w", err)
		}
		_, err = client.CoreV1().Namespaces().Get(ctx, l.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is still there (%w); kubectl get namespace %s -o yaml says what it waits for", context.Cause(ctx), l.Name)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func cleanNode(ctx context.Context, client kubernetes.Interface, l Leftover) error {
	n, err := client.CoreV1().Nodes().Get(ctx, l.Name, metav1.GetOptions{})
	if err == nil && (!madeNode(n) || n.Labels[load.LabelRun] != l.Run) {
		return errNotOurs
	}
	if err == nil {
		err = client.CoreV1().Nodes().Delete(ctx, l.Name, byUID(&n.ObjectMeta))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	// Its lease would go with it in time; where the garbage collector is the
	// one that is slow, that may be long.
	err = client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, l.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("its lease: %w", err)
	}
	return nil
}
