package anonymise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	"go.yaml.in/yaml/v3"

	"github.com/kubedyno/kubedyno/internal/redact"
	"github.com/kubedyno/kubedyno/record"
)

// A copier knows what stands in which part of a recording.
type copier struct {
	*names
	kept    []string
	memo    map[memoKey]string // what columns of few values became
	system  map[string]bool    // components whose labels come from well-known code
	threads map[string]bool    // names of the kernel's threads
	plain   map[string]bool    // words that stay elsewhere: of flags, and of the machine's system
}

type memoKey struct{ what, value string }

// maxMemo bounds the memory for values seen before.
const maxMemo = 1 << 16

// once changes a value the way that what stands for, remembering it.
func (c *copier) once(what, value string, change func(string) string) string {
	if value == "" {
		return ""
	}
	k := memoKey{what, value}
	if v, ok := c.memo[k]; ok {
		return v
	}
	if len(c.memo) >= maxMemo {
		clear(c.memo)
	}
	v := change(value)
	c.memo[memoKey{what, strings.Clone(value)}] = v
	return v
}

// collectAll finds the names in the columns that hold them, before any text is
// looked at.
func (c *copier) collectAll(ctx context.Context, rec *record.Recording) error {
	m := rec.Meta()
	for _, p := range m.Cluster.Components {
		c.system[p.Name] = isComponent(p.Name)
		if !c.system[p.Name] {
			c.collect("component", p.Name)
		}
	}
	if !c.familiar(m.Name) {
		c.collect("experiment", m.Name)
	}
	for _, p := range m.Phases {
		if !c.familiar(p.Name) {
			c.collect("phase", p.Name)
		}
	}
	for _, word := range strings.Fields(m.Machine.OS) {
		c.plain[word] = true
	}
	c.collect("cluster", m.Cluster.Name)
	if u, err := url.Parse(m.Cluster.Server); err == nil && c.host(u.Hostname()) == "host" {
		c.collect("host", u.Hostname())
	}
	return rec.EachRow(func(row any) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.collectRow(row)
		return nil
	})
}

func (c *copier) collectObject(class, namespace, name string) {
	if name == "" || ownObject(namespace, name) {
		return
	}
	if _, ok := c.addressIn(name); ok {
		return
	}
	c.collect(class, strings.Clone(name))
}

func (c *copier) collectOwner(namespace, owner string) {
	if kind, name, ok := strings.Cut(owner, "/"); ok {
		c.collectObject(classOfResource(kind), namespace, name)
	}
}

func (c *copier) collectRow(row any) {
	switch r := row.(type) {
	case *record.Pod:
		c.collectObject("ns", "", r.Namespace)
		c.collectOwner(r.Namespace, r.Owner)
		c.collectObject("node", "", r.Node)
		c.collectObject("pod", r.Namespace, r.Name)
		if r.Phase != "" && !c.familiar(r.Phase) {
			c.collect("phase", strings.Clone(r.Phase))
		}
	case *record.Operation:
		c.collectObject("ns", "", r.Namespace)
		c.collectObject(classOfResource(r.Resource), r.Namespace, r.Name)
	case *record.NodeSample:
		c.collectObject("node", "", r.Name)
	case *record.ObjectChange:
		c.collectObject("ns", "", r.Namespace)
		c.collectOwner(r.Namespace, r.Owner)
		c.collectObject("node", "", r.Node)
		c.collectObject(classOfResource(r.Kind), r.Namespace, r.Name)
		if r.Kind == "Lease" {
			if h, _, ok := strings.Cut(r.State, "_"); ok && !isKnown(h) {
				c.collect("host", strings.Clone(h))
			}
		} else if r.Ref != "" && objectish.MatchString(r.Ref) {
			c.collectObject(refClass(r.Kind), r.Namespace, r.Ref)
		}
	case *record.Event:
		c.collectObject("ns", "", r.Namespace)
		c.collectObject(classOfResource(r.Kind), r.Namespace, r.Name)
		if r.Reporter != "" && !c.familiar(r.Reporter) {
			c.collect("client", strings.Clone(r.Reporter))
		}
	case *record.Request:
		c.collectObject("ns", "", r.Namespace)
		if !eventObject(r.Resource) && requestName(r) {
			c.collectObject(classOfResource(r.Resource), r.Namespace, r.Name)
		}
		if p, _, _ := strings.Cut(r.UserAgent, "/"); p != "" && !isKnown(p) {
			c.collect("client", strings.Clone(p))
		}
		if parts := strings.Split(r.User, ":"); parts[0] == "system" {
			if len(parts) == 3 && parts[1] == "node" {
				c.collectObject("node", "", parts[2])
			} else if len(parts) == 4 && parts[1] == "serviceaccount" {
				c.collectObject("ns", "", parts[2])
				c.collectObject("account", parts[2], parts[3])
			}
		} else if r.User != "" && parts[0] != "kubeadm" && parts[0] != "kubedyno" {
			c.collectObject("user", "", r.User)
		}
	case *record.ProcessExit:
		c.collectFlags(r.Command)
	case *record.ProcessSample:
		c.collectFlags(r.Command)
		if name, ok := bracketed(r.Command); ok && (r.PPID == 2 || r.PID == 2) {
			c.threads[strings.Clone(name)] = true
		}
	}
}

// collectFlags notes the words of flags. They stay, so one that is also the
// value of a flag says nothing either: --type=zygote beside --no-zygote-sandbox.
func (c *copier) collectFlags(command string) {
	for a := range strings.FieldsSeq(command) {
		flag, _, _ := strings.Cut(a, "=")
		if !strings.HasPrefix(flag, "-") {
			continue
		}
		for word := range strings.FieldsFuncSeq(flag, func(r rune) bool { return r == '-' || r == '_' || r == '.' }) {
			if !c.plain[word] {
				c.plain[strings.Clone(word)] = true
			}
		}
	}
}

// eventObject says that names of a resource are those of what they are about,
// with a time behind.
func eventObject(resource string) bool { return resource == "events" }

// requestName says that a request names an object as objects are named: what
// stays (RBAC's and flow control's own names) and subresources of services'
// proxies do not count.
func requestName(r *record.Request) bool {
	switch r.Group {
	case "rbac.authorization.k8s.io", "flowcontrol.apiserver.k8s.io", "scheduling.k8s.io", "apiregistration.k8s.io":
		return !familiar(r.Name) && !strings.Contains(r.Name, ":") && !ownAPIService(r.Name)
	}
	return true
}

func ownAPIService(name string) bool {
	version, group, ok := strings.Cut(name, ".")
	return ok && plain(version) && builtinGroup(group)
}

func refClass(kind string) string {
	switch kind {
	case "PersistentVolumeClaim", "VolumeAttachment":
		return "volume"
	case "PersistentVolume":
		return "claim"
	}
	return "object"
}

func bracketed(s string) (string, bool) {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1], true
	}
	return "", false
}

func isComponent(name string) bool {
	for _, c := range components {
		if name == c {
			return true
		}
	}
	return isKnown(name)
}

func (c *copier) row(row any) {
	switch r := row.(type) {
	case *record.Pod:
		r.Owner = c.owner(r.Namespace, r.Owner)
		r.Name = c.object("pod", r.Namespace, r.Name)
		r.UID = c.uid(r.UID)
		r.Namespace = c.name("ns", r.Namespace)
		r.Node = c.name("node", r.Node)
		r.Phase = c.phase(r.Phase)
		r.FailedReason = c.once("text", r.FailedReason, c.free)
	case *record.Operation:
		r.Name = c.object(classOfResource(r.Resource), r.Namespace, r.Name)
		r.Namespace = c.name("ns", r.Namespace)
		r.Resource = c.resource(r.Resource)
		r.Phase = c.phase(r.Phase)
		r.Error = c.once("text", r.Error, c.free)
	case *record.ProcessSample:
		kernel := r.PPID == 2 || r.PID == 2
		r.Command = c.once(fmt.Sprint("command", r.Component, kernel), r.Command, func(s string) string { return c.command(r.Component, s, kernel) })
		r.Component = c.component(r.Component)
	case *record.ProcessExit:
		kernel := r.PPID == 2
		r.Command = c.once(fmt.Sprint("command", r.Component, kernel), r.Command, func(s string) string { return c.command(r.Component, s, kernel) })
		r.Component = c.component(r.Component)
	case *record.DiskSample:
		r.Device = c.device(r.Device)
	case *record.StackSample:
		r.Command = c.once("comm", r.Command, c.comm)
		r.Component = c.component(r.Component)
	case *record.Stack:
		r.Frames = c.frames(r.Frames)
	case *record.BlockIO:
		r.Command = c.once("comm", r.Command, c.comm)
		r.Component = c.component(r.Component)
		r.Device = c.device(r.Device)
	case *record.Sync:
		r.Command = c.once("comm", r.Command, c.comm)
		r.Component = c.component(r.Component)
	case *record.ObjectChange:
		r.Owner = c.owner(r.Namespace, r.Owner)
		r.Name = c.object(classOfResource(r.Kind), r.Namespace, r.Name)
		r.UID = c.uid(r.UID)
		r.Node = c.name("node", r.Node)
		if r.Kind == "Lease" {
			r.State = c.once("holder", r.State, c.holder)
		} else {
			r.State = c.once("text", r.State, c.free)
		}
		if objectish.MatchString(r.Ref) {
			r.Ref = c.object(refClass(r.Kind), r.Namespace, r.Ref)
		} else {
			r.Ref = c.free(r.Ref)
		}
		r.Namespace = c.name("ns", r.Namespace)
		r.Kind = c.kind(r.Kind)
	case *record.Event:
		r.Name = c.object(classOfResource(r.Kind), r.Namespace, r.Name)
		r.Namespace = c.name("ns", r.Namespace)
		r.Kind = c.kind(r.Kind)
		r.Reason = c.once("text", r.Reason, c.free)
		r.Message = c.once("text", r.Message, c.free)
		if !c.familiar(r.Reporter) {
			r.Reporter = c.name("client", r.Reporter)
		}
	case *record.Request:
		switch {
		case eventObject(r.Resource) && r.Name != "":
			r.Name = c.event(r.Namespace, r.Name)
		case requestName(r):
			r.Name = c.object(classOfResource(r.Resource), r.Namespace, r.Name)
		default:
			r.Name = c.known(r.Name, false)
		}
		r.Namespace = c.name("ns", r.Namespace)
		r.Group = c.group(r.Group)
		r.Resource = c.once("resource", r.Resource, c.resource)
		r.User = c.once("user", r.User, c.user)
		r.UserAgent = c.once("agent", r.UserAgent, c.agent)
		r.URI = c.once("query", r.URI, c.query)
	case *record.NodeSample:
		r.Name = c.name("node", r.Name)
	}
}

// event is OBJECT.TIME.
func (c *copier) event(namespace, name string) string {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return c.object("object", namespace, name)
	}
	return c.object("object", namespace, name[:i]) + name[i:i+1] + c.hexOr(name[i+1:])
}

func (c *copier) hexOr(s string) string {
	if isHex(s) {
		return c.hex(s)
	}
	return c.segment(s)
}

func (c *copier) owner(namespace, owner string) string {
	kind, name, ok := strings.Cut(owner, "/")
	if !ok {
		return owner
	}
	return c.kind(kind) + "/" + c.object(classOfResource(kind), namespace, name)
}

func (c *copier) uid(s string) string {
	if indexUUID(s) == 0 && len(s) == 36 {
		return c.uuid(s)
	}
	return c.chunkOr(s)
}

func (c *copier) phase(s string) string {
	if c.familiar(s) {
		return s
	}
	return c.name("phase", s)
}

func (c *copier) component(s string) string {
	if s == "" || isComponent(s) {
		return s
	}
	if head, rest, ok := strings.Cut(s, "@"); ok { // an instance: component@pid@start
		return c.component(head) + "@" + rest
	}
	return c.name("component", s)
}

func (c *copier) device(s string) string {
	if s == "" || device.MatchString(s) {
		return s
	}
	return c.name("device", s)
}

// comm is a thread's name: what the kernel calls its own threads stays.
func (c *copier) comm(s string) string {
	if p, ok := c.of[s]; ok {
		return p
	}
	head, _, _ := strings.Cut(s, "/")
	if c.threads[s] || isProgram(s) || isProgram(head) || c.familiar(strings.ReplaceAll(s, ":", " ")) {
		return s
	}
	if len(s) == 15 { // where the kernel cuts
		for _, set := range []map[string]bool{wellKnown, programs} {
			for known := range set {
				if strings.HasPrefix(known, s) {
					return s
				}
			}
		}
	}
	return c.name("command", s)
}

// command is a command line.
func (c *copier) command(component, s string, kernel bool) string {
	if name, ok := bracketed(s); ok {
		if kernel || component != "" && isComponent(component) {
			return s
		}
		return "[" + c.comm(name) + "]"
	}
	args := strings.Fields(s)
	if len(args) == 0 {
		return s
	}
	program := path.Base(args[0])
	trusted := component != "" && isComponent(component) || slices.Contains(components, program)
	for i, a := range args {
		switch {
		case i == 0:
			args[i] = c.program(a)
		case trusted:
			args[i] = c.flag(a)
		default:
			args[i] = c.arg(a)
		}
	}
	return strings.Join(args, " ")
}

// program is a command's first word: of well-known programs the base name
// stays.
func (c *copier) program(s string) string {
	if isProgram(s) {
		return s
	}
	base := strings.TrimSuffix(path.Base(s), ":")
	name := base
	if p, ok := c.of[base]; ok {
		name = p
	} else if !isProgram(base) {
		name = c.name("command", base)
	}
	dir := strings.TrimSuffix(s, path.Base(s))
	switch strings.TrimSuffix(dir, "/") {
	case "", "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", ".":
		return dir + name
	}
	return c.path(strings.TrimSuffix(dir, "/")) + "/" + name
}

// flag is an argument of a component that we know: names of flags stay, and
// values unless they name something.
func (c *copier) flag(a string) string {
	name, value, ok := strings.Cut(a, "=")
	if !strings.HasPrefix(a, "-") {
		return c.free(a)
	}
	if !ok {
		return a
	}
	return name + "=" + c.flagValue(strings.TrimLeft(name, "-"), value)
}

func (c *copier) flagValue(name, value string) string {
	if namingFlags[name] && value != "" && !c.familiar(value) {
		return c.name("value", value)
	}
	return c.free(value)
}

// arg is an argument of a program that we know nothing of: only what surely
// says nothing stays.
func (c *copier) arg(a string) string {
	if name, value, ok := strings.Cut(a, "="); ok {
		return c.arg(name) + "=" + c.arg(value)
	}
	if flag := strings.TrimLeft(a, "-"); flag != a {
		if objectish.MatchString(strings.ToLower(flag)) || flag == "" {
			return a
		}
		return a[:len(a)-len(flag)] + c.name("arg", flag)
	}
	if c.plain[a] || c.familiar(a) && !strings.Contains(a, "/") {
		return a
	}
	if dir, base := path.Split(a); dir != "" && dir[0] != '/' && isProgram(base) {
		return c.program(a) // as where it is the program itself: in both places or in none
	}
	changed := c.free(a)
	if strings.HasPrefix(a, "/") { // as the path of a program, of which known words stay
		return changed
	}
	if changed != a {
		if strings.Contains(a, "://") || indexUUID(a) == 0 {
			return changed
		}
		if _, ok := c.addressIn(a); ok {
			return changed
		}
	}
	return c.name("arg", a)
}

// frames are function names, which stay; names of modules are names of files.
func (c *copier) frames(s string) string {
	if !strings.Contains(s, "[") {
		return c.known(s, false)
	}
	parts := strings.Split(s, ";")
	for i, p := range parts {
		if name, ok := bracketed(strings.TrimSuffix(p, "_[k]")); ok && p[0] == '[' {
			module, offset, _ := strings.Cut(name, "+0x")
			if offset != "" && !ownModule(module) {
				parts[i] = strings.Replace(p, module, c.name("module", module), 1)
			}
		}
	}
	return c.known(strings.Join(parts, ";"), false)
}

func isProgram(s string) bool { return isKnown(s) || programs[s] }

func ownModule(m string) bool {
	base := path.Base(m)
	return isProgram(base) || familiar(base) || strings.HasPrefix(base, "libc") || strings.HasPrefix(base, "ld-") || strings.HasPrefix(base, "libpthread") || base == "vdso"
}

// label is the value of a metric's label.
func (c *copier) label(_, label, value string) string {
	low := strings.ToLower(label)
	switch low {
	case "component", "job", "instance", "exported_job", "exported_instance":
		if low == "instance" && !strings.Contains(value, "@") && !isComponent(value) && c.class[value] != "component" {
			return c.holder(value)
		}
		return c.component(value)
	case "crd", "crd_name":
		return c.name(definition, value)
	case "resource", "resource_name":
		return c.resource(value)
	case "group", "api_group":
		return c.group(value)
	case "owner_kind":
		return c.kind(value)
	}
	if value == "" {
		return value
	}
	if class, ok := identities[low]; ok {
		return c.valueOf(class, value)
	}
	if enumerations[low] || low == "name" || c.familiar(value) {
		return c.free(value)
	}
	changed := c.free(value)
	if changed != value || strings.ContainsAny(value, " {}()") {
		return changed
	}
	if strings.IndexByte(value, '_') > 0 || upper(value[0]) || strings.HasPrefix(value, "/") || isHexish(value) {
		return value // as code spells: pod_not_batchable, LimitRanger
	}
	return c.name("value", value)
}

func (c *copier) profile(ref *record.ProfileRef, p *profile.Profile) {
	ref.Component, ref.Phase, ref.Instance = c.component(ref.Component), c.phase(ref.Phase), c.component(ref.Instance)
	for i, s := range p.Comments {
		p.Comments[i] = c.free(s)
	}
	for _, m := range p.Mapping {
		base := path.Base(m.File)
		switch {
		case m.File == "" || strings.HasPrefix(m.File, "["):
		case ownModule(base):
			m.File = base // the folder says nothing that a reader needs
		default:
			m.File = c.name("module", base)
		}
	}
	for _, f := range p.Function {
		f.Name = c.once("function", f.Name, func(s string) string { return c.known(s, false) })
		f.SystemName = c.once("function", f.SystemName, func(s string) string { return c.known(s, false) })
		f.Filename = c.once("file", f.Filename, c.sourceFile)
	}
	for _, s := range p.Sample {
		for key, values := range s.Label {
			for i, v := range values {
				values[i] = c.label("", key, v)
			}
		}
	}
}

// sourceFile is where a function stands: module paths stay, folders of the
// machine that built it do not.
func (c *copier) sourceFile(s string) string {
	if !strings.HasPrefix(s, "/") {
		return c.known(s, false)
	}
	for _, root := range []string{"/pkg/mod/", "/go/src/", "/usr/local/go/src/", "/vendor/"} {
		if i := strings.LastIndex(s, root); i >= 0 {
			return c.known(s[i+len(root):], false)
		}
	}
	return c.path(s)
}

// log renames in each line of a component's log.
func (c *copier) log(component string) (string, func([]byte) []byte) {
	var net redact.Lines
	return c.component(component), func(line []byte) []byte {
		line = net.Line(line)
		if line == nil {
			return nil
		}
		return []byte(c.free(string(line)))
	}
}

func (c *copier) each(texts []string, change func(string) string) {
	for i, s := range texts {
		texts[i] = change(s)
	}
}

func (c *copier) meta(m *record.Meta) {
	if !c.familiar(m.Name) {
		m.Name = c.name("experiment", m.Name)
	}
	m.EndReason = c.free(m.EndReason)
	c.each(m.Invalid, c.free)
	c.each(m.Warnings, c.free)
	c.each(m.LeftOut, c.free)
	c.each(m.Settings, c.setting)
	m.Cluster.Name = c.name("cluster", m.Cluster.Name)
	m.Cluster.Server = c.free(m.Cluster.Server)
	for i := range m.Cluster.Components {
		p := &m.Cluster.Components[i]
		if isComponent(p.Name) {
			c.each(p.Args, c.flag)
			for k, v := range p.Flags {
				p.Flags[k] = c.flagValue(k, v)
			}
		} else {
			c.each(p.Args, c.arg)
			for k, v := range p.Flags {
				p.Flags[k] = c.arg(v)
			}
		}
		if p.Binary != "" && !isProgram(p.Binary) {
			p.Binary = c.name("command", p.Binary)
		}
		c.each(p.Env, func(s string) string {
			if c.familiar(s) || strings.HasPrefix(s, "GO") || strings.HasPrefix(s, "KUBE") || strings.HasPrefix(s, "ETCD_") {
				return s
			}
			return c.name("env", s)
		})
		p.Name, p.Instance = c.component(p.Name), c.component(p.Instance)
	}
	for i := range m.Phases {
		m.Phases[i].Name = c.phase(m.Phases[i].Name)
	}
	for i := range m.Workload.Objectives {
		o := &m.Workload.Objectives[i]
		if !c.familiar(o.Name) {
			o.Name = c.name("value", o.Name)
		}
		o.Reason = c.free(o.Reason)
	}
	for i := range m.Collectors {
		m.Collectors[i].Note = c.free(m.Collectors[i].Note)
	}
	for i := range m.Access {
		a := &m.Access[i]
		a.What, a.Grant, a.Adds = c.free(a.What), c.free(a.Grant), c.free(a.Adds)
	}
	for i := range m.Gaps {
		m.Gaps[i].Subject, m.Gaps[i].Reason = c.subject(m.Gaps[i].Subject), c.free(m.Gaps[i].Reason)
	}
	reason := "names, addresses, users and paths are replaced by pseudonyms in this copy"
	if len(c.kept) > 0 {
		reason += "; kept: " + strings.Join(slices.Sorted(slices.Values(c.kept)), ", ")
	}
	m.Gaps = append(m.Gaps, record.Gap{Collector: Collector, Reason: reason})
}

// subject is a component, a table or a phase.
func (c *copier) subject(s string) string {
	switch c.class[s] {
	case "component", "phase", "experiment":
		return c.of[s]
	}
	return c.free(s)
}

// setting is PATH=VALUE of an experiment.
func (c *copier) setting(s string) string {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return c.free(s)
	}
	parts := strings.Split(name, ".")
	for i, p := range parts {
		if c.class[p] == "phase" || c.class[p] == "experiment" {
			parts[i] = c.of[p]
		}
	}
	if parts[len(parts)-1] == "image" {
		value = c.image(value)
	} else {
		value = c.flagValue(parts[len(parts)-1], value)
	}
	return strings.Join(parts, ".") + "=" + value
}

// experiment renames in an experiment file, whose keys stay.
func (c *copier) experiment(data []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	c.node(&doc, "")
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (c *copier) node(n *yaml.Node, key string) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			n.Content[i].HeadComment, n.Content[i].LineComment, n.Content[i].FootComment = "", "", ""
			c.node(n.Content[i+1], n.Content[i].Value)
		}
	case yaml.ScalarNode:
		if n.Tag == "!!str" {
			n.Value = c.scalar(key, n.Value)
		}
	default:
		for _, child := range n.Content {
			c.node(child, key)
		}
	}
}

func (c *copier) scalar(key, s string) string {
	switch key {
	case "description":
		return "left out of this copy"
	case "image":
		return c.image(s)
	case "objectName", "namespace":
		// {phase}-{index}: what stands in braces is filled in.
		var out strings.Builder
		for s != "" {
			open := strings.IndexByte(s, '{')
			end := strings.IndexByte(s, '}')
			if open < 0 || end < open {
				open, end = len(s), len(s)-1
			}
			if literal := strings.Trim(s[:open], "-."); literal != "" && !c.familiar(literal) {
				out.WriteString(strings.Replace(s[:open], literal, c.name("object", literal), 1))
			} else {
				out.WriteString(s[:open])
			}
			out.WriteString(s[open : end+1])
			s = s[end+1:]
		}
		return out.String()
	case "name", "phase":
		if c.of[s] != "" {
			return c.of[s]
		}
		if c.familiar(s) {
			return s
		}
		return c.name("value", s)
	}
	if c.familiar(s) {
		return s
	}
	return c.flagValue(key, s)
}
