// Package rollout finds updates of workloads that replace few pods at a time.
package rollout
