package fault

// What goes wrong with the controller manager.
var controllers = []Fault{
	{
		Name: "controller-limit", Number: "F36", Star: true, Title: "controllers hold their own requests back", Holds: "the creation of pods",
		Parameter: Parameter{Means: "requests a second that each controller's client lets through", Kind: Number, Low: "50", Middle: "20", High: "8"},
		Right:     []Place{{controllerManager, "controller", "client-limit"}},
		Alike:     []string{"few-workers", "refused-creates", "few-seats", "slow-generator"},
		Doc: `Each controller of the controller manager has a client of its own that lets --kube-api-qps requests a second through, 20 unless set. Pods, their Events and the status of the ReplicaSet share them.

**What you see.** One Deployment grows by 20 pods a second at most, and everything is idle.

**What tells it apart.** Requests wait in the limiter, and POSTs of pods come like a clock. With too few workers nobody waits there; slow start doubles.

**Remedy.** Raise --kube-api-qps and --kube-api-burst; priority and fairness protects the server.`,
		Change: `cluster: {components: {kube-controller-manager: {args: {kube-api-qps: {{.Int}}, kube-api-burst: {{.Int}}}}}}`,
		Show:   "rollout",
		acted:  setAndWaited(controllerManager, "kube-api-qps"),
	},
	{
		Name: "starved-controllers", Number: "F29", Title: "the controller manager gets too little CPU", Holds: "the creation of pods",
		Parameter: Parameter{Means: "cores that it may use", Kind: Number, Low: "0.2", Middle: "0.08", High: "0.04"},
		Right:     []Place{{Component: controllerManager, Resource: "cpu"}},
		Alike:     []string{"few-workers", "controller-limit"},
		Doc: `A quota stops the controller manager for most of each tenth of a second.

**What you see.** Deployments grow slowly, in steps.

**What tells it apart.** The cgroup counts stops; no request waits in a limiter.

**Remedy.** Raise the limit.`,
		Change: "cluster: {components: {kube-controller-manager: {cpu: {{.Text}}}}}",
		Show:   "rollouts",
		acted:  throttled(controllerManager),
	},
}
